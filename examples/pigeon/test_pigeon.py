"""Pigeon, held to what every channel must do, against a loft on this machine."""

import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from signoff.channels import HmacSignature, InboundRequest, Verdict
from signoff.testing import HTTP_TROUBLES, ChannelSuite, Vendor, VendorCard, serve_vendor

TOKEN, SECRET = "a token", "a secret"
SIGNATURE = HmacSignature("x-pigeon-signature", [SECRET.encode()], time_header="x-pigeon-time", before="{time}.")


@dataclass
class Loft(Vendor):
    """The vendor. What it is asked must be as its documentation says, or it refuses."""

    kind = "post.pigeon"
    identities = ("@ana", "@bo", "@cy", "@nobody")
    busy_seconds = 20.0
    troubles = HTTP_TROUBLES
    url: str = ""
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def options(self) -> Mapping[str, Any]:
        """As a manifest has them."""
        return {"url": self.url, "token": "env:PIGEON_TOKEN", "secret": "env:PIGEON_SECRET"}

    @property
    def environment(self) -> Mapping[str, str]:
        """What those refer to."""
        return {"PIGEON_TOKEN": TOKEN, "PIGEON_SECRET": SECRET}

    async def take(self, request: Request) -> Response:
        """One message, new or changed."""
        if self.trouble:
            busy = self.trouble == "busy"
            return JSONResponse({"error": "loft_full"} if busy else {}, status_code=429 if busy else 503)
        message = await request.json()
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Response(status_code=401)
        if not 0 < len(message["text"]) <= 4_000 or len(message["buttons"]) > 3:
            return Response(status_code=400)
        name = request.path_params.get("name") or f"m{next(self.numbers)}"
        self.messages[name] = self.messages.get(name, {}) | message
        return JSONResponse({"id": name})

    def app(self) -> Starlette:
        """Its two addresses."""
        new, changed = (
            Route("/messages", self.take, methods=["POST"]),
            Route("/messages/{name}", self.take, methods=["PATCH"]),
        )
        return Starlette(routes=[new, changed])

    def cards(self) -> Sequence[VendorCard]:
        """Every message about a delivery."""
        return [VendorCard(each["to"], each["token"], each["text"]) for each in self.messages.values() if each["token"]]

    def reads(self, identity: str) -> Sequence[str]:
        """Every message to somebody."""
        return [each["text"] for each in self.messages.values() if each["to"] == identity]

    def sign(self, body: bytes) -> InboundRequest:
        """Any body."""
        return InboundRequest(
            body, {**SIGNATURE.sign(body, self.clock()), "content-type": "application/json"}, at=self.clock()
        )

    def send(self, kind: str, **event: str) -> InboundRequest:
        """An event."""
        event = {"id": f"e{next(self.numbers)}", "type": kind, "at": self.now_said.isoformat()} | event
        return self.sign(json.dumps(event).encode())

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """One of its buttons; whoever has a reason writes it into the field beside them."""
        return self.send("button", **{"from": identity, "data": f"{card.token} {verdict}", "text": reason})

    def write(self, identity: str, words: str) -> InboundRequest:
        """A message."""
        return self.send("message", **{"from": identity, "text": words})

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest:
        """A message below a card."""
        name = next(name for name, each in self.messages.items() if each["token"] == card.token)
        return self.send("message", **{"from": identity, "text": words, "below": name})

    def reply_struck(self, card: VendorCard, identity: str, words: str, struck: str) -> InboundRequest:
        """A message below a card; a pigeon strikes out what stands between two waves."""
        return self.reply(card, identity, f"{words} ~{struck}~")

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest:
        """A message below the newest message to somebody."""
        name = [name for name, each in self.messages.items() if each["to"] == identity][-1]
        return self.send("message", **{"from": identity, "text": words, "below": name})

    def status(self, card: VendorCard, state: str) -> InboundRequest:
        """What became of a message."""
        name = next(name for name, each in self.messages.items() if each["token"] == card.token)
        return self.send("state", message=name, state=state)

    def unknown(self) -> Sequence[InboundRequest]:
        """What a later loft may send."""
        return (self.send("cooing"), self.send("state", message="m0", state="moulting"))


@asynccontextmanager
async def loft() -> AsyncIterator[Loft]:
    """A loft that listens."""
    vendor = Loft()
    async with serve_vendor(vendor.app(), vendor=vendor) as vendor.url:
        yield vendor


class TestPigeon(ChannelSuite):
    """Everything that every channel must do."""

    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        """See `ChannelSuite`."""
        return loft()
