"""Messages between workflows and activities. Histories hold them, so fields are only added."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from signoff.contracts.approval import ApprovalRequest, Settlement, TurnQuestion
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import (
    CallContext,
    CallOutcome,
    Place,
    ProposedExternalCall,
    RuleReference,
)
from signoff.contracts.content import Content, Words
from signoff.contracts.decision import Assurance, Decision
from signoff.contracts.frozen_model import ActivityMessage, FrozenModel
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey
from signoff.contracts.limits import MAX_ACTIVE_SECONDS, MAX_CALLS, MAX_COMPLETIONS, MAX_TOOLS_AT_ONCE
from signoff.contracts.message import CallPart, Message
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.contracts.turn import Denial, ResponsePart, TokenUsage, WaitingCall


class TurnLimits(FrozenModel):
    """Limits of one turn, from the actor's declaration."""

    completions: int = MAX_COMPLETIONS
    """Maximum number of completions."""
    calls: int = MAX_CALLS
    """Maximum number of tool calls."""
    cost: float | None = None
    """Maximum cost of model and tools together, in US dollars."""
    active_seconds: float = MAX_ACTIVE_SECONDS
    """Maximum work time, in seconds, without the time of waiting for approvers."""


class Tally(FrozenModel):
    """A turn's calls so far, counted for the gate's loop limits."""

    calls: int = 0
    per_tool: dict[str, int] = Field(default_factory=dict)
    recent: tuple[str, ...] = ()
    """The marks of the last `RECENT_CALLS` calls, oldest first: the start of the SHA-256 of name and arguments."""
    denials: int = 0
    """Number of calls denied in a row."""


class ModelTask(ActivityMessage):
    """Input of `signoff.model`: requests one completion and the gate decisions on its calls."""

    ctx: CallContext
    """The context for policies."""
    completion: int
    """The number of the completion in its turn, from 1."""
    messages: tuple[Message, ...]
    """The conversation so far."""
    tally: Tally = Tally()
    """The turn's calls so far."""
    dry_run: bool = False
    """True if tools are only simulated."""
    audit: tuple[AuditEntry, ...] = ()
    """Unrecorded entries of the turn, to record before any other work."""
    denied: tuple[Denial, ...] = ()
    """Denials in this turn and earlier in its session: equal calls are denied without asking."""
    waiting: tuple[WaitingCall, ...] = ()
    """Calls that wait while the turn continues: equal calls are not asked again."""
    external: ProposedExternalCall | None = None
    """The call of an external agent, instead of a model's answer."""


class Response(FrozenModel):
    """A parsed `respond` payload."""

    state: Literal["complete", "clarifying", "awaiting", "delegated", "passed"] = "complete"
    """The end state of the turn."""
    text: Content
    """The text of the answer."""
    pass_to: str = ""
    """The next actor. Set only in state `passed`."""
    parts: tuple[ResponsePart, ...] = ()
    """The other parts of the answer."""


class ModelReply(ActivityMessage):
    """Result of `signoff.model`."""

    message: Message
    """The model's message, with ids for its calls."""
    usage: TokenUsage = TokenUsage()
    """The tokens of the completion."""
    catalog: str = ""
    """The first 16 digits of the hash of the catalog. Only with the first completion."""
    instructions: str = ""
    """The first 16 digits of the hash of the actor's instructions. Only with the first completion."""
    response: Response | None = None
    """The answer, if the model called `respond` or answered in plain text."""
    respond_call: str = ""
    """The id of the `respond` call."""
    respond_error: str = ""
    """Why the payload of the `respond` call is invalid."""
    dropped: int = 0
    """Number of calls dropped above the limit of one completion."""
    limits: TurnLimits = TurnLimits()
    """The limits of the turn. Only with the first completion."""
    leave_open: bool = False
    """True if the turn may end before pending calls. Only with the first completion."""
    withheld: tuple[str, ...] = ()
    """Unavailable tools, withheld from the model: none of them runs in this batch."""
    place: Place | None = None
    """The new place of the conversation before this completion. `None` if it stayed."""
    kept_at: datetime | None = None
    """When the store saved a reply with calls, by its clock (UTC)."""
    gates: "GateReply | None" = None
    """The gate decisions on its calls. `None` if the turn must ask for them."""

    @property
    def answer(self) -> Response | None:
        """Return the answer, even if only the `respond` call holds it, as `text` alone, or `None`.

        Anyone who can schedule activities can write such a reply, and an exception would fail the turn's task
        repeatedly.
        """
        if self.response is not None or not self.respond_call:
            return self.response
        calls = (each for each in self.message.parts if isinstance(each, CallPart) and each.call == self.respond_call)
        given = next((each.args.inline for each in calls), None)
        text = given.get("text") if isinstance(given, Mapping) else None
        return Response(text=Content(inline=text)) if isinstance(text, str) else None

    @property
    def calls(self) -> tuple[CallPart, ...]:
        """The calls to judge, in order. `respond` is not a tool: it has no gate decision and no outcome."""
        return tuple(p for p in self.message.parts if isinstance(p, CallPart) and p.call != self.respond_call)


