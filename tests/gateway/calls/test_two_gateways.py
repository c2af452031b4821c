import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
from call_rig import CallRig, call_rig
from temporalio.client import Client
from turn_fixtures import PATIENCE

from signoff.engine.turn_client import TurnClient
from signoff.store.store import open_store

RACES = 4
WORDS = {"used", "denied", "waiting", "ended", "lapsed", "unavailable"}
"""Reasons for refusing the permit to a late caller."""


@contextlib.asynccontextmanager
async def two_gateways(client: Client, url: str, task_queue: str) -> AsyncIterator[Sequence[CallRig]]:
    """Each gateway has its own connections to the store and the server."""
    async with open_store(url) as store, open_store(url) as second_store, call_rig(client, store, task_queue) as first:
        second_client = TurnClient(client, task_queue=task_queue, patience=PATIENCE)
        yield first, CallRig(first.rig.beside(store=second_store, client=second_client))


async def test_one_caller_wins_each_race_over_two_gateways(client: Client, store_url: str, task_queue: str) -> None:
    async with two_gateways(client, store_url, task_queue) as gateways:
        assert await _fifty_uses(gateways) == 1
        await _twenty_proposals(gateways)
        await asyncio.gather(*(_withdraw_and_use(gateways) for _ in range(RACES)))
        await asyncio.gather(*(_decide_and_use(gateways) for _ in range(RACES)))
        await asyncio.gather(*(_withdraw_and_decide(gateways) for _ in range(RACES)))


async def _fifty_uses(gateways: Sequence[CallRig]) -> int:
    call = (await gateways[0].propose()).json()["id"]
    answers = await asyncio.gather(*(gateways[number % 2].use(call) for number in range(50)))
    handed = [each.json() for each in answers if each.status_code == 200]
    assert {each.json()["code"] for each in answers if each.status_code != 200} <= {"used", "unavailable"}
    assert (await gateways[1].report(call)).json()["code"] == "ok"
    assert [kind for kind, _ in await gateways[0].record(call)].count("execution") == 1
    return len(handed)


async def _twenty_proposals(gateways: Sequence[CallRig]) -> None:
    key = uuid.uuid4().hex
    answers = await asyncio.gather(*(gateways[number % 2].propose(key=key, use=True) for number in range(20)))
    found = [each.json() for each in answers]
    # The server takes ten Updates of a turn at once. Later callers get the call's state instead.
    assert len({each["id"] for each in found}) == 1, found
    # If a busy machine exceeds the wait, the permit is used without an answer.
    assert sum("args" in each for each in found) <= 1, found
    call = found[0]["id"]
    assert (await gateways[0].show(call))["state"] == "used"
    assert [kind for kind, _ in await gateways[0].record(call)].count("execution") == 1


async def _withdraw_and_use(gateways: Sequence[CallRig]) -> None:
    first, second = gateways
    call = (await first.propose()).json()["id"]
    withdrawn, *used = await asyncio.gather(first.withdraw(call), second.use(call), first.use(call))
    handed = [each for each in used if each.status_code == 200]
    ended = await second.show(call, wait=20) if not handed else await second.show(call)
    if handed:
        assert (len(handed), ended["state"]) == (1, "used")
        assert withdrawn.json().get("code") == "used" or withdrawn.json()["state"] != "denied", withdrawn.text
        assert (await second.report(call)).json()["code"] == "ok"
    else:
        assert ended["state"] == "denied" or _is_lost(used), ended
        assert {each.json()["code"] for each in used} <= WORDS


async def _decide_and_use(gateways: Sequence[CallRig]) -> None:
    first, second = gateways
    call = (await first.propose(euro=200)).json()["id"]
    answers = await asyncio.gather(
        first.decide(call), second.decide(call, verdict="denied", reason="no"), first.use(call), second.use(call)
    )
    yes, no, *early = (each.json() for each in answers)
    assert [yes["status"], no["status"]].count("accepted") == 1, (yes, no)
    settled = await _settled(second, call)
    late = await second.use(call)
    handed = [each for each in (*early, late.json()) if "args" in each]
    if no["status"] == "accepted":
        assert (settled["state"], handed) == ("denied", [])
    else:
        assert len(handed) == 1 or _is_lost([*answers[2:], late]), (handed, late.text)
        assert all(each["args"] == {"order": "A7", "euro": 200} for each in handed)


async def _withdraw_and_decide(gateways: Sequence[CallRig]) -> None:
    first, second = gateways
    call = (await first.propose(euro=200)).json()["id"]
    await asyncio.gather(first.withdraw(call), second.decide(call))
    ended = await _settled(second, call, "denied")
    assert ended["source"] == "cancelled"
    assert not [answer for each in gateways if "args" in (answer := (await each.use(call)).json())]


def _is_lost(answers: Sequence[httpx2.Response]) -> bool:
    """A busy machine may leave a caller without an answer."""
    return any(each.status_code == 503 for each in answers)


async def _settled(agent: CallRig, call: str, *states: str) -> dict[str, Any]:
    wanted = states or ("permitted", "used", "denied", "ended")
    for _ in itertools.count():
        found = await agent.show(call, wait=20)
        if found["state"] in wanted:
            return found
    raise AssertionError
