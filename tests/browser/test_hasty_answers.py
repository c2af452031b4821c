import re
from collections.abc import AsyncIterator

import pytest
from browser_window import Open, Served
from gateway_rig import LINES
from playwright.async_api import Browser, Page, expect

pytestmark = pytest.mark.chromium


@pytest.fixture
async def still(chromium: Browser, served: Served) -> AsyncIterator[Page]:
    """Its clock is stopped. It has its own context, because a page never gets its clock back."""
    context = await chromium.new_context()
    await context.add_cookies([{"name": "signoff_language", "value": "en", "url": served.base}])
    page = await context.new_page()
    await page.clock.install(time=0)
    await page.clock.pause_at(1_000)
    yield page
    await context.close()


async def test_buttons_of_an_opened_card_work_after_700_milliseconds(still: Page, served: Served) -> None:
    page = still
    await page.goto(f"{served.base}/approvals/{await served.rig.asked('pay')}")
    for name in ("Approve", "Deny"):
        await expect(page.get_by_role("button", name=name)).to_be_disabled()
    await page.clock.run_for(600)
    await expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    await page.keyboard.press("a")
    await expect(page.locator("#sure")).to_be_hidden()
    await page.clock.run_for(200)
    for name in ("Approve", "Deny"):
        await expect(page.get_by_role("button", name=name)).to_be_enabled()


@pytest.mark.parametrize("held", ["key", "finger"])
async def test_buttons_of_an_opened_card_wait_until_key_and_finger_are_up(
    still: Page, served: Served, held: str
) -> None:
    page = still
    await page.goto(f"{served.base}/approvals/{await served.rig.asked('pay')}")
    await (page.keyboard.down("x") if held == "key" else page.mouse.down())
    await page.clock.run_for(5_000)
    await expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    await (page.keyboard.up("x") if held == "key" else page.mouse.up())
    await expect(page.get_by_role("button", name="Approve")).to_be_enabled()


async def test_held_key_answers_no_card(window: Open, served: Served) -> None:
    page = await window("/nothing-here")
    await page.keyboard.down("a")
    await page.goto(f"{served.base}/approvals/{await served.rig.asked('pay')}")
    await expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    await page.keyboard.down("a")
    await expect(page.locator("#sure")).to_be_hidden()
    await page.keyboard.up("a")
    await page.keyboard.press("a")
    await expect(page.locator("#sure")).to_be_visible()


async def test_key_approves_no_card_that_needs_a_typed_confirmation(window: Open, served: Served) -> None:
    page = await window(f"/approvals/{await served.rig.asked('typed')}")
    await expect(page.get_by_role("button", name="Approve")).to_be_enabled()
    await page.keyboard.press("a")
    await expect(page.get_by_label(re.compile("To approve, type"))).to_be_focused()
    await expect(page.locator("#sure")).to_be_hidden()
    await page.locator("h1").click()
    await page.keyboard.press("d")
    await expect(page.locator("#sure")).to_be_visible()


async def test_key_approves_no_card_that_is_not_whole(window: Open, served: Served) -> None:
    approval = await served.rig.asked("order")
    page = await window(f"/approvals/{approval}/values")
    for _ in range(1 + 2 * LINES // 500):
        await page.get_by_role("button", name="I have read this page").click()
    await expect(page.locator(".unseen")).to_contain_text("You have read them all")
    approve = page.get_by_role("button", name="Approve", exact=True)
    await expect(approve).to_be_enabled()
    await page.keyboard.press("a")
    await expect(approve).to_be_focused()
    await expect(page.locator("#sure")).to_be_hidden()
