"""What the browser tests share: sizes, and a gateway that listens."""

import time
from collections.abc import Awaitable, Callable

from gateway_desk import GatewayDesk
from playwright.async_api import Page, expect

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WIDE, PHONE = (1280, 800), (360, 740)
SOON = 45_000
"""Milliseconds within which a page shows what it should, on a machine that runs other tests at once."""

Open = Callable[..., Awaitable[Page]]


class Served:
    """A gateway that listens: `base` is its address, `desk` what lies behind it."""

    def __init__(self, base: str, desk: GatewayDesk) -> None:
        self.base = base
        self.desk = desk


async def until(page: Page, words: str, *, scripts: bool, where: str = "main") -> None:
    """Wait for words on the page; without scripts a person reloads."""
    if scripts:
        await expect(page.locator(where)).to_contain_text(words)
        return
    late = time.monotonic() + SOON / 1000
    while words not in (told := await page.locator(where).inner_text()):
        assert time.monotonic() < late, f"`{words}` did not appear: {told}"
        await page.wait_for_timeout(100)
        await page.reload()
