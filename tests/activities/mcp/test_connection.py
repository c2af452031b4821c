import gzip
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_upstream import Upstream
from mcp_upstream_kit import by_http, using

from signoff.activities.mcp.server_session import ANSWER_BYTES
from signoff.contracts.errors import InDoubt
from signoff.registry.tool_result import ToolFailure, ToolResult

NOTE = "mcp__up__note"
Send = Callable[[dict[str, Any]], Awaitable[None]]


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


def spoiled(spoil: Callable[[Send], Awaitable[None]], calls: list[str]) -> Callable[[Any], Any]:
    """Replace the answer after the server ran the call."""

    def wrap(app: Any) -> Any:
        async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
            headers = dict(scope.get("headers", ()))
            # A client of the newest version names its request in a header.
            if headers.get(b"mcp-method") != b"tools/call":
                await app(scope, receive, send)
                return
            calls.append(headers[b"mcp-name"].decode())

            async def lose(message: dict[str, Any]) -> None:
                return None

            await app(scope, receive, lose)
            await spoil(send)

        return answer

    return wrap


def rewritten(change: Callable[[bytes], bytes], *more: tuple[bytes, bytes]) -> Callable[[Any], Any]:
    def wrap(app: Any) -> Any:
        async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if dict(scope.get("headers", ())).get(b"mcp-method") != b"tools/call":
                await app(scope, receive, send)
                return
            kept: list[dict[str, Any]] = []

            async def keep(message: dict[str, Any]) -> None:
                kept.append(message)

            await app(scope, receive, keep)
            headers = [each for each in kept[0]["headers"] if each[0] != b"content-length"]
            body = change(b"".join(each.get("body", b"") for each in kept[1:]))
            await send({**kept[0], "headers": [*headers, *more]})
            await send({"type": "http.response.body", "body": body})

        return answer

    return wrap


def longer(body: bytes) -> bytes:
    """Spaces before JSON and comments among events carry no meaning."""
    return (b" " * ANSWER_BYTES if body.startswith(b"{") else b":\n" * ANSWER_BYTES) + body


def page(status: int, body: bytes, kind: bytes = b"text/html") -> Callable[[Send], Awaitable[None]]:
    async def spoil(send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": body})

    return spoil


async def broken_off(send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"100")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"jsonrpc"', "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(page(502, b"<h1>Bad gateway</h1>"), id="proxy"),
        pytest.param(page(500, b'{"oops": 1}', b"application/json"), id="fault"),
        pytest.param(broken_off, id="broken"),
        pytest.param(page(200, b"<h1>Sign in</h1>"), id="page"),
        pytest.param(page(202, b""), id="accepted"),
        pytest.param(page(200, b'{"jsonrpc": "2.0", "id"', b"application/json"), id="half"),
        pytest.param(page(200, b'{"jsonrpc": "2.0", "id": 1, "result": 7}', b"application/json"), id="number"),
        pytest.param(page(200, b"data: garbage\n\n", b"text/event-stream"), id="events"),
        pytest.param(page(200, b"", b"text/event-stream"), id="silence"),
    ],
)
async def test_unreadable_answer_after_a_sent_call_is_in_doubt(
    upstream: Upstream, spoil: Callable[[Send], Awaitable[None]]
) -> None:
    calls: list[str] = []
    async with by_http(upstream, spoiled(spoil, calls)) as server, using(server) as servers:
        with pytest.raises(InDoubt):
            await servers.run("up", NOTE, {"text": "x"})
        assert await servers.problems() == []
    assert calls == ["note"]
    assert len(upstream.calls) == 1


@pytest.mark.parametrize("status", [401, 403, 429])
async def test_rejected_call_is_a_failure(upstream: Upstream, status: int) -> None:
    calls: list[str] = []
    async with by_http(upstream, spoiled(page(status, b"no"), calls)) as server, using(server) as servers:
        found = await servers.run("up", NOTE, {"text": "x"})
    assert isinstance(found, ToolFailure)
    assert found.code == "execution_failed"


@pytest.mark.parametrize(
    ("wrap", "is_read"),
    [
        (rewritten(lambda body: body), True),
        (rewritten(longer), False),
        (rewritten(gzip.compress, (b"content-encoding", b"gzip")), False),
    ],
    ids=["plain", "endless", "packed"],
)
async def test_oversized_or_compressed_answer_is_not_read(
    upstream: Upstream, wrap: Callable[[Any], Any], is_read: bool
) -> None:
    """Otherwise a server could fill the worker's memory. The call's outcome is then unknown."""
    async with by_http(upstream, wrap) as server, using(server) as servers:
        if is_read:
            assert await servers.run("up", NOTE, {"text": "x"}) == ToolResult("done: x")
            return
        with pytest.raises(InDoubt):
            await servers.run("up", NOTE, {"text": "x"})
    assert len(upstream.calls) == 1
