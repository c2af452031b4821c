import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator

import pytest
from browser_window import ARGUMENTS, SOON, WIDE, Open, Served
from gateway_rig import gateway_rig
from playwright.async_api import Browser, Page, async_playwright, expect
from temporalio.client import Client

from signoff.gateway.transport.server import serve
from signoff.store.store import open_store
from signoff.temporal.embedded_server import free_port

expect.set_options(timeout=SOON)


@pytest.fixture(scope="session")
async def served(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("browser")
    async with (
        open_store(f"sqlite:///{folder}/signoff.db") as store,
        gateway_rig(client, store, f"browser-{uuid.uuid4().hex[:12]}") as rig,
    ):
        port, stop, ready = free_port(), asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(serve(rig.app, "127.0.0.1", port, stop=stop, ready=ready.set))
        await ready.wait()
        yield Served(f"http://127.0.0.1:{port}", rig)
        stop.set()
        await running


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield browser
        await browser.close()


class Windows:
    """A browser needs longest to create a page, so each page serves one test after another."""

    def __init__(self, chromium: Browser) -> None:
        self._chromium = chromium
        self._free: dict[bool, list[Page]] = {True: [], False: []}
        self._taken: list[tuple[bool, Page]] = []
        self.complaints: list[str] = []

    async def open(self, scripts: bool) -> Page:
        page = self._free[scripts].pop() if self._free[scripts] else await self._made(scripts)
        self._taken.append((scripts, page))
        return page

    async def beside(self, page: Page) -> Page:
        return self._watched(await page.context.new_page())

    async def leave(self) -> list[str]:
        for scripts, page in self._taken:
            for other in page.context.pages:
                if other is not page:
                    await other.close()
            await page.unroute_all()
            await page.goto("about:blank")
            await page.context.clear_cookies()
            self._free[scripts].append(page)
        self._taken.clear()
        complaints, self.complaints = self.complaints, []
        return complaints

    async def _made(self, scripts: bool) -> Page:
        context = await self._chromium.new_context(java_script_enabled=scripts, reduced_motion="reduce")
        return self._watched(await context.new_page())

    def _watched(self, page: Page) -> Page:
        page.set_default_timeout(SOON)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda message: self.complaints.append(message.text) if "Content Security" in message.text else None,
        )
        return page


@pytest.fixture(scope="session")
def windows(chromium: Browser) -> Windows:
    return Windows(chromium)


@pytest.fixture
async def window(windows: Windows, served: Served) -> AsyncIterator[Open]:
    """Opens windows: `await window("/path", size=PHONE, scripts=False)`. No error may occur in them."""

    async def opened(path: str, *, size: tuple[int, int] = WIDE, scripts: bool = True, of: Page | None = None) -> Page:
        page = await (windows.open(scripts) if of is None else windows.beside(of))
        await page.set_viewport_size({"width": size[0], "height": size[1]})
        await page.emulate_media(color_scheme="light")
        # Ana's own language differs, and every test reads English.
        await page.context.add_cookies([{"name": "signoff_language", "value": "en", "url": served.base}])
        await page.goto(served.base + path)
        return page

    yield opened
    assert await windows.leave() == []
