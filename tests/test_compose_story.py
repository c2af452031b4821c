"""The services of docker-compose.yml run as processes, with encryption, over PostgreSQL and a Temporal server.

Two workers and two gateways behind a proxy are each killed. People have tokens, or sign in by OpenID Connect.
"""

import asyncio
import base64
import dataclasses
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing, suppress
from typing import Any

import httpx2
import pytest
from compose_box import Box, Running, running_box
from gateway_login import bearer, hidden, words
from google.protobuf.json_format import MessageToDict
from openid_browser import OpenIdServer, running_openid_server, sign_in_at
from pydantic_core import from_json
from reverse_proxy import running_proxy
from temporalio.api.common.v1 import Payloads

from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.names import APPROVAL_RESPONSE
from signoff.temporal.embedded_server import free_port
from signoff.temporal.encryption import is_encrypted
from signoff.temporal.server_connection import DEFAULT_NAMESPACE

pytestmark = [pytest.mark.postgres, pytest.mark.openid, pytest.mark.timeout(400)]

WORKER, GATEWAY, CODEC = "signoff-worker", "signoff-gateway", "signoff-codec"
BOOK = "book the 420 euro flight to Lisbon"
REASON = "much too expensive for us"
ACCOUNTS = {
    "olga": {"name": "Olga", "email": "olga@example.com", "email_verified": True, "groups": ["travel-approvers"]},
    "aude": {"name": "Aude", "email": "aude@example.com", "email_verified": True, "groups": ["auditors"]},
    "zoe": {"name": "Zoe", "email": "zoe@example.com", "email_verified": True, "groups": ["kitchen"]},
}
ROLES = {"travel-approvers": ["approvers"], "auditors": ["auditor"]}
_PATIENCE_SECONDS = 90.0


@dataclasses.dataclass
class Stage:
    box: Box
    provider: OpenIdServer
    tokens: dict[str, str]
    ports: tuple[int, int]
    workers: list[Running | None] = dataclasses.field(default_factory=lambda: [None, None])
    gateways: list[Running | None] = dataclasses.field(default_factory=lambda: [None, None])
    metrics: tuple[int, int] = dataclasses.field(default_factory=lambda: (free_port(), free_port()))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.box.ports['8300']}"

    def desk(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.box.volume(WORKER) / "travel.db", timeout=30)) as database:
            return database.execute(query).fetchall()

    async def start_workers(self, *, pause_seconds: int = 0) -> None:
        """With a pause, their tools sleep after they have written."""
        for number, running in enumerate(self.workers):
            if running is None:
                pause = {"TRAVEL_DESK_SLEEP_AFTER_WRITE": str(pause_seconds)}
                # Each of two containers would have its own address.
                port = str(self.metrics[number])
                self.workers[number] = await self.box.start(WORKER, SIGNOFF_METRICS_PORT=port, **pause)

    async def start_gateway(self, number: int) -> None:
        port = self.ports[number]
        own = {"SIGNOFF_PORT": str(port), "SIGNOFF_METRICS_PORT": str(free_port())}
        self.gateways[number] = started = await self.box.start(GATEWAY, **own)
        await dataclasses.replace(self.box, ports=self.box.ports | {"8300": port}).healthy(GATEWAY, started)

    async def kill(self, processes: list[Running | None], number: int) -> None:
        running, processes[number] = processes[number], None
        assert running is not None
        await running.kill()

    async def send(self, person: str, method: str, path: str, **fields: Any) -> Any:
        async with httpx2.AsyncClient(base_url=self.url, timeout=60) as http:
            answer = await http.request(method, path, headers=bearer(self.tokens[person]), **fields)
        if answer.status_code == 503:
            raise ServerUnavailable(answer.text)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def ask(self, text: str, person: str = "guest") -> str:
        return str((await self.send(person, "POST", "/v1/turns", json={"text": text}))["id"])

    async def view(self, turn: str, person: str = "guest") -> dict[str, Any]:
        found: dict[str, Any] = await self.send(person, "GET", f"/v1/turns/{turn}")
        return found

    async def waits(self, turn: str, kind: str = "approval") -> dict[str, Any]:
        async def look() -> Any:
            return [each["approval"] for each in (await self.view(turn))["calls"] if each["approval"]]

        found = await until(look, lambda asked: asked and (asked[0]["state"], asked[0]["kind"]) == ("pending", kind))
        request: dict[str, Any] = found[0]
        return request

    async def ends(self, turn: str, person: str = "guest") -> dict[str, Any]:
        view = await until(lambda: self.view(turn, person), lambda found: found["result"] is not None)
        call: dict[str, Any] = view["result"]["calls"][0]
        return call

    async def decide(self, person: str, request: dict[str, Any], verdict: str, **more: Any) -> None:
        body = {"verdict": verdict, "question_hash": request["question_hash"], "revision": request["revision"], **more}
        receipt = await self.send(person, "POST", f"/v1/approvals/{request['id']}/decide", json=body)
        assert receipt["status"] in ("accepted", "pending"), receipt

    async def command(self, *words_: str) -> Any:
        return from_json((await self.box.run(GATEWAY, "signoff", *words_, "--json")).encode())


