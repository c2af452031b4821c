"""Sizes and counts. Exceeding one gives a soft result, never a failed workflow task."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# Inline results of 80,000 non-ASCII characters blocked a turn at its fifth completion.
INLINE_BYTES: Final = 8 * KIB
"""JSON bytes of an inline `Content`. The blob store holds more."""
PREVIEW_CHARS: Final = 200
ARGUMENTS_BYTES: Final = 64 * KIB
"""JSON bytes of one call's arguments."""
CALLS_PER_COMPLETION: Final = 50
# For a completion with more than 4 MiB of calls, Temporal's server terminates the workflow.
CALLS_BYTES_PER_COMPLETION: Final = 1 * MIB
CALLS_KEPT_PER_COMPLETION: Final = 200
"""Calls kept of one completion. Further calls are dropped. The first ones are answered."""
RESULT_BYTES: Final = 1 * MIB
"""JSON bytes of one tool result before trimming."""
RESULT_CHARS_PER_BATCH: Final = 80_000
"""Characters (code points) of one batch's results for the model."""
RECORDED_RESULT_CHARS: Final = 2_000
"""Characters of a result in the audit log, if it holds one."""
MESSAGES_BYTES: Final = 1 * MIB
"""Bytes of the workflow's message list: references and inline text."""
# Below the 2 MiB of a payload: a larger completion of a turn would fail its workflow task repeatedly.
TURN_RESULT_BYTES: Final = 1536 * KIB
"""JSON bytes of a turn's result. Its calls omit data above that, and name it."""
REQUEST_BODY_BYTES: Final = 1 * MIB
"""Bytes of a signed-in person's request."""
REPORT_BODY_BYTES: Final = 8 * MIB
"""Bytes of a request with an external agent's whole tool result. Less is stored."""
CODEC_BODY_BYTES: Final = 8 * MIB
"""Bytes of payloads in one request to the codec server: a page of a history, in base64."""
STRANGER_BODY_BYTES: Final = 32 * KIB
"""Bytes of a request without sign-in: the sign-in itself, or an answer through a link."""
BODY_SECONDS: Final = 30.0
"""Seconds to receive a request's body. Slower ones are refused (`too_slow`)."""
BODY_GRACE_SECONDS: Final = 5.0
"""Seconds during which a body may be slower than `BODY_BYTES_PER_SECOND`."""
BODY_BYTES_PER_SECOND: Final = 4 * KIB
"""Minimum speed of a body after its grace period."""
BODIES_AT_ONCE: Final = 256
"""Bodies that one gateway receives in parallel. More are refused (`busy`)."""
BODY_BYTES_AT_ONCE: Final = 128 * MIB
"""Bytes of bodies that one gateway holds in parallel, until their requests are answered."""
SENDER_SHARE: Final = 4
"""One address may use one part in this many of `BODIES_AT_ONCE` and `BODY_BYTES_AT_ONCE`."""
HEADER_SECONDS: Final = 10.0
"""Seconds to send a request's headers. Then the connection is closed."""
IDLE_SECONDS: Final = 75.0
"""Seconds that an idle connection stays open between two requests.

Longer than the 60 seconds of proxies: otherwise they would send a request into a closing connection, and answer a
decision with an error.
"""
CONNECTIONS: Final = 4_000
"""Connections and requests of one gateway in parallel. More are answered 503."""
CONNECTIONS_OF_ONE: Final = 500
"""Connections of one address. An address of this machine, as for a proxy, may have all."""
STREAMS_OF_ONE: Final = 20
"""Live streams of one person at one gateway in parallel. More are answered 429."""
LISTS_AT_ONCE: Final = 2
"""Lists that one gateway reads for one person in parallel. Further ones wait."""
LISTS_OF_ONE: Final = 20
"""Lists that one person waits for at one gateway. More are answered 429."""
FORM_FIELDS: Final = 4_000
"""Fields of a page's form: an edit has up to two for each of `MAX_VALUES`."""
ANSWER_BYTES: Final = ARGUMENTS_BYTES
"""Most bytes of a person's answer instead of a run, as canonical JSON."""
DECISION_BYTES: Final = 64 * KIB
BATCH_DECISIONS: Final = 100
"""Answers in one request to the API."""
REASON_CHARS: Final = 2_000
DELIVERY_CHARS: Final = 200
"""Characters of the id that identifies a repeated answer."""
EFFECT_CHARS: Final = 200
CARD_VALUE_CHARS: Final = 500
VALUES_PER_PAGE: Final = 500
"""Values on one page of a call's complete arguments."""
REFUSALS_KEPT: Final = 50
HISTORY_EVENTS: Final = 9_000
HISTORY_BYTES: Final = 8 * MIB
"""A turn ends before its history exceeds these. The contract's limits are 10,000 events and 10 MiB."""

