"""A session's state: its mailbox, turns and late results. No I/O."""

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
    """The state of one session. Callers pass the time. No input makes it raise."""

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

    # Messages to the session.

    def say(self, envelopes: Sequence[Any], now: datetime) -> SessionReceipt:
        """Accept a message, once per id."""
        return self._log.record_reply("message", envelopes, self._take_message(envelopes), now)

    def _take_message(self, envelopes: Sequence[Any]) -> SessionReceipt:
        message = self._read(envelopes, MailboxMessage)
        if isinstance(message, SessionReceipt):
            return message
        user = message.principals[0].user
        if self._owner not in ("", user):
            return self._refuse("not_allowed", "this session belongs to another user; start your own")
        # Check after the owner, so that a stranger learns no ids. Check before the rest, so that a duplicate is never
        # refused because of the first delivery's effects.
        receipt = self._find_known(message.id, message, message.id)
        if receipt is not None:
            return receipt
        message = replace(message, message=_reduce_message(message.message))
        if message.id in self._turns:
            return self._refuse("conflict", f"the turn `{message.id}` exists; choose another id")
        if not (message.actor or self._actor):
            return self._refuse("malformed", "`actor` is missing: name the session's actor")
        # The mailbox becomes part of the next run's input, which the server limits to 2 MiB.
        if len(self._mailbox) >= SESSION_MAILBOX or self._open_bytes() + _size(message) > SESSION_OPEN_BYTES:
            return self._refuse("full", "too many messages of this session wait for an answer; try again later")
        actor, chosen_actor = self._spoken_to()
        has_place = bool(message.route or message.step or message.transient) and not message.actor
        if has_place and actor != chosen_actor:
            whose = "name the actor whose `route`, `step` and `transient` these are"
            why = f"`actor`: this session was passed on to `{actor}`; {whose}"
            return self._refuse("malformed", why)
        # Set the owner only now: a refused message must not decide it.
        self._owner = user
        self._remember(message.id, message)
        # The route belongs to the current actor, even if the session is passed on later.
        self._mailbox.append(replace(message, actor=actor) if has_place else message)
        return SessionReceipt(status="accepted", turn=message.id)

    def inject(self, envelopes: Sequence[Any], now: datetime) -> SessionReceipt:
        """Accept a late result for a turn or its successor, once per id."""
        return self._log.record_reply("result", envelopes, self._add(envelopes), now)

    def _add(self, envelopes: Sequence[Any]) -> SessionReceipt:
        injection = self._read(envelopes, LateResult)
        if isinstance(injection, SessionReceipt):
            return injection
        injection = replace(injection, message=_reduce_message(injection.message, late=True))
        turn = self._latest(injection.turn)
        # Check before the turn is looked up: its turn may be forgotten, and a duplicate is not an error.
        receipt = self._find_known(injection.id, injection, turn.turn if turn else "")
        if receipt is not None:
            return receipt
        if turn is None:
            return self._refuse("unknown", f"there is no turn `{injection.turn}` here")
        # The turn reserved room for this outcome when it ended, so it is never refused.
        if not self._close_call(injection):
            number = turn.number + self._kept_turns(turn.origin.id)
            if number >= MAX_TURNS_PER_MESSAGE or self._open_bytes() + _size(injection) > SESSION_OPEN_BYTES:
                return self._refuse("full", f"turn `{injection.turn}` is full")
        self._remember(injection.id, injection)
        if turn.state in _OPEN:
            self._injected[injection.id] = injection
            return SessionReceipt(status="accepted", turn=turn.turn)
        self._follow_up(turn, turn.actor, (injection.message,))
        return SessionReceipt(status="accepted", turn=turn_of(turn.origin.id, turn.number + 1))

    def report(self, envelopes: Sequence[Any], now: datetime) -> None:
        report = read_envelope(envelopes[0] if len(envelopes) == 1 else None, TurnReport)
        turn = None if isinstance(report, str) else self._turns.get(report.turn)
        if isinstance(report, str) or turn is None:
            code: Any = "malformed" if isinstance(report, str) else "unknown"
            self._log.record_reply("report", envelopes, self._refuse(code, ""), now)
        elif report.state == "waiting":
            self.step_aside(turn.turn)
        # A turn that is reset reports again, and the server may have reported that it closed. The first report counts.
        elif turn.state in _OPEN:
            # Updates that are too large are left out, with a record. The turn still ends, or the next one would wait
            # for it.
            if not self._update(report):
                self._log.record_reply("report", envelopes, self._refuse("full", ""), now)
            self._end(turn, report)

    def record_lost_turn(self, turn_id: str, error: TurnError, now: datetime) -> None:
        """Record that a turn was terminated or could not start."""
        turn = self._turns.get(turn_id)
        if turn is not None and turn.left_open:
            # The turn can no longer report the outcomes of these calls.
            self._turns[turn_id] = replace(turn, left_open=0)
            self._log.record_lost_turn(turn_id, error.code, now)
        elif turn is not None and turn.state in _OPEN:
            self._log.record_lost_turn(turn_id, error.code, now)
            self._end(turn, TurnReport(turn=turn_id, state="error", error=error))

    # Actions of the session.

    def next(self, now: datetime) -> FollowUp | MailboxMessage | None:
        """Return the next item to start, or `None`: a follow-up first, then the oldest message if its time has come."""
        # Before the mailbox: a follow-up continues an answer that a person already waits for.
        if self._due:
            return self._due[0]
        if not self._mailbox or any(now < turn.started_at + self._patience for turn in self._working()):
            return None
        return self._mailbox[0]

    def patience_deadline(self) -> datetime | None:
        """Return when the oldest message starts a turn even if another turn still works, or `None`."""
        if not self._mailbox:
            return None
        return max((turn.started_at + self._patience for turn in self._working()), default=None)

    def begin(self, item: FollowUp | MailboxMessage, now: datetime) -> TurnInput:
        """`next` returned the item."""
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
        # Before the turn is added: its own messages would otherwise be in the transcript twice.
        earlier = tuple(self._transcript())
        turn = replace(turn, earlier=len(earlier))
        self._turns[turn.turn] = turn
        return self._input(turn, (*earlier, *turn.messages))

    def _put(self, item: MailboxMessage, actor: str) -> MailboxMessage:
        """Return the message with its own place, or else the conversation's place with `actor`."""
        if item.route or item.step:
            self._place = Place(actor=actor, route=item.route, step=item.step, seal=item.seal)
            return item
        place = self._place_with(actor)
        return item if place is None else replace(item, route=place.route, step=place.step, seal=place.seal)

    def _leave(self, turn: SessionTurn) -> None:
        """Move the conversation away from the place of a turn that could not start.

        Later turns would fail there too.
        """
        lost = _place_of(turn)
        if self._place is None or self._place != lost:
            return
        places = (_place_of(each) for each in reversed(self._turns.values()) if each.actor == turn.actor)
        self._place = next((each for each in places if each != lost), None)

    def _place_with(self, actor: str) -> Place | None:
        # Routes belong to one actor.
        return self._place if self._place is not None and self._place.actor == actor else None

    def forget(self, turn: TurnInput, now: datetime) -> None:
        """Remove a turn that could not start because another one has its id."""
        self._turns.pop(turn.turn_id, None)
        self._refusals += 1
        # Return the session events that this turn would have recorded.
        self._log.give_back(turn.session_events)
        self._log.record_lost_turn(turn.turn_id, "conflict", now)

    def step_aside(self, turn_id: str) -> None:
        turn = self._turns.get(turn_id)
        # A turn that has ended does not wait, in any order of its signals.
        if turn is not None and turn.state == "working":
            self._turns[turn_id] = replace(turn, state="waiting")

    def next_undelivered(self) -> tuple[TurnKey, LateResult] | None:
        for injection in self._injected.values():
            turn = self._latest(injection.turn)
            if injection.id not in self._sent and turn is not None:
                return TurnKey(*self.key, turn.turn), injection
        return None

    def record_delivered(self, injection: LateResult) -> None:
        """Keep the late result until the turn reports that its model got it."""
        self._sent.add(injection.id)

    # Views and the state for the next run.

    def transcript(self) -> list[Message]:
        return list(self._transcript())

    def view(self) -> SessionView:
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
        """Return the actor after all waiting messages have started, and the actor a person chose last."""
        named = next((each.actor for each in reversed(self._mailbox) if each.actor), "")
        return named or self._actor, named or self._chosen

    def _find_known(self, item_id: str, item: FrozenModel, turn: str) -> SessionReceipt | None:
        if item_id not in self._seen:
            return None
        if self._seen[item_id] != _digest(item):
            return self._refuse("conflict", f"`{item_id}` was sent before and said something else")
        return SessionReceipt(status="accepted", code="duplicate", turn=turn)

    def _close_call(self, injection: LateResult) -> bool:
        """Count down the open calls of a turn that ended before them.

        Returns whether this is the outcome of such a call.
        """
        turn = self._turns.get(injection.turn)
        if not injection.outcome_of or turn is None or not turn.left_open:
            return False
        self._turns[turn.turn] = replace(turn, left_open=turn.left_open - 1)
        return True

    def _kept_turns(self, message_id: str) -> int:
        """Count the turns reserved for outcomes of a message's open calls."""
        return sum(turn.left_open for turn in self._turns.values() if turn.origin.id == message_id)

    def _remember(self, item_id: str, item: FrozenModel) -> None:
        self._seen[item_id] = _digest(item)
        # Drop the oldest first. JSON keeps the order of the dict from one run to the next.
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
        # Move only from the turn's own start: a person or another turn may have moved the conversation since.
        elif report.place is not None and report.place.actor == turn.actor and self._place == _place_of(turn):
            self._place = report.place
        self._remember_denials(report.denied)
        undelivered = self._left_for(turn.turn, report.taken)
        # One more turn is reserved for late results, which are never dropped.
        if report.state == "passed" and turn.number + self._kept_turns(turn.origin.id) < MAX_TURNS_PER_MESSAGE - 1:
            self._follow_up(ended, report.pass_to, undelivered)
        elif report.state == "passed":
            error = TurnError(code="passed_too_often", message="this was passed from actor to actor too often")
            self._turns[turn.turn] = replace(ended, error=error)
        if undelivered and report.state != "passed":
            self._follow_up(ended, turn.actor, undelivered)
        self._trim()

    def _update(self, report: TurnReport) -> bool:
        """Keep the updates of the turn's tools for later turns. Returns false if they are too large.

        Each turn sees only its own updates, but parallel turns may exceed the limit together.
        """
        updates = merge_updates(self._updates, report.updates)
        if updates.size > SESSION_UPDATES_BYTES:
            return False
        self._updates = updates
        return True

    def _remember_denials(self, denials: Sequence[Denial]) -> None:
        for denial in denials[:SESSION_DENIED]:
            # Remove it first, so that a repeated denial is the newest and is dropped last.
            self._denied.pop(denial.action, None)
            self._denied[denial.action] = replace(denial, reason=denial.reason[:EFFECT_CHARS])
        while len(self._denied) > SESSION_DENIED:
            del self._denied[next(iter(self._denied))]

    def _left_for(self, turn_id: str, taken: Sequence[str]) -> tuple[Message, ...]:
        """Remove the late results of an ended turn, and return those that its model did not get."""
        mine = [each for each in self._injected.values() if self._goes_to(each, turn_id)]
        for injection in mine:
            del self._injected[injection.id]
            self._sent.discard(injection.id)
        return tuple(each.message for each in mine if each.id not in taken)

    def _goes_to(self, injection: LateResult, turn_id: str) -> bool:
        turn = self._latest(injection.turn)
        return turn is not None and turn.turn == turn_id

    def _follow_up(self, turn: SessionTurn, actor: str, messages: tuple[Message, ...]) -> None:
        # One follow-up per turn: the successor's id derives from the turn's, so a second one could not start.
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
            # Routes and transient tools belong to one actor: the new actor has none of them.
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
            # Each outcome may need another turn, and a message has a limited number of turns.
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
        # Keep turns that have a follow-up: it is made from them.
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
    """Build this turn's answer for the next one, which must not answer an open turn's message again."""
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
    """Reduce a message to text, so that senders cannot use parts reserved for models or the engine."""
    # Otherwise a sender could forge a model's answer or the result of a call that never ran.
    words = tuple(part for part in message.parts if isinstance(part, TextPart))
    return Message(role="user", parts=words, late=late)


def _digest(item: FrozenModel) -> str:
    # A principal is signed again for each delivery. `person_id` identifies the person.
    return sha256_hex(item.model_dump(mode="json", exclude={"principals"}))


def _size(shape: FrozenModel) -> int:
    return len(shape.model_dump_json().encode("utf-8", "surrogatepass"))
