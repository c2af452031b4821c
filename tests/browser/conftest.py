"""A gateway on a real port, and Debian's chromium."""

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator

import pytest
from browser_window import ARGUMENTS, SOON, WIDE, Open, Served
from gateway_desk import gateway_desk
from playwright.async_api import Browser, Page, async_playwright, expect
from temporalio.client import Client

from signoff.embedded import free_port
from signoff.gateway.serve import serve
from signoff.store.store import open_store

expect.set_options(timeout=SOON)


@pytest.fixture(scope="session")
async def served(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """The gateway on a port of its own, with a worker behind it."""
    folder = tmp_path_factory.mktemp("browser")
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        gateway_desk(client, store, f"browser-{uuid.uuid4().hex[:12]}") as desk,
    ):
        port, stop, ready = free_port(), asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(serve(desk.app, "127.0.0.1", port, stop=stop, ready=ready.set))
        await ready.wait()
        yield Served(f"http://127.0.0.1:{port}", desk)
        stop.set()
        await running


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """One browser for the session."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest.fixture
async def window(chromium: Browser, served: Served) -> AsyncIterator[Open]:
    """Opens windows: `await window("/path", size=PHONE, scripts=False, dark=True)`; nothing may go wrong in them."""
    contexts = []
    complaints: list[str] = []

    async def opened(
        path: str, *, size: tuple[int, int] = WIDE, scripts: bool = True, dark: bool = False, of: Page | None = None
    ) -> Page:
        if of is None:
            context = await chromium.new_context(
                viewport={"width": size[0], "height": size[1]},
                java_script_enabled=scripts,
                color_scheme="dark" if dark else "light",
                reduced_motion="reduce",
            )
            contexts.append(context)
        else:
            context = of.context
        page = await context.new_page()
        page.set_default_timeout(SOON)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
        await page.goto(served.base + path)
        return page

    yield opened
    for context in contexts:
        await context.close()
    assert complaints == []
