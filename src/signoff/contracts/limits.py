"""Sizes and counts; each gives a soft result when exceeded, never a failed workflow task."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# Results of 80,000 non-ASCII characters, carried inline, wedged a turn at its fifth completion.
INLINE_BYTES: Final = 8 * KIB
"""Bytes of JSON a `Content` carries inline; more goes to the blob store."""
PREVIEW_CHARS: Final = 200
ARGUMENTS_BYTES: Final = 64 * KIB
"""Bytes of JSON of one call's arguments."""
CALLS_PER_COMPLETION: Final = 50
# One completion with more than 4 MiB of calls makes Temporal's server terminate the workflow.
CALLS_BYTES_PER_COMPLETION: Final = 1 * MIB
CALLS_KEPT_PER_COMPLETION: Final = 200
"""Calls beyond this are dropped from the completion altogether; the first ones are answered."""
RESULT_BYTES: Final = 1 * MIB
"""Bytes of JSON of one tool result before trimming."""
RESULT_CHARS_PER_BATCH: Final = 80_000
"""Characters (code points) of results that one batch may hand to the model (E10)."""
RECORDED_RESULT_CHARS: Final = 2_000
"""Characters of a result that the record holds, where it holds one (B39)."""
MESSAGES_BYTES: Final = 1 * MIB
"""Bytes of the message list as the workflow holds it: references and inline text."""
# Below the 2 MiB of a payload: a turn that completes with more fails its workflow task, again and again.
TURN_RESULT_BYTES: Final = 1536 * KIB
"""Bytes of JSON a turn completes with; what would be more is left out of its calls, and named there."""
REQUEST_BODY_BYTES: Final = 1 * MIB
"""Bytes of a request of somebody who signed in."""
REPORT_BODY_BYTES: Final = 8 * MIB
"""Bytes of a request with all that a tool of an external agent answered, of which less is kept."""
CODEC_BODY_BYTES: Final = 8 * MIB
"""Bytes of payloads that the codec server is sent at once: a page of a history, in base64."""
STRANGER_BODY_BYTES: Final = 32 * KIB
"""Bytes of a request of somebody who did not: a sign-in, or an answer through a link."""
BODY_SECONDS: Final = 30.0
"""Seconds within which a request's body is whole; longer ones are refused (`too_slow`)."""
BODY_GRACE_SECONDS: Final = 5.0
"""Seconds for which a body may be slower than `BODY_BYTES_PER_SECOND`."""
BODY_BYTES_PER_SECOND: Final = 4 * KIB
"""Bytes a second that a body brings at least, once its grace is over."""
BODIES_AT_ONCE: Final = 256
"""Bodies that one gateway receives at the same time; more are refused (`busy`)."""
BODY_BYTES_AT_ONCE: Final = 128 * MIB
"""Bytes of bodies that one gateway holds at the same time, until their requests are answered."""
SENDER_SHARE: Final = 4
"""One address may take one part in so many of `BODIES_AT_ONCE` and `BODY_BYTES_AT_ONCE`."""
HEADER_SECONDS: Final = 10.0
"""Seconds within which a connection has sent the headers of its request; then it is closed."""
IDLE_SECONDS: Final = 75.0
"""Seconds for which a connection stays open between two requests: longer than the 60 for which proxies keep theirs, who
would else send a request into one that is just being closed, and answer a decision with an error.
"""
CONNECTIONS: Final = 2_000
"""Connections and requests that one gateway has at the same time; more are answered 503."""
CONNECTIONS_OF_ONE: Final = 500
"""Of them, those of one address; one of this machine itself, as a proxy has it, may have all."""
STREAMS_OF_ONE: Final = 20
"""Live streams that one person has at the same time with one gateway; more are answered 429."""
LISTS_AT_ONCE: Final = 2
"""Lists that one gateway reads for one person at the same time; others wait for their turn."""
LISTS_OF_ONE: Final = 20
"""Lists that one person waits for at one gateway; more are answered 429."""
FORM_FIELDS: Final = 4_000
"""Fields of a page's form: what changes arguments has up to two for each of `MAX_VALUES`."""
DECISION_BYTES: Final = 64 * KIB
BATCH_DECISIONS: Final = 100
"""Answers that one request to the API may carry."""
REASON_CHARS: Final = 2_000
DELIVERY_CHARS: Final = 200
"""Of the id by which the same answer, sent again, is one answer."""
EFFECT_CHARS: Final = 200
CARD_VALUE_CHARS: Final = 500
VALUES_PER_PAGE: Final = 500
"""Values on one page of all that a call would be given."""
REFUSALS_KEPT: Final = 50
HISTORY_EVENTS: Final = 9_000
HISTORY_BYTES: Final = 8 * MIB
"""A turn ends before its history grows past these; the contract's caps are 10,000 events and 10 MiB."""

