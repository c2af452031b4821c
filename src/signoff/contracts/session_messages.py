"""Messages to and from a session: one conversation, its turns, and their late results."""

import operator
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, computed_field

from signoff.contracts.call import Place
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.ids import Id
from signoff.contracts.limits import SESSION_EVENTS, SESSION_PATIENCE_SECONDS
from signoff.contracts.message import Message
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Principal
from signoff.contracts.turn import Denial, FinalState, ResponsePart, SessionEvent, TurnError
from signoff.contracts.updates import NO_UPDATES, Updates

_LATE_HEX: Final = 32
SessionTurnState = Literal["working", "waiting"] | FinalState
"""`working` until the turn ends or first waits for approvers."""


# Two characters less than an `Id`: `-` and a digit, because MAX_TURNS_PER_MESSAGE has one digit.
MessageId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,46}$")]
"""Like an `Id`, with room for the number of a turn."""


class MailboxMessage(FrozenModel):
    """A person's message to a session."""

    engine: int
    """The writer's engine number."""
    id: MessageId
    """Identifies a repeated delivery of the message.

    It is also the id of the answering turn. The n-th turn of the same message, after the actor passed it on or a late
    result arrived, is `<id>-<n>` (see `turn_of`).
    """
    actor: str = ""
    """The addressed actor. "" for the session's present one.

    With a `route`, it is the present one when the message arrives, because routes belong to an actor. It must be named
    once a turn has passed the session on to another actor.
    """
    message: Message
    principals: tuple[Principal, ...] = Field(min_length=1)
    """One principal a turn, because each is signed for its own. The last one serves all later turns."""
    person_id: str = ""
    """The sender's person id."""
    channel: str = ""
    """The channel of the message."""
    route: str = ""
    """The requested route."""
    step: str = ""
    """The requested step."""
    seal: str = ""
    """Proves that the gateway accepted this route and step, see `Place`: later messages stay there."""
    transient: tuple[str, ...] = ()
    """Names of tools that its turn has with priority over all others. The next actor does not get them."""
    context: dict[str, Any] = Field(default_factory=dict)
    """The caller's context."""
    dry_run: bool = False
    """True if tools are only simulated."""
    trace: bool = False
    """True if the audit log shows the meaning of each call's tool name."""


class LateResult(FrozenModel):
    """A late result for one turn. It never waits for the session's next message."""

    id: Id
    """Identifies a repeated delivery of the result."""
    turn: Id
    """The turn concerned."""
    message: Message
    """The result in text."""
    outcome_of: str = ""
    """The call that its turn left open, with this outcome."""


class SessionTurn(FrozenModel):
    """One turn of a session."""

    turn: str
    number: int = 1
    """The turn's number within its message, from 1."""
    actor: str
    origin: MailboxMessage
    """The answered message."""
    messages: tuple[Message, ...] = ()
    """The messages at its start."""
    earlier: int = 0
    """Number of messages before `messages` in the turn's own transcript."""
    state: SessionTurnState = "working"
    parts: tuple[ResponsePart, ...] = ()
    error: TurnError | None = None
    left_open: int = 0
    """Number of pending calls at its end. The outcome of each is still to arrive."""
    heir: str = ""
    """The turn that continues this one."""
    started_at: datetime
    """When it started, in UTC."""


class FollowUp(FrozenModel):
    """A turn to start at once."""

    turn: str
    """The turn to continue."""
    actor: str
    """The next actor."""
    messages: tuple[Message, ...] = ()
    """The late results, if any."""


class SessionInput(FrozenModel):
    """The whole state of a session, which one run passes to the next."""

    engine: int
    """The engine number, stamped when the session begins."""
    tenant_id: str = DEFAULT_TENANT
    session_id: str
    actor: str = ""
    """The session's present actor."""
    chosen: str = ""
    """The actor that a person chose last. Turns may have passed the session on since."""
    place: Place | None = None
    """The place of the conversation: messages without a route begin there."""
    owner: str = ""
    """The id of the session's owner: another sender's turns would run in the owner's name."""
    turns: tuple[SessionTurn, ...] = ()
    """Its turns, oldest first."""
    mailbox: tuple[MailboxMessage, ...] = ()
    """Messages without a turn."""
    due: tuple[FollowUp, ...] = ()
    """Turns to start at once."""
    injected: tuple[LateResult, ...] = ()
    """Late results for open turns."""
    sent: tuple[str, ...] = ()
    """Ids of late results that were sent to their turns."""
    seen: dict[str, str] = Field(default_factory=dict)
    """Ids of messages and late results with a hash of their content, oldest first."""
    denied: tuple[Denial, ...] = ()
    """The session's denials."""
    session_events: tuple[SessionEvent, ...] = ()
    """Events of the session that its next turn records."""
    refusals: int = 0
    """Number of refused messages."""
    updates: Updates = NO_UPDATES
    """The tools' changes to the context of later turns."""
    events_per_run: int = SESSION_EVENTS
    """History events after which a new run begins."""
    patience_seconds: float = SESSION_PATIENCE_SECONDS
    """Seconds that the next message waits for a working turn."""


