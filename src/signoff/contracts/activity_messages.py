"""Messages between workflows and activities. Fields are only added, like in everything that lies in histories."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from signoff.contracts.approval import ApprovalRequest, ApproverGroup, CardRow, EditMode
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import (
    CallContext,
    CallOutcome,
    Permit,
    Place,
    ProposedExternalCall,
    RuleReference,
)
from signoff.contracts.content import Content, Words
from signoff.contracts.decision import Assurance, Decision
from signoff.contracts.frozen_model import ActivityMessage, FrozenModel
from signoff.contracts.limits import MAX_ACTIVE_SECONDS, MAX_CALLS, MAX_COMPLETIONS, MAX_TOOLS_AT_ONCE
from signoff.contracts.message import CallPart, Message
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.contracts.turn import Denial, ResponsePart, TokenUsage, WaitingCall


class TurnLimits(FrozenModel):
    """Caps of one turn, from the actor's declaration."""

    completions: int = MAX_COMPLETIONS
    """Answers of the model."""
    calls: int = MAX_CALLS
    """Calls of tools."""
    cost: float | None = None
    """What model and tools may cost together, in US dollars."""
    active_seconds: float = MAX_ACTIVE_SECONDS
    """How long something of it may run; waiting for people does not count."""


class Tally(FrozenModel):
    """Counts a turn's calls so far, for the gate's loop caps."""

    calls: int = 0
    """How many calls there were."""
    per_tool: dict[str, int] = Field(default_factory=dict)
    recent: tuple[str, ...] = ()
    """The marks of the last `RECENT_CALLS` calls, oldest first: the beginning of the sha-256 of name and arguments."""
    denials: int = 0
    """How many calls were denied in a row."""


class ModelTask(ActivityMessage):
    """Input of `signoff.model`: asks for one completion and for the gate decisions on its calls."""

    ctx: CallContext
    """The context that policies see."""
    completion: int
    """The number of the completion in its turn, from 1."""
    messages: tuple[Message, ...]
    """The conversation so far."""
    tally: Tally = Tally()
    """The turn's calls so far."""
    dry_run: bool = False
    """Whether tools are only simulated."""
    audit: tuple[AuditEntry, ...] = ()
    """Entries of the turn that no activity has recorded yet; recorded before anything else is done."""
    denied: tuple[Denial, ...] = ()
    """What people denied in this turn and earlier in its session: denied again without asking anybody."""
    waiting: tuple[WaitingCall, ...] = ()
    """What people are asked while the turn goes on: the same is not asked again."""
    external: ProposedExternalCall | None = None
    """The call of an agent that thinks elsewhere, in place of a model's answer."""


class Response(FrozenModel):
    """A parsed `respond` payload."""

    state: Literal["complete", "clarifying", "awaiting", "delegated", "passed"] = "complete"
    """The state in which the turn ends."""
    text: Content
    """The answer's words."""
    pass_to: str = ""
    """The actor that goes on; set exactly where the state is `passed`."""
    parts: tuple[ResponsePart, ...] = ()
    """The other parts of the answer."""


class ModelReply(ActivityMessage):
    """Result of `signoff.model`."""

    message: Message
    """The model's message; its calls have their ids."""
    usage: TokenUsage = TokenUsage()
    """The tokens that the completion took."""
    catalog: str = ""
    """The first 16 digits of the hash of the catalog; only with the first completion."""
    instructions: str = ""
    """The first 16 digits of the hash of the actor's instructions; only with the first completion."""
    response: Response | None = None
    """The answer, when the model called `respond` or answered in plain text."""
    respond_call: str = ""
    """The id of the `respond` call."""
    respond_error: str = ""
    """Why the payload of the `respond` call could not be read."""
    dropped: int = 0
    """How many calls were left out, as one completion may not carry so many."""
    limits: TurnLimits = TurnLimits()
    """The caps of the turn; only with the first completion."""
    leave_open: bool = False
    """Whether the turn may end over calls that people still decide; only with the first completion."""
    withheld: tuple[str, ...] = ()
    """Tools that were not offered to the model, as they were not available: none of them runs in this batch."""
    place: Place | None = None
    """The place to which the conversation moved before this completion; `None` where it stayed."""
    kept_at: datetime | None = None
    """Since when a reply with calls lies in the store, by its clock (UTC)."""
    gates: "GateReply | None" = None
    """The gate decisions on its calls; None where the turn has to ask for them."""

    @property
    def answer(self) -> Response | None:
        """Returns the answer, also where it stands in the `respond` call alone: that with words and nothing else.

        None where the reply holds none: whoever schedules activities may write such a reply, and it must not raise in
        the turn, whose task would then fail for ever.
        """
        if self.response is not None or not self.respond_call:
            return self.response
        calls = (each for each in self.message.parts if isinstance(each, CallPart) and each.call == self.respond_call)
        given = next((each.args.inline for each in calls), None)
        text = given.get("text") if isinstance(given, Mapping) else None
        return Response(text=Content(inline=text)) if isinstance(text, str) else None

    @property
    def calls(self) -> tuple[CallPart, ...]:
        """Returns the calls to judge, in order. `respond` is no tool: it goes through no gate and has no outcome."""
        return tuple(p for p in self.message.parts if isinstance(p, CallPart) and p.call != self.respond_call)