# The server itself suggests a new run at 4,096 events or 4 MiB.
SESSION_EVENTS: Final = 2_000
"""History events after which a session goes on in a fresh run."""
SESSION_BYTES: Final = 2 * MIB
"""The same for the bytes of its history."""
SESSION_MAILBOX: Final = 100
# A run hands the whole session on in one payload, of 2 MiB at most: hence the bounds of what it holds.
SESSION_OPEN_BYTES: Final = 512 * KIB
"""Bytes of what is said and not answered yet; more is refused until something is."""
SESSION_WINDOW_TURNS: Final = 50
SESSION_WINDOW_BYTES: Final = 256 * KIB
"""Answered turns that a session remembers, and hands to the next one."""
SESSION_SEEN: Final = 1_000
SESSION_UPDATES_BYTES: Final = 8 * KIB
"""Bytes of JSON of all that the tools of one session have changed of its context; what would be more is not taken."""
SESSION_DENIED: Final = 100
SESSION_EVENTS_KEPT: Final = 50
"""Records a session keeps for its next turn to write; what comes after them is counted."""
SESSION_PATIENCE_SECONDS: Final = 300.0
"""How long the next message waits for a turn at work before it is answered beside it."""
MAX_TURNS_PER_MESSAGE: Final = 8
MAX_PARTS: Final = 20
"""Parts of one answer."""
REDACTION_CHARS: Final = 200_000_000
"""Spellings of a call's secrets times characters of a text; where it is more, nothing of the text is told."""
LOGIN_NAMES: Final = 20
"""Addresses and user names that one login may claim; each is compared with everybody declared, so more is refused."""
LOGIN_NAME_CHARS: Final = 320
"""Characters of such a name that are compared: 64 of a local part, `@` and 255 of a domain (RFC 5321)."""

ASKED_SECONDS: Final = 86_400.0
"""Seconds after a turn's start, or its message, in which rules run calls in its requester's name; later people are
asked, so that an old signed request is no right for ever. Calls that people approve live by their question."""
MAX_COMPLETIONS: Final = 20
MAX_CALLS: Final = 1_000
MAX_CALLS_PER_TOOL: Final = 25
MAX_IDENTICAL_CALLS: Final = 5
RECENT_CALLS: Final = 20
"""Calls among which equal ones are counted: one other call in between does not begin the count anew."""
MAX_DENIALS_IN_A_ROW: Final = 3
MAX_ACTIVE_SECONDS: Final = 3_600.0
"""Seconds of model and tool time of one turn; waiting for people does not count."""
MAX_TOOLS_AT_ONCE: Final = 10
"""Tools of one batch that run at the same time; the others wait for a place (X16)."""
MAX_FALLBACKS: Final = 9
MAX_ATTEMPTS: Final = 10
"""How often a tool that may be repeated is tried when the world failed it."""
MAX_PERMISSION_SECONDS: Final = 300
"""How long an answer of a tool's permission check may be good for."""
MAX_REVISIONS: Final = 20
"""How often one call is asked again (lapsed, changed tool) before it is refused."""
ANSWERS_OF_ONE: Final = 20
"""Answers and changes of one person that are stored of one approval, taken or not; then they can only deny."""
ANSWERS_KEPT: Final = 200
"""The same of everybody together: ten people at `ANSWERS_OF_ONE`, so that a quorum finds room in each revision."""
MAX_REMEMBERED_SECONDS: Final = 30 * 86_400.0
MAX_REMEMBERED_USES: Final = 1_000
"""For how long and how often a person may have an answer given again."""
# RFC 8785 writes numbers as doubles: beyond this two integers could be one number, and two calls have one digest.
MAX_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 32
"""Levels of a call's arguments, and of the context that policies read."""
MAX_NESTING: Final = 100
"""Levels of any JSON a message carries: readers stop at 200, our own shapes around it included."""
MAX_VALUES: Final = 2_000
MAX_NAME_CHARS: Final = 256
"""Characters of one name in arguments or context."""
MAX_PATHS_CHARS: Final = 256 * KIB
"""Characters of the names that lead to all values together: a card tells each value's whole path."""
SCHEMA_STEPS: Final = 20_000
"""Branches and references that a schema may be followed by to check one value; more cannot be checked."""
COMBINING_MARKS: Final = 30
"""Marks on one letter that are looked at in a text from outside: sorting a long run of them takes its square."""