async def until(look: Callable[[], Awaitable[Any]], is_so: Callable[[Any], Any]) -> Any:
    deadline, found = time.monotonic() + _PATIENCE_SECONDS, None
    while time.monotonic() < deadline:
        with suppress(ServerUnavailable):
            found = await look()
            if is_so(found):
                return found
        await asyncio.sleep(0.2)
    raise AssertionError(f"it did not become so; last seen {found}")


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    secret = "a secret of the client's"
    async with AsyncExitStack() as stack:
        box = await stack.enter_async_context(running_box(tmp_path_factory.mktemp("story")))
        url = f"http://127.0.0.1:{box.ports['8300']}"
        callback = f"{url}/login/oidc/callback"
        provider = await stack.enter_async_context(running_openid_server(callback, secret, ACCOUNTS))
        box.env |= {
            "SIGNOFF_OIDC_ISSUER": provider.issuer,
            "SIGNOFF_OIDC_CLIENT_ID": "signoff",
            "SIGNOFF_OIDC_ROLES": json.dumps(ROLES),
            "OIDC_CLIENT_SECRET": secret,
        }
        await asyncio.gather(box.run("database"), box.run("temporal-namespace"))
        await box.run("signoff-init")
        tokens = {"admin": (box.volume(GATEWAY) / "first-token").read_text().strip()}
        scopes = {"guest": ("read", "start"), "traveller": ("read", "start"), "approver": ("read", "decide")}
        made = await asyncio.gather(
            *(
                box.run(GATEWAY, "signoff", "token", "create", who, *(w for s in may for w in ("--scope", s)), "--json")
                for who, may in scopes.items()
            )
        )
        tokens |= {who: from_json(each.encode())["token"] for who, each in zip(scopes, made, strict=True)}
        stage = Stage(box, provider, tokens, (free_port(), free_port()))
        await stack.enter_async_context(running_proxy(box.ports["8300"], stage.ports))
        codec = await box.start(CODEC)
        try:
            await stage.start_workers()
            await asyncio.gather(stage.start_gateway(0), stage.start_gateway(1), box.healthy(CODEC, codec))
            yield stage
        finally:
            running = [each for each in (*stage.workers, *stage.gateways, codec) if each is not None]
            codes = await asyncio.gather(*(each.stop() for each in running))
        assert set(codes) == {0}


