"""200 turns wait, or 1,000 with `SIGNOFF_THOROUGH=1`."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterable

import pytest
from example_counts import THOROUGH
from polling import pauses
from turn_fixtures import (
    AMOUNT_SCHEMA,
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    pay_tool,
    yes,
)

from signoff.activities import run_once
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import TurnKey
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import TurnResult
from signoff.store.gauges.backlog_reader import BacklogReader
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

TURNS = 1_000 if os.environ.get(THOROUGH) == "1" else 200
KINDS = ("same", "denying", "worded", "widened", "gone")
ANEW = ("worded", "widened")
"""Tools whose definition changes, so that their approvers are asked again."""
AT_ONCE = 40
"""Turns that continue at once. More than `CACHED` would evict each other between two tasks, so that one answer
re-reads a turn several times: 600 turns were started or read 2,855 times instead of 1,200.
"""
CACHED = 100
"""Turns that a worker keeps in memory. Most are read again from their histories, as after a deploy."""
WIDER = AMOUNT_SCHEMA | {"properties": {**AMOUNT_SCHEMA["properties"], "memo": {"type": "string"}}}


def react(request: CompletionRequest) -> Completion:
    return respond("done") if results(request) else calls((last_user_text(request), {"amount": 20, "to": "Ana"}))


async def waiting(store: Store, number: int) -> None:
    """Count exactly, without reading the requests, which takes longer."""
    backlog = BacklogReader(store)
    for pause in pauses():
        found = (await backlog.read()).requests.get("main")
        if (found.requests if found is not None else 0) == number:
            return
        await asyncio.sleep(pause)


async def ends_of(turns: RunningTurns, keys: Iterable[TurnKey]) -> list[TurnResult]:
    """Fails if a turn asks about a call whose worker was lost."""
    ends = asyncio.gather(*map(turns.signoff.result, keys))
    for pause in pauses():
        done, _ = await asyncio.wait((ends,), timeout=pause)
        if done:
            break
        doubted = [each.id for each in await RequestLists(turns.store).list_waiting("main") if each.kind == "in_doubt"]
        assert doubted == [], "an activity did not end in its time: the machine gave this process none"
    return await ends


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_waiting_turns_survive_a_catalog_change(turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_once, "WORKERS_TRIED", 2)
    old, new, model = Ledger(), Ledger(), ScriptedModel(react)
    kinds: dict[TurnKey, str] = {}
    catalog = catalog_of([pay_tool(old, name=name) for name in KINDS])
    async with turn_rig.running(catalog, model, max_cached_workflows=CACHED) as turns:
        for number in range(0, TURNS, AT_ONCE):
            names = [KINDS[each % len(KINDS)] for each in range(number, number + AT_ONCE)]
            kinds |= dict(zip(await asyncio.gather(*map(turns.start, names)), names, strict=True))
            await waiting(turn_rig.store, len(kinds))
    assert Counter(kinds.values()) == dict.fromkeys(KINDS, TURNS // len(KINDS))
    changed = [
        pay_tool(new, name="same"),
        pay_tool(new, ApprovalPolicy(deny_if="args.amount > 1.0"), name="denying"),
        pay_tool(new, name="worded", effect="Send {amount} to {to}"),
        pay_tool(new, name="widened", input_schema=WIDER),
    ]
    receipts, ends = list[Receipt](), dict[TurnKey, TurnResult]()
    async with turn_rig.running(changed, model, max_cached_workflows=CACHED) as turns:
        for number in range(0, TURNS, AT_ONCE):
            some = list(kinds)[number : number + AT_ONCE]
            again = [key for key in some if kinds[key] in ANEW]
            receipts += await asyncio.gather(*(turns.signoff.decide(yes(key)) for key in some))
            await waiting(turn_rig.store, TURNS - number - len(some) + len(again))
            receipts += await asyncio.gather(*(turns.signoff.decide(yes(key, revision=2)) for key in again))
            ends |= dict(zip(some, await ends_of(turns, some), strict=True))
    assert {receipt.status for receipt in receipts} <= {"accepted", "pending"}
    found = Counter((kinds[key], *(call.code for call in end.calls), end.state) for key, end in ends.items())
    codes = {"same": "ok", "denying": "denied", "worded": "ok", "widened": "ok", "gone": "not_available"}
    assert found == {(name, code, "complete"): TURNS // len(KINDS) for name, code in codes.items()}
    assert old.rows == []
    assert Counter(name for name, _, _ in new.rows) == dict.fromkeys(("same", *ANEW), TURNS // len(KINDS))
    assert len({ticket for _, _, ticket in new.rows}) == len(new.rows)
