"""Pagers as a service of apprise: a plugin registered as anybody's is, a key, and people who have one."""

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
    """What somebody's pager shows."""

    to: str
    title: str
    body: str
    format: str

    @property
    def text(self) -> str:
        """All of it."""
        return f"{self.title}\n\n{self.body}"

    @property
    def is_card(self) -> bool:
        """Whether it asks: its title names what it is, not the code alone."""
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
        """As a manifest has them."""
        return {"url_secret": "env:APPRISE_URL"}

    @property
    def environment(self) -> Mapping[str, str]:
        """The variable that holds the address."""
        return {"APPRISE_URL": f"{SCHEME}://{KEY}@{self.host}/{{identity}}"}

    def cards(self) -> Sequence[VendorCard]:
        """Pages that ask, in order."""
        return [VendorCard(page.to, _token(page.text), page.text) for page in self.pages if page.is_card]

    def reads(self, identity: str) -> Sequence[str]:
        """Returns all pages of one person."""
        return [page.text for page in self.pages if page.to == identity]

    def press(self, card: VendorCard, identity: str, verdict: Verdict, reason: str = "") -> InboundRequest:
        """Returns nothing reaches anybody from a pager: what somebody made up."""
        return self.sign(f"{verdict} {card.token}".encode())

    def sign(self, body: bytes) -> InboundRequest:
        """Makes a request of any body; there is nothing to sign it with."""
        return InboundRequest(body, {"content-type": "text/plain"}, at=self.clock())

    def take(self, page: PagerMessage, key: str) -> bool:
        """Returns whether a page gets out."""
        fits = 0 < len(page.body) <= MOST_CHARS and page.to in self.identities
        if self.trouble or key != KEY or not fits:
            return False
        self.pages.append(page)
        return True


def _page(body: str, title: str, notify_type: str, *args: Any, meta: Mapping[str, Any], **more: Any) -> bool:
    """Answers the call of apprise for each address of that scheme."""
    to = unquote(str(meta.get("fullpath") or "")).removeprefix("/")
    page = PagerMessage(to, title, body, str(getattr(more.get("body_format"), "value", "")))
    return _HOSTS[str(meta["host"])].take(page, str(meta.get("user")))


@asynccontextmanager
async def fake_apprise() -> AsyncIterator[FakeApprise]:
    """Runs a host while the block runs."""
    # Plugins are the process's, not the fake's: all share the scheme, and each is found by its host.
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
