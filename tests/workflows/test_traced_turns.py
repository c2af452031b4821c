import json
import logging
from typing import Any

import pytest
from turn_fixtures import Ledger, TurnRig, pay_tool

from signoff.audit.log import AuditLog
from signoff.registry.actor import Actor, Route, Step, ToolUse
from signoff.registry.catalog import Catalog, build_catalog
from signoff.testing.scripted_model import calls, respond
from signoff.texts.record_entries import entry_words

ARGS = {"amount": 20, "to": "Ana"}


def catalog(ledger: Ledger, **fields: Any) -> Catalog:
    search = pay_tool(ledger, False, name="search")
    late = pay_tool(ledger, False, name="late")
    query = Step(name="query", tools=(search,))
    more = Step(name="more", tools=("late",), requires=("city",), collect={"city": None})
    actor = Actor(
        name="desk",
        model="scripted",
        own_tools=(search,),
        routes=(Route(name="support", tools=(ToolUse(tool=search),), steps=(query, more)),),
        shadowing="allow",
        **fields,
    )
    return build_catalog(tools=[search, late], actors=[actor])


@pytest.mark.row("F19")
@pytest.mark.parametrize("by", ["actor", "turn", "nobody"])
async def test_traced_turn_logs_the_winning_and_losing_layers_of_each_call(
    turn_rig: TurnRig, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    caplog.set_level(logging.INFO)
    known = catalog(Ledger(), trace=by == "actor")
    model = [calls(("search", ARGS), ("late", ARGS), ("fly", ARGS)), respond("done")]
    async with turn_rig.running(known, model) as turns:
        key = await turns.start(route="support", step="query", trace=by == "turn")
        await turns.signoff.result(key)
        await turns.replays(key)
        records = [each for each in await AuditLog(turn_rig.store).stream(key.workflow_id) if each.kind == "trace"]
    lines = [
        "tool `search` in step query: search@desk.support.query (step > route > agent > registry)",
        "tool `late` in step query: late (registry)",
        "tool `fly` in step query: none, no layer names it",
    ]
    facts = [json.loads(each.data) for each in records]
    assert [each["line"] for each in facts] == ([] if by == "nobody" else lines)
    logged = [each.getMessage() for each in caplog.records if " in step query: " in each.getMessage()]
    entries = [f"actor desk, call c1.{number}: {line}" for number, line in enumerate(lines, 1)]
    assert [line in each for line, each in zip(entries, logged, strict=False)] == [True] * len(facts)
    if facts:
        resolution = facts[0]["resolution"]
        assert (resolution["route"], resolution["step"], resolution["levels"]) == (
            "support",
            "query",
            ["step", "route", "agent", "registry"],
        )
        assert resolution["layers"] == [
            "step `query`: won, is the nearest that names it",
            "step `query`: absent, does not name it",
            "route `support`: lost, step `query` is nearer",
            "actor `desk`: lost, step `query` is nearer",
            "the registry: lost, step `query` is nearer",
        ]
        assert entry_words("trace", facts[1], "en") == f"late c1.2 was resolved: {lines[1]}"


async def test_trace_names_the_data_that_a_tool_waits_for(turn_rig: TurnRig) -> None:
    known = catalog(Ledger(), trace=True)
    async with turn_rig.running(known, [calls(("late", ARGS)), respond("done")]) as turns:
        key = await turns.start(route="support", step="more")
        await turns.signoff.result(key)
        [record] = await AuditLog(turn_rig.store).of_kinds(["trace"], [key.workflow_id])
    assert json.loads(record.data)["line"] == "tool `late` in step more: none, waits for `city` (step > registry)"
