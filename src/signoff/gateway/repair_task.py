"""Repairs losses: answers that never reached their turns, and questions and cards of closed turns."""

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from signoff.approvals.request_state import ENDINGS
from signoff.channels.outbound.dispatcher import Dispatcher
from signoff.contracts.approval import ApprovalRequest, Question
from signoff.contracts.errors import NotFound, ServerUnavailable, Unavailable
from signoff.contracts.ids import TurnKey
from signoff.engine.turn_list import suspended_page, suspended_turns, turn_row
from signoff.formats.replace import replace
from signoff.gateway.approvals.answer_handover import AnswerHandover
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.deps import GatewayDeps
from signoff.store.call_joins import CallJoins
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow
from signoff.store.questions.answers import OWED_SECONDS, Answers, OwedAnswer
from signoff.store.questions.opened_values import OpenedValues
from signoff.store.questions.questions import OpenPlace, Questions
from signoff.store.questions.raw_answers import RawAnswers
from signoff.store.questions.request_lists import RequestLists
from signoff.store.questions.taken_requests import TakenRequests

LOOK_SECONDS: Final = 2.0
LONGEST_PAUSE: Final = 10.0
"""Longest pause between attempts for a turn that takes no answer. An answer may wait that long after a recovery."""
_AT_ONCE: Final = 8
"""Largest number of turns with a hand-over in progress."""
OWED_AT_ONCE: Final = 10_000
"""Largest number of answers in one step."""
RAW_AT_ONCE: Final = 100
"""Largest number of raw answers in one step."""
SWEEP_SECONDS: Final = 120.0
SETTLED: Final = timedelta(minutes=1)
"""Younger questions may still be in transit."""
CARDS_KEPT: Final = timedelta(days=400)
"""Lifetime of sent cards: longer than any request can wait."""
CARDS_SWEPT: Final = timedelta(hours=1)
PAGE: Final = 1_000
"""Largest number of questions, and of cards, in one step."""
_log = logging.getLogger(__name__)


class _Failed(NamedTuple):
    """The time of an approval's next attempt: `until` on the monotonic clock, after a pause of `pause` seconds."""

    until: float
    pause: float


class AnswerDispatcher:
    """Hands stored answers to their turns until the turns have them. Gateways with one store share the work.

    A turn that takes no answer gets ever longer pauses, so that it does not delay other answers.
    """

    def __init__(self, deps: GatewayDeps) -> None:
        self._decisions = DecisionService(deps)
        self._handover = AnswerHandover(deps.store, deps.client)
        self._answers = Answers(deps.store)
        self._raw = RawAnswers(deps.store)
        self._failed: dict[str, _Failed] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.step()
            except Unavailable as error:
                _log.warning("answers cannot be handed over now: %s", error.message)
            await asyncio.sleep(LOOK_SECONDS)

    async def step(self, older_than: float = OWED_SECONDS) -> int:
        """Take in raw answers, then hand over owed ones.

        Returns the number of failed answers. With `older_than` 0, retries at once also after failures. Raises
        `StoreUnavailable`.
        """
        for raw in await self._raw.list_untaken(RAW_AT_ONCE):
            await self._decisions.take_raw(raw)
        owed: dict[str, list[OwedAnswer]] = {}
        for each in await self._answers.list_owed(older_than, OWED_AT_ONCE):
            owed.setdefault(each.approval, []).append(each)
        self._failed = {name: failed for name, failed in self._failed.items() if name in owed}
        now = time.monotonic()
        due = [name for name in owed if not older_than or name not in self._failed or self._failed[name].until <= now]
        # Start with approvals that never failed: each of the others may use the full wait for a turn.
        due.sort(key=lambda name: name in self._failed)
        places = asyncio.Semaphore(_AT_ONCE)
        left = await asyncio.gather(*(self._approval(places, name, owed[name]) for name in due))
        return sum(left)

    async def _approval(self, places: asyncio.Semaphore, approval: str, owed: Sequence[OwedAnswer]) -> int:
        async with places:
            for number, each in enumerate(owed):
                if not await self._handover.give_owed(each):
                    pause = min(2 * self._failed[approval].pause, LONGEST_PAUSE) if approval in self._failed else 1.0
                    self._failed[approval] = _Failed(time.monotonic() + pause, pause)
                    return len(owed) - number
        self._failed.pop(approval, None)
        return 0


