"""Keeps a session's state: its mailbox, its turns, and what is added to them. Plain data and plain computation."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from signoff.approvals.approval_book import envelope_problem
from signoff.contracts.call import Place
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.content import Content
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.limits import (
    EFFECT_CHARS,
    MAX_TURNS_PER_MESSAGE,
    SESSION_DENIED,
    SESSION_MAILBOX,
    SESSION_OPEN_BYTES,
    SESSION_SEEN,
    SESSION_UPDATES_BYTES,
    SESSION_WINDOW_BYTES,
    SESSION_WINDOW_TURNS,
)
from signoff.contracts.message import RESPONSE, Message, TextPart
from signoff.contracts.session_messages import (
    FollowUp,
    LateResult,
    MailboxMessage,
    QueuedView,
    SessionInput,
    SessionReceipt,
    SessionTurn,
    SessionTurnView,
    SessionView,
    TurnReport,
    turn_of,
)
from signoff.contracts.turn import Denial, TurnError, TurnInput
from signoff.contracts.updates import merge_updates
from signoff.formats.replace import replace
from signoff.workflows.envelope_reader import read_envelope
from signoff.workflows.session_link import SessionLog

_OPEN: Final = ("working", "waiting")
_ShapeT = TypeVar("_ShapeT", bound=FrozenModel)


class Conversation:
    """Holds the state of one session. Callers pass the time in; no input makes it raise."""

    def __init__(self, session: SessionInput) -> None:
        self.key = SessionKey(session.tenant_id, session.session_id)
        self._session = session
        self._patience = timedelta(seconds=session.patience_seconds)
        self._actor = session.actor
        self._chosen = session.chosen or session.actor
        self._place = session.place
        self._owner = session.owner
        self._turns = {turn.turn: turn for turn in session.turns}
        self._mailbox = list(session.mailbox)
        self._due = list(session.due)
        self._injected = {injection.id: injection for injection in session.injected}
        self._sent = set(session.sent)
        self._seen = dict(session.seen)
        self._denied = {denial.action: denial for denial in session.denied}
        self._refusals = session.refusals
        self._updates = session.updates
        self._log = SessionLog(session.session_events)

    # What is sent to the session.

    def say(self, envelopes: Sequence[Any], now: datetime) -> SessionReceipt:
        """Takes a message, once for each id."""
        return self._log.record_reply("message", envelopes, self._take_message(envelopes), now)

    def _take_message(self, envelopes: Sequence[Any]) -> SessionReceipt:
        message = self._read(envelopes, MailboxMessage)
        if isinstance(message, SessionReceipt):
            return message
        user = message.principals[0].user
        if self._owner not in ("", user):
            return self._refuse("not_allowed", "this session is somebody else's; begin one of your own")
        # After the owner is known, so that a stranger learns of no id; before all else, so that a second delivery is
        # never refused for what the first one has changed.
        known = self._find_known(message.id, message, message.id)
        if known is not None:
            return known
        message = replace(message, message=_reduce_message(message.message))
        if message.id in self._turns:
            return self._refuse("conflict", f"there is a turn `{message.id}` already; choose another id")
        if not (message.actor or self._actor):
            return self._refuse("malformed", "`actor`: say whom this session talks to")
        # All of it goes into the input of the next run, of which the server takes 2 MiB and no more.
        if len(self._mailbox) >= SESSION_MAILBOX or self._open_bytes() + _size(message) > SESSION_OPEN_BYTES:
            return self._refuse("full", "too much waits for an answer in this session; try again later")
        spoken, chosen = self._spoken_to()
        placed = bool(message.route or message.step or message.transient) and not message.actor
        if placed and spoken != chosen:
            whose = "name the actor whose `route`, `step` and `transient` these are"
            why = f"`actor`: this session was passed on to `{spoken}`; {whose}"
            return self._refuse("malformed", why)
        # Only now: a message that was refused makes nobody the owner.
        self._owner = user
        self._remember(message.id, message)
        # Whatever is passed on meanwhile: the route is that of whoever is spoken to now.
        self._mailbox.append(replace(message, actor=spoken) if placed else message)
        return SessionReceipt(status="accepted", turn=message.id)

    def inject(self, envelopes: Sequence[Any], now: datetime) -> SessionReceipt:
        """Takes a late result for a turn, or for the turn that goes on in its place; once for each id."""
        return self._log.record_reply("result", envelopes, self._add(envelopes), now)

    def _add(self, envelopes: Sequence[Any]) -> SessionReceipt:
        injection = self._read(envelopes, LateResult)
        if isinstance(injection, SessionReceipt):
            return injection
        injection = replace(injection, message=_reduce_message(injection.message, late=True))
        turn = self._latest(injection.turn)
        # Before its turn is missed: that may be forgotten by now, and a second delivery is no error for it.
        known = self._find_known(injection.id, injection, turn.turn if turn else "")
        if known is not None:
            return known
        if turn is None:
            return self._refuse("unknown", f"there is no turn `{injection.turn}` here")
        # Room was kept for it when its turn ended over the call: it is never refused.
        if not self._close_call(injection):
            number = turn.number + self._kept_turns(turn.origin.id)
            if number >= MAX_TURNS_PER_MESSAGE or self._open_bytes() + _size(injection) > SESSION_OPEN_BYTES:
                return self._refuse("full", f"turn `{injection.turn}` cannot take any more")
        self._remember(injection.id, injection)
        if turn.state in _OPEN:
            self._injected[injection.id] = injection
            return SessionReceipt(status="accepted", turn=turn.turn)
        self._follow_up(turn, turn.actor, (injection.message,))
        return SessionReceipt(status="accepted", turn=turn_of(turn.origin.id, turn.number + 1))

    def report(self, envelopes: Sequence[Any], now: datetime) -> None:
        """Takes a turn's report."""
        report = read_envelope(envelopes[0] if len(envelopes) == 1 else None, TurnReport)
        turn = None if isinstance(report, str) else self._turns.get(report.turn)
        if isinstance(report, str) or turn is None:
            code: Any = "malformed" if isinstance(report, str) else "unknown"
            self._log.record_reply("report", envelopes, self._refuse(code, ""), now)
        elif report.state == "waiting":
            self.step_aside(turn.turn)
        # A turn that is reset tells it again, and the server may have told that it closed: the first word stands.
        elif turn.state in _OPEN:
            # Too much of it is left out and told. The turn has ended all the same, or the next would wait for it.
            if not self._update(report):
                self._log.record_reply("report", envelopes, self._refuse("full", ""), now)
            self._end(turn, report)

    def record_lost_turn(self, turn_id: str, error: TurnError, now: datetime) -> None:
        """Records that a turn ended without a report: it was terminated, or could not begin."""
        turn = self._turns.get(turn_id)
        if turn is not None and turn.left_open:
            # It is there no more to tell what became of these calls.
            self._turns[turn_id] = replace(turn, left_open=0)
            self._log.record_lost_turn(turn_id, error.code, now)
        elif turn is not None and turn.state in _OPEN:
            self._log.record_lost_turn(turn_id, error.code, now)
            self._end(turn, TurnReport(turn=turn_id, state="error", error=error))

    # What the session does.

    def next(self, now: datetime) -> FollowUp | MailboxMessage | None:
        """Chooses the next turn: one that follows another at once, else the oldest message in its time; or None."""
        # Before the mailbox: what goes on is part of an answer that somebody waits for already.
        if self._due:
            return self._due[0]
        if not self._mailbox or any(now < turn.started_at + self._patience for turn in self._working()):
            return None
        return self._mailbox[0]

    def patience_deadline(self) -> datetime | None:
        """Returns when the oldest message is answered though a turn is still at work; None where nothing waits for
        that.
        """
        if not self._mailbox:
            return None
        return max((turn.started_at + self._patience for turn in self._working()), default=None)

    def begin(self, item: FollowUp | MailboxMessage, now: datetime) -> TurnInput:
        """Adds the turn that answers `item`, which `next` returned; returns the turn's input."""
        if isinstance(item, FollowUp):
            self._due.pop(0)
            turn = self._heir(item, now)
        else:
            self._mailbox.pop(0)
            actor = item.actor or self._actor
            self._chosen = item.actor or self._chosen
            item = self._put(item, actor)
            turn = SessionTurn(turn=item.id, actor=actor, origin=item, messages=(item.message,), started_at=now)
        self._actor = turn.actor
        # Before the turn is entered, which would have its own words twice in what it reads.
        earlier = tuple(self._transcript())
        turn = replace(turn, earlier=len(earlier))
        self._turns[turn.turn] = turn
        return self._input(turn, (*earlier, *turn.messages))

    def _put(self, item: MailboxMessage, actor: str) -> MailboxMessage:
        """Returns a message to `actor` with its place: the one that it names, else the conversation's."""
        if item.route or item.step:
            self._place = Place(actor=actor, route=item.route, step=item.step, seal=item.seal)
            return item
        place = self._place_with(actor)
        return item if place is None else replace(item, route=place.route, step=place.step, seal=place.seal)

    def _leave(self, turn: SessionTurn) -> None:
        """Moves the conversation back from the place of a turn that could not begin: every later one would fail too."""
        lost = _place_of(turn)
        if self._place is None or self._place != lost:
            return
        places = (_place_of(each) for each in reversed(self._turns.values()) if each.actor == turn.actor)
        self._place = next((each for each in places if each != lost), None)

    def _place_with(self, actor: str) -> Place | None:
        # Routes are an actor's own.
        return self._place if self._place is not None and self._place.actor == actor else None

    def forget(self, turn: TurnInput, now: datetime) -> None:
        """Removes a turn that could not be begun, because another one has its id."""
        self._turns.pop(turn.turn_id, None)
        self._refusals += 1
        # It was to write these down.
        self._log.give_back(turn.session_events)
        self._log.record_lost_turn(turn.turn_id, "conflict", now)

    def step_aside(self, turn_id: str) -> None:
        """Lets the next message be answered though this turn goes on."""
        turn = self._turns.get(turn_id)
        # A turn that has ended does not wait any more, in whatever order its signals come.
        if turn is not None and turn.state == "working":
            self._turns[turn_id] = replace(turn, state="waiting")

    def next_undelivered(self) -> tuple[TurnKey, LateResult] | None:
        """Returns a late result that is still to be sent to its turn, which goes on; or None."""
        for injection in self._injected.values():
            turn = self._latest(injection.turn)
            if injection.id not in self._sent and turn is not None:
                return TurnKey(*self.key, turn.turn), injection
        return None

    def record_delivered(self, injection: LateResult) -> None:
        """Records that a late result was sent. It is kept until its turn reports that its model got it."""
        self._sent.add(injection.id)

    # What the session shows, and carries over.

    def transcript(self) -> list[Message]:
        """Returns the conversation as the next turn would read it."""
        return list(self._transcript())

    def view(self) -> SessionView:
        """Returns the present state of the session for queries."""
        place = self._place_with(self._actor)
        return SessionView(
            tenant=self.key.tenant,
            session=self.key.session,
            actor=self._actor,
            route="" if place is None else place.route,
            step="" if place is None else place.step,
            seal="" if place is None else place.seal,
            owner=self._owner,
            turns=tuple(_view(turn) for turn in self._turns.values()),
            queued=tuple(QueuedView(message_id=item.id, message=item.message) for item in self._mailbox),
            refusals=self._refusals,
        )

    def snapshot(self) -> SessionInput:
        """Returns the whole state, for the next run."""
        return replace(
            self._session,
            actor=self._actor,
            chosen=self._chosen,
            place=self._place,
            owner=self._owner,
            turns=tuple(self._turns.values()),
            mailbox=tuple(self._mailbox),
            due=tuple(self._due),
            injected=tuple(self._injected.values()),
            sent=tuple(sorted(self._sent)),
            seen=dict(self._seen),
            denied=tuple(self._denied.values()),
            session_events=self._log.kept,
            refusals=self._refusals,
            updates=self._updates,
        )

    def _read(self, envelopes: Sequence[Any], shape: type[_ShapeT]) -> _ShapeT | SessionReceipt:
        problem = envelope_problem(envelopes)
        if problem:
            return self._refuse("malformed", problem.replace("a decision", "a message"))
        found = read_envelope(envelopes[0], shape)
        return self._refuse("malformed", found) if isinstance(found, str) else found

    def _spoken_to(self) -> tuple[str, str]:
        """Returns the actor that the session talks to once what waits is begun, and the one a person chose last."""
        named = next((each.actor for each in reversed(self._mailbox) if each.actor), "")
        return named or self._actor, named or self._chosen

    def _find_known(self, item_id: str, item: FrozenModel, turn: str) -> SessionReceipt | None:
        if item_id not in self._seen:
            return None
        if self._seen[item_id] != _digest(item):
            return self._refuse("conflict", f"`{item_id}` was sent before and said something else")
        return SessionReceipt(status="accepted", code="duplicate", turn=turn)

    def _close_call(self, injection: LateResult) -> bool:
        """Returns whether this is the outcome of a call over which its turn ended, of which one less is to come."""
        turn = self._turns.get(injection.turn)
        if not injection.outcome_of or turn is None or not turn.left_open:
            return False
        self._turns[turn.turn] = replace(turn, left_open=turn.left_open - 1)
        return True

    def _kept_turns(self, message_id: str) -> int:
        """Returns how many turns of a message are kept for outcomes that are still to come."""
        return sum(turn.left_open for turn in self._turns.values() if turn.origin.id == message_id)

    def _remember(self, item_id: str, item: FrozenModel) -> None:
        self._seen[item_id] = _digest(item)
        # The oldest first, by the order of the dict, which JSON keeps from one run to the next.
        while len(self._seen) > SESSION_SEEN:
            del self._seen[next(iter(self._seen))]

    def _refuse(self, code: Any, message: str) -> SessionReceipt:
        self._refusals += 1
        return SessionReceipt(status="refused", code=code, message=message)

    def _latest(self, turn_id: str) -> SessionTurn | None:
        turn = self._turns.get(turn_id)
        while turn is not None and turn.heir in self._turns:
            turn = self._turns[turn.heir]
        return turn

    def _working(self) -> list[SessionTurn]:
        return [turn for turn in self._turns.values() if turn.state == "working"]

    def _end(self, turn: SessionTurn, report: TurnReport) -> None:
        ended = replace(turn, state=report.state, parts=report.parts, error=report.error, left_open=report.left_open)
        self._turns[turn.turn] = ended
        if report.error is not None and report.error.code == "config_error":
            self._leave(turn)
        # Only from where the turn began: meanwhile a person or another turn may have moved the conversation.
        elif report.place is not None and report.place.actor == turn.actor and self._place == _place_of(turn):
            self._place = report.place
        self._remember_denials(report.denied)
        left = self._left_for(turn.turn, report.taken)
        # One turn more is kept for what was added meanwhile: that is never dropped.
        if report.state == "passed" and turn.number + self._kept_turns(turn.origin.id) < MAX_TURNS_PER_MESSAGE - 1:
            self._follow_up(ended, report.pass_to, left)
        elif report.state == "passed":
            error = TurnError(code="passed_too_often", message="this was passed from actor to actor too often")
            self._turns[turn.turn] = replace(ended, error=error)
        if left and report.state != "passed":
            self._follow_up(ended, turn.actor, left)
        self._trim()

    def _update(self, report: TurnReport) -> bool:
        """Keeps what the turn's tools changed, for later turns; returns False where there would be too much of it.

        Each turn saw only its own: those beside each other may together come to more than one may.
        """
        updates = merge_updates(self._updates, report.updates)
        if updates.size > SESSION_UPDATES_BYTES:
            return False
        self._updates = updates
        return True

    def _remember_denials(self, denials: Sequence[Denial]) -> None:
        for denial in denials[:SESSION_DENIED]:
            # Taken out, so that one that was denied again is the youngest, and forgotten last.
            self._denied.pop(denial.action, None)
            self._denied[denial.action] = replace(denial, reason=denial.reason[:EFFECT_CHARS])
        while len(self._denied) > SESSION_DENIED:
            del self._denied[next(iter(self._denied))]

    def _left_for(self, turn_id: str, taken: Sequence[str]) -> tuple[Message, ...]:
        """Returns the late results of a turn that has ended which its model did not get."""
        mine = [each for each in self._injected.values() if self._goes_to(each, turn_id)]
        for injection in mine:
            del self._injected[injection.id]
            self._sent.discard(injection.id)
        return tuple(each.message for each in mine if each.id not in taken)

    def _goes_to(self, injection: LateResult, turn_id: str) -> bool:
        turn = self._latest(injection.turn)
        return turn is not None and turn.turn == turn_id

    def _follow_up(self, turn: SessionTurn, actor: str, messages: tuple[Message, ...]) -> None:
        # One for each turn: its heir's id follows from its own, and of two that follow the second could not begin.
        for place, due in enumerate(self._due):
            if due.turn == turn.turn:
                self._due[place] = replace(due, messages=(*due.messages, *messages))
                return
        self._due.append(FollowUp(turn=turn.turn, actor=actor, messages=messages))

    def _heir(self, item: FollowUp, now: datetime) -> SessionTurn:
        before = self._turns[item.turn]
        number = before.number + 1
        turn_id = turn_of(before.origin.id, number)
        self._turns[item.turn] = replace(before, heir=turn_id)
        origin = before.origin
        if item.actor != before.actor:
            # Routes and the reach of tools are an actor's own: whoever it was passed to has none of these names.
            origin = replace(origin, route="", step="", seal="", transient=())
        place = self._place_with(item.actor)
        if place is not None:
            origin = replace(origin, route=place.route, step=place.step, seal=place.seal)
        return SessionTurn(
            turn=turn_id, number=number, actor=item.actor, origin=origin, messages=item.messages, started_at=now
        )

    def _input(self, turn: SessionTurn, messages: tuple[Message, ...]) -> TurnInput:
        origin = turn.origin
        return TurnInput(
            engine=origin.engine,
            tenant_id=self.key.tenant,
            session_id=self.key.session,
            turn_id=turn.turn,
            actor=turn.actor,
            messages=messages,
            principal=origin.principals[min(turn.number, len(origin.principals)) - 1],
            person_id=origin.person_id,
            channel=origin.channel,
            route=origin.route,
            step=origin.step,
            seal=origin.seal,
            transient=origin.transient,
            context=origin.context,
            dry_run=origin.dry_run,
            trace=origin.trace,
            in_session=True,
            # Each outcome may need a turn of its own, of which one message has only so many.
            may_leave=max(0, MAX_TURNS_PER_MESSAGE - 1 - turn.number - self._kept_turns(origin.id)),
            denied=tuple(self._denied.values()),
            session_events=self._log.take(),
            updates=self._updates,
        )

    def _transcript(self) -> Iterator[Message]:
        for turn in self._turns.values():
            yield from turn.messages
            yield _answer(turn)

    def _open_bytes(self) -> int:
        held = [*self._mailbox, *self._injected.values(), *self._due]
        return sum(_size(item) for item in (*held, *(t for t in self._turns.values() if _is_open(t))))

    def _trim(self) -> None:
        """Drops the oldest turns that are over, where there are too many."""
        # Those that something is to follow are kept: what follows is made from them.
        due = {item.turn for item in self._due}
        over = [turn for turn in self._turns.values() if not _is_open(turn) and turn.turn not in due]
        room = sum(_size(turn) for turn in over)
        for place, turn in enumerate(over):
            if room <= SESSION_WINDOW_BYTES and len(over) - place <= SESSION_WINDOW_TURNS:
                return
            room -= _size(turn)
            del self._turns[turn.turn]


