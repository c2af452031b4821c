from typing import Any

import pytest
from activity_kit import ARGS, environment, pinned, task_for, worker_deps
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.results.result_processor import ProcessedResult, ResultProcessor
from signoff.contracts.content import Content
from signoff.contracts.updates import Updates
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.tool_result import ToolResult
from signoff.store.store import Store

MEANT = ("city", "project")
TRIP = Route(
    name="trip", steps=(Step(name="ask", collect={"city": {"type": "string"}}), Step(name="buy", collect={"city2": {}}))
)
MISFIT = "update_invalid: `pay` ran and took effect, but the value of `project` "


async def made(store: Store, result: ToolResult, names: tuple[str, ...] = MEANT, **fields: Any) -> ProcessedResult:
    actor, budget = fields.pop("actor", "desk"), fields.pop("budget", 1_000)
    tool = pay_tool(Ledger(), False, updates=names, **fields)
    deps = worker_deps(
        store,
        tool,
        actors=[Actor(name="desk", model="scripted", routes=(TRIP,))],
        context={"project": {"type": "string"}},
    )
    task = task_for(tool, ctx=pinned(actor=actor, route="trip", step="ask"), budget_chars=budget)
    return await environment().run(ResultProcessor(deps, tool).of, task, ARGS, result)


@table(
    ("data", "context", "taken"),
    ({"city": "Porto"}, {"project": "open"}, Updates(data={"city": "Porto"}, context={"project": "open"})),
    ({"city": "Porto"}, None, Updates(data={"city": "Porto"})),
    (None, {"project": "open"}, Updates(context={"project": "open"})),
    ({}, {}, None),
)
async def test_valid_updates_are_applied_and_the_requested_ones_kept(
    store: Store, caplog: pytest.LogCaptureFixture, data: Any, context: Any, taken: Updates | None
) -> None:
    outcome = (await made(store, ToolResult("paid", {"n": 1}, 0.5, data_update=data, context_update=context))).outcome
    assert (outcome.code, outcome.gate, outcome.value.inline, outcome.cost) == ("ok", "execute", "paid", 0.5)
    assert outcome.updates == taken
    wished = [None if each is None else each.inline for each in (outcome.data_update, outcome.context_update)]
    assert wished == [data, context]
    assert caplog.messages == []


@table(
    "fields",
    {"names": ()},
    {"actor": "nobody"},
    ids=["a tool that declares none", "an actor that this worker does not have"],
)
async def test_updates_without_a_declaration_are_recorded_but_not_applied(
    store: Store, caplog: pytest.LogCaptureFixture, fields: dict[str, Any]
) -> None:
    result = ToolResult("paid", data_update={"city": 3}, context_update={"project": 4})
    outcome = (await made(store, result, **fields)).outcome
    assert (outcome.code, outcome.gate, outcome.updates) == ("ok", "execute", None)
    assert outcome.data_update == Content(inline={"city": 3})
    assert outcome.context_update == Content(inline={"project": 4})
    assert caplog.messages == []


async def test_tool_without_updates_changes_nothing(store: Store) -> None:
    outcome = (await made(store, ToolResult("paid"))).outcome
    assert (outcome.code, outcome.data_update, outcome.context_update, outcome.updates) == ("ok", None, None, None)


async def test_undeclared_names_are_dropped_from_updates(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    result = ToolResult("paid", data_update={"city": "Porto", "city2": 1, "project": 2}, context_update={"city": 3})
    outcome = (await made(store, result)).outcome
    assert (outcome.code, outcome.updates) == ("ok", Updates(data={"city": "Porto"}))
    assert caplog.messages[0].partition(" (")[0] == (
        "an update of pay is left out, nothing declares it: data.city2, data.project, city"
    )
    assert len(caplog.messages) == 1


async def test_updates_with_only_undeclared_names_apply_nothing(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    names = {f"n{number:03}": 1 for number in range(90)}
    outcome = (await made(store, ToolResult("paid", data_update=names))).outcome
    assert (outcome.code, outcome.updates, outcome.data_update) == ("ok", None, Content(inline=names))
    found = caplog.messages[0].partition(" (")[0].removeprefix("an update of pay is left out, nothing declares it: ")
    assert found == ", ".join(f"data.{name}" for name in names)[:200]


async def test_value_outside_its_schema_fails_the_call_and_all_updates(store: Store) -> None:
    result = ToolResult("paid", {"n": 1}, 0.5, data_update={"city": "Porto"}, context_update={"project": 4})
    outcome = (await made(store, result)).outcome
    assert (outcome.code, outcome.gate) == ("execution_failed", "update")
    assert str(outcome.value.inline).startswith(MISFIT)
    assert str(outcome.value.inline).endswith("Do not call it again for that; tell the user.")
    assert (outcome.updates, outcome.data_update, outcome.context_update) == (None, None, None)
    assert (outcome.structured, outcome.cost) == (Content(inline={"n": 1}), 0.5)


async def test_undeclared_names_are_logged_even_if_another_value_fails(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    result = ToolResult("paid", data_update={"other": 1, "city": 3})
    outcome = (await made(store, result, budget=20, untrusted_output=True)).outcome
    assert (outcome.gate, outcome.truncated) == ("update", True)
    assert "untrusted output of `pay` begins" in str(outcome.value.inline)
    assert [message.partition(" (")[0] for message in caplog.messages] == [
        "an update of pay is left out, nothing declares it: data.other"
    ]


async def test_malformed_update_is_dropped_and_the_other_applied(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    wrong: Any = ["city"]
    outcome = (await made(store, ToolResult("paid", data_update=wrong, context_update={"project": "open"}))).outcome
    assert (outcome.code, outcome.data_update, outcome.updates) == ("ok", None, Updates(context={"project": "open"}))
    assert len(caplog.messages) == 1
    both: Any = ToolResult("paid", data_update=wrong, context_update=wrong)
    outcome = (await made(store, both)).outcome
    assert (outcome.code, outcome.data_update, outcome.context_update, outcome.updates) == ("ok", None, None, None)


async def test_result_outside_its_output_schema_applies_no_updates(store: Store) -> None:
    result = ToolResult("paid", data_update={"city": "Porto"})
    outcome = (await made(store, result, output_schema={"type": "integer"})).outcome
    assert (outcome.gate, outcome.updates, outcome.data_update) == ("output", None, None)


async def test_specialist_log_keeps_the_result_if_its_updates_fail(store: Store) -> None:
    fields: dict[str, Any] = {"scope": "specialist", "justification": "the desk alone pays"}
    assert (await made(store, ToolResult("paid", data_update={"city": 3}), **fields)).kept == "paid"
