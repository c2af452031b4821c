"""What counts of what a tool wishes to change of a conversation, branch by branch: taken, left out, or a failure."""

from typing import Any

import pytest
from activity_kit import ARGS, environment, permit_for, pinned, worker_deps
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
    """What becomes of `result`, of a tool that may change `names`."""
    actor, budget = fields.pop("actor", "desk"), fields.pop("budget", 1_000)
    tool = pay_tool(Ledger(), False, updates=names, **fields)
    deps = worker_deps(
        store,
        tool,
        actors=[Actor(name="desk", model="scripted", routes=(TRIP,))],
        context={"project": {"type": "string"}},
    )
    permit = permit_for(tool, ctx=pinned(actor=actor, route="trip", step="ask"))
    return await environment().run(ResultProcessor(deps, tool).of, permit, ARGS, result, budget)


@table(
    ("data", "context", "taken"),
    ({"city": "Porto"}, {"project": "open"}, Updates(data={"city": "Porto"}, context={"project": "open"})),
    ({"city": "Porto"}, None, Updates(data={"city": "Porto"})),
    (None, {"project": "open"}, Updates(context={"project": "open"})),
    ({}, {}, None),
)
async def test_what_fits_is_taken_beside_what_was_wished(
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
async def test_a_wish_without_anybody_to_take_it_is_only_told(
    store: Store, caplog: pytest.LogCaptureFixture, fields: dict[str, Any]
) -> None:
    result = ToolResult("paid", data_update={"city": 3}, context_update={"project": 4})
    outcome = (await made(store, result, **fields)).outcome
    assert (outcome.code, outcome.gate, outcome.updates) == ("ok", "execute", None)
    assert outcome.data_update == Content(inline={"city": 3})
    assert outcome.context_update == Content(inline={"project": 4})
    assert caplog.messages == []


async def test_a_tool_that_wishes_nothing_changes_nothing(store: Store) -> None:
    outcome = (await made(store, ToolResult("paid"))).outcome
    assert (outcome.code, outcome.data_update, outcome.context_update, outcome.updates) == ("ok", None, None, None)


async def test_names_that_nobody_declares_are_left_out_of_what_is_taken(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    result = ToolResult("paid", data_update={"city": "Porto", "city2": 1, "project": 2}, context_update={"city": 3})
    outcome = (await made(store, result)).outcome
    assert (outcome.code, outcome.updates) == ("ok", Updates(data={"city": "Porto"}))
    assert caplog.messages[0].partition(" (")[0] == (
        "an update of pay is left out, nothing declares it: data.city2, data.project, city"
    )
    assert len(caplog.messages) == 1


async def test_where_every_name_is_left_out_nothing_is_taken(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    names = {f"n{number:03}": 1 for number in range(90)}
    outcome = (await made(store, ToolResult("paid", data_update=names))).outcome
    assert (outcome.code, outcome.updates, outcome.data_update) == ("ok", None, Content(inline=names))
    found = caplog.messages[0].partition(" (")[0].removeprefix("an update of pay is left out, nothing declares it: ")
    assert found == ", ".join(f"data.{name}" for name in names)[:200]


async def test_a_value_that_does_not_fit_fails_the_call_and_takes_nothing(store: Store) -> None:
    result = ToolResult("paid", {"n": 1}, 0.5, data_update={"city": "Porto"}, context_update={"project": 4})
    outcome = (await made(store, result)).outcome
    assert (outcome.code, outcome.gate) == ("execution_failed", "update")
    assert str(outcome.value.inline).startswith(MISFIT)
    assert str(outcome.value.inline).endswith("Do not call it again for that; tell the user.")
    assert (outcome.updates, outcome.data_update, outcome.context_update) == (None, None, None)
    assert (outcome.structured, outcome.cost) == (Content(inline={"n": 1}), 0.5)


async def test_names_that_are_left_out_are_warned_of_beside_a_value_that_does_not_fit(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    result = ToolResult("paid", data_update={"other": 1, "city": 3})
    outcome = (await made(store, result, budget=20, untrusted_output=True)).outcome
    assert (outcome.gate, outcome.truncated) == ("update", True)
    assert "untrusted output of `pay` begins" in str(outcome.value.inline)
    assert [message.partition(" (")[0] for message in caplog.messages] == [
        "an update of pay is left out, nothing declares it: data.other"
    ]


async def test_what_is_no_plain_object_neither_counts_nor_fails(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    wrong: Any = ["city"]
    outcome = (await made(store, ToolResult("paid", data_update=wrong, context_update={"project": "open"}))).outcome
    assert (outcome.code, outcome.data_update, outcome.updates) == ("ok", None, Updates(context={"project": "open"}))
    assert len(caplog.messages) == 1
    both: Any = ToolResult("paid", data_update=wrong, context_update=wrong)
    outcome = (await made(store, both)).outcome
    assert (outcome.code, outcome.data_update, outcome.context_update, outcome.updates) == ("ok", None, None, None)


async def test_a_result_outside_of_its_output_schema_updates_nothing(store: Store) -> None:
    result = ToolResult("paid", data_update={"city": "Porto"})
    outcome = (await made(store, result, output_schema={"type": "integer"})).outcome
    assert (outcome.gate, outcome.updates, outcome.data_update) == ("output", None, None)


async def test_the_record_keeps_what_was_returned_whatever_became_of_its_updates(store: Store) -> None:
    fields: dict[str, Any] = {"scope": "specialist", "justification": "the desk alone pays"}
    assert (await made(store, ToolResult("paid", data_update={"city": 3}), **fields)).kept == "paid"
