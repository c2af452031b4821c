import asyncio
import dataclasses
import re
import socket
from pathlib import Path

import httpx2
import pytest
from gateway_rig import BASE, GatewayRig
from tables import table

from signoff.contracts.errors import ConfigError, ServerUnavailable
from signoff.gateway.app import build_app
from signoff.gateway.transport.server import serve
from signoff.people.directory import FixedDirectory
from signoff.settings import Settings
from signoff.store.store import open_store
from signoff.temporal.embedded_server import free_port

START = {"text": "hello", "actor": "desk"}


@table("host", "evil.example", "127.0.0.1.evil.example:8300", "", "169.254.1.1:8300")
async def test_foreign_host_is_refused(gateway: GatewayRig, host: str) -> None:
    for path in ("/healthz", "/v1/approvals", "/"):
        answer = await gateway.http.get(path, headers={"host": host})
        assert (answer.status_code, answer.json()["code"]) == (421, "foreign_host")


async def test_browser_at_a_foreign_host_gets_a_page_in_its_language(gateway: GatewayRig) -> None:
    headers = {"host": "evil.example", "accept": "text/html,*/*;q=0.8"}
    english = await gateway.http.get("/", headers=headers)
    german = await gateway.http.get("/<b>", headers=headers | {"accept-language": "de-AT,de;q=0.9"})
    assert (english.status_code, english.headers["content-type"]) == (421, "text/html; charset=utf-8")
    assert "<h1>Wrong address</h1>" in english.text
    assert "This gateway does not answer under that name" in english.text
    assert "<h1>Falsche Adresse</h1>" in german.text
    assert "Signoff antwortet unter dieser Adresse nicht." in german.text
    assert "default-src 'self'" in german.headers["content-security-policy"]
    assert not {"<b>", "<a", "<link", "<script"} & set(re.findall(r"<\w+>?", german.text))
    assert "set-cookie" not in german.headers


@table("host", "localhost:1", "127.0.0.1", "[::1]:8300", "LOCALHOST")
async def test_loopback_names_are_accepted(gateway: GatewayRig, host: str) -> None:
    assert (await gateway.http.get("/healthz", headers={"host": host})).status_code == 200


@table(
    "headers",
    {"origin": "https://evil.example"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
)
async def test_cross_site_requests_start_and_decide_nothing(gateway: GatewayRig, headers: dict[str, str]) -> None:
    approval = await gateway.asked("pay")
    for path, body in (("/v1/turns", START), (f"/v1/approvals/{approval}/decide", {"verdict": "approved"})):
        answer = await gateway.http.post(path, json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_gateway_below_a_root_path_refuses_requests(gateway: GatewayRig) -> None:
    below = httpx2.ASGITransport(app=gateway.app, root_path="/in")
    async with httpx2.AsyncClient(transport=below, base_url=BASE) as http:
        plain = {"content-type": "text/plain"}
        answer = await http.post("/in/v1/turns", content=b'{"text":"x"}', headers=plain)
        assert (answer.status_code, answer.json()["code"]) == (421, "below_a_path")
        assert (await http.get("/in/healthz")).status_code == 421


@table("kind", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "")
async def test_api_accepts_json_only(gateway: GatewayRig, kind: str) -> None:
    answer = await gateway.http.post("/v1/turns", content=b'{"text":"x"}', headers={"content-type": kind})
    assert answer.status_code == 415


async def test_other_methods_never_decide(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    url = f"/v1/approvals/{approval}/decide?verdict=approved"
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"):
        answer = await gateway.http.request(method, url, headers={"content-type": "application/json"})
        assert answer.status_code == 405, method
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_every_response_has_the_security_headers(gateway: GatewayRig) -> None:
    for path in ("/healthz", "/v1/turns", "/nothing-here", "/openapi.json"):
        headers = (await gateway.http.get(path, headers={"origin": "https://evil.example"})).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert not any(name.startswith("access-control") for name in headers)


async def test_readiness_names_the_failing_check(gateway: GatewayRig, tmp_path: Path) -> None:
    ready = await gateway.http.get("/readyz")
    assert (ready.status_code, ready.json()["checks"]) == (200, {"server": "ok", "store": "ok", "clocks": "ok"})
    async with open_store(f"sqlite:///{tmp_path}/other.db") as store:
        pass
    async with gateway.beside(store=store).http as http:
        gone = await http.get("/readyz")
    assert gone.status_code == 503
    assert "closed" in gone.json()["checks"]["store"]


async def test_tools_and_openapi_description_are_served(gateway: GatewayRig) -> None:
    tools = {row["tool"]: row for row in (await gateway.http.get("/v1/tools")).json()["tools"]}
    assert tools["pay"]["needs"] == "asks"
    assert tools["refund"]["needs"].endswith("may be denied")
    described = (await gateway.http.get("/openapi.json")).json()
    routes = [route for methods in described["paths"].values() for route in methods.values()]
    assert {"/v1/approvals/{approval}/decide", "/v1/sessions/{session}/messages"} <= set(described["paths"])
    assert all(route["summary"] and route["description"] for route in routes)


async def test_production_needs_people_and_keys(gateway: GatewayRig) -> None:
    production = dataclasses.replace(gateway.deps, settings=Settings(profile="production"))
    with pytest.raises(ConfigError, match=r"production.*signoff keys create"):
        build_app(dataclasses.replace(production, signer=None))
    with pytest.raises(ConfigError, match=r"production.*SIGNOFF_PEOPLE"):
        build_app(dataclasses.replace(production, people=FixedDirectory(())))
    assert build_app(production).title == "Signoff"


async def test_serving_stops_on_request(gateway: GatewayRig) -> None:
    port, stop, ready = free_port(), asyncio.Event(), asyncio.Event()
    key = await gateway.start("pay")
    app = build_app(gateway.deps)
    running = asyncio.create_task(serve(app, "127.0.0.1", port, stop=stop, ready=ready.set))
    await ready.wait()
    base = f"http://127.0.0.1:{port}"
    async with (
        httpx2.AsyncClient(base_url=base, timeout=60) as http,
        http.stream("GET", f"/v1/turns/{'.'.join(key)}/events") as stream,
    ):
        lines = stream.aiter_lines()
        assert (await anext(lines)).startswith("retry:")
        stop.set()
        rest = [line async for line in lines]
    assert all("problem" not in line for line in rest)
    await asyncio.wait_for(running, 60)


async def test_port_in_use_is_reported_in_one_sentence(gateway: GatewayRig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerUnavailable, match=rf"port {port} .* is in use.*SIGNOFF_PORT"):
            await serve(gateway.app, "127.0.0.1", port)
