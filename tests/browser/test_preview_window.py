import os

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings
from playwright.async_api import expect

pytestmark = pytest.mark.chromium


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_preview_of_each_kind_is_readable_on_card_and_page(
    window: Open, served: Served, size: tuple[int, int]
) -> None:
    approval = await served.rig.asked("shown")
    page = await window(f"/approvals/{approval}", size=size)
    for part in ("server four", "Version 2", "DELETE FROM drafts", "ana@example.com", "1,234,567", "⟦U+202E⟧"):
        await expect(page.locator(".preview")).to_contain_text(part)
    picture = page.get_by_alt_text("They fall.")
    assert await picture.evaluate("each => each.naturalWidth") == 1
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
        await page.screenshot(path=f"{screenshots}/preview-{size[0]}.png", full_page=True)
    assert await axe_findings(page, size) == []
    await page.get_by_role("link", name="Show 48 more lines").click()
    await expect(page.locator(".preview")).to_contain_text("Person 59")
    assert await axe_findings(page, size) == []
