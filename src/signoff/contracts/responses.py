"""Response bodies of the gateway's API, besides the shapes of turns, requests and records.

Rows of lists come from visibility and the store, without a workflow.
"""

from datetime import date, datetime
from typing import Any, Literal

from signoff.contracts.approval import ApprovalState, Card, CardRow, Terms
from signoff.contracts.call import CallState
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.grant import Freeze, Grant
from signoff.contracts.person import Absence
from signoff.contracts.preview import AnyPart, PreviewFault
from signoff.contracts.receipt import Receipt


class WaitingCard(FrozenModel):
    """One waiting request, in short."""

    id: str
    """The approval id."""
    code: str
    """The short code."""
    revision: int = 1
    """The waiting revision."""
    tool: str = ""
    actor: str = ""
    """The actor of the call."""
    effect: str = ""
    """The sentence that describes the effect."""
    amount: str = ""
    """The amount of money on its card, in digits, or ""."""
    currency: str = ""
    """The currency of that amount, such as `EUR`, or ""."""
    requester: str = ""
    """The requester's id."""
    approvers: tuple[str, ...] = ()
    """The approver entries of the request."""
    opened_at: datetime | None = None
    """When it was asked, in UTC."""
    expires_at: datetime | None = None
    """Its deadline, in UTC."""
    kind: Literal["approval", "in_doubt"] = "approval"
    """As in `ApprovalRequest`."""
    reminded: int = 0
    """Number of reminders."""
    escalated: bool = False
    """True after an escalation."""
    edited_by: str = ""
    """The name of the arguments' editor, or ""."""
    answered_by: tuple[str, ...] = ()
    """Ids of the people with counted answers to this revision."""
    taken_by: str = ""
    """The id of the person who has taken it in a room or the inbox, or "". Others can still decide."""
    taken_until: datetime | None = None
    """When it is free again, in UTC."""
    tenant: str = ""
    session: str = ""
    turn: str = ""


class PastRequest(FrozenModel):
    """One past request with the contents of its card: secrets are masked."""

    id: str
    """The approval id."""
    code: str
    """The short code."""
    revision: int = 1
    """The last revision."""
    kind: Literal["approval", "in_doubt"] = "approval"
    """As in `ApprovalRequest`."""
    tool: str
    tool_title: str = ""
    actor: str = ""
    """The actor of the call."""
    rule: str = ""
    """The label of the rule that asked, or ""."""
    effect: str
    """The sentence that describes the effect."""
    rows: tuple[CardRow, ...] = ()
    """The arguments on its card."""
    requester: str
    """The requester's id."""
    state: ApprovalState
    """How it ended."""
    decided_by: str = ""
    """The id of the person with the deciding answer, or ""."""
    decided_name: str = ""
    """The names of all deciding people, separated by commas."""
    answered_by: tuple[str, ...] = ()
    """Ids of the people with counted answers."""
    over_at: datetime
    """When it was decided or ended, in UTC."""
    opened_at: datetime | None = None
    """When it was asked, in UTC."""
    channel: str = ""
    """The channel of the deciding answer."""
    reason: str = ""
    """The given reason."""


class PastRequestList(FrozenModel):
    """A page of past requests, newest first."""

    decisions: tuple[PastRequest, ...]
    count: int
    """The number of all requests that match."""
    more: bool = False
    """True if there are more than `count`, which stops there."""
    next: str = ""
    """Names the next page, as `after`. "" on the last page."""


class Share(FrozenModel):
    """A number of requests or people with one property."""

    name: str
    count: int


class DecisionRate(FrozenModel):
    """The decisions of one tool, rule or person."""

    name: str
    """A tool's name, a rule's label or a person's id."""
    approved: int
    denied: int
    unanswered: int = 0


class DayFigures(FrozenModel):
    """The requests that ended on one day."""

    day: date
    approved: int = 0
    denied: int = 0
    unanswered: int = 0


class EarlierFigures(FrozenModel):
    """The figures of the same time, `days` earlier."""

    approved: int = 0
    denied: int = 0
    unanswered: int = 0
    p50: float | None = None
    p95: float | None = None


class WaitingFigures(FrozenModel):
    """The requests that wait now."""

    count: int
    more: bool = False
    """True if there are more than `count`."""
    expiring: int = 0
    oldest: float | None = None
    by_age: tuple[Share, ...] = ()
    """Up to `1h`, `4h`, `1d`, or `more`."""
    by_approver: tuple[Share, ...] = ()
    """A request may count for several entries."""


class InsightWarning(FrozenModel):
    """A figure that needs attention."""

    kind: Literal["fast", "unanswered"]
    """`fast`: approved within `seconds`. `unanswered`: expired."""
    tool: str = ""
    person: str = ""
    """The person's id, or ""."""
    percent: int
    """The share of `count`, rounded down."""
    count: int
    seconds: int = 0


