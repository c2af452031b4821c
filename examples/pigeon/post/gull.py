"""The channel of Gull, which signs in its own way and has no webhook."""

from collections.abc import Mapping
from typing import Any

from signoff.channels import (
    LEAST_CHARS,
    Assurance,
    CardLimits,
    Channel,
    ChannelContext,
    ChannelOptions,
    ChannelReply,
    CheckFinding,
    ClosedCard,
    Forged,
    Formatter,
    InboundAction,
    InboundBatch,
    InboundRequest,
    NotDelivered,
    OutboundCard,
    Receive,
    SentCard,
    VendorAnswer,
    VendorErrors,
    VendorHttp,
    card_words,
    check_same,
    check_time,
    closing_text,
    hmac_base64,
    hmac_hex,
    read_object,
    time_from_date_header,
    time_from_iso,
    time_from_seconds,
)


def fault_of(answer: VendorAnswer) -> str | None:
    """Return the vendor's code of an error."""
    return answer.body.get("fault")


class GullOptions(ChannelOptions):
    """The options in the manifest."""

    url: str
    secret: str


class Gull(Channel):
    """Sends texts to Gull and fetches the answers."""

    kind = "gull"
    identity = "gull"
    options = GullOptions
    assurance: Assurance = "link"

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._options = GullOptions.model_validate(context.options)
        self._http = self.attach(VendorHttp(VendorErrors("Gull", fault_of)))

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        formatter: Formatter = self.formatter(card.person)
        limits = CardLimits(whole=LEAST_CHARS)
        words = card_words(card, formatter, how="text", assurance=self.assurance, limits=limits)
        return await self._send(card.address, words.text)

    async def close(self, sent: SentCard, closed: ClosedCard) -> SentCard:
        return await self._send(closed.address, closing_text(closed, self.formatter(closed.person)))

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard:
        return await self._send(where["to"], reply.text)

    async def check(self) -> list[CheckFinding]:
        try:
            await self._http.call("GET", self._options.url)
        except NotDelivered as error:
            return [CheckFinding(False, error.message, "check `url`")]
        return [CheckFinding(True, "Gull answers")]

    async def listen(self, take: Receive) -> None:
        while True:
            page = await self._http.call("GET", f"{self._options.url}/next", waits=30.0)
            await take(self.mark_fetched(page["body"].encode()))

    def verify(self, raw: InboundRequest) -> None:
        if raw.method != "POST":
            raise Forged("Gull only posts")
        stamp, secret = raw.headers.get("x-time", ""), self._options.secret.encode()
        check_time(stamp, self.context.clock())
        signed = stamp.encode() + raw.body
        check_same(raw.headers.get("x-signature", ""), hmac_base64(secret, signed), hmac_hex(secret, signed))

    def parse(self, raw: InboundRequest) -> InboundBatch:
        said = read_object(raw.body)
        sent = said.get("sent")
        at = time_from_seconds(sent) or time_from_iso(sent) or time_from_date_header(sent)
        key, author, text = (str(said.get(name, "")) for name in ("id", "from", "text"))
        action = InboundAction(key=key, identity=author, text=text, said_at=at, where={"to": author})
        return InboundBatch(actions=(action,))

    async def _send(self, to: str, text: str) -> SentCard:
        sent = await self._http.call("POST", self._options.url, body={"to": to, "text": text})
        return SentCard(vendor_id=sent["id"])


CHANNEL = Gull
