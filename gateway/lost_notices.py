"""Makes good what a turn could not write down: a request nobody was told of, and cards of one that is over."""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from signoff.channels.courier import Courier
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, Unavailable
from signoff.contracts.listing import WaitingCard
from signoff.gateway.deps import GatewayDeps
from signoff.listing import waiting
from signoff.store.deliveries import Deliveries, DeliveryRow

EVERY_SECONDS: Final = 120.0
SETTLED: Final = timedelta(minutes=1)
"""What is younger may still be on its way."""
LOOKED_BACK: Final = timedelta(hours=1)
"""Of what is older it was looked once, when this began: not every request has a channel."""
_AT_ONCE: Final = 1_000
_log = logging.getLogger(__name__)


class LostNotices:
    """Compares what waits with the cards there are, now and then."""

    def __init__(self, deps: GatewayDeps, courier: Courier) -> None:
        self._deps = deps
        self._courier = courier
        self._cards = Deliveries(deps.store)
        self._looked = False

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
        for row in await self._cards.unfinished(_AT_ONCE):
            if (row.approval, row.revision) not in waits and row.created_at < old:
                amiss += await self._ended(row)
        self._looked = True
        return amiss

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
            return 0
        told = request if request.revision == row.revision else row.request
        return await self._cards.end(row.approval, row.revision, told)

    async def _request(self, approval: str) -> ApprovalRequest | None:
        """A request as its turn has it; None where nobody can tell."""
        try:
            return await self._deps.desk.request(approval)
        except (NotFound, Unavailable):
            return None