class ApproverCoverage(FrozenModel):
    """The people who can approve the calls of one tool."""

    tool: str
    approvers: tuple[Share, ...]
    quorum: int = 1
    holes: tuple[str, ...] = ()
    """Why they cannot decide every request, a sentence each."""


class Insights(FrozenModel):
    """Figures about requests."""

    days: int
    """Whole days, and the present one."""
    every: bool
    """False: only requests that the reader answered or may answer."""
    waiting: WaitingFigures
    approved: int = 0
    denied: int = 0
    unanswered: int = 0
    more: bool = False
    """True if older requests do not count, except by day and outcome."""
    cut: bool = False
    """True if they do not count by day and outcome."""
    by_day: tuple[DayFigures, ...] = ()
    """Each counted day, oldest first."""
    before: EarlierFigures | None = None
    """`None` if either time is cut."""
    p50: float | None = None
    """Seconds to decide. `None` without decisions."""
    p95: float | None = None
    by_tool: tuple[DecisionRate, ...] = ()
    by_rule: tuple[DecisionRate, ...] = ()
    by_person: tuple[DecisionRate, ...] = ()
    """By the person with the deciding answer."""
    by_channel: tuple[Share, ...] = ()
    warnings: tuple[InsightWarning, ...] = ()
    coverage: tuple[ApproverCoverage, ...] = ()
    """Only for readers of all requests."""


class TurnRow(FrozenModel):
    """One turn of a list."""

    id: str
    """`<tenant>.<session>.<turn>`, as in the answer to the start."""
    tenant: str
    session: str
    turn: str
    workflow_id: str
    """The turn's workflow id."""
    run_id: str
    state: str
    actor: str = ""
    title: str = ""
    """The start of the turn's message."""
    requester: str = ""
    """The requester's id."""
    codes: tuple[str, ...] = ()
    """The short codes of its waiting requests."""
    approvers: tuple[str, ...] = ()
    """The approver entries of its present and past requests."""
    due_at: datetime | None = None
    """The earliest deadline of its waiting requests, in UTC."""
    started_at: datetime | None = None
    """When it started, in UTC."""
    closed_at: datetime | None = None
    """When it ended, in UTC."""


class SessionRow(FrozenModel):
    """One session of a list."""

    tenant: str
    session: str
    title: str = ""
    """The start of its first message."""
    requester: str = ""
    """The id of the session's owner."""
    approvers: tuple[str, ...] = ()
    """The approver entries of its turns' requests."""
    codes: tuple[str, ...] = ()
    """The short codes of its turns' waiting requests."""
    started_at: datetime | None = None
    """When it began, or continued in a new run, in UTC."""


class Fault(FrozenModel):
    """The body of every error response."""

    code: str
    """Stable, for programs."""
    message: str
    """One sentence for the reader."""


class TurnLinks(FrozenModel):
    """Addresses for following a turn."""

    self: str
    events: str
    page: str
    temporal: str
    """Empty if the address of Temporal's UI is unknown."""


class TurnStarted(FrozenModel):
    """The answer to a started turn."""

    id: str
    """`<tenant>.<session>.<turn>`."""
    tenant: str
    session: str
    turn: str
    links: TurnLinks


class CallAnswer(FrozenModel):
    """The state of an external agent's call."""

    id: str
    """The call's name in later requests."""
    state: CallState
    """`waiting` for approvers, `running` by Signoff, `permitted` for use, `used`, `denied` or `ended`."""
    tool: str
    code: str = ""
    """While it waits, the readable code. After its end, its outcome: `ok`, `execution_failed`, ...."""
    expires_at: datetime | None = None
    """The deadline for approvers."""
    page: str = ""
    """The address of its card. Deciding there needs a sign-in."""
    args: dict[str, Any] | None = None
    """The arguments to run it with, only in the request that used the permit."""
    key: str = ""
    """Only in the answer with the permit: the same for the same call, for a backend's idempotency key."""
    edited_by: str = ""
    """The editor of the arguments."""
    decided_by: str = ""
    """The approver."""
    note: str = ""
    """Changes to the arguments, and remarks of approvers."""
    source: str = ""
    """For a denied call: `human`, `answered`, `policy`, `timeout`, `cancelled` or `repeat`."""
    reason: str = ""
    """Why it was denied, for the agent."""
    by: str = ""
    """The person who denied it, or answered instead."""
    result: Any = None
    """The result of an ended call, or a person's answer instead."""


