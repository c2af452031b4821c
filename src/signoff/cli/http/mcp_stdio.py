"""`mcp-stdio`: an MCP server over standard input and output that forwards to a gateway."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

import httpx2
import typer

from signoff.cli.http.gateway_client import gateway_client
from signoff.cli.terminal.options import Url
from signoff.cli.terminal.output import Output, run
from signoff.client.address import find_token
from signoff.contracts.names import TERMINAL_AGENT, VERSION
from signoff.contracts.responses import Health
from signoff.formats.json_reader import NotJson, read_json
from signoff.formats.web_address import is_loopback

READ_SECONDS: Final = 90.0
"""A gateway that holds a request sends a sign of life within 15 seconds. After this time it counts as dead."""
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_NAMES: Final = ("name", "taskId", "uri")
_INTERNAL: Final = -32603
_REFUSED: Final = -32000

Agent = Annotated[str, typer.Argument(help="The external agent whose host this is.")]
User = Annotated[str, typer.Option(help="The requester's id; optional if the agent acts for one person.")]

app = typer.Typer(rich_markup_mode=None)


@app.command("mcp-stdio")
def serve_stdio(agent: Agent, user: User = "", url: Url = None) -> None:
    """Serve an MCP host that starts its own servers: forward its messages to the gateway."""

    async def body(_: Output) -> int:
        async with gateway_client(url) as client:
            # Fail at once, with a sentence that a host shows.
            await client.get(Health, "/healthz")
            address = f"{client.url}/mcp/{quote(agent, safe='')}"
        query = f"?{urlencode({'user': user})}" if user else ""
        headers = {"user-agent": f"{TERMINAL_AGENT}/{VERSION}", "accept": "application/json, text/event-stream"}
        if token := find_token():
            headers["authorization"] = f"Bearer {token}"
        timeout = httpx2.Timeout(30.0, read=READ_SECONDS)
        # A proxy cannot reach this machine's loopback address.
        trust_env = not is_loopback(client.url)
        async with httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=trust_env) as http:
            await StdioForwarder(http, address + query).run()
        return 0

    run(body)


class StdioForwarder:
    """Sends each line of standard input, and prints one line per answer."""

    def __init__(self, http: httpx2.AsyncClient, address: str) -> None:
        self._http = http
        self._address = address
        self._session = ""
        self._version = ""
        self._sent: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Cancel the requests in flight when standard input ends."""
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            if line.strip():
                await self._take(line)
        for task in list(self._sent.values()):
            task.cancel()
        await asyncio.gather(*self._sent.values(), return_exceptions=True)

    async def _take(self, line: bytes) -> None:
        message = _read(line)
        method = message.get("method")
        if method == "notifications/cancelled" and not self._session:
            # Over HTTP, a client of this protocol version cancels by closing its connection.
            task = self._sent.get(_name(_params(message).get("requestId")))
            if task is not None:
                task.cancel()
            return
        if "id" not in message or method == "initialize":
            # Send these in order: later messages depend on them.
            await self._send(line, message)
            return
        name = _name(message["id"])
        task = self._sent[name] = asyncio.create_task(self._send(line, message))
        task.add_done_callback(lambda _: self._sent.pop(name, None))

    async def _send(self, line: bytes, message: dict[str, Any]) -> None:
        try:
            async with self._http.stream(
                "POST", self._address, content=line, headers=self._headers(message)
            ) as response:
                self._session = response.headers.get("mcp-session-id", self._session)
                async for found in _messages(response):
                    self._print(found, message, response.status_code)
        except httpx2.HTTPError:
            words = f"no gateway answers at {self._address.partition('/mcp/')[0]}"
            self._print_error(message, _INTERNAL, words)

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        params = _params(message)
        meta = params.get("_meta")
        version = meta.get(_VERSION) if isinstance(meta, dict) else None
        found = {"content-type": "application/json"}
        method = message.get("method")
        if isinstance(version, str) and isinstance(method, str):
            named = next((params[each] for each in _NAMES if isinstance(params.get(each), str)), "")
            found |= {"mcp-protocol-version": version, "mcp-method": method, "mcp-name": named}
        elif self._version and method != "initialize":
            found["mcp-protocol-version"] = self._version
        if self._session and method != "initialize":
            found["mcp-session-id"] = self._session
        # Drop values that a header cannot carry: the gateway compares headers with the message and refuses it.
        return {name: value for name, value in found.items() if value and value.isascii() and value.isprintable()}

    def _print(self, found: dict[str, Any], message: dict[str, Any], status: int) -> None:
        if found.get("jsonrpc") != "2.0":
            self._print_error(message, _REFUSED, str(found.get("message") or f"the gateway answered {status}"))
            return
        if message.get("method") == "initialize" and isinstance(found.get("result"), dict):
            self._version = str(found["result"].get("protocolVersion", ""))
        if found.get("id") is None and "error" in found:
            found = {**found, "id": message.get("id")}
        _print(found)

    def _print_error(self, message: dict[str, Any], code: int, words: str) -> None:
        if "id" in message:
            _print({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": words}})


async def _messages(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        body = await response.aread()
        if body:
            yield _read(body)
        return
    data: list[str] = []
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").strip())
        elif not line and data:
            yield _read("\n".join(data).encode())
            data = []


def _read(text: bytes) -> dict[str, Any]:
    """Return an empty message for invalid input, which the gateway refuses."""
    with suppress(NotJson):
        found = read_json(text)
        if isinstance(found, dict):
            return found
    return {}


def _params(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _name(request: Any) -> str:
    return json.dumps(request)


def _print(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, ensure_ascii=True, separators=(",", ":")) + "\n")
    sys.stdout.flush()
