import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tables import table

from signoff.channels import vendor_http
from signoff.channels.base import Channel
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.vendor_http import VendorAnswer, VendorErrors, VendorHttp, retry_after
from signoff.testing.recording_channel import recording_channel
from signoff.testing.vendor_server import serve_vendor

ERRORS = VendorErrors(
    "Acme",
    lambda answer: answer.body.get("code"),
    meanings={7: "correct the address"},
    pauses={8: 20.0},
    passing=frozenset((9,)),
)


async def place(request: Request) -> Response:
    kind = request.path_params["kind"]
    if kind == "echo":
        result = {"body": (await request.body()).decode(), "token": request.headers.get("authorization", "")}
        return JSONResponse(result | {"path": request.url.path, "query": request.url.query})
    if kind == "slow":
        return StreamingResponse(drops())
    if kind == "endless":
        return Response(gzip.compress(b" " * 1_000_000), headers={"content-encoding": "gzip"})
    if kind == "moved":
        return Response(status_code=302, headers={"location": "/echo"})
    result = {"list": b"[]", "words": b"ok", "deep": b"[" * 100_000, "empty": b""}
    return Response(result[kind])


async def drops() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.02)


APP = Starlette(routes=[Route("/{kind}", place, methods=["GET", "POST"])])


async def refused(http: VendorHttp, url: str, **how: bool) -> NotDelivered:
    with pytest.raises(NotDelivered) as caught:
        await http.call("GET", url, **how)
    await http.close()
    return caught.value


async def test_call_sends_its_options_and_returns_the_answer() -> None:
    async with serve_vendor(APP) as url:
        http = VendorHttp(ERRORS, headers={"authorization": "Bearer a"})
        result = await http.call("POST", f"{url}/echo", body={"a": 1}, query={"b": "2"})
        assert (result["body"].replace(" ", ""), result["query"], result["token"]) == ('{"a":1}', "b=2", "Bearer a")
        form = await http.call("POST", f"{url}/echo", form={"a": "1"}, headers={"authorization": "Bearer b"})
        assert (form["body"], form["token"]) == ("a=1", "Bearer b")
        assert (await http.call("GET", f"{url}/shown", target="/echo"))["path"] == "/echo"
        await http.close()
        assert (await http.call("GET", f"{url}/echo"))["body"] == ""
        await http.close()


@table("kind", "list", "words", "deep", "empty", "endless")
async def test_successful_answer_without_an_object_is_retried(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor_http, "ANSWER_BYTES", 200_000)
    async with serve_vendor(APP) as url:
        error = await refused(VendorHttp(ERRORS), f"{url}/{kind}")
        assert (error.code, error.again) == ("no_answer", True)
        # Unless text is allowed.
        http = VendorHttp(ERRORS)
        assert await http.call("GET", f"{url}/{kind}", worded=True) == {}
        await http.close()


async def test_redirect_is_not_followed() -> None:
    async with serve_vendor(APP) as url:
        error = await refused(VendorHttp(ERRORS), f"{url}/moved")
    assert (error.code, error.again) == ("302", False)


async def test_slow_vendor_times_out() -> None:
    async with serve_vendor(APP) as url:
        late = await refused(VendorHttp(ERRORS, seconds=0.2), f"{url}/slow")
    nobody = await refused(VendorHttp(ERRORS), "http://127.0.0.1:9/secret-path")
    for error in (late, nobody):
        assert (error.code, error.again) == ("connection", True)
        assert error.message.startswith("Acme cannot be reached: ")
        assert "secret-path" not in error.message


@table(
    ("status", "expected", "after", "found"),
    (200, {}, 0.0, None),
    (200, {"code": 7}, 9.0, ("correct the address", "7", False, 0.0)),
    (503, {"code": 7}, 9.0, ("correct the address", "7", False, 0.0)),
    (429, {"code": 8}, 0.0, ("Acme takes no more for now", "8", True, 20.0)),
    (429, {"code": 8}, 90.0, ("Acme takes no more for now", "8", True, 90.0)),
    (200, {"code": 9}, 0.0, ("Acme refuses it with code 9", "9", True, 0.0)),
    (400, {"code": 10}, 9.0, ("Acme refuses it with code 10", "10", False, 0.0)),
    (500, {"code": 10}, 9.0, ("Acme refuses it with code 10", "10", True, 9.0)),
    (429, {}, 0.0, ("Acme takes no more for now", "429", True, 1.0)),
    (503, {}, 30.0, ("Acme answered 503", "503", True, 30.0)),
    (404, {}, 30.0, ("Acme answered 404", "404", False, 0.0)),
)
def test_refusal_follows_the_error_table(
    status: int, expected: dict[str, int], after: float, found: tuple[str, str, bool, float] | None
) -> None:
    error = ERRORS.refusal(VendorAnswer(status, expected, after))
    assert (None if error is None else (error.message, error.code, error.again, error.after)) == found


def test_vendor_may_define_its_own_message_and_pause() -> None:
    wordy = VendorErrors(
        "Acme",
        lambda answer: "odd",
        words=lambda answer: f"Acme says {answer.body['why']}",
        after_of=lambda answer: float(answer.body["wait"]),
    )
    error = wordy.refusal(VendorAnswer(500, {"why": "no", "wait": 5}))
    assert error is not None
    assert (error.message, error.code, error.again, error.after) == ("Acme says no", "odd", True, 5.0)


@table(("written", "seconds"), ("30", 30.0), ("", 0.0), ("²", 0.0), ("-1", 0.0), ("9" * 8, 0.0))
def test_retry_after_is_read_only_if_valid(written: str, seconds: float) -> None:
    assert retry_after(written) == seconds


async def test_channel_closes_its_attachments() -> None:
    closed: list[str] = []

    class Held:
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self) -> None:
            closed.append(self.name)

    channel: Channel = recording_channel("chat")
    assert channel.attach(Held("a")).name == "a"
    channel.attach(Held("b"))
    await channel.close_down()
    assert closed == ["a", "b"]