class GateTask(ActivityMessage):
    """Input of `signoff.gate`: requests the gate decisions on one batch of calls, or on one call again."""

    ctx: CallContext
    """The context for policies."""
    calls: tuple[CallPart, ...]
    """The calls to judge."""
    tally: Tally = Tally()
    """The turn's calls so far."""
    dry_run: bool = False
    """True if tools are only simulated."""
    spent: int = 0
    """The revision of the call's question with answers that are used up. The next question has a later revision."""
    agent_says: str = ""
    """The model's text with the calls."""
    edit: int = 0
    """The number of the stored answer that edited the call's arguments, or 0. The gates read it themselves."""
    changed_by: str = ""
    """The editor of a call that is judged again: it needs approval."""
    doubt: int = 0
    """The number of the ticket with an unknown outcome. 0 for none."""
    doubt_of: str = ""
    """The digest of that call."""
    withheld: tuple[str, ...] = ()
    """Tools that were unavailable when the model got its tools."""
    asked_since: datetime | None = None
    """When the calls were saved (UTC, the store's clock).

    The turn does not know a later question beyond revision `spent`: an earlier, lost attempt asked it. That question
    remains, even if it has an answer.
    """
    denied: tuple[Denial, ...] = ()
    """Denials in this turn and earlier in its session: equal calls are denied without asking."""
    waiting: tuple[WaitingCall, ...] = ()
    """Calls that wait while the turn continues: equal calls are not asked again."""
    ask_within: float = 0.0
    """Seconds from the turn's start to the last answer, if shorter than the policy's time. 0 for the policy's."""


class RunOptions(FrozenModel):
    """The options for running a tool's activity."""

    start_to_close: float = 315.0
    """Time limit of one attempt, in seconds."""
    grant_ttl: float = 86_400.0
    """Lifetime of an approval, in seconds."""
    idempotent: bool = False
    """True if the tool may run again after an unknown outcome."""
    read_only: bool = False
    """True if the tool changes nothing."""
    local: bool = False
    """True for a local activity."""
    task_queue: str = ""
    """The task queue. "" for the turn's own."""
    summary: str = ""
    """The activity's summary in Temporal's UI: the effect of the call, without secret arguments."""
    budget_chars: int = 80_000
    """Maximum result characters for the model."""
    at_once: int = MAX_TOOLS_AT_ONCE
    """Maximum number of parallel tools of a batch."""
    exclusive: bool = False
    """True if the tool runs alone."""
    aborts: bool = False
    """True if its failure stops its siblings."""
    attempts: int = 1
    """Maximum number of attempts of a local activity."""
    fallbacks: tuple[str, ...] = ()
    """The tools to try if it fails, in order."""
    return_direct: bool = False
    """True if its successful value is the turn's answer."""
    while_waiting: Literal["wait", "continue"] = "wait"
    """Whether the turn continues during the call's approval."""
    activity: str = ""
    """The activity type of an actor's own tool. "" for others, whose activity type is their name."""
    external: bool = False
    """True if an external agent runs it under a permit and reports the outcome."""
    report_within: float = 0.0
    """Seconds to report an external call after its use."""
    ask_unreported: bool = False
    """True if an external call without a report needs a question about its outcome."""


