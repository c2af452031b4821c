"""What the browser tests share: sizes, and a gateway that listens."""

from collections.abc import Awaitable, Callable

from gateway_desk import GatewayDesk
from playwright.async_api import Page

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WIDE, PHONE = (1280, 800), (360, 740)

Open = Callable[..., Awaitable[Page]]


class Served:
    """A gateway that listens: `base` is its address, `desk` what lies behind it."""

    def __init__(self, base: str, desk: GatewayDesk) -> None:
        self.base = base
        self.desk = desk
