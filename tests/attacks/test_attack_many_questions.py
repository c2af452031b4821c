import asyncio
from functools import partial

import pytest
from attack_site import AttackSite, Caller, approval_id, payee, receipt, until
from bounds_kit import bearable

from signoff.contracts.ids import TurnKey

pytestmark = pytest.mark.timeout(300)
TURNS, CALLS = 8, 20


async def test_lists_of_strangers_show_none_of_many_requests(site: AttackSite) -> None:
    # One requester has 160 questions asked, and others work as before. That the lists of a stranger do not read them is
    # in `store/test_query_plans.py`.
    maxi = site.person("max")
    keys = await look_at_all(site, payee())
    for key in keys:
        assert (await maxi.http.post(f"/v1/turns/{'.'.join(key)}/cancel", json={})).status_code == 202
    # Later tests must not find hundreds of waiting questions.
    for key in keys:
        await until(partial(over, maxi, key))


async def test_freeze_of_many_requests_over_postgresql_refuses_them_all(site_of_roles: AttackSite) -> None:
    # The same with rows from PostgreSQL. A freeze then reports the rest, and is repeated until none is left. An
    # interrupted pass is tested by `security/test_freeze_sweep.py`.
    site, to = site_of_roles, payee()
    maxi, ana, adm = site.person("max"), site.person("ana"), site.person("adm")
    keys = await look_at_all(site, to)
    waiting = await ana.waiting(approval_id(keys[-1]))
    left: list[str] | None = None
    try:
        while left is None or left:
            answer = await adm.http.post("/v1/freezes", json={"tenant": "main", "reason": "too many"})
            assert answer.status_code == 200, answer.text
            before, left = left, answer.json()["swept"]["waiting"]
            assert before is None or len(left) < len(before), (before, left)
    finally:
        assert (await adm.http.delete("/v1/freezes/main", headers={"content-type": "application/json"})).is_success
    assert receipt(await ana.decide(waiting))["status"] == "refused"
    codes = [call["code"] for key in keys for call in (await maxi.result(key))["calls"]]
    # One of them was approved before.
    assert sorted(set(codes)) == ["denied", "ok"], codes
    assert site.amounts(to) == [1]


async def look_at_all(site: AttackSite, to: str) -> list[TurnKey]:
    ana = site.person("ana")
    keys = await ask_many(site, to)
    shown = await ana.waiting(approval_id(keys[0]))
    async with bearable(site):
        assert receipt(await ana.decide(shown))["status"] == "accepted"
        answers = [await site.person("zoe").http.get(f"{path}?limit=100") for path in ("/v1/approvals", "/v1/turns")]
    # Other people of this site see their own requests.
    for answer in answers:
        assert (answer.status_code, to in answer.text, keys[0].turn in answer.text) == (200, False, False)
    return keys


async def ask_many(site: AttackSite, to: str) -> list[TurnKey]:
    maxi, ana = site.person("max"), site.person("ana")
    keys: list[TurnKey] = []
    calls = [("pay", {"amount": 1 + at, "to": to}) for at in range(CALLS)]
    for _ in range(TURNS // 4):
        keys += await asyncio.gather(*(maxi.ask(calls) for _ in range(4)))
        await ana.waiting(approval_id(keys[-1], f"c1.{CALLS}"))
    return keys


async def over(asker: Caller, key: TurnKey) -> bool:
    return (await asker.turn(key))["state"] not in ("running", "suspended")
