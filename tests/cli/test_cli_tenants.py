"""Two tenants of one installation whose people have equal ids. None reaches the other."""

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from app_server import running_app
from cli_kit import Cli, Ran, assert_one_sentence
from gateway_login import bearer, hidden
from polling import until
from served_stack import MANIFEST, PROJECT
from site_kit import Site, here
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from signoff.channels.standard_webhooks import read_secret, signed_headers
from signoff.contracts.names import PLUGIN_NAMES
from signoff.gateway.app import gateway_routes
from signoff.gateway.plugin_routes import load_plugin_routers
from signoff.temporal.embedded_server import free_port

pytestmark = pytest.mark.timeout(400)
TENANTS = ("main", "acme")
AMOUNTS = {"main": 420, "acme": 771}
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
_PEOPLE = """\
  - {id: ana, name: Ana, roles: [approvers], identities: {webhook: [ana-main]}}
  - {id: rui, name: Rui}
  - {id: boss, name: Boss, roles: [approvers, admin, auditor]}
  - {id: ana, name: Ana, tenant: acme, roles: [approvers], identities: {webhook: [ana-acme]}}
  - {id: rui, name: Rui, tenant: acme}
  - {id: boss, name: Boss, tenant: acme, roles: [approvers, admin, auditor]}
"""


_BODIES: dict[str, dict[str, Any]] = {
    "decide": {"verdict": "approved", "revision": 1},
    "withdraw": {"reason": "x"},
    "passkey": {"verdict": "approved", "revision": 1},
    "reassign": {"to": "ana"},
    "add-approver": {"to": "ana"},
    "messages": {"text": "hello"},
    "results": {"turn": "t", "text": "hello"},
    "runs": {"command": {"resume": [{"type": "ignore", "args": None}]}},
    "stream": {"command": {"resume": [{"type": "ignore", "args": None}]}},
}


@dataclass
class Receiver:
    url: str
    told: list[dict[str, Any]] = field(default_factory=list)

    async def take(self, request: Request) -> Response:
        self.told.append(await request.json())
        return Response(status_code=204)

    def cards(self, identity: str) -> list[dict[str, Any]]:
        asked = [each["data"] for each in self.told if each["type"] == "approval.asked"]
        return [each for each in asked if each["to"] == identity]

    def receipts(self) -> list[tuple[str, str]]:
        found = [each["data"] for each in self.told if each["type"] == "answer.receipt"]
        return [(each["status"], each["code"]) for each in found]


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    port = free_port()
    receiver = Receiver(f"http://127.0.0.1:{port}/hook")
    async with running_app(Starlette(routes=[Route("/hook", receiver.take, methods=["POST"])]), port):
        yield receiver


@dataclass
class Installation:
    site: Site
    cli: Cli
    env: pytest.MonkeyPatch
    receiver: Receiver
    tokens: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.site.port}"

    async def run(self, tenant: str, person: str, *words: str) -> Ran:
        with self.signed_in(tenant, person):
            return await self.cli(*words)

    @contextlib.contextmanager
    def signed_in(self, tenant: str, person: str) -> Iterator[None]:
        self.env.setenv("SIGNOFF_TOKEN", self.tokens[tenant, person])
        self.env.setenv("SIGNOFF_PUBLIC_URL", self.address)
        yield
        self.env.delenv("SIGNOFF_TOKEN")

    async def asks(self, tenant: str, amount: int, session: str = "talk") -> dict[str, Any]:
        asked = await self.run(tenant, "rui", "ask", f"pay {amount}", "--no-wait", "--session", session, "--json")
        assert asked.code == 0, asked.err
        assert asked.data["tenant"] == tenant
        async with asyncio.timeout(60):
            while True:
                waiting = await self.run(tenant, "ana", "inbox", "--json")
                for card in waiting.data:
                    if card["turn"] == asked.data["turn"]:
                        return {**card, "name": asked.data["id"], "session": asked.data["session"]}
                await asyncio.sleep(0.05)

    async def answer_on_channel(self, identity: str, token: str, verdict: str, key: str) -> int:
        data = {"identity": identity, "verdict": verdict, "token": token}
        body = json.dumps({"type": "decision", "data": data}).encode()
        headers = signed_headers([read_secret(SECRET)], key, datetime.now(UTC), body)
        async with httpx2.AsyncClient(timeout=60) as http:
            sent = await http.post(
                f"{self.address}/channels/hook", content=body, headers={**headers, "content-type": "application/json"}
            )
        return sent.status_code


