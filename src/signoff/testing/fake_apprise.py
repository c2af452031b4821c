"""Fakes pagers as an apprise service: a registered plugin, a key, and people with pagers."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Final
from urllib.parse import unquote

from apprise import NotificationManager
from apprise.decorators import notify

from signoff.channels.envelopes import InboundRequest
from signoff.contracts.decision import Verdict
from signoff.testing.vendor import Vendor, VendorCard

KEY: Final = "k3y-of-the-pagers"
SCHEME: Final = "signoffpager"
MOST_CHARS: Final = 32_768
_CODE: Final = re.compile(r"\([0-9A-Z]{3}-[0-9A-Z]{3}\)\Z")
_TOKEN: Final = re.compile(r"/link/([a-z0-9]+)")
_HOSTS: Final[dict[str, "FakeApprise"]] = {}
_NUMBERS: Final = count(1)


@dataclass(frozen=True)
class PagerMessage:
    """A message on a pager."""

    to: str
    title: str
    body: str
    format: str

    @property
    def text(self) -> str:
        return f"{self.title}\n\n{self.body}"

    @property
    def is_card(self) -> bool:
        """A card's title names the action, not only the code."""
        return _CODE.search(self.title) is not None


class FakeApprise(Vendor):
    """One host of pagers."""

    kind: ClassVar[str] = "apprise"
    identities: ClassVar[tuple[str, str, str, str]] = ("ana@example.com", "bo/2?x=1&y#é", "cy", "nobody")
    writes: ClassVar[bool] = False

    def __init__(self) -> None:
        self.host = f"host{next(_NUMBERS)}"
        self.pages: list[PagerMessage] = []

    @property
    def options(self) -> Mapping[str, Any]:
        return {"url_secret": "env:APPRISE_URL"}

    @property
    def environment(self) -> Mapping[str, str]:
        return {"APPRISE_URL": f"{SCHEME}://{KEY}@{self.host}/{{identity}}"}

    def cards(self) -> Sequence[VendorCard]:
        return [VendorCard(page.to, _token(page.text), page.text) for page in self.pages if page.is_card]

    def reads(self, identity: str) -> Sequence[str]:
        return [page.text for page in self.pages if page.to == identity]

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """The request is made up: pagers cannot send anything."""
        return self.sign(f"{verdict} {card.token}".encode())

    def sign(self, body: bytes) -> InboundRequest:
        """This vendor has no signatures."""
        return InboundRequest(body, {"content-type": "text/plain"}, at=self.clock())

    def take(self, page: PagerMessage, key: str) -> bool:
        """Return whether the page is sent."""
        fits = 0 < len(page.body) <= MOST_CHARS and page.to in self.identities
        if self.trouble or key != KEY or not fits:
            return False
        self.pages.append(page)
        return True


def _page(body: str, title: str, notify_type: str, *args: Any, meta: Mapping[str, Any], **more: Any) -> bool:
    to = unquote(str(meta.get("fullpath") or "")).removeprefix("/")
    page = PagerMessage(to, title, body, str(getattr(more.get("body_format"), "value", "")))
    return _HOSTS[str(meta["host"])].take(page, str(meta.get("user")))


@asynccontextmanager
async def fake_apprise() -> AsyncIterator[FakeApprise]:
    # Plugins belong to the process, not to the fake: all fakes share the scheme, and the host selects one.
    if SCHEME not in NotificationManager():  # type: ignore[no-untyped-call]
        notify(on=SCHEME, name="Signoff Pager")(_page)  # type: ignore[no-untyped-call]
    vendor = FakeApprise()
    _HOSTS[vendor.host] = vendor
    try:
        yield vendor
    finally:
        del _HOSTS[vendor.host]


def _token(words: str) -> str:
    found = _TOKEN.search(words)
    return found[1] if found else ""