LINK_SECONDS: Final = 86_400.0
"""Seconds for which a link of a card still says what became of its request, once that is over."""
UNDO_SECONDS: Final = 5.0
"""Seconds in which a denial in the inbox can be undone, and for which its turn does not hear of it."""
CLOCKS_APART_SECONDS: Final = 5.0
"""Seconds by which the clocks of gateway, store and Temporal may differ before `/readyz` and `doctor` say so."""
CLOCK_LOOK_SECONDS: Final = 60.0
"""Seconds between two looks of a gateway at the Temporal server's clock."""
READY_SECONDS: Final = 1.0
"""Seconds for which one answer of `/readyz` serves all who ask: strangers may, and each look writes to the store."""
REFUSALS_A_MINUTE: Final = 10
"""Refused sign-ins, and forged messages of one channel, that one process writes down in a minute; the rest are
counted."""
ATTEMPTS_A_MINUTE: Final = 10
"""Refused answers of one person that one gateway writes down in a minute, in the record of whatever they tried to
answer, and refused requests of one external agent, in that of its tenant; the rest are counted."""
ATTEMPT_SENDERS: Final = 1_000
"""People of whom a gateway remembers how much of theirs it wrote down in this minute."""
TURN_RESTS_SECONDS: Final = 604_800
"""Seconds (7 days) without a question, an answer or a tool after which nobody is asked anything more for a turn whose
principal has expired: whoever holds a Temporal credential can begin one anew that is over."""
REFUSAL_DAYS: Final = 30
"""Days for which it is kept how much bad input was refused; 12 kinds of 24 hours: at most 8,640 rows."""
REFUSAL_FLUSH_SECONDS: Final = 1.0
"""Seconds within which a process writes down how much it refused: whatever strangers send, one write a second."""

# A step is one place of an expression evaluated once: about 5 us of the slower engine. What a rule costs at most is
# worked out from its text and the sizes of what it reads, before either engine sees it: policy/cost.py.
POLICY_CHARS: Final = 2_000
"""Characters of an expression."""
POLICY_NESTING: Final = 24
"""Brackets within each other in an expression; the parser of one engine stops at 32."""
POLICY_MACROS: Final = 2
"""Macros within each other in an expression of a manifest."""
POLICY_OPERATORS: Final = 96
"""Levels of an expression's syntax tree; Python's stack has to bear them."""
POLICY_DEGREE: Final = 2
"""The power of the size of its data with which the cost of an expression may grow; more is refused at build."""
POLICY_FACTOR: Final = 4_096
"""Steps or bytes by which any power of that size may be multiplied; doubling a text again and again makes it large."""
POLICY_STEPS: Final = 50_000
"""Places that the slower engine visits within macros in one evaluation, about half a second; then it is an error."""
POLICY_PLAIN_STEPS: Final = 100_000
"""Steps of an expression over the largest data; more, or a degree above 1, is evaluated in a process with limits."""
POLICY_PLAIN_BYTES: Final = 32 * MIB
"""The same for bytes of memory."""
POLICY_TEXT_BYTES: Final = ARGUMENTS_BYTES
"""Bytes of text of the largest data for which an expression is rated; of longer text it costs that much more."""
POLICY_BOUNDED_STEPS: Final = 200_000
"""Steps over the data as they are that such an expression may take at most, a second; above it nothing is evaluated."""
POLICY_BOUNDED_BYTES: Final = 128 * MIB
"""The same for bytes of memory."""
POLICY_PROCESSES: Final = 2
"""Processes that evaluate such expressions, for one worker, gateway or command."""
POLICY_PROCESS_SECONDS: Final = 2.0
"""Seconds that an evaluation there may take, by the clock and of the processor; then the process is killed."""
POLICY_PROCESS_BYTES: Final = 512 * MIB
"""Bytes of address space that such a process may take beyond what it has when it is ready (Linux enforces it)."""
POLICY_PROCESS_START_SECONDS: Final = 20.0
"""Seconds in which such a process has to be ready."""
POLICY_WAIT_SECONDS: Final = 4.0
"""Seconds for which an evaluation waits for a process that is free."""
PREDICATE_CHARS: Final = 500
"""Characters of a predicate of a remembered answer."""
PREDICATE_MACROS: Final = 1
"""Macros within each other in a predicate of a remembered answer."""
PREDICATES_STEPS: Final = 100_000
"""Steps of all predicates of remembered answers that are tried for one call; the others do not apply."""

