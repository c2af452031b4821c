import shutil
from pathlib import Path

import pytest
from mail_rig import a_closing, a_notice, mail_rig
from playwright.async_api import Request, async_playwright

WIDE, PHONE = 1280, 360
LONG = "x" * 600


@pytest.mark.chromium
async def test_email_card_fits_a_desktop_and_a_phone(tmp_path: Path) -> None:
    async with mail_rig() as rig:
        card = a_notice(args={"to": LONG, "amount": "1200 " * 90, "note": "<img src=//else.example/x>"})
        sent = await rig.channel.deliver(card, None)
        await rig.channel.close(*a_closing(card, sent, decided_name=LONG))
        pages = [each.html for each in rig.server.taken]
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for number, page in enumerate(pages):
            file = tmp_path / f"{number}.html"
            file.write_text(page)
            for width in (WIDE, PHONE):
                window = await browser.new_page(viewport={"width": width, "height": 800})
                window.on("request", note)
                await window.goto(file.as_uri())
                assert await window.evaluate("document.documentElement.scrollWidth") <= width
                assert await window.get_by_text("##- Write your answer above this line -##").is_visible()
                await window.close()
        await browser.close()
    assert all(url.startswith("file:") for url in asked)
