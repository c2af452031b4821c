"""The suite of channels for `pager`, which loads the installed plugin."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from signoff.channels import InboundRequest, Verdict
from signoff.testing import HTTP_TROUBLES, ChannelSuite, Vendor, VendorCard, serve_vendor


class PagerService(Vendor):
    """A pager service that keeps each text in memory."""

    kind = "pager"
    plugins = ("signoff-pager:pager",)
    identities = ("17", "18", "19", "20")
    writes = False
    troubles = HTTP_TROUBLES

    def __init__(self) -> None:
        self.url = ""
        self.texts: list[tuple[str, str]] = []

    @property
    def options(self) -> Mapping[str, Any]:
        """Return the options that a manifest would have."""
        return {"url": self.url}

    async def take(self, request: Request) -> Response:
        """Keep one text."""
        if self.trouble:
            return Response(status_code=429 if self.trouble == "busy" else 503)
        message = await request.json()
        self.texts.append((message["to"], message["text"]))
        return JSONResponse({})

    def cards(self) -> Sequence[VendorCard]:
        """Return the texts that have a link."""
        links = ((to, re.search(r"/link/([a-z0-9]+)", text), text) for to, text in self.texts)
        return [VendorCard(to, link[1], text) for to, link, text in links if link]

    def reads(self, identity: str) -> Sequence[str]:
        """Return the texts to one person."""
        return [text for to, text in self.texts if to == identity]

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """Make up an answer. A pager has no buttons."""
        return self.sign(f"{verdict} {card.token}".encode())

    def sign(self, body: bytes) -> InboundRequest:
        """Make a request that no vendor signed."""
        return InboundRequest(body, {"content-type": "text/plain"}, at=self.clock())


@asynccontextmanager
async def pager_service() -> AsyncIterator[PagerService]:
    """Run the service on this machine."""
    service = PagerService()
    app = Starlette(routes=[Route("/texts", service.take, methods=["POST"])])
    async with serve_vendor(app, vendor=service) as service.url:
        yield service


class TestPager(ChannelSuite):
    """Every test of the suite."""

    def vendor(self) -> AbstractAsyncContextManager[Vendor]:
        """Return a fresh service."""
        return pager_service()
