"""Makes good what a turn could not write down: a request nobody was told of, and cards of one that is over."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from signoff.channels.courier import Courier
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, Unavailable
from signoff.contracts.ids import parse_approval_id
from signoff.contracts.listing import WaitingCard
from signoff.gateway.deps import GatewayDeps
from signoff.listing import turn_row, waiting
from signoff.store.deliveries import Deliveries, DeliveryRow
from signoff.store.notices import Notices

EVERY_SECONDS: Final = 120.0
SETTLED: Final = timedelta(minutes=1)
"""What is younger may still be on its way."""
LOOKED_BACK: Final = timedelta(hours=1)
"""Of what is older it was looked once, when this began: not every request has a channel."""
NOTICES_KEPT: Final = timedelta(days=30)
CARDS_KEPT: Final = timedelta(days=400)
"""For how long it is known what people were told: longer than anything can wait for an answer."""
SWEPT_EVERY: Final = timedelta(hours=1)
PAGE: Final = 1_000
"""Cards that are looked at each time; the next time goes on after them."""
_AT_ONCE: Final = 1_000
_log = logging.getLogger(__name__)


class LostNotices:
    """Compares what waits with the cards there are, now and then."""

    def __init__(self, deps: GatewayDeps, courier: Courier) -> None:
        self._deps = deps
        self._courier = courier
        self._cards = Deliveries(deps.store)
        self._notices = Notices(deps.store)
        self._looked = False
        self._seen: DeliveryRow | None = None
        self._swept: datetime | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.step()
            except Unavailable as error:
                _log.warning("it cannot be looked for lost notices now: %s", error.message)
            await asyncio.sleep(EVERY_SECONDS)

    async def step(self) -> int:
        """Look once; how many requests were amiss. Raises `Unavailable`."""
        tenants = dict.fromkeys(person.tenant for person in self._deps.people.all())
        cards: list[WaitingCard] = []
        for tenant in tenants:
            cards += await waiting(self._deps.desk.temporal, tenant=tenant, limit=_AT_ONCE)
        amiss = await self._courier.sweep([each for card in cards for each in await self._untold(card)])
        waits = {(card.id, card.revision) for card in cards}
        old = self._deps.clock() - SETTLED
        page = await self._page()
        await self._spare([row for row in page if (row.approval, row.revision) in waits])
        for row in page:
            if (row.approval, row.revision) not in waits and row.created_at < old:
                amiss += await self._ended(row)
                # Its other cards ended with it, or it waits for all of them.
                waits.add((row.approval, row.revision))
        self._looked = True
        await self._sweep()
        return amiss

    async def _page(self) -> list[DeliveryRow]:
        """The cards to look at this time; after the last ones it begins anew."""
        rows = await self._cards.unfinished(PAGE, self._seen)
        if not rows and self._seen is not None:
            rows = await self._cards.unfinished(PAGE)
        self._seen = rows[-1] if rows else None
        return rows

    async def _spare(self, rows: Sequence[DeliveryRow]) -> None:
        """Drop what is planned for people who have voted: a turn tells nobody of votes that decide nothing."""
        planned = [row for row in rows if row.state == "planned" and row.request.quorum > 1]
        for approval in {row.approval for row in planned}:
            request = await self._request(approval)
            voters = {vote.subject for vote in request.votes} if request is not None else set()
            for row in planned:
                if row.approval == approval and row.person in voters:
                    await self._cards.drop(row.token)

    async def _sweep(self) -> None:
        now = self._deps.clock()
        if self._swept is not None and now - self._swept < SWEPT_EVERY:
            return
        await self._notices.sweep(NOTICES_KEPT)
        await self._cards.sweep(CARDS_KEPT)
        self._swept = now

    async def _untold(self, card: WaitingCard) -> list[ApprovalRequest]:
        """The request behind `card`, if nobody has a card of it though it has waited for a while."""
        now = self._deps.clock()
        opened = card.opened_at or now
        if opened > now - SETTLED or (self._looked and opened < now - LOOKED_BACK):
            return []
        if await self._cards.of_request(card.id, card.revision):
            return []
        request = await self._request(card.id)
        return [] if request is None or request.state != "pending" else [request]

    async def _ended(self, row: DeliveryRow) -> int:
        """Let the cards of a request that is over be closed, as it ended."""
        request = await self._request(row.approval)
        if request is None or (request.state == "pending" and request.revision == row.revision):
            told = await self._cut_off(row, request)
        else:
            told = request if request.revision == row.revision else row.request
        return 0 if told is None else await self._cards.end(row.approval, row.revision, told)

    async def _cut_off(self, row: DeliveryRow, request: ApprovalRequest | None) -> ApprovalRequest | None:
        """How a request ended whose turn was terminated, or is not there any more; None where it may still wait.

        The history of a terminated turn says for ever that its requests wait. Raises `ServerUnavailable`.
        """
        key = parse_approval_id(row.approval)
        turn = None if key is None else await turn_row(self._deps.desk.temporal, key.turn)
        now = self._deps.clock()
        if turn is None:
            # Before its time is over this may as well be the wrong server.
            due = row.request.expires_at or row.created_at + timedelta(seconds=row.request.timeout)
            request, ended, why = row.request if due < now else None, now, "Its turn is not there any more."
        else:
            ended, why = turn.closed_at or now, "Its turn was ended before anybody decided."
        if request is None or (turn is not None and turn.closed_at is None):
            return None
        return request.model_copy(update={"state": "cancelled", "decided_at": ended, "reason": why})

    async def _request(self, approval: str) -> ApprovalRequest | None:
        """A request as its turn has it; None where nobody can tell."""
        try:
            return await self._deps.desk.request(approval)
        except (NotFound, Unavailable):
            return None