class PermitAnswer(FrozenModel):
    """The permit for an agent that runs a call itself, given once."""

    args: dict[str, Any]
    """The approved arguments."""
    key: str
    """The same for the same call: for a backend with idempotency keys."""
    note: str = ""
    """The changes to the arguments."""


class ResultRest(FrozenModel):
    """A piece of a truncated result."""

    call: str
    tool: str
    start: int
    """The start of the piece, in characters."""
    total: int
    """Number of stored characters."""
    next: int | None
    """The start of the next piece. Null at the end."""
    text: str


class AnswerLinks(FrozenModel):
    """Addresses for answering an open request."""

    api: str
    """For a `POST` of an answer."""
    session: str = ""
    """For a `POST` of a message with an `approval-response` part."""
    page: str = ""
    """For people."""
    channels: tuple[str, ...] = ()
    """The policy's channels. If empty, the channels of the manifest's rules."""


class ApprovalRequestPart(Terms):
    """The content of an `approval-request` part: an open request, as on its card."""

    approval_id: str
    code: str
    """The code that people type."""
    kind: Literal["approval", "in_doubt"]
    """`in_doubt` asks whether the call happened."""
    revision: int
    """To be sent back with an answer, as `question_hash`."""
    question_hash: str
    actor: str
    call: str
    tool: str
    effect: str
    """The sentence that describes the effect."""
    arguments: tuple[CardRow, ...]
    """As on the card, with secrets masked."""
    whole: bool
    """True if these are all arguments, in full. Otherwise read the request itself before approving."""
    expires_at: datetime | None
    """The deadline, in UTC."""
    where: AnswerLinks


class SessionLinks(FrozenModel):
    """Addresses for following a session."""

    self: str
    turn: str
    """Empty until the answering turn is known."""
    page: str


class SessionMessageReply(FrozenModel):
    """The answer to a message or a late result."""

    id: str
    """`<tenant>.<session>`."""
    tenant: str
    session: str
    turn: str
    """The turn concerned. Empty until it is known."""
    status: Literal["accepted", "refused", "pending"]
    code: str = ""
    message: str = ""
    receipts: tuple[Receipt, ...] = ()
    """The receipts of its `approval-response` parts, in order."""
    links: SessionLinks


class EditPreview(FrozenModel):
    """A request as it would be asked with other arguments. The preview changes nothing."""

    args: dict[str, Any]
    """All arguments, ready to send as `edited_args`: masks represent unchanged secrets."""
    card: Card
    changed: bool
    """True if they differ from the present ones."""


class EffectPreview(FrozenModel):
    """The preview of a call's effect."""

    parts: tuple[AnyPart, ...]
    """() for a tool without previews, and with a fault."""
    sha256: str = ""
    """The SHA-256 of the parts as canonical JSON. "" without parts."""
    fault: PreviewFault = ""
    """Why there is none, or ""."""


class TurnList(FrozenModel):
    """Turns, newest first."""

    turns: tuple[TurnRow, ...]


class TurnCancelled(FrozenModel):
    """The answer to a request to stop a turn."""

    id: str
    """`<tenant>.<session>.<turn>`."""
    state: str
    """`cancelling`, or the end state of a turn that has ended."""


class SessionList(FrozenModel):
    """Sessions, newest first."""

    sessions: tuple[SessionRow, ...]


class ApprovalList(FrozenModel):
    """Pending requests, earliest deadline first."""

    approvals: tuple[WaitingCard, ...]


class PasskeyOptions(FrozenModel):
    """The challenge of one decision for its author's passkey. It ends after five minutes or one use."""

    nonce: str
    """Send it back in `passkey` of the decision."""
    public_key: dict[str, Any]
    """The options for `navigator.credentials.get`, with bytes in base64url."""


class BatchReceipts(FrozenModel):
    """The receipts of several answers, in order."""

    receipts: tuple[Receipt, ...]


class GrantList(FrozenModel):
    """Remembered answers, newest first."""

    grants: tuple[Grant, ...]


class FreezeList(FrozenModel):
    """The freeze of a tenant, if there is one."""

    freezes: tuple[Freeze, ...]


class AbsenceList(FrozenModel):
    """The people who are or will be away, the soonest return first."""

    absences: tuple[Absence, ...]


class Health(FrozenModel):
    """Shows that the gateway itself is alive."""

    status: Literal["ok"] = "ok"


class ReadinessReport(FrozenModel):
    """Shows whether turns can start and be decided."""

    status: Literal["ready", "not ready"]
    checks: dict[str, str]
    """`ok`, or one sentence, for `server`, `store` and `clocks`."""
    refused: dict[str, int] | None = None
    """Refused input of the last day, by kind. Only for authorised readers."""
    worker: str | None = None
    """`ok`, or one sentence if no worker runs, with status 200. Omitted if Temporal does not answer."""
