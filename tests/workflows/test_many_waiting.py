"""A catalog that changes under two hundred turns that wait: each goes on as the documents say, and none is lost."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from polling import pauses
from temporalio.client import Client
from turn_fixtures import AMOUNT_SCHEMA, ApprovalPolicy, Ledger, catalog_of, pay_tool, running_turns, yes

from signoff.activities import tool_activity
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import TurnKey
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

TURNS = 200
KINDS = ("same", "denying", "worded", "widened", "gone")
ANEW = ("worded", "widened")
"""Tools whose definition becomes another one: who approved them is asked again."""
AT_ONCE = 40
CACHED = 100
"""How many turns a worker keeps in memory: most are read anew from their histories, as after a deploy."""
WIDER = AMOUNT_SCHEMA | {"properties": {**AMOUNT_SCHEMA["properties"], "memo": {"type": "string"}}}


def react(request: CompletionRequest) -> Completion:
    """Calls the tool that is named, once."""
    return respond("done") if results(request) else calls((last_user_text(request), {"amount": 20, "to": "Ana"}))


async def all_of(work: Callable[[TurnKey], Any], keys: Iterable[TurnKey]) -> list[Any]:
    """What `work` returns for each turn, some turns at once."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(key: TurnKey) -> Any:
        async with places:
            return await work(key)

    return await asyncio.gather(*map(one, keys))


async def waiting(store: Store, number: int, revision: int) -> None:
    """Wait until so many requests of a revision wait, and not one more does."""
    for pause in pauses():
        found = await RequestLists(store).list_waiting("main")
        if sum(request.revision == revision for request in found) == number:
            return
        await asyncio.sleep(pause)


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_a_catalog_changes_under_many_waiting_turns(
    client: Client, store: Store, task_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that denies, another effect and another schema, and a tool that is gone, beside one that is as it was."""
    monkeypatch.setattr(tool_activity, "WORKERS_TRIED", 2)
    old, new, model = Ledger(), Ledger(), ScriptedModel(react)
    kinds: dict[TurnKey, str] = {}
    catalog = catalog_of([pay_tool(old, name=name) for name in KINDS])
    async with running_turns(client, store, task_queue, catalog, model, max_cached_workflows=CACHED) as turns:
        for name in KINDS:
            for _ in range(TURNS // len(KINDS) // AT_ONCE):
                started = await asyncio.gather(*(turns.start(name) for _ in range(AT_ONCE)))
                kinds |= dict.fromkeys(started, name)
        await waiting(store, TURNS, 1)
    changed = [
        pay_tool(new, name="same"),
        pay_tool(new, ApprovalPolicy(deny_if="args.amount > 1.0"), name="denying"),
        pay_tool(new, name="worded", effect="Send {amount} to {to}"),
        pay_tool(new, name="widened", input_schema=WIDER),
    ]
    again = [key for key, name in kinds.items() if name in ANEW]
    async with running_turns(
        client, store, task_queue, catalog_of(changed), model, max_cached_workflows=CACHED
    ) as turns:
        first = await all_of(lambda key: turns.signoff.decide(yes(key)), kinds)
        await waiting(store, len(again), 2)
        second = await all_of(lambda key: turns.signoff.decide(yes(key, revision=2)), again)
        ends = dict(zip(kinds, await all_of(turns.signoff.result, kinds), strict=True))
    assert {receipt.status for receipt in (*first, *second)} <= {"accepted", "pending"}
    found = Counter((kinds[key], *(call.code for call in end.calls), end.state) for key, end in ends.items())
    codes = {"same": "ok", "denying": "denied", "worded": "ok", "widened": "ok", "gone": "not_available"}
    assert found == {(name, code, "complete"): TURNS // len(KINDS) for name, code in codes.items()}
    assert old.rows == []
    assert Counter(name for name, _, _ in new.rows) == dict.fromkeys(("same", *ANEW), TURNS // len(KINDS))
    assert len({ticket for _, _, ticket in new.rows}) == len(new.rows)
