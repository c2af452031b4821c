"""The pictures of docs/for-approvers.md. With `SIGNOFF_PICTURES=docs/images`, the tests draw them again."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from browser_window import Open, Served
from gateway_login import asked_of, locked_rig, token_of
from gateway_rig import PEOPLE
from playwright.async_api import Locator, Page, expect

from signoff.gateway.transport.server import serve
from signoff.temporal.embedded_server import free_port

pytestmark = pytest.mark.chromium

PHONE = (390, 844)


@pytest.fixture
async def served(served: Served) -> AsyncIterator[Served]:
    port, stop, ready = free_port(), asyncio.Event(), asyncio.Event()
    base = f"http://127.0.0.1:{port}"
    rig = locked_rig(served.rig.without_secrets(), people=PEOPLE, public_url=base)
    running = asyncio.create_task(serve(rig.app, "127.0.0.1", port, stop=stop, ready=ready.set))
    await ready.wait()
    yield Served(base, rig)
    stop.set()
    await running


async def signed_in(window: Open, served: Served) -> Page:
    page = await window("/login", size=PHONE)
    await page.get_by_label("Personal token").fill(await token_of(served.rig, "ana"))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{served.base}/")
    return page


async def is_on_first_screen(part: Locator) -> bool:
    box = await part.bounding_box()
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= PHONE[1]


async def draw(page: Page, name: str) -> None:
    if folder := os.environ.get("SIGNOFF_PICTURES"):
        await page.screenshot(path=f"{folder}/{name}.png")


async def test_first_screen_of_a_card_has_everything_for_a_decision(window: Open, served: Served) -> None:
    approval = await asked_of(served.rig, "The invoice of Ana is urgent")
    page = await signed_in(window, served)
    await page.goto(f"{served.base}/approvals/{approval}")
    approve = page.get_by_role("button", name="Approve", exact=True)
    await expect(approve).to_be_enabled()
    parts = [
        page.get_by_role("heading", level=1),
        page.locator("#card").get_by_text("420.00 EUR"),
        page.locator(".asks-why"),
        page.get_by_text("Guest wrote: The invoice of Ana is urgent"),
        page.get_by_text("The agent says: Somebody said"),
        approve,
    ]
    parts += [page.get_by_role("button", name="Deny", exact=True), page.locator("#card .row-due")]
    await draw(page, "card-phone")
    assert [await is_on_first_screen(each) for each in parts] == [True] * len(parts)


async def test_first_screen_of_the_list_has_requests_and_their_deadlines(window: Open, served: Served) -> None:
    for word in ("urgent", "trip", "pay"):
        await asked_of(served.rig, word)
    page = await signed_in(window, served)
    await expect(page.get_by_text("Pay 420 EUR to Ana").first).to_be_visible()
    assert await is_on_first_screen(page.locator(".row .row-due").first)
    await draw(page, "list-phone")


async def test_decided_page_shows_own_approvals(window: Open, served: Served) -> None:
    approval = await asked_of(served.rig, "pay")
    page = await signed_in(window, served)
    await page.goto(f"{served.base}/approvals/{approval}")
    approve = page.get_by_role("button", name="Approve", exact=True)
    await expect(approve).to_be_enabled()
    await approve.click()
    await expect(page.locator(".receipt-who").first).to_have_text("Approved by Ana (you)")
    await draw(page, "approved-phone")
