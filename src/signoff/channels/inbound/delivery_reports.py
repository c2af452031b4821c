"""Records what vendors report of the cards that they took."""

from typing import Any, Final

from signoff.approvals.audit_events import delivery_entry
from signoff.channels.base import Channel
from signoff.channels.envelopes import DeliveryStatus
from signoff.channels.inbound.receiver import Record
from signoff.channels.outbound.sender import next_channel
from signoff.contracts.clock import Clock
from signoff.store.delivery_queue import DeliveryQueue

_UNKNOWN_CARD_TRIES: Final = 5


class ReportHandler:
    """Records reports, and lets the next channel take over from a failed card."""

    def __init__(self, deliveries: DeliveryQueue, record: Record, clock: Clock) -> None:
        self._deliveries = deliveries
        self._record = record
        self._clock = clock

    async def handle(self, channel: Channel, status: DeliveryStatus, attempts: int) -> dict[str, Any] | None:
        card = await self._deliveries.state(channel.name, status.vendor_id, status.state, status.code, status.message)
        if card is None:
            # Vendors report a message before their answer to its sending is written down here; these tries take 15 s.
            return None if attempts < _UNKNOWN_CARD_TRIES else {"what": status.state, "token": ""}
        if status.state == "failed":
            await self._handle_failure(channel, status)
        return {"what": status.state, "token": card.token, "state": card.state}

    async def _handle_failure(self, channel: Channel, status: DeliveryStatus) -> None:
        """Handles a card that the vendor took and could not deliver: the person's next channel takes over, and the
        record says so.
        """
        # A list is one message for several cards. What was read, or is over, has not failed.
        for card in await self._deliveries.by_vendor(channel.name, [status.vendor_id]):
            if card.state == "failed" and card.ended_at is None:
                await next_channel(self._deliveries, card)
                facts = {"person": card.person, "channel": card.channel, "code": card.code, "message": card.message}
                await self._record([delivery_entry(card.request, "failed", card.token, self._clock(), facts)])
