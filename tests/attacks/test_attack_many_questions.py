"""So much waits that whoever looks at a list of it, or freezes its tenant, waits for it or keeps others waiting."""

import asyncio
import time
from functools import partial

import pytest
from attack_site import AttackSite, Caller, approval_id, payee, receipt, until
from bounds_kit import bearable
from health_probe import at_rest

from signoff.contracts.ids import TurnKey

pytestmark = pytest.mark.timeout(300)
TURNS, CALLS = 40, 20
FREEZE_SECONDS = 15 + 5
"""How long a freeze withdraws, and one page of ten that began just before the end."""


async def test_lists_of_strangers_hold_up_nobody(site: AttackSite) -> None:
    """One person has 800 questions asked; a stranger, who may read none of them, looks at both lists five times each.

    It takes 2.3 s, and an answer meanwhile 0.3 s. With `_match_readers` out and `Store.run_in_thread` run on the event
    loop, health was answered in 13.3 s.
    """
    maxi = site.person("max")
    keys = await look_at_all(site, payee())
    for key in keys:
        assert (await maxi.http.post(f"/v1/turns/{'.'.join(key)}/cancel", json={})).status_code == 202
    # Who comes after this must not find eight hundred questions waiting.
    for key in keys:
        await until(partial(over, maxi, key))


async def test_lists_and_freezes_of_many_hold_up_nobody_over_postgresql(site_of_roles: AttackSite) -> None:
    """The same where rows come from PostgreSQL; then a freeze tells in time what is left, and again until nothing is.

    Rows were read on the gateway's event loop: it takes 3.8 s, and an answer meanwhile 1.4 s; with the same out health
    was answered in 3.9 s. Without `time.monotonic() > end` inside a pass of `sweep` the first freeze was answered when
    everything was withdrawn, after 25 s here and more than 60 s on a slower machine.
    """
    site, to = site_of_roles, payee()
    maxi, ana, adm = site.person("max"), site.person("ana"), site.person("adm")
    keys = await look_at_all(site, to)
    waiting = await ana.waiting(approval_id(keys[-1]))
    rest = await at_rest(site.url)
    left: list[str] | None = None
    try:
        while left is None or left:
            begun = time.monotonic()
            answer = await adm.http.post("/v1/freezes", json={"tenant": "main", "reason": "too many"})
            took = time.monotonic() - begun
            assert answer.status_code == 200, answer.text
            assert took < FREEZE_SECONDS + 20 * rest, (took, rest, left)
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
    """Ask 800 questions, look at the lists as a stranger, and answer the first of them meanwhile."""
    ana, zoe = site.person("ana"), site.person("zoe")
    keys = await ask_many(site, to)
    shown = await ana.waiting(approval_id(keys[0]))
    rest = await at_rest(site.url)
    paths = ["/v1/approvals", "/v1/turns?limit=500"] * 5
    begun = time.monotonic()
    async with bearable(site):
        lists = [asyncio.create_task(zoe.http.get(path)) for path in paths]
        await asyncio.sleep(0.1)
        answered = time.monotonic()
        assert receipt(await ana.decide(shown))["status"] == "accepted"
        took = time.monotonic() - answered
        # Others of this site have asked for things themselves, which they see.
        for each in await asyncio.gather(*lists):
            assert (each.status_code, to in each.text, keys[0].turn in each.text) == (200, False, False)
    whole = time.monotonic() - begun
    assert max(took, whole / 4) < 2.0 + 10 * rest, (took, whole, rest)
    return keys


async def ask_many(site: AttackSite, to: str) -> list[TurnKey]:
    """Have one person ask 800 questions; returns their turns once everything waits."""
    maxi, ana = site.person("max"), site.person("ana")
    keys: list[TurnKey] = []
    calls = [("pay", {"amount": 1 + at, "to": to}) for at in range(CALLS)]
    for _ in range(TURNS // 4):
        keys += await asyncio.gather(*(maxi.ask(calls) for _ in range(4)))
        await ana.waiting(approval_id(keys[-1], f"c1.{CALLS}"))
    return keys


async def over(asker: Caller, key: TurnKey) -> bool:
    """Whether a turn has ended."""
    return (await asker.turn(key))["state"] not in ("running", "suspended")
