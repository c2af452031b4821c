import os

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings
from playwright.async_api import expect

pytestmark = pytest.mark.chromium


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_request_is_handed_on_in_a_browser(window: Open, served: Served, size: tuple[int, int]) -> None:
    approval = await served.rig.asked("pay")
    page = await window(f"/approvals/{approval}", size=size)
    await page.get_by_text("Hand on, or add an approver").click()
    await page.get_by_label("Person", exact=True).select_option("ana")
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
        await page.screenshot(path=f"{screenshots}/assign-{size[0]}.png", full_page=True)
    assert await axe_findings(page, size) == []
    await page.get_by_role("button", name="Hand on", exact=True).click()
    await expect(page.locator("#card")).to_contain_text("You handed this request on")
    await expect(page.locator("#card")).to_contain_text("Approver handed it on to Ana.")
    assert await axe_findings(page, size) == []


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_absence_begins_and_ends_in_a_browser(window: Open, size: tuple[int, int]) -> None:
    page = await window("/away", size=size)
    await page.get_by_label("Until", exact=True).fill("2027-06-01T09:00")
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
        await page.screenshot(path=f"{screenshots}/away-{size[0]}.png", full_page=True)
    assert await axe_findings(page, size) == []
    await page.get_by_role("button", name="Save").click()
    back = page.get_by_role("button", name="I am back")
    await expect(back).to_be_visible()
    assert await axe_findings(page, size) == []
    await back.click()
    await expect(page.get_by_role("button", name="Save")).to_be_visible()