class RequestSweep:
    """Ends questions of closed turns, and cards of settled requests."""

    def __init__(self, deps: GatewayDeps, dispatcher: Dispatcher | None) -> None:
        self._deps = deps
        self._dispatcher = dispatcher
        self._rows = Questions(deps.store)
        self._answers = Answers(deps.store)
        self._lists = RequestLists(deps.store)
        self._cards = DeliveryQueue(deps.store)
        self._asked: OpenPlace | None = None
        self._seen: DeliveryRow | None = None
        self._suspended = b""
        self._swept: datetime | None = None

    async def run(self) -> None:
        while True:
            try:
                await self.step()
            except Unavailable as error:
                _log.warning("settled requests cannot be swept now: %s", error.message)
            await asyncio.sleep(SWEEP_SECONDS)

    async def step(self) -> int:
        """Return the number of repairs. Raises `Unavailable`."""
        amiss = 0
        # After the last page, the next step starts from the beginning.
        questions, self._asked = await self._rows.list_unanswered(SETTLED.total_seconds(), PAGE, self._asked)
        # A suspended turn needs its questions. Ask the server about each of the others alone.
        needed = await suspended_turns(self._deps.client.temporal, {_turn_of(each) for each in questions})
        for question in questions:
            amiss += _turn_of(question) not in needed and await self._orphan(question)
        for row in await self._page():
            amiss += await self._over(row)
        await self._reset_turns()
        now = self._deps.clock()
        if self._swept is None or now - self._swept >= CARDS_SWEPT:
            await self._cards.sweep(CARDS_KEPT)
            await OpenedValues(self._deps.store).sweep(CARDS_KEPT)
            await CallJoins(self._deps.store).sweep(CARDS_KEPT)
            await TakenRequests(self._deps.store).sweep()
            self._swept = now
        if amiss and self._dispatcher is not None:
            self._dispatcher.wake()
        return amiss

    async def _orphan(self, question: Question) -> bool:
        """End a question whose turn has closed without ending it, as after a termination, or has moved on.

        A turn has moved on if the store was restored from before the answer.
        """
        key = _turn_of(question)
        turn = await turn_row(self._deps.client.temporal, self._lists, key)
        # A missing turn may belong to another server. Its deadline ends the question.
        if turn is None:
            return False
        if turn.closed_at is None and (turn.state == "suspended" or not await self._has_gone_on(key, question.call)):
            return False
        try:
            rows = await self._rows.read(question.id)
        except NotFound:
            rows = None
        if rows is None or rows.request(rows.latest).state != "pending":
            return False
        return await self._rows.end(question.id, question.revision, "not_asked")

    async def _has_gone_on(self, key: TurnKey, call: str) -> bool:
        """True if the call's permit was used, or the call has ended.

        By the turn's own claim. A false one ends a question, but lets nothing run.
        """
        try:
            view = await self._deps.client.view(key)
        except (NotFound, ServerUnavailable):
            return False
        return any(each.call == call and (each.state == "used" or each.outcome is not None) for each in view.calls)

    async def _reset_turns(self) -> None:
        """Send answers again to suspended turns without a pending request: a reset lost them.

        Each step looks at one page of the turns.
        """
        place, self._suspended = self._suspended, b""
        page = await suspended_page(self._deps.client.temporal, place)
        waiting = await self._lists.find_waiting(page.keys)
        for key in page.keys:
            if key not in waiting:
                await self._answers.owe_turn(key, SETTLED.total_seconds())
        self._suspended = page.end

    async def _page(self) -> list[DeliveryRow]:
        rows = await self._cards.list_unfinished(PAGE, self._seen)
        if not rows and self._seen is not None:
            rows = await self._cards.list_unfinished(PAGE)
        self._seen = rows[-1] if rows else None
        return rows

    async def _over(self, row: DeliveryRow) -> int:
        """Drop a planned card if its person has already voted."""
        request = await self._request(row)
        if request is None:
            return 0
        if request.state != "pending":
            return await self._cards.end(row.approval, row.revision, request)
        if row.state == "planned" and any(vote.subject == row.person for vote in request.votes):
            await self._cards.drop(row.token)
        return 0

    async def _request(self, row: DeliveryRow) -> ApprovalRequest | None:
        """Return a superseded revision as cancelled. `None` for an unreadable one, and while a denial can be undone."""
        try:
            loaded = await self._deps.requests.load(row.approval, row.revision)
        except (NotFound, ServerUnavailable):
            return None
        if loaded.rows.undo_seconds:
            return None
        latest = loaded.rows.latest
        if latest.revision == row.revision:
            return loaded.request
        return replace(
            loaded.request,
            state="cancelled",
            decided_at=latest.opened_at,
            reason=ENDINGS["superseded"],
        )


def _turn_of(question: Question) -> TurnKey:
    return TurnKey(question.tenant, question.session, question.turn)
