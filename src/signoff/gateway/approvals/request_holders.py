"""Adds the people who have taken requests to lists of them."""

from collections.abc import Sequence

from signoff.contracts.responses import WaitingCard
from signoff.formats.replace import replace
from signoff.gateway.deps import GatewayDeps
from signoff.store.questions.taken_requests import TakenRequests


async def add_holders(deps: GatewayDeps, tenant: str, cards: Sequence[WaitingCard]) -> list[WaitingCard]:
    """Raises `StoreUnavailable`."""
    # Without rooms, no request is taken.
    taken = await TakenRequests(deps.store).list_of(tenant) if cards and deps.catalog.channels.rooms else {}
    return [
        replace(card, taken_by=taken[card.id].person, taken_until=taken[card.id].lapses_at)
        if card.id in taken
        else card
        for card in cards
    ]
