import os
from typing import Literal

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings
from playwright.async_api import Page, expect

from signoff.gateway.history.request_indexer import RequestIndexer

pytestmark = pytest.mark.chromium


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_decided_requests_are_readable_and_searched(window: Open, served: Served, size: tuple[int, int]) -> None:
    rig = served.rig
    for word, verdict in (("pay", "approved"), ("write", "denied"), ("pay", "approved")):
        await rig.decide(await rig.asked(word), verdict=verdict, revision=1)
    while await RequestIndexer(rig.deps).step():
        pass
    page = await window("/decided", size=size)
    await expect(page.get_by_role("heading", name="Decided requests")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    await picture(page, f"decided-{size[0]}")
    assert await axe_findings(page, size) == []
    await page.get_by_label("Text on the card").fill("pay")
    await page.get_by_role("button", name="Show", exact=True).click()
    await expect(page.get_by_role("link", name="Export as CSV")).to_be_visible()
    await page.get_by_label("Text on the card").fill("nothing like it")
    await page.get_by_role("button", name="Show", exact=True).click()
    await expect(page.get_by_text("No requests match these filters")).to_be_visible()
    assert await axe_findings(page, size) == []
    approval = await rig.asked("long")
    page = await window(f"/approvals/{approval}", size=size)
    await expect(page.locator(".similar")).to_contain_text("Different from your earlier approvals")
    await picture(page, f"similar-{size[0]}")
    assert await axe_findings(page, size) == []


async def picture(page: Page, name: str) -> None:
    if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
        schemes: tuple[Literal["dark", "light"], ...] = ("dark", "light")
        for scheme in schemes:
            await page.emulate_media(color_scheme=scheme)
            await page.screenshot(path=f"{screenshots}/{name}-{scheme}.png", full_page=True)