class GateDecision(FrozenModel):
    """The gates' decision on one call: run it, ask approvers first, or its outcome."""

    call: str
    kind: Literal["run", "ask", "settled"]
    digest: str = ""
    rule: RuleReference | None = None
    action: str = ""
    """The start of the SHA-256 of the call's tool and arguments: equal calls have equal actions."""
    grant: str = ""
    question: TurnQuestion | None = None
    """The question about the call, if any."""
    request: ApprovalRequest | None = Field(default=None, exclude=True)
    """The whole request, for callers in the same process. It is never sent."""
    outcome: CallOutcome | None = None
    refusal: tuple[Words, ...] = ()
    """For edited arguments: why the gates ended the call, for the author."""
    options: RunOptions = RunOptions()


class GateReply(ActivityMessage):
    """Result of `signoff.gate`: one gate decision a call, in input order, and the resulting tally."""

    gate_decisions: tuple[GateDecision, ...]
    tally: Tally = Tally()


class RunTask(ActivityMessage):
    """Input of a tool's activity. It is not trusted: the activity derives the right to run itself."""

    ctx: CallContext
    """The context, with the signed requester. A call by rule has it nowhere else."""
    tool: str
    call: str
    args: Content
    digest: str
    """The digest of the judged action. It finds tickets and detects a changed tool, and is no right."""
    revision: int | None = None
    """The revision of the approved question. `None` for a call by rule or grant."""
    ticket: int = 1
    """The number of the ticket, from 1. It rises after a voided ticket, or an attempt that did not happen."""
    use: str = ""
    """For an external call: the id of the attempt to use its permit."""
    grant: str = ""
    """The id of the grant that lets the call run, if any."""
    audit: tuple[AuditEntry, ...] = ()
    """Unrecorded entries of the turn."""
    budget_chars: int = 80_000
    """Maximum result characters for the model."""

    @property
    def turn(self) -> TurnKey:
        return TurnKey(self.ctx.tenant, self.ctx.session, self.ctx.turn)

    @property
    def place(self) -> SessionKey:
        return SessionKey(self.ctx.tenant, self.ctx.session)

    @property
    def approval_id(self) -> str:
        """The id of the call's own approval, whether it has one or not."""
        return ApprovalKey(self.turn, self.call).id


class UsedPermit(ActivityMessage):
    """The permit that an external agent receives, once."""

    args: Content
    """The approved arguments."""
    key: str
    """The key of the call's ticket: the same for the same call, for a backend with idempotency keys."""
    definition: str
    """The SHA-256 of the tool's definition on the ticket. During a deploy, a gateway may have another one."""
    note: str = ""
    """The changes to the arguments."""


class ToolReply(ActivityMessage):
    """Result of a tool's activity: its outcome, or the reason `again` to judge the call again (nothing ran).

    `undone`: the attempt had no effect, so the same right runs the call under the next ticket.
    """

    outcome: CallOutcome | None = None
    again: Literal["", "stale", "lapsed", "policy", "undone"] = ""
    note: str = ""
    used: UsedPermit | None = None
    """For an external call: the used permit. There is no outcome yet."""


class OutcomeTask(ActivityMessage):
    """Input of `signoff.outcome`: requests the outcome of a call whose activity timed out."""

    run: RunTask
    """The input of that activity, with the present unrecorded entries of the turn."""
    happened: Decision | None = None
    """A decision that the call happened: it is recorded without a lookup."""
    report: Literal["", "look", "give_up"] = ""
    """For an external call: `look` reads its report. `give_up` records an unknown outcome if there is none."""


class RecordTask(ActivityMessage):
    """Input of `signoff.record`: entries that no later activity of the turn records."""

    audit: tuple[AuditEntry, ...]


class EventTask(ActivityMessage):
    """Input of `signoff.event`: delivers an event to a subscription's handler. The store determines the event."""

    delivery: str
    """The key of the delivery."""
    subscription: str
    """The subscription's name."""
    seconds: float
    """Time limit of the handler."""


