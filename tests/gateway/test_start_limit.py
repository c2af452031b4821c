import asyncio
import uuid
from collections.abc import AsyncIterator

import httpx2
import pytest
from gateway_login import browser, hidden, words
from gateway_rig import PEOPLE, GatewayRig, fresh, gateway_rig
from sqlalchemy import update
from store_fixtures import postgres_server, postgres_url, sqlite_url, store_url
from temporalio.client import Client

from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.people.directory import FixedDirectory
from signoff.settings import Settings
from signoff.store.store import Store, open_store
from signoff.store.tables import COUNTED_ACTS

__all__ = ["postgres_server", "postgres_url", "sqlite_url", "store_url"]
REFUSED = "the tenant `main` has begun as many turns as it may (1/hour): try again in "


def limited(rig: GatewayRig, limits: str, store: Store | None = None) -> GatewayRig:
    return rig.beside(
        store=store or rig.deps.store,
        settings=Settings(tenant_limits=limits),
        people=FixedDirectory((*PEOPLE, Person(id="guest", tenant="acme"))),
    )


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    """Each tenant may start one turn in an hour."""
    async with gateway_rig(client, store, f"limits-{uuid.uuid4().hex[:12]}") as found:
        yield limited(found, "starts=1/hour")


async def started(rig: GatewayRig, **fields: str) -> httpx2.Response:
    return await rig.http.post("/v1/turns", json={"text": "hello", "actor": "desk", **fields})


async def let_the_hour_pass(store: Store) -> None:
    earlier = update(COUNTED_ACTS).values(at=COUNTED_ACTS.c.at - 3_600_000)
    await store.run(lambda connection: connection.execute(earlier).close())


async def test_ten_of_fifty_starts_at_two_gateways_succeed(client: Client, store_url: str) -> None:
    queue = f"limits-{uuid.uuid4().hex[:12]}"
    async with (
        open_store(store_url) as first,
        open_store(store_url) as second,
        gateway_rig(client, first, queue) as found,
    ):
        gateways = [limited(found, "starts=10/hour", each) for each in (first, second)]
        tried = await asyncio.gather(*(started(gateways[at % 2], turn=fresh()) for at in range(50)))
        begun = [each for each in tried if each.status_code == 201]
        refused = [each for each in tried if each.status_code == 429]
        assert (len(begun), len(refused)) == (10, 40)
        assert {each.json()["code"] for each in refused} == {"too_many_starts"}
        assert all(3_000 < int(each.headers["retry-after"]) <= 3_600 for each in refused)
        counted = gateways[0].deps.store.counts.counters["signoff_starts_refused"]
        assert counted["main",] + second.counts.counters["signoff_starts_refused"]["main",] == 40
        for each in begun:
            body = each.json()
            view = await found.turns.signoff.view(TurnKey(body["tenant"], body["session"], body["turn"]))
            assert view.state in ("running", "complete")
        await let_the_hour_pass(first)
        assert (await started(gateways[1])).status_code == 201


async def test_tenant_over_its_limit_does_not_affect_another(rig: GatewayRig) -> None:
    assert [(await started(rig, tenant="main")).status_code for _ in range(3)] == [201, 429, 429]
    assert (await started(rig, tenant="acme")).status_code == 201
    own = limited(rig, "starts=1/hour; acme: starts=2/hour")
    assert [(await started(own, tenant="acme")).status_code for _ in range(2)] == [201, 429]
    free = limited(rig, "starts=1/hour; acme: starts=off")
    assert [(await started(free, tenant=each)).status_code for each in ("acme", "acme", "main")] == [201, 201, 429]


async def test_repeated_start_counts_once(rig: GatewayRig) -> None:
    turn = fresh()
    assert [(await started(rig, turn=turn)).status_code for _ in range(2)] == [201, 201]
    assert (await started(rig, turn=fresh())).status_code == 429


async def test_invalid_start_does_not_count(rig: GatewayRig) -> None:
    for wrong in ({"actor": "nobody"}, {"user": "nobody"}):
        assert (await started(rig, **wrong)).status_code == 404
    assert (await started(rig)).status_code == 201


async def test_messages_count_with_turns(rig: GatewayRig) -> None:
    session = fresh()
    message = {"text": "hello", "actor": "desk", "id": "a"}
    answers = [await rig.http.post(f"/v1/sessions/{session}/messages", json=message) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 200]
    refused = await rig.http.post(f"/v1/sessions/{session}/messages", json={**message, "id": "b"})
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_starts")
    assert refused.json()["message"].startswith(REFUSED)
    assert int(refused.headers["retry-after"]) > 0
    assert (await started(rig)).status_code == 429


async def test_late_results_count_with_turns(rig: GatewayRig) -> None:
    session = fresh()
    await limited(rig, "").http.post(
        f"/v1/sessions/{session}/messages", json={"text": "hello", "actor": "desk", "id": "a"}
    )
    path = f"/v1/sessions/{session}/results"
    brought = [await rig.http.post(path, json={"turn": "a", "text": "news", "id": each}) for each in ("r", "r", "q")]
    assert [each.status_code for each in brought[1:]] == [200, 429]
    assert brought[2].json()["code"] == "too_many_starts"


async def test_inbox_shows_the_start_limit_and_keeps_the_text(rig: GatewayRig) -> None:
    async with browser(rig) as page:
        form = {**hidden((await page.get("/new")).text, "/sessions"), "actor": "desk", "user": "guest"}
        sent = await page.post("/sessions", data={**form, "text": "hello"})
        assert sent.status_code == 303
        where = sent.headers["location"]
        more = {**hidden((await page.get(where)).text, where), "actor": "desk"}
        further = await page.post(where, data={**more, "text": "and more"})
        again = {**hidden((await page.get("/new")).text, "/sessions"), "actor": "desk", "user": "guest"}
        other = await page.post("/sessions", data={**again, "text": "something else"})
    for answer, typed in ((further, "and more"), (other, "something else")):
        assert answer.status_code == 429
        assert REFUSED in words(answer.text)
        assert typed in answer.text


async def test_description_documents_the_start_limit(rig: GatewayRig) -> None:
    paths = (await rig.http.get("/openapi.json")).json()["paths"]
    for path in ("/v1/turns", "/v1/sessions/{session}/messages", "/v1/sessions/{session}/results"):
        assert "Retry-After" in paths[path]["post"]["responses"]["429"]["headers"], path
