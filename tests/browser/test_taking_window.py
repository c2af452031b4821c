import os

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings
from playwright.async_api import expect

from signoff.registry.manifest.channel_sections import Channels
from signoff.registry.manifest.room_sections import TeamRoom

pytestmark = pytest.mark.chromium
ROOMS = {"role:approvers": (TeamRoom("chat", "C0TEAM"),)}


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_request_is_taken_and_given_back_in_a_browser(
    window: Open, served: Served, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Channels, "rooms", property(lambda channels: ROOMS), raising=False)
    approval = await served.rig.asked("pay")
    page = await window(f"/approvals/{approval}", size=size, scripts=False)
    await page.get_by_role("button", name="I'll take it").click()
    await expect(page.locator("#card")).to_contain_text("You have taken it until")
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
        await page.screenshot(path=f"{screenshots}/taken-{size[0]}.png", full_page=True)
    await page.get_by_role("button", name="Give it back").click()
    await expect(page.get_by_role("button", name="I'll take it")).to_be_visible()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_card_and_list_with_a_taken_request_have_no_findings(
    window: Open, served: Served, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Channels, "rooms", property(lambda channels: ROOMS), raising=False)
    approval = await served.rig.asked("pay")
    page = await window(f"/approvals/{approval}", size=size)
    await page.get_by_role("button", name="I'll take it").click()
    await expect(page.locator("#card")).to_contain_text("You have taken it until")
    assert await axe_findings(page, size) == []
    # Other tests' requests wait here, too.
    await page.goto(f"{served.base}/?all=1")
    await expect(page.locator("#list")).to_contain_text("taken by Approver")
    if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
        await page.screenshot(path=f"{screenshots}/taken-list-{size[0]}.png")
    assert await axe_findings(page, size) == []