def _place_of(turn: SessionTurn) -> Place | None:
    origin = turn.origin
    if not (origin.route or origin.step):
        return None
    return Place(actor=turn.actor, route=origin.route, step=origin.step, seal=origin.seal)


def _is_open(turn: SessionTurn) -> bool:
    return turn.state in _OPEN or turn.left_open > 0


def _answer(turn: SessionTurn) -> Message:
    """Makes the message that the next turn reads as this turn's answer; a turn that goes on must not be answered
    again.
    """
    texts = tuple(TextPart(text=part.content) for part in turn.parts if part.type == RESPONSE)
    if not texts:
        texts = (TextPart(text=Content(inline=_instead(turn))),)
    return Message(role="assistant", parts=texts)


def _instead(turn: SessionTurn) -> str:
    if turn.state == "waiting":
        return "(I am still at this: it waits for people to decide. I will not begin it a second time.)"
    if turn.state == "working":
        return "(I am still at this. I will not begin it a second time.)"
    why = f": {turn.error.message}" if turn.error is not None else ""
    return f"(This ended without an answer{why}.)"


def _view(turn: SessionTurn) -> SessionTurnView:
    return SessionTurnView(
        turn=turn.turn,
        message_id=turn.origin.id,
        actor=turn.actor,
        route=turn.origin.route,
        step=turn.origin.step,
        state=turn.state,
        requester=turn.origin.principals[0].user,
        messages=turn.messages,
        earlier=turn.earlier,
        parts=turn.parts,
        error=turn.error,
        left_open=turn.left_open,
        started_at=turn.started_at,
    )


def _reduce_message(message: Message, *, late: bool = False) -> Message:
    """Reduces a message to what people can send: words, and nothing that only a model or the engine writes."""
    # Whoever may send could otherwise pass off an answer as the model's, or the result of a call that never was.
    words = tuple(part for part in message.parts if isinstance(part, TextPart))
    return Message(role="user", parts=words, late=late)


def _digest(item: FrozenModel) -> str:
    # A principal is signed anew for each delivery; who it is lies in `person_id`.
    return sha256_hex(item.model_dump(mode="json", exclude={"principals"}))


def _size(shape: FrozenModel) -> int:
    return len(shape.model_dump_json().encode("utf-8", "surrogatepass"))