def manifest(folder: Path, receiver: Receiver) -> Path:
    hook = f'{{kind: webhook, url: "{receiver.url}", secret: "env:HOOK", allow_networks: [127.0.0.0/8]}}'
    path = folder / "two.yaml"
    write_manifest(path, f"people:\n{_PEOPLE}channels:\n  hook: {hook}\nrouting: {{default: [hook]}}\n")
    return path


def write_manifest(path: Path, sections: str) -> None:
    text = re.sub(r"people:\n(  .*\n)+", "", MANIFEST.read_text())
    path.write_text(f"{text}\npath: ['{PROJECT}']\n{sections}")


@pytest.fixture
async def two(cli: Cli, clean_env: pytest.MonkeyPatch, site: Site) -> AsyncIterator[Installation]:
    async with receiving() as receiver:
        file = str(manifest(site.folder, receiver))
        here(clean_env, site, "gateway")
        for name, value in (("SIGNOFF_MANIFEST", file), ("HOOK", SECRET)):
            clean_env.setenv(name, value)
        found = Installation(site, cli, clean_env, receiver)
        assert (await cli("keys", "create")).code == 0
        for tenant in TENANTS:
            for person in ("ana", "rui", "boss"):
                scopes = [word for scope in ("read", "decide", "start") for word in ("--scope", scope)]
                made = await cli("token", "create", person, *scopes, "--tenant", tenant, "--json")
                assert made.code == 0, made.err
                found.tokens[tenant, person] = made.data["token"]
        (site.folder / "worker").mkdir()
        await cli("keys", "export", "--out", str(site.folder / "worker" / "public-keys.json"))
        more = {"SIGNOFF_MANIFEST": file, "HOOK": SECRET}
        async with site.running("worker", **more), site.running("gateway", **more):
            yield found


async def play_a_day(two: Installation, tenant: str) -> list[str]:
    amount = AMOUNTS[tenant]
    card = await two.asks(tenant, amount)
    assert f"Pay {amount} EUR" in (await two.run(tenant, "ana", "show", card["code"])).out
    assert (await two.run(tenant, "rui", "approve", card["code"])).code == 1
    assert (await two.run(tenant, "ana", "approve", card["code"], "--remember", "--everywhere")).code == 0
    watched = await two.run(tenant, "rui", "watch", card["name"])
    assert f"Pay {amount} EUR to Ana: ran" in watched.out
    grants = (await two.run(tenant, "ana", "grants", "list", "--json")).data
    assert [each["like"]["tenant"] for each in grants] == [tenant]
    remembered = await two.run(tenant, "rui", "ask", f"pay {amount}", "--session", "talk")
    assert f"ran by rule grant:{grants[0]['id']}" in remembered.out
    by_channel = await two.asks(tenant, amount + 1)
    await until(lambda: any(each["approval"] == by_channel["id"] for each in two.receiver.cards(f"ana-{tenant}")))
    sent = next(each for each in two.receiver.cards(f"ana-{tenant}") if each["approval"] == by_channel["id"])
    other = next(each for each in TENANTS if each != tenant)
    assert await two.answer_on_channel(f"ana-{other}", sent["token"], "approved", f"forged-{tenant}") == 200
    assert await two.answer_on_channel(f"ana-{tenant}", sent["token"], "denied", f"true-{tenant}") == 200
    assert "denied" in (await two.run(tenant, "rui", "watch", by_channel["name"])).out
    events = await two.run(tenant, "boss", "events", "list", "--json")
    assert {each["tenant"] for each in events.data["events"]} == {tenant}
    record = await two.run(tenant, "boss", "audit", "show", card["name"])
    assert (record.code, "approved" in record.out) == (0, True), record
    assert (await two.run(tenant, "boss", "audit", "show", f"admin/{tenant}")).code == 0
    turns = (await two.run(tenant, "boss", "turns", "--json")).data
    assert {each["tenant"] for each in turns} == {tenant}
    sessions = (await two.run(tenant, "boss", "sessions", "--json")).data
    waits = await two.asks(tenant, amount + 2)
    return [
        *(waits["id"], waits["code"], waits["name"], waits["turn"], waits["name"].rpartition(".")[0]),
        *(grants[0]["id"], card["name"], f"turn/{waits['name'].replace('.', '/')}", f"admin/{tenant}"),
        *(f"{each['tenant']}.{each['session']}" for each in sessions),
    ]


