import uuid
from typing import Any

import pytest
from attack_site import AttackSite, approval_id, payee, receipt

from signoff.contracts.ids import TurnKey

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]
JSON = {"content-type": "application/json"}


async def ended(site: AttackSite, key: TurnKey) -> list[str]:
    return [call["code"] for call in (await site.person("rui").result(key))["calls"]]


async def test_readiness_works_under_database_roles(site_of_roles: AttackSite) -> None:
    # Readiness reads and writes with the gateway's role. Without the gateway's right to write its probe in
    # `store/roles.py` readiness was a 503.
    answer = await site_of_roles.person("adm").http.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["store"]) == (200, "ok"), answer.text


async def test_approved_denied_and_automatic_calls_work_under_database_roles(site_of_roles: AttackSite) -> None:
    # One is approved on the page, one denied over the API, one needs no approval. Without the gateway's right to
    # insert answers the page answered 503, and without the worker's to insert tickets nothing was paid.
    site, to = site_of_roles, payee()
    rui, ana, bo = site.person("rui"), site.person("ana"), await site.browser("bo")
    yes = await rui.ask([("pay", {"amount": 7, "to": to})])
    await ana.waiting(approval_id(yes))
    _, fields = await bo.open(approval_id(yes))
    assert (await bo.send(approval_id(yes), fields)).status_code == 303
    no = await rui.ask([("pay", {"amount": 8, "to": to})])
    denied = await ana.decide(await ana.waiting(approval_id(no)), "denied", reason="too much")
    assert receipt(denied)["status"] == "accepted"
    tip = await rui.ask([("tip", {"amount": 1, "to": to})])
    assert [await ended(site, each) for each in (yes, no, tip)] == [["ok"], ["denied"], ["ok"]]
    assert sorted(site.amounts(to)) == [1, 7]


async def test_edited_call_works_under_database_roles(site_of_roles: AttackSite) -> None:
    # An approver lowers the amount, which is then paid. Without the gateway's right to insert answers the edit was a
    # 503, and without the worker's to insert questions no approver was asked.
    site, to = site_of_roles, payee()
    ana = site.person("ana")
    key = await site.person("rui").ask([("petty", {"amount": 9, "to": to})])
    shown = await ana.waiting(approval_id(key))
    assert receipt(await ana.decide(shown, edited_args={"amount": 4, "to": to}))["status"] == "accepted"
    assert (await ended(site, key), site.amounts(to)) == (["ok"], [4])


async def test_grant_and_its_revocation_work_under_database_roles(site_of_roles: AttackSite) -> None:
    # The next gift of the session asks no approver, and asks again after the revocation. Without the gateway's right
    # to revoke grants the revocation was a 503.
    site, to = site_of_roles, payee()
    rui, ana, session = site.person("rui"), site.person("ana"), f"s{uuid.uuid4().hex[:12]}"
    first = await rui.ask([("gift", {"amount": 5, "to": to})], session=session)
    remember = {"scope": "session", "where": f"args.to == '{to}'", "uses": 10}
    assert (await ana.approve(approval_id(first), remember=remember))["status"] == "accepted"
    assert await ended(site, first) == ["ok"]
    second = await rui.ask([("gift", {"amount": 6, "to": to})], session=session)
    assert (await ended(site, second), site.amounts(to)) == (["ok"], [5, 6])
    listed: list[dict[str, Any]] = (await ana.http.get("/v1/grants")).json()["grants"]
    [grant] = [each for each in listed if to in str(each)]
    assert (await ana.http.delete(f"/v1/grants/{grant['id']}", headers=JSON)).status_code == 200
    third = await rui.ask([("gift", {"amount": 7, "to": to})], session=session)
    await ana.waiting(approval_id(third))


async def test_withdrawal_and_freeze_work_under_database_roles(site_of_roles: AttackSite) -> None:
    # The requester withdraws one; a freeze ends waiting requests and prevents starts; after it the next call is paid.
    # Without the gateway's right to delete freezes unfreezing was a 503.
    site, to = site_of_roles, payee()
    rui, ana, adm = site.person("rui"), site.person("ana"), site.person("adm")
    gone = await rui.ask([("pay", {"amount": 1, "to": to})])
    await ana.waiting(approval_id(gone))
    answer = await rui.http.post(f"/v1/approvals/{approval_id(gone)}/withdraw", json={"reason": "not needed"})
    assert answer.json()["status"] == "accepted", answer.text
    waiting = await rui.ask([("pay", {"amount": 2, "to": to})])
    await ana.waiting(approval_id(waiting))
    frozen = await adm.http.post("/v1/freezes", json={"tenant": "main", "reason": "a drill"})
    try:
        assert frozen.status_code == 200, frozen.text
        body = {"text": "[]", "actor": "clerk"}
        assert "a drill" in (await rui.http.post("/v1/turns", json=body)).text
        assert [await ended(site, each) for each in (gone, waiting)] == [["denied"], ["denied"]]
    finally:
        assert (await adm.http.delete("/v1/freezes/main", headers=JSON)).status_code == 200
    after = await rui.ask([("pay", {"amount": 3, "to": to})])
    assert (await ana.approve(approval_id(after)))["status"] == "accepted"
    assert (await ended(site, after), site.amounts(to)) == (["ok"], [3])
