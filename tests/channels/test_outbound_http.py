import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import pytest
from certificates import certified
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from tables import table

from signoff.channels.channel_errors import NotDelivered
from signoff.channels.outbound_http import GuardedHttp, Resolve, is_public, read_date, read_networks, resolve_host
from signoff.channels.vendor_http import retry_after
from signoff.testing.vendor_server import serve_vendor

HOME = read_networks(["127.0.0.0/8"])
NAME = "desk.example.com"


class Names:
    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


class Place:
    """A server that records its requests. `/moved` redirects, `/endless` never ends, `/slow` never answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    async def take(self, request: Request) -> Response:
        self.requests.append((request.url.path, dict(request.headers), await request.body()))
        if request.url.path == "/moved":
            return Response(status_code=307, headers={"location": "/hook"})
        if request.url.path == "/endless":
            return StreamingResponse(self._endless())
        if request.url.path == "/told":
            return Response("told")
        if request.url.path == "/slow":
            await asyncio.Event().wait()
        return Response(status_code=200)

    async def _endless(self) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536
            await asyncio.sleep(0.001)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self.take, methods=["POST", "GET"])])


async def refused(outward: GuardedHttp, url: str) -> NotDelivered:
    async with outward:
        with pytest.raises(NotDelivered) as error:
            await outward.post(url, b"{}", {})
    return error.value


@table(
    "address",
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
    "169.254.169.254", "192.0.0.192", "168.63.129.16", "224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1",
    "192.0.2.1", "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "::7f00:1",
    "64:ff9b:1::1", "100::1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a00:1", "64:ff9b::7f00:1", "2002:7f00:1::",
    "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:f5ff:fffe",
)  # fmt: skip
def test_private_addresses_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@table("address", "8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")
def test_internet_addresses_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@table("host", "127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "127.1", "0")
async def test_loopback_is_refused_in_every_notation(host: str) -> None:
    error = await refused(GuardedHttp(), f"https://{host}:9/hook")
    assert (error.code, error.again) in {("address", False), ("dns", True)}


@table("address", "10.1.2.3", "169.254.169.254", "::ffff:192.168.0.1", "fe80::1%eth0")
async def test_name_of_a_private_address_is_refused(address: str) -> None:
    error = await refused(GuardedHttp(resolve=Names([address])), f"https://{NAME}/hook")
    assert (error.code, error.again) == ("address", False)
    assert "allow_networks" in error.message


async def test_every_resolved_address_is_checked() -> None:
    place, names = Place(), Names(["127.0.0.1", "192.0.2.1"], ["127.0.0.1"])
    async with serve_vendor(place.app()) as url:
        error = await refused(GuardedHttp(resolve=names), url.replace("http", "https").replace("127.0.0.1", NAME))
    assert error.code == "address"
    assert place.requests == []
    assert len(names.asked) == 1


async def test_name_is_resolved_once_for_check_and_request() -> None:
    """It was checked at one address and is requested there, although it resolves to another one a moment later."""
    place, names = Place(), Names(["127.0.0.1"], ["169.254.169.254"])
    async with serve_vendor(place.app()) as url, GuardedHttp(HOME, resolve=names) as outward:
        answer = await outward.post(url.replace("127.0.0.1", NAME) + "/hook?a=1", b"{}", {"x-a": "b"})
    assert answer.status == 200
    path, headers, body = place.requests[0]
    assert (path, body, headers["x-a"]) == ("/hook", b"{}", "b")
    assert headers["host"].startswith(f"{NAME}:")
    assert names.asked[0][0] == NAME
    assert len(names.asked) == 1


@table("url", "http://a..b/", f"http://{'a' * 64}.b/", "http://[::1/", "http://127.0.0.1:99999/")
async def test_invalid_address_is_refused(url: str) -> None:
    async with GuardedHttp(HOME) as http:
        with pytest.raises(NotDelivered):
            await http.post(url, b"", {})


async def test_unicode_name_is_resolved_in_ascii_form() -> None:
    place, names = Place(), Names(["127.0.0.1"])
    async with serve_vendor(place.app()) as url, GuardedHttp(HOME, resolve=names) as outward:
        await outward.post(url.replace("127.0.0.1", "bücher.example"), b"{}", {})
    assert names.asked[0][0] == "xn--bcher-kva.example"
    assert place.requests[0][1]["host"].startswith("xn--bcher-kva.example:")


async def test_ipv6_address_is_requested() -> None:
    error = await refused(GuardedHttp(read_networks(["::1/128"]), resolve=Names(["::1"])), f"http://{NAME}:9/hook")
    assert (error.code, error.again) == ("connection", True)


async def test_plain_http_is_limited_to_allowed_networks() -> None:
    error = await refused(GuardedHttp(resolve=Names(["8.8.8.8"])), f"http://{NAME}/hook")
    assert error.code == "address"


async def test_redirect_is_not_followed() -> None:
    """It would lead past all checks."""
    place = Place()
    async with serve_vendor(place.app()) as url, GuardedHttp(HOME) as outward:
        answer = await outward.post(f"{url}/moved", b"{}", {})
    assert answer.status == 307
    assert [path for path, *_ in place.requests] == ["/moved"]


async def test_response_body_is_not_read_by_default() -> None:
    place = Place()
    async with serve_vendor(place.app()) as url, GuardedHttp(HOME) as outward:
        assert (await outward.post(f"{url}/endless", b"{}", {})).status == 200


async def test_response_body_over_the_requested_limit_is_refused() -> None:
    place = Place()
    async with serve_vendor(place.app()) as url, GuardedHttp(HOME) as outward:
        answer = await outward.post(f"{url}/told", b"{}", {}, answer_bytes=4)
        assert (answer.body, (await outward.post(f"{url}/told", b"{}", {})).body) == (b"told", b"")
        for path, most in (("told", 3), ("endless", 100_000)):
            with pytest.raises(NotDelivered, match="too long"):
                await outward.post(f"{url}/{path}", b"{}", {}, answer_bytes=most)


async def test_missing_response_times_out() -> None:
    place = Place()
    async with serve_vendor(place.app()) as url:
        error = await refused(GuardedHttp(HOME, seconds=0.3), f"{url}/slow")
    assert (error.code, error.again) == ("timeout", True)


async def test_proxy_from_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    place = Place()
    async with serve_vendor(place.app()) as url, GuardedHttp(HOME) as outward:
        assert (await outward.post(f"{url}/hook", b"{}", {})).status == 200


async def test_next_address_is_tried_after_a_refused_connection() -> None:
    place = Place()
    async with (
        serve_vendor(place.app()) as url,
        GuardedHttp(HOME, resolve=Names(["127.0.0.2", "127.0.0.1"])) as outward,
    ):
        assert (await outward.post(url.replace("127.0.0.1", NAME), b"{}", {})).status == 200


async def test_failed_connection_is_retryable() -> None:
    error = await refused(GuardedHttp(HOME), "http://127.0.0.1:9/hook")
    assert (error.code, error.again) == ("connection", True)

    async def nothing(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    error = await refused(GuardedHttp(resolve=nothing), f"https://{NAME}/hook")
    assert (error.code, error.again) == ("dns", True)


async def test_certificate_is_verified_for_the_name_and_not_for_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = certified(tmp_path, NAME)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    place, names = Place(), Names(["127.0.0.1"])
    async with serve_vendor(place.app(), certificate=certificate, key=certificate) as url:
        async with GuardedHttp(HOME, resolve=names) as outward:
            answer = await outward.post(url.replace("127.0.0.1", NAME), b"{}", {})
            assert answer.status == 200
        error = await refused(GuardedHttp(HOME, resolve=names), url.replace("127.0.0.1", "other.example.com"))
        assert (error.code, len(place.requests)) == ("connection", 1)
        monkeypatch.delenv("SSL_CERT_FILE")
        error = await refused(GuardedHttp(HOME, resolve=names), url.replace("127.0.0.1", NAME))
        assert (error.code, len(place.requests)) == ("connection", 1)


async def test_system_resolver_resolves_names() -> None:
    found = await resolve_host("127.0.0.1", 80)
    assert found == ["127.0.0.1"]
    resolver: Resolve = resolve_host
    assert "127.0.0.1" in await resolver("localhost", 80)


@table(("written", "seconds"), ("7", 7.0), ("", 0.0), ("soon", 0.0), ("-1", 0.0), ("9" * 9, 0.0))
def test_retry_after_is_a_number_of_seconds(written: str, seconds: float) -> None:
    assert retry_after(written) == seconds


@table("written", "", "soon", "Sun, 99 Nov 2026 14:00:00 GMT", "2026-11-22", "1")
def test_invalid_date_is_none(written: str) -> None:
    assert read_date(written) is None
    assert read_date("Sun, 22 Nov 2026 14:00:00 GMT") == datetime(2026, 11, 22, 14, tzinfo=UTC)
    assert read_date("Sun, 22 Nov 2026 14:00:00 -0000") == datetime(2026, 11, 22, 14, tzinfo=UTC)
