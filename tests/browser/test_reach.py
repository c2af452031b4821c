"""Pages at 400 % zoom (WCAG 2.2, 1.4.10), and whole flows by keyboard (2.1.1, 2.4.11)."""

import os

import pytest
from browser_window import Open, Served, axe_findings
from gateway_rig import turn_of
from playwright.async_api import Locator, Page, expect

pytestmark = pytest.mark.chromium

ZOOMED = (320, 256)
"""A window of 1280 x 1024 at 400 %."""
_MOST_TABS = 150
_WIDEST = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
_HIDDEN = """(element) => {
  const box = element.getBoundingClientRect();
  const seen = document.elementFromPoint(box.left + box.width / 2, box.top + Math.min(box.height / 2, 10));
  return !(seen && (element.contains(seen) || seen.contains(element) || (seen.control === element)));
}"""


async def tab_to(page: Page, target: Locator) -> None:
    await expect(target).to_be_visible()
    for _ in range(_MOST_TABS):
        await page.keyboard.press("Tab")
        if await target.evaluate("(element) => element === document.activeElement"):
            assert not await target.evaluate(_HIDDEN), "the focused element is covered"
            return
    raise AssertionError(f"no Tab reaches {target}")


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/?all=1", "/decided", "/away", "/passkeys", "/grants", "/freeze", "/new", "/tools", "/sessions"),
        *("/insights", "/notifications", "{shown}/course"),
        *("/login", "{shown}", "{order}", "{order}/values", "{book}", "{book}/edit", "{shown}/preview", "{turn}"),
        "{audit}",
    ],
)
async def test_page_at_four_hundred_percent_has_no_sideways_scrolling(window: Open, served: Served, path: str) -> None:
    word = path[1:].partition("}")[0] if path.startswith("{") else "pay"
    approval = await served.rig.asked(word if word in ("shown", "order", "book") else "pay")
    turn = turn_of(approval)
    name = f"{turn.tenant}.{turn.session}.{turn.turn}"
    places = {f"{{{each}}}": f"/approvals/{approval}" for each in ("shown", "order", "book")}
    places |= {"{turn}": f"/turns/{name}", "{audit}": f"/audit/{name}"}
    for mark, place in places.items():
        path = path.replace(mark, place)
    page = await window(path, size=ZOOMED)
    assert await page.title()
    assert "404" not in await page.locator("h1").first.inner_text()
    if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
        await page.screenshot(path=f"{screenshots}/zoomed-{path.strip('/').replace('/', '-') or 'list'}.png")
    assert await page.evaluate(_WIDEST) <= ZOOMED[0]
    # The next tests find their requests among the first of the list.
    await served.rig.decide(approval, verdict="denied")


async def test_card_at_four_hundred_percent_shows_more_than_its_buttons(window: Open, served: Served) -> None:
    approval = await served.rig.asked("pay")
    page = await window(f"/approvals/{approval}", size=ZOOMED)
    await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    box = await page.locator(".act").bounding_box()
    fixed = await page.locator(".act").evaluate("(each) => getComputedStyle(each).position")
    assert box is not None
    assert fixed not in ("fixed", "sticky") or box["height"] <= ZOOMED[1] / 2
    assert await axe_findings(page, ZOOMED) == []
    await served.rig.decide(approval, verdict="denied")


async def test_request_is_found_asked_about_and_approved_by_tab_and_enter(window: Open, served: Served) -> None:
    approval = await served.rig.asked("pay")
    page = await window("/?tool=pay")
    await tab_to(page, page.locator(f'[data-key="{approval}"] a').first)
    await page.keyboard.press("Enter")
    await expect(page.locator("#card")).to_have_attribute("data-approval", approval)
    await tab_to(page, page.get_by_label("Your question to the agent"))
    await page.keyboard.type("Why?")
    await tab_to(page, page.get_by_role("button", name="Ask the agent"))
    await page.keyboard.press("Enter")
    await expect(page.locator(".asking")).to_contain_text("with 0 tools")
    approve = page.get_by_role("button", name="Approve", exact=True)
    await expect(approve).to_be_enabled()
    await tab_to(page, approve)
    await page.keyboard.press("Enter")
    await expect(page.locator("#card")).to_contain_text("Approved by")


async def test_request_is_handed_on_by_tab_and_enter(window: Open, served: Served) -> None:
    approval = await served.rig.asked("pay")
    page = await window(f"/approvals/{approval}")
    await tab_to(page, page.get_by_text("Hand on, or add an approver"))
    await page.keyboard.press("Enter")
    await tab_to(page, page.get_by_label("Person", exact=True))
    await page.keyboard.type("Ana")
    await tab_to(page, page.get_by_role("button", name="Hand on", exact=True))
    await page.keyboard.press("Enter")
    await expect(page.locator("#card")).to_contain_text("You handed this request on")


async def test_arguments_are_edited_by_tab_and_enter(window: Open, served: Served) -> None:
    approval = await served.rig.asked("guarded")
    page = await window(f"/approvals/{approval}/edit")
    await tab_to(page, page.get_by_label("amount"))
    await page.keyboard.press("Control+a")
    await page.keyboard.type("421")
    await tab_to(page, page.get_by_role("button", name="Review changes"))
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_contain_text("421")
