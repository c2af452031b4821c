"""A channel that records its cards, for tests of notifications and answers.

An inbound message is a JSON object with the fields of `InboundAction`, or `{"statuses": [...]}` with objects like
`DeliveryStatus`, under the header `x-recording: <sha-256 of the body and the channel's secret>`.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import ValidationError

from signoff.channels.base import Channel, ChannelContext, ChannelOptions
from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.envelopes import (
    ChannelReply,
    ClosedCard,
    DeliveryStatus,
    InboundAction,
    InboundBatch,
    InboundRequest,
    OutboundCard,
    OutboundNotice,
    SentCard,
)
from signoff.contracts.clock import system_clock

HEADER = "x-recording"


class RecordingOptions(ChannelOptions):
    """A recording channel has no options."""


class RecordingChannel(Channel):
    """Records `cards`, `closings`, `notices` and `replies`, in order.

    `failing`, if set, is called before each card, closing or notice is recorded, and may raise `NotDelivered`.
    """

    kind: ClassVar[str] = "recording"
    identity: ClassVar[str] = "recording"
    options: ClassVar[type[ChannelOptions]] = RecordingOptions

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self.cards: list[tuple[OutboundCard, SentCard | None]] = []
        self.closings: list[tuple[SentCard, ClosedCard]] = []
        self.replies: list[tuple[Mapping[str, Any], ChannelReply]] = []
        self.notices: list[OutboundNotice] = []
        self.failing: Callable[[Any], None] | None = None

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        if self.failing is not None:
            self.failing(card)
        self.cards.append((card, before))
        return SentCard(vendor_id=f"{self.name}-{len(self.cards)}", handle={"to": card.address})

    async def close(self, sent: SentCard, closed: ClosedCard) -> SentCard:
        if self.failing is not None:
            self.failing(closed)
        self.closings.append((sent, closed))
        return SentCard(vendor_id=f"{self.name}-ending-{len(self.closings)}")

    async def notify(self, notice: OutboundNotice) -> SentCard:
        if self.failing is not None:
            self.failing(notice)
        self.notices.append(notice)
        return SentCard(vendor_id=f"{self.name}-notice-{len(self.notices)}")

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard:
        self.replies.append((where, reply))
        return SentCard(vendor_id=f"{self.name}-reply-{len(self.replies)}")

    def verify(self, raw: InboundRequest) -> None:
        if not hmac.compare_digest(raw.headers.get(HEADER, "").encode(), self._mark(raw.body).encode()):
            raise Forged("the mark is not ours")

    def parse(self, raw: InboundRequest) -> InboundBatch:
        try:
            body = json.loads(raw.body)
            if "statuses" in body:
                return InboundBatch(statuses=tuple(DeliveryStatus.model_validate(each) for each in body["statuses"]))
            return InboundBatch(actions=(InboundAction.model_validate(body),))
        except (ValueError, TypeError, ValidationError):
            raise Malformed("the message has another format") from None

    def raw(self, **fields: Any) -> InboundRequest:
        """Mark the message correctly. An action gets the present time unless `said_at` is given."""
        if "identity" in fields:
            fields = {"said_at": self.context.clock().isoformat()} | fields
        body = json.dumps(fields).encode()
        return InboundRequest(body, headers={HEADER: self._mark(body)}, at=self.context.clock())

    def _mark(self, body: bytes) -> str:
        return hashlib.sha256(self.context.secret + body).hexdigest()


def recording_channel(name: str = "recording", *, identity: str = "recording", per_second: float = 1_000.0) -> Any:
    """The channel is for identities of the kind `identity`."""
    context = ChannelContext(
        name=name,
        options={},
        public_url="http://127.0.0.1:8300",
        clock=system_clock,
        secret=name.encode(),
    )
    facts = {"identity": identity, "per_second": per_second}
    return type("RecordingChannel", (RecordingChannel,), facts)(context)


CHANNEL = RecordingChannel
