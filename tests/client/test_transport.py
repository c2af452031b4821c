import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from tables import table

from signoff.client import turn_handle
from signoff.client.client import Client
from signoff.contracts.errors import Conflict, NotFound, Refused, ServerUnavailable
from signoff.temporal.embedded_server import free_port
from signoff.testing.builders import a_request
from signoff.testing.vendor_server import serve_vendor

Answer = Callable[[Request], Awaitable[Response]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[Client]:
    routes = [Route("/{path:path}", answer, methods=["GET", "POST", "DELETE"])]
    async with serve_vendor(Starlette(routes=routes)) as url, Client(url, "") as client:
        yield client


@table(
    ("status", "code", "error"),
    (401, "unauthenticated", Refused),
    (403, "not_allowed", Refused),
    (404, "unknown", NotFound),
    (409, "conflict", Conflict),
    (422, "malformed", Refused),
    (503, "unavailable", ServerUnavailable),
)
async def test_refusal_of_the_gateway_raises_its_error(status: int, code: str, error: type[Exception]) -> None:
    async def answer(request: Request) -> Response:
        return JSONResponse({"code": code, "message": "no"}, status_code=status)

    async with answering(answer) as client:
        with pytest.raises(error, match=r"\Ano") as refused:
            await client.turns()
    assert type(refused.value) is error
    assert ("SIGNOFF_TOKEN" in str(refused.value)) == (status == 401)


@table("body", "<html>", '{"turns": {}}', '{"turns": [{"tenant": 1}]}', "[]")
async def test_response_of_another_server_is_an_error(body: str) -> None:
    async def answer(request: Request) -> Response:
        return PlainTextResponse(body)

    async with answering(answer) as client:
        with pytest.raises(ServerUnavailable, match="is not a gateway of this version"):
            await client.turns()


async def test_unreachable_gateway_is_an_error_with_the_remedy() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    for attempt in (Client.connect(url), Client(url, "").turns()):
        with pytest.raises(ServerUnavailable, match="`signoff dev` or `signoff gateway` starts one"):
            await attempt


VIEW = {"tenant": "main", "session": "s", "turn": "t", "actor": "a", "state": "running", "requester": {"user": "u"}}
REQUEST = a_request().model_dump(mode="json")
DONE = VIEW | {"state": "complete", "result": {"state": "complete"}}


async def test_waiting_for_a_result_outlasts_a_missing_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_handle, "PAUSE_SECONDS", 0)
    events = iter(
        (
            'event: problem\ndata: {"code": "unavailable", "message": "no worker answered"}\n\n',
            f"event: turn\ndata: {json.dumps(VIEW)}\n\n",
            f"event: turn\ndata: {json.dumps(DONE)}\n\n",
        )
    )

    async def answer(request: Request) -> Response:
        if request.url.path.endswith("/events"):
            return StreamingResponse(iter((next(events),)), media_type="text/event-stream")
        return JSONResponse(VIEW)

    async with answering(answer) as client:
        result = await (await client.turn("main.s.t")).result()
    assert result.state == "complete"
    assert next(events, None) is None


async def test_pending_outlasts_a_gateway_that_cannot_read_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_handle, "PAUSE_SECONDS", 0)
    waiting = VIEW | {"calls": [{"call": "c1", "tool": "pay", "state": "waiting", "approval": REQUEST}]}
    events = iter((waiting, waiting, DONE))
    reads: list[int] = []

    async def answer(request: Request) -> Response:
        if request.url.path.endswith("/events"):
            return StreamingResponse(
                iter((f"event: turn\ndata: {json.dumps(next(events))}\n\n",)), media_type="text/event-stream"
            )
        if "/approvals/" not in request.url.path:
            return JSONResponse(VIEW)
        reads.append(503 if not reads else 200)
        body = REQUEST if reads[-1] == 200 else {"code": "unavailable", "message": "no worker answered"}
        return JSONResponse(body, status_code=reads[-1])

    async with answering(answer) as client:
        turn = await client.turn("main.s.t")
        found = [request.id async for request in turn.pending()]
    assert (found, reads) == ([REQUEST["id"]], [503, 200])


async def test_broken_event_stream_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_handle, "OUTAGE_SECONDS", 0)
    found = iter(
        (
            'event: problem\ndata: {"code": "unavailable", "message": "no worker answered"}\n\n',
            ": still here\n\n",
            "event: turn\ndata: [\n\n",
        )
    )

    async def answer(request: Request) -> Response:
        if request.url.path.endswith("/events"):
            return StreamingResponse(iter((next(found),)), media_type="text/event-stream")
        return JSONResponse(VIEW)

    async with answering(answer) as client:
        turn = await client.turn("main.s.t")
        for words in ("no worker answered", "sends no more about `main.s.t`", "is not a gateway of this version"):
            with pytest.raises(ServerUnavailable, match=words):
                await turn.result()
