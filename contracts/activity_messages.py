"""What workflows and activities hand each other. Additive only, like all that lies in histories."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import CallOutcome, Permit, Pinned
from signoff.contracts.content import Content
from signoff.contracts.decision import Assurance, Decision
from signoff.contracts.frozen_model import Shape
from signoff.contracts.limits import MAX_TOOLS_AT_ONCE
from signoff.contracts.message import CallPart, Message
from signoff.contracts.receipt import ReceiptCode
from signoff.contracts.turn import ResponsePart, Usage


class TurnLimits(Shape):
    """Caps of one turn, from the actor's declaration."""

    completions: int = 20
    calls: int = 1_000
    cost: float | None = None
    active_seconds: float = 3_600.0


class Tally(Shape):
    """How much the turn has done so far, for the loop caps of gate 2."""

    calls: int = 0
    per_tool: dict[str, int] = Field(default_factory=dict)
    last_action: str = ""
    """sha-256 of the last call's name and arguments."""
    identical: int = 0
    denials: int = 0


class ModelTask(Shape):
    """Input of `signoff.model`: one completion, numbered from 1, and what the gates need to judge its calls."""

    ctx: Pinned
    completion: int
    messages: tuple[Message, ...]
    tally: Tally = Tally()
    dry_run: bool = False
    audit: tuple[AuditEntry, ...] = ()
    """What the turn has seen and nobody has written down yet; kept before anything else is done."""


class Response(Shape):
    """A parsed `respond` payload. `pass_to` is set where, and only where, the state is `passed`."""

    state: Literal["complete", "clarifying", "awaiting", "delegated", "passed"] = "complete"
    text: Content
    pass_to: str = ""
    parts: tuple[ResponsePart, ...] = ()


class ModelReply(Shape):
    """Result of `signoff.model`. `message` carries the calls, their ids assigned.

    `response` is set when the model called `respond` (or answered in plain text);
    `respond_call` is that call's id, `respond_error` why its payload could not be read.
    `dropped` counts calls beyond what one completion may carry.
    """

    message: Message
    usage: Usage = Usage()
    catalog: str = ""
    response: Response | None = None
    respond_call: str = ""
    respond_error: str = ""
    dropped: int = 0
    limits: TurnLimits = TurnLimits()
    withheld: tuple[str, ...] = ()
    """Tools that the model was not told of, as they were not available: none of them runs in this batch."""
    kept_at: datetime | None = None
    """Since when a reply with calls lies in the store, by its clock (UTC)."""
    gates: "GateReply | None" = None
    """The rulings on its calls; None where the turn has to ask for them."""

    @property
    def calls(self) -> tuple[CallPart, ...]:
        """The calls to judge, in order. `respond` is no tool: it goes through no gate and has no outcome."""
        return tuple(p for p in self.message.parts if isinstance(p, CallPart) and p.call != self.respond_call)


class GateTask(Shape):
    """Input of `signoff.gate`: one batch, or one call again."""

    ctx: Pinned
    calls: tuple[CallPart, ...]
    tally: Tally = Tally()
    dry_run: bool = False
    spent: int = 0
    """The revision of the call's question whose answers are used up: it is asked under a later one, if at all."""
    agent_says: str = ""
    edit: Decision | None = None
    """The answer that changed the arguments; the gates check it themselves."""
    changed_by: str = ""
    """Who changed the arguments before the call is judged again: nothing but people lets it run."""
    doubt: int = 0
    doubt_of: str = ""
    """Number of the ticket of the call with digest `doubt_of` of which nobody knows whether it happened."""
    withheld: tuple[str, ...] = ()
    """Tools that were not available when the model was told of its tools."""
    asked_since: datetime | None = None
    """When the calls were kept (UTC): what an earlier attempt asked since then stands, also where it was answered."""