class GateTask(ActivityMessage):
    """Input of `signoff.gate`: asks for the gate decisions on one batch of calls, or again on one call."""

    ctx: CallContext
    """The context that policies see."""
    calls: tuple[CallPart, ...]
    """The calls to judge."""
    tally: Tally = Tally()
    """The turn's calls so far."""
    dry_run: bool = False
    """Whether tools are only simulated."""
    spent: int = 0
    """The revision of the call's question whose answers are used up: a further question has a later revision."""
    agent_says: str = ""
    """The model's own words beside the calls."""
    edit: Decision | None = None
    """The answer that changed the arguments; the gates check it themselves."""
    changed_by: str = ""
    """Who changed the arguments before the call is judged again: nothing but people lets it run."""
    doubt: int = 0
    """The number of the ticket of which nobody knows whether its call happened; 0 for none."""
    doubt_of: str = ""
    """The digest of that call."""
    withheld: tuple[str, ...] = ()
    """Tools that were not available when the model got its tools."""
    asked_since: datetime | None = None
    """When the calls were kept (UTC, the store's clock).

    A question asked since then beyond revision `spent` is one that the turn has yet to hear of: an earlier attempt
    asked it and was lost. It stands, also where it was answered.
    """
    denied: tuple[Denial, ...] = ()
    """What people denied in this turn and earlier in its session: denied again without asking anybody."""
    waiting: tuple[WaitingCall, ...] = ()
    """What people are asked while the turn goes on: the same is not asked again."""
    ask_within: float = 0.0
    """Within how many seconds of the turn's begin people must have answered, where that is sooner than the policy's
    time; 0 for that.
    """


class RunOptions(FrozenModel):
    """How a tool's activity runs."""

    start_to_close: float = 315.0
    """How long one attempt may take, in seconds."""
    grant_ttl: float = 86_400.0
    """How long an approval may be used, in seconds."""
    idempotent: bool = False
    """Whether the tool may be called again after an unknown outcome."""
    read_only: bool = False
    """Whether the tool changes nothing."""
    local: bool = False
    """Whether it runs as a local activity."""
    task_queue: str = ""
    """The task queue; "" for the turn's own."""
    summary: str = ""
    """The activity's summary in Temporal's UI: the effect of the call, without secret arguments."""
    budget_chars: int = 80_000
    """How many characters of its result the model gets."""
    at_once: int = MAX_TOOLS_AT_ONCE
    """How many tools of a batch may run at once."""
    exclusive: bool = False
    """Whether it runs alone."""
    aborts: bool = False
    """Whether its failure stops its siblings."""
    attempts: int = 1
    """How often a local one is tried."""
    fallbacks: tuple[str, ...] = ()
    """The tools that are tried in its place, in order, when it fails."""
    return_direct: bool = False
    """Whether its value is the turn's answer when it succeeds."""
    while_waiting: Literal["wait", "continue"] = "wait"
    """Whether the turn goes on while people are asked about the call."""
    activity: str = ""
    """The activity type of a tool that is an actor's own; "" for others, whose activity type is their name."""
    external: bool = False
    """Whether its agent runs it, under a permit, and reports what came of it."""
    report_within: float = 0.0
    """Of an external one: within how many seconds it is to be reported, once it was used."""
    ask_unreported: bool = False
    """Of an external one: whether people are asked what became of it where nobody reports that."""


