"""A session: one conversation, what is said in it, the turns that answer, and what reaches those later."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from signoff.contracts.frozen_model import Shape
from signoff.contracts.ids import Id
from signoff.contracts.limits import SESSION_EVENTS, SESSION_PATIENCE_SECONDS
from signoff.contracts.message import Message
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Principal
from signoff.contracts.turn import Denial, Heard, ResponsePart, TurnError, TurnState
from signoff.contracts.updates import NO_UPDATES, Updates

SessionTurnState = Literal["working", "waiting"] | TurnState
"""`working` until the turn ends or waits for people for the first time."""


# Two characters less than an `Id`: `-` and a digit, as MAX_TURNS_PER_MESSAGE has one digit.
MessageId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,46}$")]
"""As an `Id`, with room for the number of a turn."""


class MailboxMessage(Shape):
    """What somebody says to a session. `id` keeps a second delivery from being a second message.

    `id` is also the id of the turn that answers; the n-th turn of the same message, after the actor passed it on or
    something was added later, is `<id>-<n>` (see `turn_of`). `principals` holds one principal a turn, as each is
    signed for its own; the last one stands for all that follow. `actor` empty: whoever the session talks to. With a
    `route` it is whoever the session talks to when it comes in, as routes are an actor's own; and it must be named once
    a turn has passed the session on to another actor.
    """

    engine: int
    id: MessageId
    actor: str = ""
    message: Message
    principals: tuple[Principal, ...] = Field(min_length=1)
    person_id: str = ""
    channel: str = ""
    route: str = ""
    step: str = ""
    context: dict[str, Any] = Field(default_factory=dict)
    dry_run: bool = False


class Injection(Shape):
    """A late result for turn `turn`, once for each `id`; it is never left to the next thing somebody says."""

    id: Id
    turn: Id
    message: Message


class SessionTurn(Shape):
    """One turn of a session. `said` is what it was begun with; `heir` the turn that goes on where this one ended."""

    turn: str
    number: int = 1
    actor: str
    origin: MailboxMessage
    said: tuple[Message, ...] = ()
    earlier: int = 0
    """How many messages of the turn's own transcript lie before `said`."""
    state: SessionTurnState = "working"
    parts: tuple[ResponsePart, ...] = ()
    error: TurnError | None = None
    heir: str = ""
    started_at: datetime


class FollowUp(Shape):
    """A turn to be begun at once: `actor` goes on after `turn`, with `said` if something was added."""

    turn: str
    actor: str
    said: tuple[Message, ...] = ()


class SessionInput(Shape):
    """Everything a session is, as one run hands it to the next. `engine` is stamped when it begins.

    `actor` is whom it talks to, `owner` for whom: what others would say there, its turns would do in the owner's name.
    `seen` maps ids of messages and injections to a hash of their content, oldest first.
    `injected` waits for turns that go on; those in `sent` were sent to theirs. `updates` are what tools changed of the
    context of the turns to come. `chosen` is the actor whom a person chose last: turns may have passed it on since.
    """

    engine: int
    tenant_id: str = DEFAULT_TENANT
    session_id: str
    actor: str = ""
    chosen: str = ""
    owner: str = ""
    turns: tuple[SessionTurn, ...] = ()
    mailbox: tuple[MailboxMessage, ...] = ()
    due: tuple[FollowUp, ...] = ()
    injected: tuple[Injection, ...] = ()
    sent: tuple[str, ...] = ()
    seen: dict[str, str] = Field(default_factory=dict)
    denied: tuple[Denial, ...] = ()
    heard: tuple[Heard, ...] = ()
    refusals: int = 0
    updates: Updates = NO_UPDATES
    events_per_run: int = SESSION_EVENTS
    patience_seconds: float = SESSION_PATIENCE_SECONDS


class TurnReport(Shape):
    """What a turn tells its session: that it waits for people, or how it ended.

    `taken` are the ids of the injections that its model was told; `updates` what its tools changed of the context.
    """

    turn: str
    state: Literal["waiting"] | TurnState
    parts: tuple[ResponsePart, ...] = ()
    error: TurnError | None = None
    pass_to: str = ""
    denied: tuple[Denial, ...] = ()
    taken: tuple[str, ...] = ()
    updates: Updates = NO_UPDATES


class SessionReceipt(Shape):
    """What became of a message or an injection; `turn` is the turn that it is for.

    `pending`: no worker was there to take it, it is stored. `duplicate` was accepted before and changes nothing.
    """

    status: Literal["accepted", "refused", "pending"]
    code: Literal["", "duplicate", "malformed", "conflict", "full", "unknown", "not_allowed"] = ""
    turn: str = ""
    message: str = ""


class SessionTurnView(Shape):
    """One turn as an onlooker of the session sees it; `said` and `earlier` as in `SessionTurn`."""

    turn: str
    message_id: str
    actor: str
    state: SessionTurnState
    requester: str = ""
    said: tuple[Message, ...] = ()
    earlier: int = 0
    parts: tuple[ResponsePart, ...] = ()
    error: TurnError | None = None
    started_at: datetime | None = None


class QueuedView(Shape):
    """A message that no turn answers yet."""

    message_id: str
    message: Message


class SessionView(Shape):
    """The answer to a session's `state` query: its turns oldest first, and what is still in the mailbox."""

    tenant: str
    session: str
    actor: str
    owner: str = ""
    turns: tuple[SessionTurnView, ...] = ()
    queued: tuple[QueuedView, ...] = ()
    refusals: int = 0


def turn_of(message_id: str, number: int) -> str:
    """The id of the `number`-th turn, from 1, that one message leads to."""
    return message_id if number == 1 else f"{message_id}-{number}"
