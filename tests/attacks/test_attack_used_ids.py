import json

import pytest
from attack_site import AttackSite, approval_id, payee, until
from impostor import Impostor

from signoff.contracts.ids import TurnKey

pytestmark = pytest.mark.timeout(300)


async def forgotten(site: AttackSite, impostor: Impostor, key: TurnKey) -> None:
    http = site.person("rui").http
    await impostor.forget(key)

    async def gone() -> bool:
        return (await http.get(f"/v1/turns/{'.'.join(key)}")).status_code == 404

    await until(gone)


async def test_reused_turn_id_reveals_no_earlier_request(site: AttackSite, impostor: Impostor) -> None:
    # Zoe starts a turn by the id of Rui's denied and deleted one: his request stays unknown to her. With the session
    # of a turn named like the turn in `start`, and no nonces compared in `Conversations.loaded`, API and page showed
    # her Rui's payee and Ana's reason.
    to, rui, ana, zoe = payee(), site.person("rui"), site.person("ana"), site.person("zoe")
    key = await rui.ask([("pay", {"amount": 400, "to": to})])
    await ana.decide(await ana.waiting(approval_id(key)), "denied", reason=f"never {to}")
    await rui.result(key)
    await forgotten(site, impostor, key)
    own = await zoe.ask(turn=key.turn)
    await zoe.result(own)
    page, _ = await (await site.browser("zoe")).open(approval_id(key))
    for shown in (await zoe.see(approval_id(key)), page):
        assert (shown.status, to in shown.words) == (404, False)
    assert (await zoe.http.get(f"/v1/turns/{'.'.join(key)}")).status_code == 404
    assert (await zoe.http.get(f"/v1/turns/{key.turn}")).json()["session"] == own.session
    assert (await rui.see(approval_id(key))).status == 200


async def test_reused_turn_id_cannot_replace_a_waiting_request(site: AttackSite, impostor: Impostor) -> None:
    # Zoe asks for 9,000 EUR by the id of Rui's deleted turn, whose 4 EUR still wait as shown. With the session of a
    # turn named like the turn in `start`, hers was revision 2 of his request under its code, Ana's answer to the shown
    # card was `stale`, and Rui's request was not found.
    to, rui, ana, zoe = payee(), site.person("rui"), site.person("ana"), site.person("zoe")
    key = await rui.ask([("pay", {"amount": 4, "to": to})])
    shown = await ana.waiting(approval_id(key))
    await forgotten(site, impostor, key)
    own = await zoe.ask([("pay", {"amount": 9_000, "to": to})], turn=key.turn)
    hers = await ana.waiting(approval_id(own))
    now = await ana.see(shown.view["code"])
    assert (now.view["id"], now.view["revision"], now.view["requester"]["user"]) == (approval_id(key), 1, "rui")
    assert hers.view["code"] != shown.view["code"]
    assert (await rui.see(approval_id(key))).status == 200
    assert (await ana.decide(shown)).json()["code"] != "stale"
    assert site.ledger(to) == []


async def test_approver_of_a_reused_turn_id_reads_no_earlier_request(site: AttackSite, impostor: Impostor) -> None:
    # Rui reuses his own id to ask Mal for a stamp: Mal reads that request, not Ana's earlier one. With no nonces
    # compared in `Conversations.loaded` Mal saw the earlier request with its payee.
    to, rui, ana, mal = payee(), site.person("rui"), site.person("ana"), site.person("mal")
    key = await rui.ask([("pay", {"amount": 1, "to": to}), ("pay", {"amount": 2, "to": to})])
    await ana.waiting(approval_id(key, "c1.2"))
    await forgotten(site, impostor, key)
    again = await rui.ask([("stamp", {"amount": 3, "to": payee()})], turn=key.turn)
    assert again == key
    await mal.waiting(approval_id(key))
    seen = await mal.see(approval_id(key, "c1.2"))
    assert (seen.status, to in json.dumps(seen.view)) == (404, False)