class Authority(ActivityMessage):
    """Result of `signoff.identify`: whether an author may decide, and as which person."""

    allowed: bool
    """True if the decision counts."""
    code: ReceiptCode = ""
    """Why it does not count. `unavailable` if that is unknown now."""
    subject: str = ""
    """The author's account."""
    person_id: str = ""
    """The person of `subject`, for any of their accounts. Empty in old results."""
    name: str = ""
    """The author's name."""
    assurance: Assurance = "none"
    """The author's identification."""
    unsigned: bool = False
    """True if the decision is unsigned."""
    on_behalf: str = ""
    """The delegator whose delegation lets the author decide."""
    entries: tuple[str, ...] = ()
    """For a request with groups: the approver entries of the vote."""
    on_call: tuple[str, ...] = ()
    """As in `Decision`."""
    received_at: datetime | None = None
    """When the gateway received a validly signed decision. `None` for an unsigned one."""
    note: str = ""
    """A sentence for the author in addition to `code`: why their answer cannot be remembered."""


class Wake(FrozenModel):
    """The gateway's hint to a turn that the store has a new answer. The turn reads the answer from the store."""

    approval_id: str
    revision: int
    """The revision that the answer decides."""
    number: int
    """The number of the answer within its approval."""


class AnswersTask(ActivityMessage):
    """Input of `signoff.answers`: requests the state of a question by its stored answers."""

    approval: str
    """The approval id."""
    revision: int = 1
    raw: Decision | None = None
    """An answer that bypassed the gateway, to store first."""
    refused: tuple[int, ...] = ()
    """The numbers of the answers whose edits the gates have refused."""
    deadline: datetime | None = None
    """The passed deadline, as far as the turn knows (UTC). A question that no answer has settled expires by it."""


class AnswersReply(ActivityMessage):
    """Result of `signoff.answers`."""

    seen: int = 0
    """The number of the approval's latest answer. 0 if the question was not read."""
    settlement: Settlement = Settlement()
    """The state of the asked revision."""
    edits: tuple[int, ...] = ()
    """The numbers of the answers whose edits the gates have still to judge, in order."""
    edited_by: str = ""
    """The id of the last person who edited the arguments, or ""."""
    remarks: str = ""
    """The approvers' edits and remarks, for the model."""
    word: Decision | None = None
    """The deciding answer that the call took effect."""
    message: int = 0
    """The number of the approvers' question that the agent has still to answer, or 0."""
    asked_at: datetime | None = None
    """When such a question moved the deadline (UTC)."""
    receipt: Receipt | None = None
    """The receipt of the raw answer."""
    author: Authority | None = None
    """The author of the raw answer, as far as known."""


class ReplyTask(ActivityMessage):
    """Input of `signoff.reply`: has the model answer an approver's question."""

    ctx: CallContext
    messages: tuple[Message, ...]
    """The conversation so far."""
    approval: str
    """The approval id."""
    message: int
    """The number of the question. The activity reads it from the store."""


class ModelTool(FrozenModel):
    """One tool as offered to the model."""

    name: str
    description: str
    """The tool's description for the model."""
    parameters: dict[str, Any]
    """The JSON Schema of its arguments."""
    strict: bool | None = None
    """True if the provider enforces that schema. `None` for the provider's default."""


# The field names a class that is defined below it.
ModelReply.model_rebuild()


UseCode = Literal["", "used", "waiting", "denied", "lapsed", "stale", "frozen", "ended", "conflict", "unavailable"]
"""Why a permit is refused. "" if it is granted."""


class UseReply(ActivityMessage):
    """The turn's answer to a use request."""

    code: UseCode = ""
    """Why it is refused. "" if it is granted."""
    message: str = ""
    """The reason in one sentence."""
    permit: UsedPermit | None = None
    """The granted permit."""
    nonce: str = ""
    """The nonce of the turn's requester. It differs from the caller's if an earlier request began the turn."""
    state: str = ""
    """The state of its call, for viewers."""
    outcome: CallOutcome | None = None
    """The outcome of the call, if it has ended."""


class UseRequest(FrozenModel):
    """The gateway's message to a turn to use its permit."""

    use: str
    """The id of the use request: a repeated id gets the same permit, because the first reply may be lost."""


class CallPresence(FrozenModel):
    """The gateway's message to a turn whose agent stops or resumes waiting for the call."""

    within: float = 0.0
    """Seconds until the call is withdrawn unless the agent returns. 0: the agent waits."""


class CallRequest(FrozenModel):
    """The gateway's message at a turn's start, to use its permit if the call needs no approval."""

    use: str
    """The id of the use request."""
    input: str = ""
    """The digest of the caller's own input for the turn."""
