"""Messages to and from a session: one conversation, its turns, and what reaches them later."""

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
"""`working` until the turn ends or waits for people for the first time."""


# Two characters less than an `Id`: `-` and a digit, as MAX_TURNS_PER_MESSAGE has one digit.
MessageId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,46}$")]
"""As an `Id`, with room for the number of a turn."""


class MailboxMessage(FrozenModel):
    """A message of somebody to a session."""

    engine: int
    """The number of the engine that wrote it."""
    id: MessageId
    """Keeps a second delivery from being a second message.

    It is also the id of the turn that answers; the n-th turn of the same message, after the actor passed it on or
    something was added later, is `<id>-<n>` (see `turn_of`).
    """
    actor: str = ""
    """The actor addressed; "" for the one that the session talks to.

    With a `route` it is the one that the session talks to when the message comes in, as routes are an actor's own; and
    it must be named once a turn has passed the session on to another actor.
    """
    message: Message
    """The words."""
    principals: tuple[Principal, ...] = Field(min_length=1)
    """One principal a turn, as each is signed for its own; the last one stands for all that follow."""
    person_id: str = ""
    """The id of the human who sent it."""
    channel: str = ""
    """By which channel it came."""
    route: str = ""
    """The route asked for."""
    step: str = ""
    """The step asked for."""
    seal: str = ""
    """Proves that the gateway took this route and step, see `Place`: later messages stay there."""
    transient: tuple[str, ...] = ()
    """Names of tools that its turn has before all others; an actor to whom it is passed on has them no more."""
    context: dict[str, Any] = Field(default_factory=dict)
    """The context that the caller gave."""
    dry_run: bool = False
    """Whether tools are only simulated."""
    trace: bool = False
    """Whether it is recorded which tool each call's name means, and why."""


class LateResult(FrozenModel):
    """A late result for one turn; it is never left to the next message of the session."""

    id: Id
    """Keeps a second delivery from being a second result."""
    turn: Id
    """The turn that it is for."""
    message: Message
    """The result in words."""
    outcome_of: str = ""
    """The call over which its turn ended, and whose outcome it is."""


class SessionTurn(FrozenModel):
    """One turn of a session."""

    turn: str
    """The turn's id."""
    number: int = 1
    """The number of the turn among those of its message, from 1."""
    actor: str
    """The turn's actor."""
    origin: MailboxMessage
    """The message that it answers."""
    messages: tuple[Message, ...] = ()
    """The messages that it was started with."""
    earlier: int = 0
    """How many messages of the turn's own transcript lie before `messages`."""
    state: SessionTurnState = "working"
    """The turn's state."""
    parts: tuple[ResponsePart, ...] = ()
    """Its answer."""
    error: TurnError | None = None
    """Why it failed."""
    left_open: int = 0
    """Over how many undecided calls it ended; the outcome of each is still to come."""
    heir: str = ""
    """The turn that goes on where this one ended."""
    started_at: datetime
    """When it was started, in UTC."""


class FollowUp(FrozenModel):
    """A turn to be started at once."""

    turn: str
    """The turn after which it goes on."""
    actor: str
    """The actor that goes on."""
    messages: tuple[Message, ...] = ()
    """The messages that were added, if any."""


class SessionInput(FrozenModel):
    """The whole state of a session, which one run hands to the next."""

    engine: int
    """The number of the engine, stamped when the session begins."""
    tenant_id: str = DEFAULT_TENANT
    """The tenant."""
    session_id: str
    """The session's id."""
    actor: str = ""
    """The actor that the session talks to."""
    chosen: str = ""
    """The actor that a person chose last; turns may have passed the session on since."""
    place: Place | None = None
    """Where the conversation is: messages that name no route begin there."""
    owner: str = ""
    """The id of the person whose session it is: for a message of others its turns would run in the owner's name."""
    turns: tuple[SessionTurn, ...] = ()
    """Its turns, oldest first."""
    mailbox: tuple[MailboxMessage, ...] = ()
    """Messages that no turn answers yet."""
    due: tuple[FollowUp, ...] = ()
    """Turns to be started at once."""
    injected: tuple[LateResult, ...] = ()
    """Late results that wait for turns to go on."""
    sent: tuple[str, ...] = ()
    """Ids of late results that were sent to their turns."""
    seen: dict[str, str] = Field(default_factory=dict)
    """Ids of messages and late results with a hash of their content, oldest first."""
    denied: tuple[Denial, ...] = ()
    """Calls that people denied in the session."""
    session_events: tuple[SessionEvent, ...] = ()
    """Events of the session that its next turn records."""
    refusals: int = 0
    """How many messages were refused."""
    updates: Updates = NO_UPDATES
    """What tools changed of the context of later turns."""
    events_per_run: int = SESSION_EVENTS
    """After how many history events a new run begins."""
    patience_seconds: float = SESSION_PATIENCE_SECONDS
    """For how many seconds the next message waits for a turn at work."""


