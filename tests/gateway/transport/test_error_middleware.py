import logging
import re

import pytest
from gateway_login import browser, words
from gateway_rig import GatewayRig
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from signoff.contracts.responses import Fault
from signoff.gateway.transport.middleware import ErrorMiddleware


class Broken(Exception):
    """An error without a handler."""


async def test_unexpected_error_is_one_log_line_with_an_id(
    gateway: GatewayRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def break_down(*args: object, **named: object) -> None:
        raise Broken("argument: a secret")

    monkeypatch.setattr("signoff.store.grants.Grants.all", break_down)
    with caplog.at_level(logging.DEBUG, logger="signoff"):
        answer = await gateway.http.get("/v1/grants")
        async with browser(gateway) as page:
            shown = await page.get("/grants")
    assert (answer.status_code, answer.json()["code"], shown.status_code) == (500, "internal", 500)
    named = re.search(r"under the id (\w{8})$", answer.json()["message"])
    assert named is not None
    assert "an unexpected error occurred" in words(shown.text).lower()
    assert "a secret" not in answer.text + shown.text
    lines = [record for record in caplog.records if record.name == "signoff.gateway.transport.middleware"]
    loud = [record for record in lines if record.levelno >= logging.INFO]
    assert loud[0].getMessage() == f"GET '/v1/grants' failed, id {named[1]} (Broken)"
    assert len(loud) == 2
    assert not [record for record in loud if record.exc_info or "a secret" in record.getMessage()]
    (quiet,) = [record for record in lines if record.levelno == logging.DEBUG and named[1] in record.getMessage()]
    assert quiet.exc_info is not None
    assert isinstance(quiet.exc_info[1], Broken)
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_path_with_a_line_break_forges_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """An unescaped path forged a log entry with `%0A`."""

    async def breaks(scope: Scope, receive: Receive, send: Send) -> None:
        raise Broken if scope["path"] != "/left" else ClientDisconnect

    async def answer(request: Request, fault: Fault, status: int) -> Response:
        return Response(status_code=status)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        return None

    with caplog.at_level(logging.ERROR, logger="signoff"):
        for path in ("/x\n2026-11-22 ERROR forged", "/left"):
            scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
            await ErrorMiddleware(breaks, answer)(scope, receive, send)
    assert [record.getMessage().partition(", id")[0] for record in caplog.records] == [
        r"GET '/x\n2026-11-22 ERROR forged' failed"
    ]


async def test_error_in_a_started_response_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[str] = []

    async def begins(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise Broken

    async def answer(request: Request, fault: Fault, status: int) -> Response:
        raise AssertionError("a second answer to one request")

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    with caplog.at_level(logging.ERROR, logger="signoff"):
        await ErrorMiddleware(begins, answer)({"type": "http", "method": "GET", "path": "/x"}, receive, send)
    assert sent == ["http.response.start"]
    assert [record.getMessage().partition(", id")[0] for record in caplog.records] == ["GET '/x' failed"]
