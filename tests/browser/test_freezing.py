import re
from collections.abc import AsyncIterator

import pytest
from browser_window import LOOKS, PHONE, WIDE, Open, Served, violations
from playwright.async_api import Page, expect

from signoff.store.freezes import Freezes

pytestmark = [pytest.mark.chromium, pytest.mark.usefixtures("nothing_waits")]

WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
async def unfrozen(served: Served) -> AsyncIterator[Served]:
    yield served
    await Freezes(served.rig.deps.store).unfreeze("main")


async def looks(page: Page, *, by_axe: bool = True) -> None:
    assert await page.evaluate(WIDER) == 0, page.url
    for dark in (False, True) if by_axe else ():
        await page.emulate_media(color_scheme="dark" if dark else "light")
        assert await violations(page, LOOKS if dark else ()) == [], (page.url, dark)


@pytest.mark.parametrize(("size", "scripts"), [(WIDE, True), (PHONE, False)], ids=["wide", "phone, plain"])
async def test_freeze_is_shown_everywhere_and_lifted(
    window: Open, unfrozen: Served, size: tuple[int, int], scripts: bool
) -> None:
    approval = await unfrozen.rig.asked("pay")
    page = await window("/", size=size, scripts=scripts)
    await page.get_by_role("link", name="Freeze", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Freeze")
    await looks(page, by_axe=scripts)
    await page.get_by_role("button", name="Freeze now").click()
    await expect(page.locator(".frozen")).to_have_count(0)
    await page.get_by_label("Reason").fill("a stolen laptop")
    await page.get_by_label(re.compile("Deny every call in main")).check()
    await page.get_by_role("button", name="Freeze now").click()
    await expect(page.locator(".note")).to_contain_text("Frozen. Withdrawn requests:")
    assert (await unfrozen.rig.turns.signoff.request(approval)).state == "cancelled"
    await looks(page, by_axe=scripts)
    await page.goto(f"{unfrozen.base}/tools")
    banner = page.locator(".frozen")
    await expect(banner).to_contain_text("Frozen by Approver: no calls start in main")
    await expect(banner).to_contain_text("a stolen laptop")
    await expect(banner.locator("time")).to_have_count(1)
    await banner.get_by_role("link", name="Details").click()
    await page.get_by_role("button", name="Unfreeze").click()
    await expect(page.locator(".note")).to_contain_text("Unfrozen.")
    await expect(page.locator(".frozen")).to_have_count(0)


async def test_person_without_the_role_sees_the_freeze_only(window: Open, unfrozen: Served) -> None:
    await Freezes(unfrozen.rig.deps.store).freeze("main", reason="strange payments " * 20, by="ana")
    page = await window("/", size=(320, 640))
    await page.get_by_label("Acting as").select_option("bo")
    await page.get_by_role("button", name="Switch").click()
    await expect(page.get_by_role("link", name="Freeze", exact=True)).to_have_count(0)
    await page.get_by_role("link", name="Details").click()
    await expect(page.locator("main")).to_contain_text("Only people with the role admin can change this")
    await expect(page.get_by_role("button", name="Unfreeze")).to_have_count(0)
    await looks(page)


async def test_session_is_found_opened_and_stopped(window: Open, served: Served) -> None:
    page = await window("/new", size=(320, 640))
    await page.get_by_label("What do you need?").fill("pay for this session")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("main")).to_contain_text("Waiting for approvers")
    await page.get_by_role("link", name="Conversations").click()
    await page.get_by_role("link", name="Active sessions").click()
    row = page.locator(".row", has_text="pay for this session").first
    await expect(row).to_contain_text("1 waiting")
    await looks(page)
    await row.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("pay for this session")
    await page.get_by_role("button", name="Stop the conversation").click()
    await expect(page.locator("main")).to_contain_text("Cancelled")
