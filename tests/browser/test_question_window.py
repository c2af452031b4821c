import os

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings, until
from playwright.async_api import expect

pytestmark = pytest.mark.chromium


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_approver_asks_the_agent_and_approves_after_its_answer(
    window: Open, served: Served, size: tuple[int, int], scripts: bool
) -> None:
    approval = await served.rig.asked("pay")
    page = await window(f"/approvals/{approval}", size=size, scripts=scripts)
    if scripts:
        assert await axe_findings(page, size) == []
    await page.get_by_label("Your question to the agent (3 left)").fill("Why <b>this</b> amount?")
    await page.get_by_role("button", name="Ask the agent").click()
    await until(page, "It is <b>due</b>, with 0 tools", scripts=scripts, where=".asking")
    await expect(page.locator(".asking")).to_contain_text("The agent, in its own words")
    await expect(page.locator(".asking")).to_contain_text("Why <b>this</b> amount?")
    await expect(page.get_by_label("Your question to the agent (2 left)")).to_be_visible()
    if scripts:
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
            await page.screenshot(path=f"{screenshots}/asked-{size[0]}.png", full_page=True)
        assert await axe_findings(page, size) == []
    await page.get_by_role("button", name="Approve", exact=True).click()
    await until(page, "Approved by", scripts=scripts)
