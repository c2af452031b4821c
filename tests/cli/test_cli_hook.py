import asyncio
import contextlib
import json
import os
import re
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from signoff.temporal.embedded_server import free_port

GATE = json.dumps({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}).encode()
REPORT = json.dumps({"hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}).encode()
BLOCKED = 2
REPORTED_IN_VAIN = 1


class Stranger:
    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.requests: list[bytes] = []

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            # Read all of it: a client may read no answer from a connection that closes too early.
            length = re.search(rb"content-length: (\d+)", head.lower())
            await reader.readexactly(int(length[1]) if length else 0)
        writer.write(self._answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def stranger(answer: bytes) -> AsyncIterator[tuple[Stranger, str]]:
    port, server = free_port(), Stranger(answer)
    async with await asyncio.start_server(server.serve, "127.0.0.1", port):
        yield server, f"http://127.0.0.1:{port}"


async def hook(given: bytes, *options: str, **env: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "signoff",
        "hook",
        *options,
        env={"PATH": os.environ["PATH"], **env},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(given)
    return process.returncode, out.decode(), err.decode()


def http(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def test_answer_is_printed_unchanged(tmp_path: Path) -> None:
    async with stranger(http("200 OK", b'{"hookSpecificOutput": {"a": 1}}')) as (server, url):
        ran = await hook(GATE, "codex", "--hold", "0", "--user", "ana", "--url", url, SIGNOFF_TOKEN="secret")
    assert ran == (0, '{"hookSpecificOutput": {"a": 1}}\n', "")
    [request] = server.requests
    assert request.startswith(b"POST /v1/hooks/codex?hold=0.0&user=ana HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret" in request


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (http("200 OK", b"[]"), "is no gateway"),
        (http("200 OK"), "is no gateway"),
        (http("200 OK", b"<html>"), "is no gateway"),
        (http("401 Unauthorized", b'{"code": "sign_in", "message": "show a token"}'), "show a token; nothing was run"),
        (http("503 Service Unavailable", b"\xff"), "answered 503; nothing was run"),
        (http("307 Temporary Redirect", b"", "location: /elsewhere"), "answered 307; nothing was run"),
        (b"", "no gateway answers"),
        (b"SSH-2.0-x\r\n", "signoff: "),
    ],
)
async def test_invalid_answer_blocks(answer: bytes, words: str) -> None:
    """Redirects are not followed, because the token would be sent to their target."""
    async with stranger(answer) as (server, url):
        code, out, err = await hook(GATE, "claude-code", "--url", url)
    assert (code, out) == (BLOCKED, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("options", "env", "words"),
    [
        (("codex", "--url", "http://127.0.0.1:1"), {}, "no gateway answers"),
        (("codex", "--url", "nowhere"), {}, "the gateway's address is `nowhere`"),
        (("codex", "--url", "http://signoff.example.com"), {"SIGNOFF_TOKEN": "x"}, "is not https"),
        (("codex",), {"SIGNOFF_TOKEN": "a\nb"}, "does not hold a valid token"),
        (("codex",), {"SIGNOFF_TOKNE": "x"}, "did you mean `SIGNOFF_TOKEN`"),
        (("cursor",), {}, "cursor"),
        ((), {}, "host"),
    ],
)
async def test_wrong_setting_blocks(options: tuple[str, ...], env: dict[str, str], words: str) -> None:
    code, out, err = await hook(GATE, *options, **env)
    assert (code, out, words in err) == (BLOCKED, "", True), err


async def test_garbage_from_the_agent_blocks() -> None:
    async with stranger(http("422 Unprocessable", b'{"code": "malformed", "message": "not JSON"}')) as (_, url):
        assert await hook(b"\xff{", "codex", "--url", url) == (BLOCKED, "", "signoff: not JSON; nothing was run\n")


async def test_refused_report_blocks_nothing() -> None:
    code, out, err = await hook(REPORT, "codex", "--url", "http://127.0.0.1:1")
    assert (code, out, "no gateway answers" in err) == (REPORTED_IN_VAIN, "", True)