class TurnReport(FrozenModel):
    """A turn's report to its session: that it waits for approvers, or how it ended."""

    turn: str
    state: Literal["waiting"] | FinalState
    """`waiting`, or the end state."""
    parts: tuple[ResponsePart, ...] = ()
    error: TurnError | None = None
    pass_to: str = ""
    """The next actor."""
    denied: tuple[Denial, ...] = ()
    """Its denials."""
    taken: tuple[str, ...] = ()
    """Ids of the late results that its model got."""
    left_open: int = 0
    """Number of pending calls at its end."""
    updates: Updates = NO_UPDATES
    """The tools' changes to the context."""
    place: Place | None = Field(default=None, exclude_if=operator.not_)
    """The new place of the turn. `None` if it stayed."""


class SessionReceipt(FrozenModel):
    """The answer to a message or a late result."""

    status: Literal["accepted", "refused", "pending"]
    """`pending`: stored, because no worker was available."""
    code: Literal["", "duplicate", "malformed", "conflict", "full", "unknown", "not_allowed"] = ""
    """Why it was refused. `duplicate` was accepted before and changes nothing."""
    turn: str = ""
    """The turn concerned."""
    message: str = ""
    """One sentence for the person."""


class SessionTurnView(FrozenModel):
    """One turn in the view of a session."""

    turn: str
    message_id: str
    """The answered message."""
    actor: str
    route: str = ""
    """The route at its start."""
    step: str = ""
    """The step at its start."""
    state: SessionTurnState
    requester: str = ""
    """The requester's id."""
    messages: tuple[Message, ...] = ()
    """As in `SessionTurn`."""
    earlier: int = 0
    """As in `SessionTurn`."""
    parts: tuple[ResponsePart, ...] = ()
    """Its answer. While it waits, one `approval-request` a request, added by the gateway."""
    error: TurnError | None = None
    left_open: int = 0
    """Number of pending calls at its end."""
    started_at: datetime | None = None
    """When it started, in UTC."""


class QueuedView(FrozenModel):
    """A message without a turn."""

    message_id: str
    message: Message


class SessionView(FrozenModel):
    """The answer to a session's `state` query."""

    tenant: str
    session: str
    actor: str
    """Its present actor."""
    route: str = ""
    """The conversation's route with that actor."""
    step: str = ""
    """The step of that route."""
    seal: str = Field(default="", exclude_if=operator.not_)
    """Proves route and step to the gateway, see `Place`. No client gets it."""
    owner: str = ""
    """The id of the session's owner."""
    turns: tuple[SessionTurnView, ...] = ()
    """Its turns, oldest first."""
    queued: tuple[QueuedView, ...] = ()
    """The messages still in its mailbox."""
    refusals: int = 0
    """Number of refused messages."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> Literal["", "running", "suspended"] | FinalState:
        """`running`, `suspended` while a call waits, or the last turn's end state. Empty before the first."""
        if self.queued or any(turn.state == "working" for turn in self.turns):
            return "running"
        if any(turn.state == "waiting" or turn.left_open for turn in self.turns):
            return "suspended"
        last = self.turns[-1].state if self.turns else ""
        return "" if last == "working" or last == "waiting" else last


def turn_of(message_id: str, number: int) -> str:
    """`number` counts from 1."""
    return message_id if number == 1 else f"{message_id}-{number}"


def late_id(event_id: str) -> str:
    """The same for every delivery. An event's own id is too long."""
    return f"late-{sha256_hex(event_id)[:_LATE_HEX]}"


def late_words(event_id: str, text: str) -> str:
    return f"Result of `{event_id}`: {text}"