class TurnReport(FrozenModel):
    """A turn's report to its session: that it waits for people, or how it ended."""

    turn: str
    """The turn's id."""
    state: Literal["waiting"] | FinalState
    """`waiting`, or the state in which it ended."""
    parts: tuple[ResponsePart, ...] = ()
    """Its answer."""
    error: TurnError | None = None
    """Why it failed."""
    pass_to: str = ""
    """The actor that goes on."""
    denied: tuple[Denial, ...] = ()
    """Calls that people denied in it."""
    taken: tuple[str, ...] = ()
    """Ids of the late results that its model got."""
    left_open: int = 0
    """Over how many undecided calls it ended."""
    updates: Updates = NO_UPDATES
    """What its tools changed of the context."""
    place: Place | None = Field(default=None, exclude_if=operator.not_)
    """The place to which the turn moved; `None` where it stayed."""


class SessionReceipt(FrozenModel):
    """The answer to a message or a late result."""

    status: Literal["accepted", "refused", "pending"]
    """`pending`: no worker was there to take it, it is stored."""
    code: Literal["", "duplicate", "malformed", "conflict", "full", "unknown", "not_allowed"] = ""
    """Why it was refused; `duplicate` was accepted before and changes nothing."""
    turn: str = ""
    """The turn that it is for."""
    message: str = ""
    """One sentence for the person."""


class SessionTurnView(FrozenModel):
    """One turn as an onlooker of the session sees it."""

    turn: str
    """The turn's id."""
    message_id: str
    """The message that it answers."""
    actor: str
    """The turn's actor."""
    route: str = ""
    """The route on which it began."""
    step: str = ""
    """The step at which it began."""
    state: SessionTurnState
    """The turn's state."""
    requester: str = ""
    """The id of whoever asked."""
    messages: tuple[Message, ...] = ()
    """As in `SessionTurn`."""
    earlier: int = 0
    """As in `SessionTurn`."""
    parts: tuple[ResponsePart, ...] = ()
    """Its answer; while it waits for people an `approval-request` each request, which the gateway adds."""
    error: TurnError | None = None
    """Why it failed."""
    left_open: int = 0
    """Over how many calls that people still decide it ended."""
    started_at: datetime | None = None
    """When it was started, in UTC."""


class QueuedView(FrozenModel):
    """A message that no turn answers yet."""

    message_id: str
    """The message's id."""
    message: Message
    """The words."""


class SessionView(FrozenModel):
    """The answer to a session's `state` query."""

    tenant: str
    """The tenant."""
    session: str
    """The session's id."""
    actor: str
    """The actor that it talks to."""
    route: str = ""
    """The route on which the conversation is with that actor."""
    step: str = ""
    """The step of that route."""
    seal: str = Field(default="", exclude_if=operator.not_)
    """Proves route and step to the gateway, see `Place`; no client gets it."""
    owner: str = ""
    """The id of the person whose session it is."""
    turns: tuple[SessionTurnView, ...] = ()
    """Its turns, oldest first."""
    queued: tuple[QueuedView, ...] = ()
    """The messages still in its mailbox."""
    refusals: int = 0
    """How many messages were refused."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> Literal["", "running", "suspended"] | FinalState:
        """`running`, `suspended` while a call waits for people, or as the last turn ended; empty before the first."""
        if self.queued or any(turn.state == "working" for turn in self.turns):
            return "running"
        if any(turn.state == "waiting" or turn.left_open for turn in self.turns):
            return "suspended"
        last = self.turns[-1].state if self.turns else ""
        return "" if last == "working" or last == "waiting" else last


def turn_of(message_id: str, number: int) -> str:
    """Makes the id of the `number`-th turn, from 1, that one message leads to."""
    return message_id if number == 1 else f"{message_id}-{number}"


def late_id(event_id: str) -> str:
    """Makes the id of the late result of an event, the same for every delivery; an event's own id is too long."""
    return f"late-{sha256_hex(event_id)[:_LATE_HEX]}"


def late_words(event_id: str, text: str) -> str:
    """Writes the late result of an event for the model."""
    return f"Result of `{event_id}`: {text}"
