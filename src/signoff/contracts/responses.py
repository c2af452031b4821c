"""What the gateway's API answers, beside the shapes that turns, requests and records have themselves."""

from datetime import datetime
from typing import Any, Literal

from signoff.contracts.approval import Card, CardRow
from signoff.contracts.call import CallState
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.grant import Freeze, Grant
from signoff.contracts.list_rows import SessionRow, TurnRow, WaitingCard
from signoff.contracts.receipt import Receipt


class Fault(FrozenModel):
    """The body of every answer that is an error."""

    code: str
    """Stable, for programs."""
    message: str
    """One sentence for the reader."""


class TurnLinks(FrozenModel):
    """Where to follow a turn."""

    self: str
    events: str
    page: str
    temporal: str
    """Empty where no address of Temporal's UI is known."""


class TurnStarted(FrozenModel):
    """The answer to a started turn."""

    id: str
    """`<tenant>.<session>.<turn>`."""
    tenant: str
    session: str
    turn: str
    links: TurnLinks


class CallAnswer(FrozenModel):
    """How far a call of an external agent has come."""

    id: str
    """Names the call in later requests."""
    state: CallState
    """`waiting` for people, `running` by Signoff, `permitted` to be used, `used`, `denied` or `ended`."""
    tool: str
    """The tool."""
    code: str = ""
    """While it waits, the code that people read; once it has ended, its outcome: `ok`, `execution_failed`, ...."""
    expires_at: datetime | None = None
    """Until when people are asked."""
    page: str = ""
    """Where people see it; whoever decides there has to sign in."""
    args: dict[str, Any] | None = None
    """Of a permitted call, and of this very request that used it: what it is to be run with."""
    key: str = ""
    """Only in the answer that hands the permit out: the same for the same call, for a backend's idempotency key."""
    edited_by: str = ""
    """Who changed the arguments."""
    decided_by: str = ""
    """Who let it run."""
    note: str = ""
    """What was done to the arguments, or said with the answer."""
    source: str = ""
    """Of a denied one: `human`, `policy`, `timeout`, `cancelled` or `repeat`."""
    reason: str = ""
    """Why it was denied, in words for the agent."""
    by: str = ""
    """Who denied it."""
    result: Any = None
    """Of an ended one: what came of it."""


class PermitAnswer(FrozenModel):
    """What the agent that runs a call itself is given, once."""

    args: dict[str, Any]
    """The arguments to run it with, as they were approved."""
    key: str
    """The same for the same call: for a backend that knows idempotency keys."""
    note: str = ""
    """What was done to the arguments."""


class ResultRest(FrozenModel):
    """A piece of a result that was cut."""

    call: str
    tool: str
    start: int
    """Where the piece begins, in characters."""
    total: int
    """How many characters are kept."""
    next: int | None
    """Where the next piece begins; null at the end."""
    text: str


class AnswerLinks(FrozenModel):
    """Where an open request can be answered."""

    api: str
    """By `POST` of an answer."""
    session: str = ""
    """By `POST` of a message with an `approval-response` part."""
    page: str = ""
    """By people."""
    channels: tuple[str, ...] = ()
    """The channels that the policy names; empty: those of the manifest's rules."""


class ApprovalRequestPart(FrozenModel):
    """The content of an `approval-request` part: an open request, as its card shows it."""

    approval_id: str
    code: str
    """What people type."""
    kind: Literal["approval", "in_doubt"]
    """`in_doubt` asks whether the call happened."""
    revision: int
    """To be sent back with an answer, as `question_hash`."""
    question_hash: str
    actor: str
    call: str
    tool: str
    effect: str
    """The sentence that says what the call does."""
    arguments: tuple[CardRow, ...]
    """As the card shows them, secret ones masked."""
    whole: bool
    """Whether these are all of them, in full; else the request itself has to be read before it is approved."""
    expires_at: datetime | None
    """The deadline, in UTC."""
    approvers: tuple[str, ...]
    """Who may answer, as `role:<role>` and `user:<id>`."""
    quorum: int
    """How many of them have to approve."""
    where: AnswerLinks


class SessionLinks(FrozenModel):
    """Where to follow a session."""

    self: str
    turn: str
    """Empty until it is known which turn answers."""
    page: str


class SessionMessageReply(FrozenModel):
    """The answer to a message or a late result."""

    id: str
    """`<tenant>.<session>`."""
    tenant: str
    session: str
    turn: str
    """The turn that it is for; empty until that is known."""
    status: Literal["accepted", "refused", "pending"]
    code: str = ""
    message: str = ""
    receipts: tuple[Receipt, ...] = ()
    """Those of its `approval-response` parts, in their order."""
    links: SessionLinks


class EditPreview(FrozenModel):
    """A request as it would be asked with other arguments: nothing is changed by it."""

    args: dict[str, Any]
    """All arguments as they can be sent as `edited_args`: masks stand for secrets that were left as they are."""
    card: Card
    changed: bool
    """Whether they differ from what is asked."""


class TurnList(FrozenModel):
    """Turns, newest first."""

    turns: tuple[TurnRow, ...]


class TurnCancelled(FrozenModel):
    """The answer to whoever asks a turn to stop."""

    id: str
    """`<tenant>.<session>.<turn>`."""
    state: str
    """`cancelling`, or that in which the turn was over already."""


class SessionList(FrozenModel):
    """Sessions, newest first."""

    sessions: tuple[SessionRow, ...]


class ApprovalList(FrozenModel):
    """What waits, soonest deadline first."""

    approvals: tuple[WaitingCard, ...]


class BatchReceipts(FrozenModel):
    """The receipts of several answers, in their order."""

    receipts: tuple[Receipt, ...]


class GrantList(FrozenModel):
    """Remembered answers, newest first."""

    grants: tuple[Grant, ...]


class FreezeList(FrozenModel):
    """The freeze of a tenant, if there is one."""

    freezes: tuple[Freeze, ...]


class Health(FrozenModel):
    """Says that the gateway itself is alive."""

    status: Literal["ok"] = "ok"


class ReadinessReport(FrozenModel):
    """Says whether turns can be started and decided."""

    status: Literal["ready", "not ready"]
    checks: dict[str, str]
    """`ok`, or one sentence, of `server`, `store` and `clocks`."""
    refused: dict[str, int] | None = None
    """How much bad input was refused in the last day, by kind; only for who may know."""
    worker: str | None = None
    """`ok`, or one sentence where no worker runs, with status 200; left out where Temporal does not answer."""