class RunOptions(Shape):
    """How a tool's activity is to be run. Times in seconds.

    `at_once` is how many tools of a batch may run at once.
    `exclusive`: it runs alone. `aborts`: when it fails, its siblings are stopped. `attempts`: how often a local one is
    tried. `fallbacks` are the tools that are tried in its place, in order, when it fails. `return_direct`: when it
    succeeds, its value is the turn's answer. `activity` is the activity type of a tool that is an actor's own; of all
    others it is their name.
    """

    start_to_close: float = 300.0
    grant_ttl: float = 86_400.0
    idempotent: bool = False
    read_only: bool = False
    local: bool = False
    task_queue: str = ""
    summary: str = ""
    budget_chars: int = 80_000
    at_once: int = MAX_TOOLS_AT_ONCE
    exclusive: bool = False
    aborts: bool = False
    attempts: int = 3
    fallbacks: tuple[str, ...] = ()
    return_direct: bool = False
    activity: str = ""


class Ruling(Shape):
    """What the gates say of one call: run it, ask people first, or here is its outcome already."""

    call: str
    verdict: Literal["run", "ask", "settled"]
    digest: str = ""
    rule: str = ""
    policy_hash: str = ""
    engines: str = ""
    action: str = ""
    """sha-256 of the call's tool and arguments: two calls that do the same have the same one."""
    grant: str = ""
    override: str = ""
    """sha-256 of what the tool objects to and people are asked to let pass."""
    request: ApprovalRequest | None = None
    outcome: CallOutcome | None = None
    options: RunOptions = RunOptions()


class GateReply(Shape):
    """Result of `signoff.gate`: one ruling a call, in input order, and the tally after them."""

    rulings: tuple[Ruling, ...]
    tally: Tally = Tally()
    catalog: str = ""


class ToolTask(Shape):
    """Input of a tool's activity. `ticket` counts from 1; it rises when an unclaimed ticket was voided."""

    permit: Permit
    tool: str
    args: Content
    ticket: int = 1
    budget_chars: int = 80_000
    audit: tuple[AuditEntry, ...] = ()


class ToolReply(Shape):
    """Result of a tool's activity: its outcome, or `again`, why the call must be judged anew (nothing ran).

    `undone`: what ran came to nothing, so the same right runs it under the next ticket.
    """

    outcome: CallOutcome | None = None
    again: Literal["", "stale", "lapsed", "policy", "undone"] = ""
    note: str = ""


class OutcomeTask(Shape):
    """Input of `signoff.outcome`: what became of a call whose activity timed out?"""

    permit: Permit
    tool: str
    ticket: int = 1
    idempotent: bool = False
    args: Content | None = None
    budget_chars: int = 80_000
    """For the tool's probe."""
    audit: tuple[AuditEntry, ...] = ()
    happened: Decision | None = None
    """Who says of that ticket that it happened: then it is written there, and not looked up."""


class RecordTask(Shape):
    """Input of `signoff.record`: what a turn has seen and no later activity of it would write down."""

    audit: tuple[AuditEntry, ...]


class AnswersTask(Shape):
    """Input of `signoff.answers`: which answers were taken to this revision of a question?"""

    approval: str
    revision: int


class StoredAnswers(Shape):
    """Result of `signoff.answers`, in the order in which they were taken."""

    decisions: tuple[Decision, ...] = ()


class IdentifyTask(Shape):
    """Input of `signoff.identify`: may this decision's author decide this request, now?

    `seats` are the people whose answer is counted already, their own or by somebody they delegated to.
    """

    decision: Decision
    tenant: str
    approvers: tuple[str, ...]
    requester: str
    allow_self: bool
    min_assurance: Assurance
    accept_unsigned: bool
    proposers: tuple[str, ...] = ()
    seats: tuple[str, ...] = ()


class Authority(Shape):
    """Result of `signoff.identify`. `code` is why not; `unavailable` when that cannot be known now."""

    allowed: bool
    code: ReceiptCode = ""
    subject: str = ""
    person_id: str = ""
    """The human behind `subject`, whatever entry or login they answered by; empty in results of old."""
    name: str = ""
    assurance: Assurance = "none"
    unsigned: bool = False
    on_behalf: str = ""
    """The human whose delegation lets the author decide."""
    received_at: datetime | None = None
    """When the gateway received a decision whose signature holds; None for an unsigned one."""
    note: str = ""
    """What the author is told beside `code`: why their answer cannot be remembered."""


class Offered(Shape):
    """One tool as the model is told of it."""

    name: str
    description: str
    parameters: dict[str, Any]