# Mail comes from anybody, and what has to be done to know its sender is what a stranger writes into it.
MAIL_SIGNATURES_TRIED: Final = 3
"""DKIM signatures of one mail that are verified: those of the sender's own domain first."""
MAIL_SIGNED_FIELDS: Final = 200
"""Names of header fields that one DKIM signature may cover; each is looked for in the whole header."""
MAIL_HASHED_BYTES: Final = 20 * MIB
"""Bytes of one mail's body that are hashed for its signatures: the longest mail, once in each of DKIM's two forms."""
MAIL_HASH_SECONDS: Final = 2.0
"""Seconds of processor for that; what takes longer is not proved."""
MAIL_KEY_BITS: Final = 4_096
"""Bits of the longest RSA key by which a signature is verified (RFC 8301); the work grows as the cube of it."""
MAIL_LOOKUP_SECONDS: Final = 3.0
"""Seconds for all names that one mail has looked up; the name servers may be a stranger's, and slow on purpose."""
MAIL_LOOKUPS_AT_ONCE: Final = 2
"""Names that are looked up at the same time for one mail."""
MAIL_NAMES_SECONDS: Final = 60.0
"""For how long it is remembered what the DNS says of a name, also that there is nothing."""
MAIL_SILENCE_SECONDS: Final = 15.0
"""For how long it is remembered that nobody answered for a name; shorter, since that passes."""
MAIL_NAMES_KEPT: Final = 2_000
"""Names of which that is remembered; the oldest is forgotten first."""
MAIL_PROVED_AT_ONCE: Final = 8
"""Mails for which names are looked up at the same time, one of a sender's domain."""
MAIL_STRANGERS_AT_ONCE: Final = 6
"""Of these, those of domains that have proved no mail before: the other places are never taken by strangers."""
MAIL_WAITING_BYTES: Final = 64 * MIB
"""Bytes of mails that are being proved or wait for it; more is refused for now, so that its mail server keeps it."""
MAIL_DOMAIN_BYTES: Final = 16 * MIB
"""Of these, those of mails from one sender's domain."""
MAIL_FETCHED_AT_ONCE: Final = 6
"""Mails that are taken from a mailbox at the same time: of the longest ones, as many as have room among those."""
MAIL_SORTED: Final = 2_000
"""Unread mails of a mailbox that are sorted by their senders' domains at one look."""
MAIL_DOMAINS_KEPT: Final = 1_000
"""Senders' domains of which it is remembered that they have proved a mail; the one unheard of longest goes first."""

ANSWER_LINES: Final = 200
"""Lines of a written answer that are read; one of more decides nothing."""
REPLIES_A_MINUTE: Final = 5
"""Replies a minute to one person on one channel whose messages decide nothing; the further ones are recorded."""
REPLIES_AN_HOUR: Final = 20
"""The same, for an hour."""
FOOTER_LINES: Final = 100
"""Lines below somebody's sign-off that are read; of more it is asked what they mean."""
FOOTERS_PER_PERSON: Final = 50
"""Blocks below a sign-off that are remembered of one person, so that reading an answer looks at no more."""
CALL_SECONDS: Final = 30 * 86_400.0
"""The longest time that an agent may take to report a call that it has used, or give people to answer."""
