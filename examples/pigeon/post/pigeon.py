"""Pigeon, a chat with buttons. This module, its test and its entry in the manifest are all that a channel is."""

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
    meanings={"no_such_bird": "nobody of that name has a pigeon; check the identity"},
    pauses={"loft_full": 20.0},
)
"""Its error codes: which are final, and after which it is left alone. All else is told by the status of HTTP."""


class PigeonOptions(ChannelOptions):
    """As the manifest has them; secrets are written `env:NAME` there, and are read before they come here."""

    url: str
    token: str
    secret: str


class Pigeon(Channel):
    """See the module."""

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
        """A card with two buttons. A reminder stands below it and has none: only one message is to be closed."""
        words = self._words(card)
        message = {"to": card.address, "text": words.text, "token": card.token, "buttons": {}}
        if before is not None:
            message["below"] = before.vendor_id
        elif words.decides:
            # What does not fit is approved where all of it is read; a no needs no more than this.
            approve = {words.approve: f"{card.token} approved"} if words.approves else {}
            message["buttons"] = {**approve, words.deny: f"{card.token} denied"}
        return await self._ask("POST", "/messages", message)

    def draws_whole(self, card: OutboundCard) -> bool:
        """As `deliver` writes it: of a card that is not whole no yes is taken."""
        return self._words(card).whole

    async def close(self, sent: SentCard, closed: ClosedCard) -> None:
        """The card says how it ended, and loses its buttons."""
        words = closing_text(closed, self.formatter(closed.person))
        await self._ask("PATCH", f"/messages/{sent.vendor_id}", {"text": words, "buttons": {}})

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard:
        """A message to whoever did something. An answer to it names its id."""
        return await self._ask("POST", "/messages", {"to": where["to"], "text": reply.text, "token": "", "buttons": {}})

    def verify(self, raw: InboundRequest) -> None:
        """Signed are the time and the body."""
        self._signature.check(raw, self.context.clock())

    def parse(self, raw: InboundRequest) -> InboundBatch:
        """What the vendor tells of: a button, a message, a state. What is new to us is left out."""
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
            raise Malformed("not what a pigeon brings") from None

    def _words(self, card: OutboundCard) -> CardWords:
        formatter, limits = self.formatter(card.person), CardLimits(whole=4_000)
        return card_words(card, formatter, how="buttons", assurance=self.assurance, limits=limits)

    async def _ask(self, method: str, path: str, message: Mapping[str, Any]) -> SentCard:
        return SentCard(vendor_id=(await self._http.call(method, self._options.url + path, body=message))["id"])


CHANNEL = Pigeon