class QuestionReference(FrozenModel):
    """What a turn knows of a question that the gates have asked; all of it is the question's row in the store.

    Fields are named and mean as in `Question`.
    """

    kind: Literal["approval", "in_doubt"] = "approval"
    code: str = ""
    revision: int = 1
    question_hash: str
    """sha-256 of the question, which answers name."""
    effect: str
    """The one line that says what the call does."""
    note: str = ""
    rows: tuple[CardRow, ...] = ()
    """The arguments as shown, where people may change them: the model is told what they changed."""
    args: Content | None = None
    """The arguments, where they are not those of the call as the turn knows it."""
    definition: str = ""
    """Of a question that a change of arguments made: by it the turn checks that these are the ones."""
    doubt_of: int = 0
    edit_of: int = 0
    edit_delivery: str = ""
    approvers: tuple[str, ...] = ()
    quorum: int = 1
    groups: tuple[ApproverGroup, ...] = ()
    veto: bool = True
    require_reason: bool = False
    allow_self: bool = False
    edit: EditMode = "off"
    proposers: tuple[str, ...] = ()
    allow_remember: bool = False
    min_assurance: Assurance = "channel"
    accept_unsigned: bool = False
    level: str = "user"
    timeout: float = 86_400.0
    remind_after: float | None = None
    escalate_after: float | None = None
    escalate_to: tuple[str, ...] = ()
    on_timeout: Literal["deny", "escalate"] = "deny"
    opened_at: datetime | None = None


class GateDecision(FrozenModel):
    """What the gates say of one call: run it, ask people first, or here is its outcome already."""

    call: str
    kind: Literal["run", "ask", "settled"]
    digest: str = ""
    rule: RuleReference | None = None
    action: str = ""
    """The beginning of the sha-256 of the call's tool and arguments: two calls that do the same have the same one."""
    grant: str = ""
    override: str = ""
    """sha-256 of what the tool objects to and people are asked to let pass."""
    question: QuestionReference | None = None
    """What people are asked about the call, if anything."""
    request: ApprovalRequest | None = Field(default=None, exclude=True)
    """All of that, for whoever calls the gates in their own process: it is never sent."""
    outcome: CallOutcome | None = None
    refusal: tuple[Words, ...] = ()
    """Of changed arguments: why the gates ended the call, for their author."""
    options: RunOptions = RunOptions()


class GateReply(ActivityMessage):
    """Result of `signoff.gate`: one gate decision a call, in input order, and the tally after them."""

    gate_decisions: tuple[GateDecision, ...]
    tally: Tally = Tally()


class ToolTask(ActivityMessage):
    """Input of a tool's activity. `ticket` counts from 1; it rises when an unclaimed ticket was voided."""

    permit: Permit
    tool: str
    args: Content
    ticket: int = 1
    budget_chars: int = 80_000
    audit: tuple[AuditEntry, ...] = ()
    use: str = ""
    """Of a call that its agent runs: the id of the try to use its permit."""


class UsedPermit(ActivityMessage):
    """What is handed out, once, to the agent that runs a call itself."""

    args: Content
    """The arguments to run it with, as they were approved."""
    key: str
    """The key of the call's ticket: the same for the same call, for a backend that knows idempotency keys."""
    definition: str
    """sha-256 of the tool's definition that the ticket is of: a gateway may know another one during a deploy."""
    note: str = ""
    """What was done to the arguments."""


class ToolReply(ActivityMessage):
    """Result of a tool's activity: its outcome, or `again`, why the call must be judged anew (nothing ran).

    `undone`: what ran came to nothing, so the same right runs it under the next ticket.
    """

    outcome: CallOutcome | None = None
    again: Literal["", "stale", "lapsed", "policy", "undone"] = ""
    note: str = ""
    used: UsedPermit | None = None
    """Of a call that its agent runs: what was handed out; then there is no outcome yet."""


class OutcomeTask(ActivityMessage):
    """Input of `signoff.outcome`: asks for the outcome of a call whose activity timed out."""

    permit: Permit
    """The permit of the call."""
    tool: str
    """The tool's name."""
    ticket: int = 1
    """The number of the ticket in question, from 1."""
    idempotent: bool = False
    """Whether the tool may be called again."""
    args: Content | None = None
    """The arguments, for the tool's probe."""
    budget_chars: int = 80_000
    """How many characters of the result the model gets."""
    audit: tuple[AuditEntry, ...] = ()
    """Entries of the turn that no activity has recorded yet."""
    happened: Decision | None = None
    """The decision of somebody who states that the call happened: it is recorded, and nothing is looked up."""
    report: Literal["", "look", "give_up"] = ""
    """Of a call that its agent runs: `look` for its report; `give_up` records it as in doubt unless it was reported."""


class RecordTask(ActivityMessage):
    """Input of `signoff.record`: entries of a turn that no later activity of it would record."""

    audit: tuple[AuditEntry, ...]
    """The entries."""


class EventTask(ActivityMessage):
    """Input of `signoff.event`: has a handler given an event that its subscription is owed; the store says which."""

    delivery: str
    """The key of what is owed."""
    subscription: str
    """The subscription's name."""
    seconds: float
    """How long the handler may take."""


