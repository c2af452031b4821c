import pytest
from browser_window import PHONE, WIDE, Open, until, violations
from playwright.async_api import Page, expect

pytestmark = pytest.mark.chromium


async def _says(page: Page, label: str, words: str) -> None:
    await page.get_by_label(label).fill(words)
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".said")).to_contain_text(words)


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_message_is_sent_while_a_request_waits(window: Open, size: tuple[int, int]) -> None:
    page = await window("/new", size=size)
    await _says(page, "What do you need?", "pay")
    await expect(page.locator("main")).to_contain_text("Waiting for approvers")
    await _says(page, "Reply", "hello")
    await page.get_by_label("Reply").fill("half a sent")
    await expect(page.locator(".said")).to_contain_text("You said: hello")
    assert await page.get_by_label("Reply").input_value() == "half a sent"
    await expect(page.get_by_role("link", name="Open the request")).to_have_count(1)
    assert await violations(page) == []
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await page.evaluate(wider) == 0
    await page.get_by_role("button", name="Stop the conversation").click()
    await expect(page.locator("main")).to_contain_text("Cancelled")


async def test_conversation_works_without_scripts(window: Open) -> None:
    page = await window("/new", scripts=False)
    await _says(page, "What do you need?", "hello")
    await _says(page, "Reply", "again")
    await until(page, "You said: again", scripts=False, where=".said")
    text = await page.locator(".said").inner_text()
    assert text.index("You said: hello") < text.index("You said: again")
