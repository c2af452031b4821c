"""The channel of Pigeon, a chat with buttons."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from signoff.channels import (
    CardLimits,
    CardWords,
    Channel,
    ChannelContext,
    ChannelOptions,
    ChannelReply,
    ClosedCard,
    DeliveryStatus,
    HmacSignature,
    InboundAction,
    InboundBatch,
    InboundRequest,
    Malformed,
    OutboundCard,
    OutboundNotice,
    SentCard,
    VendorErrors,
    VendorHttp,
    card_words,
    closing_text,
)

FIELDS = TypeAdapter(dict[str, str])
ERRORS = VendorErrors(
    "Pigeon",
    lambda answer: answer.body.get("error"),
    meanings={"no_such_bird": "there is no such account; check the identity"},
    pauses={"loft_full": 20.0},
)
"""Its error codes, final or with a pause in seconds. Otherwise the HTTP status decides."""


class PigeonOptions(ChannelOptions):
    """The options in the manifest. Secrets are resolved."""

    url: str
    token: str
    secret: str


class Pigeon(Channel):
    """Sends cards to Pigeon and reads its events."""

    kind = "pigeon"
    identity = "pigeon"
    options = PigeonOptions
    per_second = 8.0

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        options = self._options = PigeonOptions.model_validate(context.options)
        self._http = self.attach(VendorHttp(ERRORS, headers={"authorization": f"Bearer {options.token}"}))
        self._signature = HmacSignature(
            "x-pigeon-signature", [options.secret.encode()], time_header="x-pigeon-time", before="{time}."
        )

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        """Send a card with two buttons. A reminder is a message below it, without buttons."""
        words = self._words(card)
        message = {"to": card.address, "text": words.text, "token": card.token, "buttons": {}}
        if before is not None:
            message["below"] = before.vendor_id
        elif words.decides:
            # An incomplete card cannot be approved here, only denied.
            approve = {words.approve: f"{card.token} approved"} if words.approves else {}
            message["buttons"] = {**approve, words.deny: f"{card.token} denied"}
        return await self._ask("POST", "/messages", message)

    def draws_whole(self, card: OutboundCard) -> bool:
        """Return whether `deliver` shows every value."""
        return self._words(card).whole

    async def close(self, sent: SentCard, closed: ClosedCard) -> None:
        """Show the result on the card, and remove its buttons."""
        words = closing_text(closed, self.formatter(closed.person))
        await self._ask("PATCH", f"/messages/{sent.vendor_id}", {"text": words, "buttons": {}})

    async def notify(self, notice: OutboundNotice) -> SentCard:
        """Send a text that asks for nothing."""
        message = {"to": notice.address, "text": notice.text, "token": "", "buttons": {}}
        return await self._ask("POST", "/messages", message)

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard:
        """Send a message to the author of an action."""
        return await self._ask("POST", "/messages", {"to": where["to"], "text": reply.text, "token": "", "buttons": {}})

    def verify(self, raw: InboundRequest) -> None:
        """Check the signature of time and body."""
        self._signature.check(raw, self.context.clock())

    def parse(self, raw: InboundRequest) -> InboundBatch:
        """Parse a button, a message or a state. Ignore other events."""
        try:
            event = FIELDS.validate_json(raw.body)
            if event.get("type") == "state":
                state: Any = event["state"] if event["state"] in ("delivered", "read", "failed") else "unknown"
                status = DeliveryStatus(key=event["id"], vendor_id=event["message"], state=state)
                return InboundBatch(statuses=(status,))
            if event.get("type") not in ("button", "message"):
                return InboundBatch()
            token, _, verdict = event.get("data", "").partition(" ")
            said = {"token": token, "verdict": verdict or None, "text": event.get("text", "")}
            about = {"identity": event["from"], "vendor_ids": event.get("below", "").split()}
            given = {"key": event["id"], "said_at": event["at"], "where": {"to": event["from"]}} | about | said
            return InboundBatch(actions=(InboundAction.model_validate(given),))
        except (ValidationError, KeyError):
            raise Malformed("not an event of Pigeon") from None

    def _words(self, card: OutboundCard) -> CardWords:
        formatter, limits = self.formatter(card.person), CardLimits(whole=4_000)
        return card_words(card, formatter, how="buttons", assurance=self.assurance, limits=limits)

    async def _ask(self, method: str, path: str, message: Mapping[str, Any]) -> SentCard:
        return SentCard(vendor_id=(await self._http.call(method, self._options.url + path, body=message))["id"])


CHANNEL = Pigeon
