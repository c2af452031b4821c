"""Runs the channel suite on Pigeon, with a fake vendor on this machine."""

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
    """The vendor. It refuses requests that do not match its documentation."""

    kind = "post.pigeon"
    identities = ("@ana", "@bo", "@cy", "@nobody")
    busy_seconds = 20.0
    troubles = HTTP_TROUBLES
    url: str = ""
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def options(self) -> Mapping[str, Any]:
        """Return the options of a manifest."""
        return {"url": self.url, "token": "env:PIGEON_TOKEN", "secret": "env:PIGEON_SECRET"}

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment variables for the options."""
        return {"PIGEON_TOKEN": TOKEN, "PIGEON_SECRET": SECRET}

    async def take(self, request: Request) -> Response:
        """Take one message, new or changed."""
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
        """Return its two addresses."""
        new, changed = (
            Route("/messages", self.take, methods=["POST"]),
            Route("/messages/{name}", self.take, methods=["PATCH"]),
        )
        return Starlette(routes=[new, changed])

    def cards(self) -> Sequence[VendorCard]:
        """Return every message about a delivery."""
        return [VendorCard(each["to"], each["token"], each["text"]) for each in self.messages.values() if each["token"]]

    def reads(self, identity: str) -> Sequence[str]:
        """Return every message to a person."""
        return [each["text"] for each in self.messages.values() if each["to"] == identity]

    def sign(self, body: bytes) -> InboundRequest:
        """Sign any body."""
        return InboundRequest(
            body, {**SIGNATURE.sign(body, self.clock()), "content-type": "application/json"}, at=self.clock()
        )

    def send(self, kind: str, **event: str) -> InboundRequest:
        """Return an event."""
        event = {"id": f"e{next(self.numbers)}", "type": kind, "at": self.now_said.isoformat()} | event
        return self.sign(json.dumps(event).encode())

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """Press a button. A reason is a text in the field next to it."""
        return self.send("button", **{"from": identity, "data": f"{card.token} {verdict}", "text": reason})

    def write(self, identity: str, words: str) -> InboundRequest:
        """Send a message."""
        return self.send("message", **{"from": identity, "text": words})

    def reply(self, card: VendorCard, identity: str, words: str) -> InboundRequest:
        """Send a message below a card."""
        name = next(name for name, each in self.messages.items() if each["token"] == card.token)
        return self.send("message", **{"from": identity, "text": words, "below": name})

    def reply_struck(self, card: VendorCard, identity: str, words: str, struck: str) -> InboundRequest:
        """Send a message below a card. Pigeon strikes out text between two waves."""
        return self.reply(card, identity, f"{words} ~{struck}~")

    def reply_to_latest(self, identity: str, words: str) -> InboundRequest:
        """Send a message below a person's newest message."""
        name = [name for name, each in self.messages.items() if each["to"] == identity][-1]
        return self.send("message", **{"from": identity, "text": words, "below": name})

    def status(self, card: VendorCard, state: str) -> InboundRequest:
        """Return the status of a message."""
        name = next(name for name, each in self.messages.items() if each["token"] == card.token)
        return self.send("state", message=name, state=state)

    def unknown(self) -> Sequence[InboundRequest]:
        """Return events of a later version of the vendor."""
        return (self.send("cooing"), self.send("state", message="m0", state="moulting"))


@asynccontextmanager
async def loft() -> AsyncIterator[Loft]:
    """Run the vendor on this machine."""
    vendor = Loft()
    async with serve_vendor(vendor.app(), vendor=vendor) as vendor.url:
        yield vendor


class TestPigeon(ChannelSuite):
    """Every test of the suite."""

    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        """See `ChannelSuite`."""
        return loft()
