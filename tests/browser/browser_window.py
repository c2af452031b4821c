import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from axe_playwright_python.async_playwright import Axe
from gateway_rig import GatewayRig
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
CONTRAST = ("color-contrast",)
LOOKS = (*CONTRAST, "target-size", "scrollable-region-focusable")
"""The rules of axe-core that depend on size and colours. All others see the same page in every look."""
SOON = 45_000
"""Milliseconds until a page shows its content, on a machine that runs other tests."""

Open = Callable[..., Awaitable[Page]]


class Served:
    def __init__(self, base: str, rig: GatewayRig) -> None:
        self.base = base
        self.rig = rig


async def until(page: Page, words: str, *, scripts: bool, where: str = "main") -> None:
    if scripts:
        await expect(page.locator(where)).to_contain_text(words)
        return
    late = time.monotonic() + SOON / 1000
    while words not in (text := await page.locator(where).inner_text()):
        assert time.monotonic() < late, f"`{words}` did not appear: {text}"
        await page.wait_for_timeout(100)
        await page.reload()


async def axe_findings(page: Page, size: tuple[int, int] = WIDE, other: tuple[int, int] = PHONE) -> list[str]:
    """Check light by every rule, then the other size and dark by `LOOKS`. Colours depend only on light or dark, but a
    card and its answers have other backgrounds in a narrow window: their contrast is checked in the other two looks
    as well. The page is left light and of `size`.
    """
    await page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    await _look(page, size, "light")
    found = await violations(page)
    await _look(page, other, "dark")
    found += await violations(page, LOOKS)
    if await page.locator(".card").count():
        await _look(page, other, "light")
        found += await violations(page, CONTRAST, ".card")
        await _look(page, size, "dark")
        found += await violations(page, CONTRAST, ".card")
    await _look(page, size, "light")
    return found


async def _look(page: Page, size: tuple[int, int], scheme: Literal["light", "dark"]) -> None:
    await page.set_viewport_size({"width": size[0], "height": size[1]})
    await page.emulate_media(color_scheme=scheme)


async def violations(page: Page, rules: tuple[str, ...] = (), where: str | None = None) -> list[str]:
    # Without `preload` axe-core does not fetch style sheets and media again: only its rule for videos needs them.
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": False}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    # The script is in the page since the first check.
    axe = Axe(axe_script="0") if rules else Axe()
    results = await axe.run(page, where, options)
    return [f"{each['id']}: {each['nodes'][0]['target']}" for each in results.response["violations"]]
