import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from browser_window import PHONE, WIDE, Open, Served, axe_findings
from gateway_login import locked_rig
from gateway_rig import PEOPLE
from playwright.async_api import expect

from signoff.gateway.transport.server import serve
from signoff.registry.manifest.channel_sections import Channels, DeclaredChannel, RoutingRules
from signoff.store.messages.sign_in_links import SignInLink, SignInLinks
from signoff.temporal.embedded_server import free_port

pytestmark = pytest.mark.chromium


@pytest.fixture
async def served(served: Served) -> AsyncIterator[Served]:
    port, stop, ready = free_port(), asyncio.Event(), asyncio.Event()
    base = f"http://127.0.0.1:{port}"
    channels = Channels({"mail": DeclaredChannel("mail", "email")}, RoutingRules())
    known = served.rig.beside(catalog=replace(served.rig.deps.catalog, channels=channels))
    rig = locked_rig(known, people=PEOPLE, public_url=base, email_sign_in="mail")
    running = asyncio.create_task(serve(rig.app, "127.0.0.1", port, stop=stop, ready=ready.set))
    await ready.wait()
    yield Served(base, rig)
    stop.set()
    await running


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "plain"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_person_signs_in_by_an_email_link(
    window: Open, served: Served, size: tuple[int, int], scripts: bool
) -> None:
    page = await window("/login?next=/decided", size=size, scripts=scripts)
    if scripts:
        assert await axe_findings(page, size) == []
        if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
            await page.screenshot(path=f"{screenshots}/login-email-{size[0]}.png", full_page=True)
    await page.get_by_label("Your email address").fill("ana@people.example")
    await page.get_by_role("button", name="Send me a link").click()
    await expect(page.locator("main")).to_contain_text("a link is on its way")
    cookie = next(each for each in await page.context.cookies() if each["name"] == "signoff_session")  # type: ignore[typeddict-item]
    links = SignInLinks(served.rig.deps.store)
    link = await links.make(SignInLink("main", "ana", "/decided"), cookie["value"])  # type: ignore[typeddict-item]
    assert link is not None
    await page.goto(f"{served.base}/login/email/{link}")
    if scripts:
        assert await axe_findings(page, size) == []
        if screenshots := os.environ.get("SIGNOFF_SCREENSHOTS"):
            await page.screenshot(path=f"{screenshots}/login-link-{size[0]}.png", full_page=True)
    await page.get_by_role("button", name="Sign in as Ana").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Decided requests")
    await page.goto(f"{served.base}/login/email/{link}")
    await expect(page.locator("main")).to_contain_text("This link does not work here")
