"""The webhook, out and in, against a receiver that checks what it gets as the reference library does."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from standardwebhooks.webhooks import Webhook as Reference
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from signoff.channels.shapes import Raw
from signoff.channels.standard_webhooks import read_secret, signed_headers
from signoff.contracts.decision import Verdict
from signoff.testing.channels import ChannelSuite, Seen, Vendor
from signoff.testing.vendor_server import served

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
LARGEST = 256 * 1024


class Receiver(Vendor):
    """Somebody's own system: it takes each message once, by its id, and answers as a person there does."""

    kind: ClassVar[str] = "webhook"
    identities: ClassVar[tuple[str, str, str, str]] = ("U-ana", "U-bo", "U-cy", "U-nobody")

    def __init__(self) -> None:
        self.url = ""
        self.taken: dict[str, dict[str, Any]] = {}
        self.asked = 0
        self._numbers = iter(range(1, 10_000))

    @property
    def options(self) -> Mapping[str, Any]:
        """As a manifest has them."""
        return {"url": self.url, "secret": "env:HOOK_SECRET", "allow_networks": ["127.0.0.0/8"]}

    @property
    def environment(self) -> Mapping[str, str]:
        """Where the secret is."""
        return {"HOOK_SECRET": SECRET}

    async def take(self, request: Request) -> Response:
        """One message. What is not signed, not JSON, too large or too old is refused."""
        self.asked += 1
        if self.trouble:
            busy = self.trouble == "busy"
            return Response(status_code=429 if busy else 500, headers={"retry-after": "30"} if busy else {})
        body, headers = await request.body(), request.headers
        at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        right = Reference(SECRET).sign(headers["webhook-id"], at, body.decode())
        if right not in headers["webhook-signature"].split(" "):
            return Response(status_code=401)
        late = abs((self.clock() - at).total_seconds()) > 300
        if late or headers["content-type"] != "application/json" or len(body) > LARGEST:
            return Response(status_code=400)
        message = json.loads(body)
        if set(message) != {"type", "timestamp", "data"}:
            return Response(status_code=400)
        self.taken.setdefault(headers["webhook-id"], message)
        return Response(status_code=202)

    def app(self) -> Starlette:
        """The receiver's one address."""
        return Starlette(routes=[Route("/hook", self.take, methods=["POST"])])

    def cards(self) -> Sequence[Seen]:
        """Asks, reminders and digests."""
        told = {"approval.asked", "approval.reminded", "approval.digest"}
        return [
            Seen(each["data"]["to"], name.partition(".")[0], each["data"]["text"])
            for name, each in self.taken.items()
            if each["type"] in told
        ]

    def reads(self, identity: str) -> Sequence[str]:
        """Texts of cards, of how they ended, and of answers."""
        mine = {card.token for card in self.cards() if card.to == identity}
        found = [card.text for card in self.cards() if card.to == identity]
        for message in self.taken.values():
            data = message["data"]
            if message["type"] == "approval.closed" and data["token"] in mine:
                found.append(f"{data['text']} {data['reason']}")
            if message["type"] == "answer.receipt" and data["to"] == identity:
                found.append(data["text"])
        return found

    def send(self, kind: str, **data: Any) -> Raw:
        """A message of its own."""
        return self.sign(json.dumps({"type": kind, "data": data}).encode())

    def sign(self, body: bytes) -> Raw:
        """Any body."""
        headers = signed_headers([read_secret(SECRET)], f"msg_{next(self._numbers)}", self.clock(), body)
        return Raw(body, {**headers, "content-type": "application/json"}, at=self.clock())

    def press(self, card: Seen, identity: str, verdict: Verdict, reason: str = "") -> Raw:
        """A decision."""
        return self.send("decision", token=card.token, identity=identity, verdict=verdict, reason=reason)

    def write(self, identity: str, words: str) -> Raw:
        """A message about nothing in particular."""
        return self.send("message", identity=identity, text=words)

    def reply(self, card: Seen, identity: str, words: str) -> Raw:
        """A message about a card, which names ours."""
        return self.send("message", identity=identity, text=words, in_reply_to=f"{card.token}.ask")

    def forgeries(self, raw: Raw) -> Sequence[Raw]:
        """Altered, unsigned, by another secret, or of another time."""
        other = signed_headers([read_secret(OTHER)], "msg_x", self.clock(), raw.body)
        old = raw.headers | {"webhook-timestamp": str(int(self.clock().timestamp()) - 301)}
        again = raw.headers | {"webhook-id": "msg_again"}
        made = [replace(raw, headers={**raw.headers, **each}) for each in (other, old, again)]
        return (*super().forgeries(raw), *made)

    def unknown(self) -> Sequence[Raw]:
        """Types and states that nobody has heard of."""
        card = self.cards()[-1].token
        return (
            self.send("approval.fancied", token=card),
            self.send("status", id=f"{card}.ask", state="pondered"),
            self.send("status", id="msg_of_somebody_else", state="delivered"),
            self.sign(b'{"type": "ping"}'),
            self.sign(b"{}"),
        )


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver that listens."""
    receiver = Receiver()
    async with served(receiver.app()) as url:
        receiver.url = f"{url}/hook"
        yield receiver


class TestWebhook(ChannelSuite):
    """Everything that every channel must do."""

    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        """See `ChannelSuite`."""
        return receiving()