def addresses(name: str) -> list[tuple[str, str]]:
    """Tools and schemas have no owner."""
    every = gateway_routes(load_plugin_routers(PLUGIN_NAMES))
    routes = [(method, each.path) for each in every for method in each.methods]
    return [
        (method, re.sub(r"\{\w+(:path)?\}", name, path))
        for method, path in routes
        if "{" in path and not re.match(r"/(v1/)?(tools|events/schemas|channels|link)", path) and method != "HEAD"
    ]


async def open_every_door(two: Installation, tenant: str, theirs: str, names: list[str]) -> None:
    words = [str(AMOUNTS[theirs] + more) for more in range(3)] + [f"ana-{theirs}"]

    def shows(text: str) -> bool:
        return any(f"Pay {each}" in text or f"pay {each}" in text for each in words) or f'"tenant":"{theirs}"' in text

    async with httpx2.AsyncClient(base_url=two.address, headers={"sec-fetch-site": "same-origin"}, timeout=60) as page:
        form = hidden((await page.get("/login")).text, "/login")
        await page.post("/login", data={**form, "secret": two.tokens[tenant, "boss"]})
        assert (await page.get("/")).status_code == 200
        for name in names:
            for method, path in addresses(name):
                of_programs = path.startswith(("/v1/", "/a2a/", "/mcp/", "/access/", "/aap/"))
                headers = bearer(two.tokens[tenant, "boss"]) if of_programs else {}
                # A bare name is a session of the caller, and a message there would start it.
                if path.endswith("/messages") and "." not in name:
                    continue
                body = _BODIES.get(path.rpartition("/")[2], {})
                sent = {"json": body} if of_programs and method != "GET" else {}
                answer = await page.request(method, path, headers=headers, **sent)
                refused = (404,) if of_programs or method == "GET" else (403, 404)
                # No person's token has the scope for other agents, and without it no lookup happens.
                if path.startswith(("/v1/calls/", "/mcp/", "/access/", "/aap/")) or (
                    path.startswith("/a2a/") and method != "GET"
                ):
                    refused = (403, 404)
                assert answer.status_code in refused, (tenant, method, path, answer.status_code, answer.text)
                assert not shows(answer.text.replace(name, "")), (method, path, answer.text)
        for path in ("turns", "sessions", "approvals", "grants", "freezes", "events", "events/failed", "tools"):
            named = await page.get(f"/v1/{path}?tenant={theirs}", headers=bearer(two.tokens[tenant, "boss"]))
            own = await page.get(f"/v1/{path}?limit=100", headers=bearer(two.tokens[tenant, "boss"]))
            assert (named.status_code, own.status_code) == (404, 200), path
            assert not shows(own.text), path
        for path in ("/", "/turns", "/sessions", "/grants", "/freeze", f"/audit/admin/{tenant}"):
            assert not shows((await page.get(path)).text), path
    approval, code, turn = names[:3]
    for tried in (
        *(("show", each) for each in names[:4]),
        *((verb, each) for verb in ("approve", "withdraw") for each in (approval, code)),
        *(("deny", each, "--reason", "no") for each in (approval, code)),
        *(("watch", turn), ("cancel", turn), ("audit", "show", turn), ("audit", "show", f"admin/{theirs}")),
        *(("events", "list", "--turn", turn), ("events", "list", "--tenant", theirs), ("sessions", names[4])),
        *(("grants", "revoke", names[5]), ("freeze", theirs, "--reason", "x"), ("unfreeze", theirs)),
    ):
        ran = await two.run(tenant, "boss", *tried)
        assert (ran.code != 0, shows(ran.out + ran.err)) == (True, False), (tried, ran)


