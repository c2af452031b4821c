import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2
import psutil
import pytest
from browser_window import ARGUMENTS, SOON
from playwright.async_api import Browser, Error, Page, async_playwright, expect
from served_stack import MANIFEST
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from signoff.temporal.embedded_server import free_port

pytestmark = [pytest.mark.chromium, pytest.mark.timeout(600)]
EVIL = "evil.example"
READY = "Ctrl-C stops everything"
START = (
    '{"workflowType": {"name": "Session"}, "taskQueue": {"name": "signoff"}, "requestId": "r1", '
    '"input": [{"engine": 1, "session_id": "s", "actor": "desk"}]}'
)


@dataclass(frozen=True)
class Attacked:
    gateway: int
    temporal: int
    ui: int
    api: int
    """The port of the HTTP API that Temporal's server opens automatically."""
    real_ui: tuple[str, int]


@pytest.fixture(scope="module")
async def attacked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    gateway, temporal, ui = free_port(), free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "signoff.cli.main", "dev", str(MANIFEST)),
        *("--port", str(gateway), "--temporal-port", str(temporal), "--ui-port", str(ui)),
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or READY not in lines[-1]:
            lines.append((await process.stdout.readline()).decode())
            assert lines[-1], "".join(lines)
        listening = _listening(process.pid)
        (real,) = [each for each in listening if await _answers(each, "/healthz", "OK")]
        api = "Host not allowed|namespaceInfo"
        ports = [each[1] for each in listening - {real} if await _answers(each, "/api/v1/namespaces", api)]
        yield Attacked(gateway, temporal, ui, *ports, real)
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()


def _listening(parent: int) -> set[tuple[str, int]]:
    return {
        (each.laddr.ip, each.laddr.port)
        for child in psutil.Process(parent).children(recursive=True)
        for each in child.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }


async def _answers(address: tuple[str, int], path: str, words: str) -> bool:
    try:
        async with httpx2.AsyncClient(trust_env=False) as http:
            answer = await http.get(f"http://{address[0]}:{address[1]}{path}")
            return re.search(words, answer.text) is not None
    except httpx2.HTTPError:
        # A gRPC port.
        return False


@pytest.fixture(scope="module")
async def evil(attacked: Attacked) -> AsyncIterator[Browser]:
    """A browser in which the attacker's name resolves to this machine, as after a rebinding."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=[*ARGUMENTS, f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"],
        )
        yield browser
        await browser.close()


@pytest.fixture
async def page(evil: Browser) -> AsyncIterator[Page]:
    context = await evil.new_context()
    page = await context.new_page()
    page.set_default_timeout(SOON)
    yield page
    await context.close()


@pytest.fixture(scope="module")
async def evil_site() -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://{EVIL}:{server.sockets[0].getsockname()[1]}/"


async def test_cross_site_post_to_the_http_api_starts_no_workflow(
    attacked: Attacked, page: Page, evil_site: str
) -> None:
    await page.goto(evil_site)
    kind = await page.evaluate(
        """async ([url, body]) => {
            const options = {method: "POST", mode: "no-cors", headers: {"content-type": "text/plain"}, body};
            return (await fetch(url, options)).type;
        }""",
        [f"http://127.0.0.1:{attacked.api}/api/v1/namespaces/default/workflows/started", START],
    )
    # The browser sent it: only the server refused.
    assert kind == "opaque"
    client = await Client.connect(f"127.0.0.1:{attacked.temporal}")
    with pytest.raises(RPCError) as missing:
        await client.get_workflow_handle("started").describe()
    assert missing.value.status == RPCStatusCode.NOT_FOUND


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", EVIL])
async def test_http_api_refuses_every_host_name(attacked: Attacked, host: str) -> None:
    async with httpx2.AsyncClient() as http:
        answer = await http.post(
            f"http://127.0.0.1:{attacked.api}/api/v1/namespaces/default/workflows/w",
            content=START,
            headers={"host": f"{host}:{attacked.api}", "content-type": "text/plain"},
        )
    assert (answer.status_code, answer.json()["message"]) == (403, "Host not allowed")


async def test_rebound_name_reads_neither_ui_nor_api_nor_gateway(attacked: Attacked, page: Page) -> None:
    for port, path in (
        (attacked.ui, "/api/v1/namespaces/default/workflows"),
        (attacked.ui, "/"),
        (attacked.gateway, "/v1/approvals"),
        (attacked.api, "/api/v1/namespaces"),
    ):
        answer = await page.goto(f"http://{EVIL}:{port}{path}")
        assert answer is not None
        assert answer.status in (403, 421), (port, path, await answer.text())
        assert "namespaceInfo" not in await answer.text()


async def test_rebound_name_does_not_find_the_real_ui(attacked: Attacked, page: Page) -> None:
    host, port = attacked.real_ui
    assert host not in ("127.0.0.1", "0.0.0.0", "::")
    with pytest.raises(Error, match="ERR_CONNECTION_REFUSED"):
        await page.goto(f"http://{EVIL}:{port}/")


async def test_own_ui_shows_workflows_and_sends_signals(attacked: Attacked, page: Page) -> None:
    client = await Client.connect(f"127.0.0.1:{attacked.temporal}")
    handle = await client.start_workflow("Waits", id="own-ui", task_queue="idle")
    await page.goto(f"http://127.0.0.1:{attacked.ui}/namespaces/default/workflows/own-ui")
    await expect(page.locator("body")).to_contain_text("Waits")
    sent = await page.evaluate(
        """async (url) => {
            const token = document.cookie.match(/_csrf=([^;]+)/)[1];
            const headers = {"content-type": "application/json", "x-csrf-token": token};
            return (await fetch(url, {method: "POST", headers, body: "{}"})).status;
        }""",
        f"http://127.0.0.1:{attacked.ui}/api/v1/namespaces/default/workflows/own-ui/signal/hello",
    )
    assert sent == 200
    kinds = [event.event_type async for event in handle.fetch_history_events()]
    await handle.terminate()
    assert 26 in kinds, "WORKFLOW_EXECUTION_SIGNALED"


async def test_cross_site_post_to_the_ui_is_refused(attacked: Attacked, page: Page, evil_site: str) -> None:
    await page.goto(evil_site)
    async with page.expect_response(lambda answer: "/signal/" in answer.url) as answer:
        await page.evaluate(
            """async (url) => { await fetch(url, {method: "POST", mode: "no-cors", body: "{}"}); }""",
            f"http://127.0.0.1:{attacked.ui}/api/v1/namespaces/default/workflows/any/signal/hello",
        )
    assert (await answer.value).status == 403
