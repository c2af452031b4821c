from collections.abc import AsyncIterator

import pytest
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import PEOPLE, SIGNER, GatewayRig, http_of
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool, running_turns

from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import RESULT_CHARS_PER_BATCH
from signoff.gateway.app import build_app
from signoff.gateway.deps import GatewayDeps
from signoff.settings import Settings
from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond

TEXT = "".join(f"{number:06} é" for number in range(20_000))


@pytest.fixture
async def gateway(client: Client, store: Store, task_queue: str) -> AsyncIterator[GatewayRig]:
    tools = [
        pay_tool(Ledger(), False, name="book", effect="", handler=Ledger().handler("book", TEXT)),
        pay_tool(Ledger(), False, name="note", effect="", handler=Ledger().handler("note", "short")),
    ]
    script = [calls(("book", {"amount": 1}), ("note", {"amount": 2})), respond("read")]
    catalog = catalog_of(tools, people=PEOPLE)
    async with running_turns(client, store, task_queue, catalog, script, verifier=SIGNER.verifier()) as turns:
        deps = GatewayDeps(turns.signoff, catalog, catalog.people, store, Settings(), signer=SIGNER)
        app = build_app(deps)
        async with http_of(app) as http:
            yield GatewayRig(http, app, deps, turns)


def _path(key: TurnKey, call: str) -> str:
    return f"/v1/turns/{'.'.join(key)}/calls/{call}/rest"


@pytest.mark.row("V15")
async def test_truncated_result_is_readable_in_pieces_by_readers_of_the_turn(gateway: GatewayRig) -> None:
    key = await gateway.start("go")
    result = await gateway.turns.signoff.result(key)
    assert [each.truncated for each in result.calls] == [True, False]
    pieces, start = [], 0
    while start is not None:
        body = (await gateway.http.get(_path(key, "c1.1"), params={"start": start})).json()
        assert (body["call"], body["tool"], body["start"], body["total"]) == ("c1.1", "book", start, len(TEXT))
        assert len(body["text"]) <= RESULT_CHARS_PER_BATCH
        pieces.append(body["text"])
        start = body["next"]
    assert ("".join(pieces), len(pieces)) == (TEXT, 2)
    locked = locked_rig(gateway)
    async with locked.http:
        mine = await locked.http.get(_path(key, "c1.1"), headers=bearer(await token_of(locked, "guest")))
        assert (mine.status_code, mine.json()["text"][:9]) == (200, "000000 é0")
        for person in ("bo", "zoe"):
            tenant = "acme" if person == "zoe" else "main"
            headers = bearer(await token_of(locked, person, tenant=tenant))
            answer = await locked.http.get(_path(key, "c1.1"), headers=headers)
            assert answer.status_code in (403, 404), person
            assert "000000" not in answer.text
        assert (await locked.http.get(_path(key, "c1.1"))).status_code == 401


async def test_complete_result_has_no_rest(gateway: GatewayRig) -> None:
    key = await gateway.start("go")
    await gateway.turns.signoff.result(key)
    for call in ("c1.2", "c9.9"):
        answer = await gateway.http.get(_path(key, call))
        assert (answer.status_code, answer.json()["message"]) == (
            404,
            f"call `{call}` of this turn has no truncated result",
        )
    for start in ("-1", "x"):
        assert (await gateway.http.get(_path(key, "c1.1"), params={"start": start})).status_code == 422
    end = (await gateway.http.get(_path(key, "c1.1"), params={"start": 10**9})).json()
    assert (end["text"], end["next"], end["total"]) == ("", None, len(TEXT))