class AnswersTask(ActivityMessage):
    """Input of `signoff.answers`: asks for the answers that were stored for one revision of a question."""

    approval: str
    """The approval id."""
    revision: int
    """The revision."""


class StoredAnswers(ActivityMessage):
    """Result of `signoff.answers`."""

    decisions: tuple[Decision, ...] = ()
    """The answers, in the order in which they were stored."""


class IdentifyTask(ActivityMessage):
    """Input of `signoff.identify`: asks whether a decision's author may decide a request now."""

    decision: Decision
    """The decision."""
    tenant: str
    """The request's tenant."""
    approvers: tuple[str, ...]
    """The approver entries that are asked."""
    requester: str
    """The id of whoever asks."""
    allow_self: bool
    """Whether requester and proposers may decide themselves."""
    min_assurance: Assurance
    """How strongly the author must be identified."""
    accept_unsigned: bool
    """Whether unsigned decisions count."""
    proposers: tuple[str, ...] = ()
    """The ids of those who changed the arguments."""
    seats: tuple[str, ...] = ()
    """The ids of the people whose vote is counted already, cast by themselves or by a delegate."""
    groups: tuple[ApproverGroup, ...] = ()
    """The groups of the request; empty: anybody who is asked fills any place."""
    wanted: tuple[str, ...] = ()
    """The approver entries of groups that lack somebody: a delegate of several people votes for one of these."""
    requester_person: str = ""
    """The id of the human behind `requester`, as it was known when they asked; "" for `requester` itself."""


class Authority(ActivityMessage):
    """Result of `signoff.identify`: whether an author may decide, and as whom."""

    allowed: bool
    """Whether the decision counts."""
    code: ReceiptCode = ""
    """Why it does not; `unavailable` when that cannot be known now."""
    subject: str = ""
    """The entry or login by which the author answered."""
    person_id: str = ""
    """The human behind `subject`, whatever entry or login they answered by; empty in results of old."""
    name: str = ""
    """The author's name."""
    assurance: Assurance = "none"
    """How strongly the author was identified."""
    unsigned: bool = False
    """Whether the decision is unsigned."""
    on_behalf: str = ""
    """The human whose delegation lets the author decide."""
    entries: tuple[str, ...] = ()
    """Of a request with groups: the approver entries under which the answer counts."""
    received_at: datetime | None = None
    """When the gateway received a decision whose signature holds; None for an unsigned one."""
    note: str = ""
    """A sentence for the author beside `code`: why their answer cannot be remembered."""
    taken: Decision | None = None
    """A raw answer as it was stored just now, with all that it left out."""
    receipt: Receipt | None = None
    """The receipt of a raw answer that was not stored, or that waits for a gateway."""


class ModelTool(FrozenModel):
    """One tool as it is offered to the model."""

    name: str
    """The tool's name."""
    description: str
    """The tool's description for the model."""
    parameters: dict[str, Any]
    """The JSON Schema of its arguments."""
    strict: bool | None = None
    """Whether the provider keeps the model to that schema; None: as the provider does by itself."""


# It names a class that stands below it.
ModelReply.model_rebuild()


UseCode = Literal["", "used", "waiting", "denied", "lapsed", "stale", "frozen", "ended", "conflict", "unavailable"]
"""Why a permit is not handed out; "" where it is."""


class UseReply(ActivityMessage):
    """The turn's answer to who wants to use a permit."""

    code: UseCode = ""
    """Why it is not handed out; "" where it is."""
    message: str = ""
    """The same in one sentence."""
    permit: UsedPermit | None = None
    """What is handed out."""
    nonce: str = ""
    """That of the turn's requester: another than the caller's where the turn was begun by an earlier request."""
    state: str = ""
    """The state of its call, as an onlooker sees it."""
    outcome: CallOutcome | None = None
    """What became of the call, if it has ended."""


class UseRequest(FrozenModel):
    """What the gateway sends a turn so that its permit is used."""

    use: str
    """The id of the try: with the same one the same permit is handed out again, as its answer may have been lost."""


class CallPresence(FrozenModel):
    """What the gateway sends a turn of a call that nobody waits for any more, or that somebody waits for again."""

    within: float = 0.0
    """In how many seconds the call is withdrawn unless somebody waits for it again by then; 0: somebody does."""


class CallRequest(FrozenModel):
    """What the gateway sends a turn, with its start, so that its permit is used where nobody is asked."""

    use: str
    """The id of the try."""
    input: str = ""
    """The digest of the input with which the caller would have begun the turn."""