async def test_demo_runs_on_the_compose_file(stage: Stage) -> None:
    cheap = await stage.ask("book the 39 euro flight to Porto", "traveller")
    ran = await stage.ends(cheap, "traveller")
    assert (ran["code"], ran["approval_id"]) == ("ok", "")

    # Both wait, and each worker is killed and restarted: they still wait, and no tool ran.
    booking, cancelling = await asyncio.gather(stage.ask(BOOK), stage.ask("cancel booking TD-1"))
    await asyncio.gather(stage.waits(booking), stage.waits(cancelling))
    for number in range(2):
        await stage.kill(stage.workers, number)
    await stage.start_workers(pause_seconds=600)
    booked, cancelled = await asyncio.gather(stage.waits(booking), stage.waits(cancelling))
    assert stage.desk("SELECT count(*) FROM bookings") == [(1,)]

    # Only her group at the provider identifies Olga. She decides in the inbox, and a gateway is killed right after.
    async with httpx2.AsyncClient(base_url=stage.url, timeout=60) as olga:
        olga.headers["sec-fetch-site"] = "same-origin"
        olga.cookies.set("signoff_language", "en")
        await sign_in_at(olga, "/login/oidc?next=%2F", "olga")
        assert "Book flight TP 531 to Lisbon, 420" in words((await olga.get("/")).text)
        await answer_in(olga, booked["id"], verdict="approved")
        await stage.decide("approver", cancelled, "approved")
        await stage.kill(stage.gateways, 0)

        # Both tools have written when their workers are killed, before the turns learn of it.
        written = "SELECT (SELECT count(*) FROM bookings), (SELECT count(*) FROM cancellations)"
        await until(lambda: asyncio.to_thread(stage.desk, written), lambda rows: rows == [(2, 1)])
        for number in range(2):
            await stage.kill(stage.workers, number)
        await stage.start_workers()
        await stage.start_gateway(0)

        # While the server detects the lost workers: a denial, after which the other gateway is killed.
        dear = await stage.ask(BOOK)
        await stage.decide("approver", await stage.waits(dear), "denied", reason=REASON)
        await stage.kill(stage.gateways, 1)
        denied = await stage.ends(dear)
        assert (denied["code"], denied["approval_id"] != "") == ("denied", True)
        assert f"it was denied ({REASON})" in json.dumps((await stage.view(dear))["result"])
        refund = await stage.ends(await stage.ask("refund booking TD-1, 420 euro"))
        assert (refund["code"], refund["approval_id"]) == ("denied", "")
        await stage.start_gateway(1)

        # An attacker with access to Temporal's server approves without an identity: it does not count, and Olga's
        # denial does.
        forged = await stage.ask(BOOK)
        request = await stage.waits(forged)
        temporal = await stage.box.server.connect()
        handle = temporal.get_workflow_handle(workflow_of(forged))
        await handle.signal(APPROVAL_RESPONSE, {"approval_id": request["id"], "verdict": "approved"})
        assert (await stage.waits(forged))["votes"] == []
        await answer_in(olga, request["id"], verdict="denied", reason=REASON)
        assert (await stage.ends(forged))["code"] == "denied"

    # The idempotent call finished with its key. The other call is given up by an approver.
    assert (await stage.ends(booking))["code"] == "ok"
    await stage.decide("approver", await stage.waits(cancelling, "in_doubt"), "denied")
    assert (await stage.ends(cancelling))["code"] == "in_doubt"
    assert stage.desk("SELECT flight, total, count(*) FROM bookings GROUP BY flight, total ORDER BY total") == [
        ("TP 1951", 39.0, 1),
        ("TP 531", 420.0, 1),
    ]
    assert stage.desk("SELECT booking, count(*) FROM cancellations GROUP BY booking") == [(1, 1)]
    assert stage.desk("SELECT count(*) FROM refunds") == [(0,)]

    await check_record(stage, booking, cancelling, dear, forged)
    await check_codec(stage, booking)
    kept = b"".join(path.read_bytes() for path in stage.box.folder.glob("temporal.db*"))
    assert not [word for word in ("Lisbon", "TP 531", REASON, "the traveller") if word.encode() in kept]


