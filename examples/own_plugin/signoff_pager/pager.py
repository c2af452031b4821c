"""A channel that sends text to pagers. Approvers answer at the link in the text."""

from collections.abc import Mapping
from typing import Any

from signoff.channels import (
    CardLimits,
    Channel,
    ChannelContext,
    ChannelOptions,
    ChannelReply,
    ClosedCard,
    Forged,
    InboundBatch,
    InboundRequest,
    Malformed,
    NotDelivered,
    OutboundCard,
    SentCard,
    VendorErrors,
    VendorHttp,
    card_words,
    closing_text,
)

NO_ANSWERS = "a pager sends no answers"


class PagerOptions(ChannelOptions):
    """The pager service."""

    url: str


class Pager(Channel):
    """One pager service. It finds people by `identities.pager`."""

    kind = "pager"
    identity = "pager"
    options = PagerOptions
    answers = False

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._url = PagerOptions.model_validate(context.options).url
        self._http = self.attach(VendorHttp(VendorErrors("Pager")))

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        """Send the card as text that ends in its link."""
        words = card_words(card, self.formatter(card.person), how="link", limits=CardLimits(whole=2_000))
        await self._send(card.address, words.text)
        return before or SentCard(handle={"to": card.address})

    async def close(self, sent: SentCard, closed: ClosedCard) -> None:
        """Send the outcome as a second text."""
        await self._send(sent.handle.get("to", closed.address), closing_text(closed, self.formatter(closed.person)))

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> None:
        """Refuse."""
        raise NotDelivered(NO_ANSWERS, code="no_answers", again=False)

    def verify(self, raw: InboundRequest) -> None:
        """Refuse every request."""
        raise Forged(NO_ANSWERS)

    def parse(self, raw: InboundRequest) -> InboundBatch:
        """Refuse every request."""
        raise Malformed(NO_ANSWERS)

    async def _send(self, to: str, text: str) -> None:
        await self._http.call("POST", f"{self._url}/texts", body={"to": to, "text": text})