# The server itself suggests a new run at 4,096 events or 4 MiB.
SESSION_EVENTS: Final = 2_000
"""History events after which a session continues in a new run."""
SESSION_BYTES: Final = 2 * MIB
"""The same for the bytes of its history."""
SESSION_MAILBOX: Final = 100
# A run passes the whole session on in one payload, of 2 MiB at most. This limits its content.
SESSION_OPEN_BYTES: Final = 512 * KIB
"""Bytes of unanswered messages. More are refused until an answer."""
SESSION_WINDOW_TURNS: Final = 50
SESSION_WINDOW_BYTES: Final = 256 * KIB
"""Answered turns that a session remembers, and passes to the next one."""
SESSION_SEEN: Final = 1_000
SESSION_UPDATES_BYTES: Final = 8 * KIB
"""JSON bytes of all context changes by one session's tools. More are rejected."""
SESSION_DENIED: Final = 100
SESSION_EVENTS_KEPT: Final = 50
"""Records that a session keeps for its next turn to write. Later ones are only counted."""
SESSION_PATIENCE_SECONDS: Final = 300.0
"""Seconds that the next message waits for a working turn before a parallel turn answers it."""
MAX_TURNS_PER_MESSAGE: Final = 8
MAX_PARTS: Final = 20
"""Parts of one answer."""
REDACTION_CHARS: Final = 200_000_000
"""Spellings of a call's secrets times characters of a text. Above that, the whole text is withheld."""
LOGIN_NAMES: Final = 20
"""Addresses and user names that one login may claim. Each is compared with all declared people, so more is refused."""
LOGIN_NAME_CHARS: Final = 320
"""Compared characters of such a name: 64 of a local part, `@` and 255 of a domain (RFC 5321)."""

ASKED_SECONDS: Final = 86_400.0
"""Seconds after a turn's start, or its message, during which rules run calls in its requester's name.

Later calls need approval, so that an old signed request is not a permanent right. Approved calls live by their
question.
"""
MAX_COMPLETIONS: Final = 20
MAX_CALLS: Final = 1_000
MAX_CALLS_PER_TOOL: Final = 25
MAX_IDENTICAL_CALLS: Final = 5
RECENT_CALLS: Final = 20
"""Calls among which equal ones are counted: another call in between does not reset the count."""
MAX_DENIALS_IN_A_ROW: Final = 3
MAX_ACTIVE_SECONDS: Final = 3_600.0
"""Seconds of model and tool time of one turn, without the time of waiting for approvers."""
MAX_TOOLS_AT_ONCE: Final = 10
"""Parallel tools of one batch. The others wait for a slot."""
FIRST_ARGUMENTS: Final = 3
"""Arguments that a card can show before all others."""
MAX_FALLBACKS: Final = 9
MAX_ATTEMPTS: Final = 10
"""Attempts of a repeatable tool after external failures."""
MAX_PERMISSION_SECONDS: Final = 300
"""Seconds that an answer of a tool's permission check may remain valid."""
MAX_REVISIONS: Final = 20
"""Maximum number of questions about one call (lapsed, changed tool) before it is refused."""
ANSWERS_OF_ONE: Final = 20
"""Stored answers and edits of one person for one approval, accepted or not. Further ones can only deny."""
ANSWERS_KEPT: Final = 200
"""The same for all people together: ten people at `ANSWERS_OF_ONE`, so that a quorum fits into each revision."""
FIGURES_PAST: Final = 20_000
"""The newest past requests that figures count, except by day."""
FIGURES_BY_DAY: Final = 200_000
"""The same of each outcome, by day."""
FIGURES_WAITING: Final = 1_000
"""The waiting requests that figures count, soonest deadline first."""
BACK_TEST_TURNS: Final = 200
"""The newest turns whose calls a back-test judges."""
BACK_TEST_SECONDS: Final = 10.0
MAX_REMEMBERED_SECONDS: Final = 30 * 86_400.0
MAX_REMEMBERED_USES: Final = 1_000
"""Maximum lifetime and number of uses of a remembered answer."""
# RFC 8785 writes numbers as doubles: above this, two integers could be one number, and two calls have one digest.
MAX_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 32
"""Levels of a call's arguments, and of the context for policies."""
MAX_NESTING: Final = 100
"""Levels of any JSON in a message: readers stop at 200, including Signoff's own enclosing shapes."""
MAX_VALUES: Final = 2_000
MAX_NAME_CHARS: Final = 256
"""Characters of one name in arguments or context."""
MAX_PATHS_CHARS: Final = 256 * KIB
"""Characters of all values' paths together: a card shows each value's whole path."""
SCHEMA_STEPS: Final = 20_000
"""Branches and references followed in a schema to check one value. Above that the check fails."""
COMBINING_MARKS: Final = 30
"""Combining marks examined on one letter of external text: sorting a long run takes quadratic time."""