async def test_person_without_a_group_has_no_access(stage: Stage) -> None:
    async with httpx2.AsyncClient(base_url=stage.url, timeout=60) as zoe:
        page = await sign_in_at(zoe, "/login/oidc?next=%2F", "zoe")
        assert "this login belongs to no known person" in words(page.text).lower()
        assert (await zoe.get("/")).status_code == 303
        asked = await zoe.post(f"http://127.0.0.1:{stage.box.ports['8301']}/decode", json={"payloads": []})
        assert asked.status_code == 401


async def check_record(stage: Stage, booking: str, cancelling: str, dear: str, forged: str) -> None:
    report = await stage.command("audit", "verify")
    assert (report["whole"], report["finding"]) == (True, None)
    login = f"{stage.provider.issuer}#olga"
    (olga,) = [each["id"] for each in await stage.command("people", "list") if login in json.dumps(each)]
    for turn, state, who in (
        (booking, "approved", olga),
        (cancelling, "approved", "approver"),
        (dear, "denied", "approver"),
        (forged, "denied", olga),
    ):
        timeline = await stage.command("audit", "show", workflow_of(turn))
        assert timeline["finding"] is None
        rows = [(each["kind"], each["subject"], json.loads(each["data"])) for each in timeline["records"]]
        # The turn reports its end. The store proves the decisions of an execution.
        ended = [(facts["state"], facts.get("claimed_subject", "")) for kind, _, facts in rows if kind == "ending"]
        assert ended[0] == (state, who), rows
        ran = {each["subject"] for kind, _, facts in rows if kind == "execution" for each in facts.get("decisions", ())}
        assert ran == ({who} if state == "approved" else set()), rows


async def check_codec(stage: Stage, turn: str) -> None:
    temporal = await stage.box.server.connect()
    history = await temporal.get_workflow_handle(workflow_of(turn)).fetch_history()
    started = history.events[0].workflow_execution_started_event_attributes.input.payloads
    assert all(is_encrypted(each) for each in started)
    body = MessageToDict(Payloads(payloads=started))
    codec, told = f"http://127.0.0.1:{stage.box.ports['8301']}", stage.box.environment("temporal-ui")
    assert told["TEMPORAL_CODEC_ENDPOINT"] == codec
    ui = {"origin": f"http://127.0.0.1:{stage.box.ports['8080']}", "x-namespace": DEFAULT_NAMESPACE}
    async with httpx2.AsyncClient(base_url=stage.url, timeout=60) as aude:
        await sign_in_at(aude, "/login/oidc?next=%2F", "aude")
        asks = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-namespace"}
        may = await aude.request("OPTIONS", f"{codec}/decode", headers=ui | asks)
        assert may.headers["access-control-allow-origin"] == ui["origin"]
        assert may.headers["access-control-allow-credentials"] == "true"
        read = await aude.post(f"{codec}/decode", json=body, headers=ui)
        assert (read.status_code, read.headers["access-control-allow-origin"]) == (200, ui["origin"])
        assert BOOK in plain(read)
        elsewhere = await aude.post(f"{codec}/decode", json=body, headers=ui | {"origin": "https://evil.example"})
        assert elsewhere.status_code == 403
    async with httpx2.AsyncClient(base_url=codec, timeout=60) as http:
        assert BOOK in plain(await http.post("/decode", json=body, headers=bearer(stage.tokens["admin"])))
        assert (await http.post("/decode", json=body, headers=bearer(stage.tokens["approver"]))).status_code == 403
        assert (await http.post("/decode", json=body)).status_code == 401


async def answer_in(page: httpx2.AsyncClient, approval: str, **fields: str) -> None:
    path = f"/approvals/{approval}/decide"
    form = hidden((await page.get(f"/approvals/{approval}")).text, path)
    answer = await page.post(path, data={**form, **fields})
    assert answer.status_code == 303, words(answer.text)


def plain(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    return "\n".join(base64.b64decode(each.get("data", "")).decode() for each in answer.json()["payloads"])


def workflow_of(turn: str) -> str:
    return "/".join(["turn", *turn.split(".")])