@pytest.mark.row("V07")
async def test_two_tenants_do_everything_without_reaching_each_other(two: Installation) -> None:
    names = {tenant: await play_a_day(two, tenant) for tenant in TENANTS}
    for tenant, theirs in (TENANTS, TENANTS[::-1]):
        await open_every_door(two, tenant, theirs, names[theirs])
    for tenant in TENANTS:
        waiting = await two.run(tenant, "ana", "inbox", "--json")
        assert [each["id"] for each in waiting.data] == [names[tenant][0]]
    assert two.receiver.receipts().count(("accepted", "")) == len(TENANTS)
    assert len(two.receiver.receipts()) == 2 * len(TENANTS)
    assert {each["approval"].partition(".")[0] for each in two.receiver.cards("ana-acme")} == {"acme"}
    assert {each["approval"].partition(".")[0] for each in two.receiver.cards("ana-main")} == {"main"}
    assert (await two.run("acme", "boss", "freeze", "acme", "--reason", "audit")).code == 0
    assert "frozen" in assert_one_sentence(await two.run("acme", "rui", "ask", "pay 5", "--no-wait"))
    assert (await two.run("main", "rui", "ask", "pay 5")).code == 0
    assert (await two.run("acme", "boss", "unfreeze", "acme")).code == 0
    assert (await two.run("acme", "rui", "ask", "pay 5")).code == 0


async def test_operators_commands_take_a_tenant(two: Installation) -> None:
    for tenant in TENANTS:
        card = await two.asks(tenant, AMOUNTS[tenant], "operators")
        assert (await two.run(tenant, "ana", "deny", card["code"], "--reason", "no")).code == 0
        await two.run(tenant, "rui", "watch", card["name"])
    two.env.setenv("SIGNOFF_STATE_DIR", str(two.site.folder / "gateway"))
    looser = two.site.folder / "looser.yaml"
    looser.write_text((two.site.folder / "two.yaml").read_text().replace("args.amount < 10", "args.amount < 900"))
    every = await two.cli("policy", "simulate", str(looser), "--json")
    own = await two.cli("policy", "simulate", str(looser), "--tenant", "acme", "--json")
    assert sorted(each["stream"].split("/")[1] for each in every.data) == ["acme", "main"]
    assert [each["would"] for each in every.data] == ["run", "run"]
    assert [each["stream"].split("/")[1] for each in own.data] == ["acme"]
    case = await two.cli("eval", "record", own.data[0]["stream"])
    assert (case.code, "tenant: acme" in case.out) == (0, True), case
    tokens = await two.cli("token", "list", "--tenant", "acme", "--json")
    whose = {(each["tenant"], each["person"]) for each in tokens.data}
    assert whose == {("acme", person) for person in ("ana", "rui", "boss")}
    wanted = tokens.data[0]["id"]
    assert "no token" in assert_one_sentence(await two.cli("token", "revoke", wanted))
    assert "of acme is revoked" in (await two.cli("token", "revoke", wanted, "--tenant", "acme")).out
    tried = await two.cli("channels", "test", "ana", "--tenant", "acme", "--json")
    assert (tried.code, tried.data[0]["address"]) == (0, "ana-acme"), tried
    explained = await two.cli(
        *("policy", "explain", "pay", "--args", '{"amount": 5, "to": "x", "pin": "1"}'),
        *("--as", "rui", "--tenant", "acme", "--json"),
    )
    assert explained.data["ctx"]["tenant"] == "acme"
    tool = await two.cli("tools", "explain", "pay", "--as", "rui", "--tenant", "acme")
    assert tool.code == 0, tool.err
    exported = await two.cli("audit", "export", "--tenant", "acme")
    assert {each.split("/")[1] for each in re.findall(r'"stream":\s*"([^"]+)"', exported.out)} == {"acme"}


async def test_person_of_another_tenant_only_is_suggested_with_the_tenant(
    cli: Cli, clean_env: pytest.MonkeyPatch
) -> None:
    write_manifest(Path("one.yaml"), "people:\n  - {id: zoe, tenant: acme}\n")
    clean_env.setenv("SIGNOFF_MANIFEST", "one.yaml")
    assert "add `--tenant acme`" in assert_one_sentence(await cli("token", "create", "zoe", "--scope", "read"))
    assert (await cli("token", "create", "zoe", "--scope", "read", "--tenant", "acme")).code == 0