LINK_SECONDS: Final = 86_400.0
"""Seconds that a card's link still shows the outcome of its settled request."""
BROWSERS_OF_ONE: Final = 10
"""Browsers that show one person's notifications."""
ENDPOINT_CHARS: Final = 2_000
"""Address of a push service, for one browser."""
QUESTION_SECONDS: Final = 900.0
"""Seconds from an approver's question to a deadline that it moves: once a row, by at most `timeout`."""
UNDO_SECONDS: Final = 5.0
"""Seconds to undo a denial in the inbox. Its turn does not learn of it before."""
CLOCKS_APART_SECONDS: Final = 5.0
"""Maximum clock difference of gateway, store and Temporal before `/readyz` and `doctor` report it."""
CLOCK_LOOK_SECONDS: Final = 60.0
"""Seconds between two reads of the Temporal server's clock by a gateway."""
READY_SECONDS: Final = 1.0
"""Seconds that one answer of `/readyz` serves all callers: each check writes to the store."""
REFUSALS_A_MINUTE: Final = 10
"""Refused sign-ins, and forged messages of one channel, that one process records a minute. The rest are counted."""
ATTEMPTS_A_MINUTE: Final = 10
"""Refused inputs that one gateway records a minute: answers of one person, requests of one external agent.

Answers are recorded with their request, an agent's requests in its tenant. The rest are counted.
"""
ATTEMPT_SENDERS: Final = 1_000
"""People whose records of the present minute a gateway counts."""
TURN_RESTS_SECONDS: Final = 604_800
"""Seconds (7 days) without activity after which a turn with an expired principal asks nothing.

Activity is a question, an answer or a tool. Anyone with Temporal credentials can restart a turn that has ended.
"""
REFUSAL_DAYS: Final = 30
"""Days to keep the counts of refused input. 12 kinds of 24 hours: at most 8,640 rows."""
REFUSAL_FLUSH_SECONDS: Final = 1.0
"""Seconds between two writes of a process's refusal counts: strangers cause at most one write a second."""

# A step is one evaluation of one place of an expression: about 5 us of the slower engine. policy/cost.py computes a
# rule's maximum cost from its text and the sizes of its input, before either engine runs.
POLICY_CHARS: Final = 2_000
"""Characters of an expression."""
POLICY_NESTING: Final = 24
"""Nested brackets in an expression. The parser of one engine stops at 32."""
POLICY_MACROS: Final = 2
"""Nested macros in an expression of a manifest."""
POLICY_OPERATORS: Final = 96
"""Levels of an expression's syntax tree, limited by Python's stack."""
POLICY_DEGREE: Final = 2
"""Maximum power of the data size in an expression's cost. More is refused at build."""
POLICY_FACTOR: Final = 4_096
"""Maximum factor, in steps or bytes, of any power of that size. Repeated doubling of a text makes it large."""
POLICY_STEPS: Final = 50_000
"""Places visited within macros by the slower engine in one evaluation, about half a second. More is an error."""
POLICY_PLAIN_STEPS: Final = 100_000
"""Steps of an expression over the largest data. More, or a degree above 1, needs a process with limits."""
POLICY_PLAIN_BYTES: Final = 32 * MIB
"""The same for bytes of memory."""
POLICY_TEXT_BYTES: Final = ARGUMENTS_BYTES
"""Text bytes of the largest data for rating an expression. Longer text costs proportionally more."""
POLICY_BOUNDED_STEPS: Final = 200_000
"""Maximum steps of such an expression over the actual data, about a second. Above it nothing is evaluated."""
POLICY_BOUNDED_BYTES: Final = 128 * MIB
"""The same for bytes of memory."""
POLICY_PROCESSES: Final = 2
"""Processes that evaluate such expressions, for one worker, gateway or command."""
POLICY_PROCESS_SECONDS: Final = 2.0
"""Time limit of an evaluation there, in real and processor seconds. Then the process is killed."""
POLICY_PROCESS_BYTES: Final = 512 * MIB
"""Bytes of address space for such a process beyond its size when ready (Linux enforces it)."""
POLICY_PROCESS_START_SECONDS: Final = 20.0
"""Seconds for such a process to become ready."""
POLICY_WAIT_SECONDS: Final = 4.0
"""Seconds that an evaluation waits for a free process."""
PREDICATE_CHARS: Final = 500
"""Characters of a predicate of a remembered answer."""
PREDICATE_MACROS: Final = 1
"""Nested macros in a predicate of a remembered answer."""
PREDICATES_STEPS: Final = 100_000
"""Total steps of the predicates tried for one call. Further remembered answers do not apply."""

