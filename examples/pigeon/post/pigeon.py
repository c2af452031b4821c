"""Pigeon, a chat with buttons. This module, its test and its entry in the manifest are all that a channel is."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import TypeAdapter, ValidationError

from signoff.channels.base import Channel, Forged, Malformed, Means, NotDelivered, Options
from signoff.channels.envelopes import Closed, Heard, Notice, Raw, Received, Reply, Sent, Status
from signoff.channels.outbound.card_text import Limits, card_words
from signoff.channels.outbound.receipt_text import closing_text
from signoff.channels.outbound_http import retry_after
from signoff.texts.formatter import formatter_for

FIELDS = TypeAdapter(dict[str, str])


class PigeonOptions(Options):
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

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._options = PigeonOptions.model_validate(means.options)

    async def deliver(self, notice: Notice, before: Sent | None) -> Sent:
        """A card with two buttons. A reminder stands below it and has none: only one message is to be closed."""
        formatter = formatter_for(notice.person, self.means.clock())
        words = card_words(notice, formatter, how="buttons", assurance=self.assurance, limits=Limits(whole=4_000))
        message = {"to": notice.address, "text": words.text, "token": notice.token, "buttons": {}}
        if before is not None:
            message["below"] = before.vendor_id
        elif words.decides:
            # What does not fit is approved where all of it is read; a no needs no more than this.
            approve = {words.approve: f"{notice.token} approved"} if words.approves else {}
            message["buttons"] = {**approve, words.deny: f"{notice.token} denied"}
        return Sent(vendor_id=await self._ask("POST", "/messages", message))

    def draws_whole(self, notice: Notice) -> bool:
        """As `deliver` writes it: of a card that is not whole no yes is taken."""
        formatter = formatter_for(notice.person, self.means.clock())
        limits = Limits(whole=4_000)
        return card_words(notice, formatter, how="buttons", assurance=self.assurance, limits=limits).whole

    async def close(self, sent: Sent, closed: Closed) -> None:
        """The card says how it ended, and loses its buttons."""
        words = closing_text(closed, formatter_for(closed.person, self.means.clock()))
        await self._ask("PATCH", f"/messages/{sent.vendor_id}", {"text": words, "buttons": {}})

    async def answer(self, where: Mapping[str, Any], reply: Reply) -> None:
        """A message to whoever did something."""
        await self._ask("POST", "/messages", {"to": where["to"], "text": reply.text, "token": "", "buttons": {}})

    def verify(self, raw: Raw) -> None:
        """Over the bytes as they came, in constant time, and only of plain ASCII: anything else would raise."""
        given, secret = raw.headers.get("x-pigeon-signature", ""), self._options.secret.encode()
        wanted = hmac.digest(secret, raw.body, hashlib.sha256).hex()
        if not given.isascii() or not hmac.compare_digest(given, wanted):
            raise Forged("the signature is not the vendor's")

    def parse(self, raw: Raw) -> Received:
        """What the vendor tells of: a button, a message, a state. What is new to us is left out."""
        try:
            event = FIELDS.validate_json(raw.body)
            if event.get("type") == "state":
                state: Any = event["state"] if event["state"] in ("delivered", "read", "failed") else "unknown"
                return Received(statuses=(Status(key=event["id"], vendor_id=event["message"], state=state),))
            if event.get("type") not in ("button", "message"):
                return Received()
            token, _, verdict = event.get("data", "").partition(" ")
            said = {"token": token, "verdict": verdict or None, "text": event.get("text", "")}
            about = {"identity": event["from"], "vendor_ids": event.get("below", "").split()}
            given = {"key": event["id"], "where": {"to": event["from"]}} | about | said
            return Received(heard=(Heard.model_validate(given),))
        except (ValidationError, KeyError):
            raise Malformed("not what a pigeon brings") from None

    async def _ask(self, method: str, path: str, message: Mapping[str, Any]) -> str:
        token = {"authorization": f"Bearer {self._options.token}"}
        try:
            async with httpx.AsyncClient(base_url=self._options.url, headers=token, timeout=10) as http:
                told = await http.request(method, path, json=message)
        except httpx.TransportError as error:
            raise NotDelivered(f"no pigeon flies: {type(error).__name__}", code="connection", again=True) from None
        if told.status_code < 300:
            return str(told.json()["id"])
        again, after = told.status_code == 429 or told.status_code >= 500, told.headers.get("retry-after", "")
        raise NotDelivered("refused", code=str(told.status_code), again=again, after=retry_after(after))


CHANNEL = Pigeon
