import os

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings, until
from gateway_rig import turn_of
from playwright.async_api import expect

pytestmark = pytest.mark.chromium


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_approver_answers_in_place_of_the_call(
    window: Open, served: Served, size: tuple[int, int], scripts: bool
) -> None:
    approval = await served.rig.asked("settle")
    page = await window(f"/approvals/{approval}", size=size, scripts=scripts)
    await page.get_by_role("link", name="Answer instead").click()
    if scripts:
        assert await axe_findings(page, size) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
            await page.screenshot(path=f"{screenshots}/answer-{size[0]}.png", full_page=True)
    await page.get_by_label("Amount to pay").fill("0")
    await page.get_by_role("button", name="Send this answer").click()
    await expect(page.locator(".why-wrong")).to_be_visible()
    if scripts:
        assert await axe_findings(page, size) == []
    await page.get_by_label("Amount to pay").fill("12.5")
    await page.get_by_label("Way to pay").select_option("card")
    await page.get_by_role("button", name="Send this answer").click()
    await until(page, "Answered by Approver", scripts=scripts)
    await expect(page.locator(".receipt")).to_contain_text('{"amount": 12.5, "by": "card"}')
    if scripts:
        assert await axe_findings(page, size) == []
        if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
            await page.screenshot(path=f"{screenshots}/answered-{size[0]}.png", full_page=True)
    [call] = (await served.rig.turns.signoff.result(turn_of(approval))).calls
    assert call.code == "answered"