# Anyone can send email, and a stranger's text determines the work to verify its sender.
MAIL_SIGNATURES_TRIED: Final = 3
"""DKIM signatures of one email that are verified: those by the sender's own domain first."""
MAIL_SIGNED_FIELDS: Final = 200
"""Header field names covered by one DKIM signature. Each is searched in the whole header."""
MAIL_HASHED_BYTES: Final = 20 * MIB
"""Body bytes of one email hashed for its signatures: the longest email, once in each of DKIM's two forms."""
MAIL_HASH_SECONDS: Final = 2.0
"""Processor seconds for that. An email that takes longer is not proved."""
MAIL_KEY_BITS: Final = 4_096
"""Bits of the longest RSA key for verifying a signature (RFC 8301). The work grows with their cube."""
MAIL_LOOKUP_SECONDS: Final = 3.0
"""Seconds for all DNS lookups of one email. A stranger's name servers may be slow on purpose."""
MAIL_LOOKUPS_AT_ONCE: Final = 2
"""Parallel DNS lookups for one email."""
MAIL_NAMES_SECONDS: Final = 60.0
"""Seconds to cache a DNS answer, including an empty one."""
MAIL_SILENCE_SECONDS: Final = 15.0
"""Seconds to cache a missing DNS answer. Shorter, because it may recover."""
MAIL_NAMES_KEPT: Final = 2_000
"""Cached DNS names. The oldest is removed first."""
MAIL_PROVED_AT_ONCE: Final = 8
"""Emails with DNS lookups in parallel, one a sender's domain."""
MAIL_STRANGERS_AT_ONCE: Final = 6
"""Of these, emails from domains without an earlier proved email: strangers never take the other slots."""
MAIL_WAITING_BYTES: Final = 64 * MIB
"""Bytes of emails during or before their proof. More are refused for now, so that the mail server keeps them."""
MAIL_DOMAIN_BYTES: Final = 16 * MIB
"""Of these, bytes of emails from one sender's domain."""
MAIL_FETCHED_AT_ONCE: Final = 6
"""Emails fetched from a mailbox in parallel. Fewer if their sizes exceed the limits."""
MAIL_SORTED: Final = 2_000
"""Unread emails of a mailbox sorted by sender's domain in one pass."""
MAIL_DOMAINS_KEPT: Final = 1_000
"""Remembered domains with a proved email. The one unseen longest is removed first."""

ANSWER_LINES: Final = 200
"""Lines read of a written answer. A longer one decides nothing."""
REPLIES_A_MINUTE: Final = 5
"""Replies a minute to one person on one channel about messages without a decision. Further ones are recorded."""
REPLIES_AN_HOUR: Final = 20
"""The same, for an hour."""
FOOTER_LINES: Final = 100
"""Lines read below a person's sign-off. A longer block needs a question about its meaning."""
FOOTERS_PER_PERSON: Final = 50
"""Remembered blocks below sign-offs of one person, to limit the work of reading an answer."""
CALL_SECONDS: Final = 30 * 86_400.0
"""Maximum time for an agent to report a used call, or to give approvers."""
