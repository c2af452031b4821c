from typing import Any

from activity_kit import ARGS, PLACE, environment, pinned, task_for, worker_deps
from tables import table
from turn_fixtures import GUEST, Ledger, pay_tool

from signoff.activities.results.result_processor import ResultProcessor
from signoff.contracts.call import CallOutcome
from signoff.contracts.updates import Updates
from signoff.formats.replace import replace
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.handler_adapters import from_success
from signoff.registry.tool_result import ToolFailure, ToolResult
from signoff.store.content_store import is_sealed
from signoff.store.store import Store

STEPS = (
    Step(name="ask", collect={"city": {"type": "string"}}),
    Step(name="buy", requires=("city",)),
    Step(name="thank"),
)
NO_STEP = "update_invalid: `pay` ran and took effect, but it names the next step "


async def made(store: Store, result: Any, **fields: Any) -> CallOutcome:
    where = {"route": "trip", "step": "ask"} | fields
    tool = pay_tool(Ledger(), False, updates=("city",))
    routes = (Route(name="trip", steps=STEPS), Route(name="other", steps=(Step(name="end"),)))
    deps = worker_deps(store, tool, actors=[Actor(name="desk", model="scripted", routes=routes)])
    task = task_for(tool, ctx=pinned(**where), budget_chars=1_000)
    return (await environment().run(ResultProcessor(deps, tool).of, task, ARGS, result)).outcome


@table(
    ("step", "given", "extra"),
    ("thank", {}, {}),
    ("buy", {"data_update": {"city": "Porto"}}, {}),
    ("buy", {}, {"data": {"city": "Porto"}}),
)
async def test_named_step_is_sealed(store: Store, step: str, given: dict[str, Any], extra: dict[str, Any]) -> None:
    outcome = await made(store, ToolResult("paid", next=step, **given), extra=extra)
    assert (outcome.code, outcome.value.inline, outcome.note) == ("ok", "paid", "")
    assert outcome.place is not None
    assert (outcome.place.actor, outcome.place.route, outcome.place.step) == ("desk", "trip", step)
    assert await is_sealed(store, PLACE, outcome.place)
    assert not await is_sealed(store, PLACE, replace(outcome.place, step="ask"))


async def test_current_step_as_next_step_changes_nothing(store: Store) -> None:
    outcome = await made(store, ToolResult("paid", next="ask"))
    assert (outcome.code, outcome.place, outcome.note) == ("ok", None, "")


@table(
    ("step", "where", "why"),
    ("byu", {}, "`byu`, and route `trip` has `ask`, `buy`, `thank`, so none"),
    ("end", {}, "`end`, and route `trip` has"),
    ("buy", {"route": "", "step": ""}, "`buy`, and the conversation is on no route with steps"),
    ("buy", {"actor": "nobody"}, "`buy`, and the conversation is on no route with steps"),
    (7, {}, "`7`, and route `trip` has"),
)
async def test_unknown_step_is_an_error_and_changes_nothing(
    store: Store, step: Any, where: dict[str, Any], why: str
) -> None:
    outcome = await made(store, ToolResult("paid", data_update={"city": "Porto"}, next=step), **where)
    assert (outcome.code, outcome.gate, outcome.place, outcome.updates) == ("execution_failed", "update", None, None)
    assert str(outcome.value.inline).startswith(f"{NO_STEP}{why}")


@table("data", {}, {"city": None}, {"city": 7})
async def test_step_with_missing_data_is_not_entered(store: Store, data: dict[str, Any]) -> None:
    outcome = await made(store, ToolResult("paid", next="buy"), extra={"data": data})
    assert (outcome.code, outcome.place) == ("ok", None)
    assert outcome.note == "The conversation stays where it is: the step `buy` waits for `city`."


async def test_failure_may_also_name_a_next_step(store: Store) -> None:
    outcome = await made(store, ToolFailure("no such card", next="thank"))
    assert (outcome.code, outcome.value.inline) == ("execution_failed", "no such card")
    assert outcome.place is not None
    lost = await made(store, ToolFailure("no such card", next="gone"))
    assert (lost.code, lost.place, lost.value.inline) == ("execution_failed", None, "no such card")
    assert "it names the next step `gone`" in lost.note


async def test_null_update_clears_collected_data(store: Store) -> None:
    result = ToolResult("again", data_update={"city": None}, next="ask")
    outcome = await made(store, result, step="thank", extra={"data": {"city": "Porto"}})
    assert (outcome.updates, outcome.place and outcome.place.step) == (Updates(data={"city": None}), "ask")


async def test_forged_requester_gets_no_sealed_step(store: Store) -> None:
    forged = replace(GUEST, key_id="k", signature="forged")
    outcome = await made(store, ToolResult("paid", next="thank"), user=forged)
    assert (outcome.code, outcome.place) == ("ok", None)


def test_results_in_other_formats_name_the_next_step() -> None:
    results = [from_success({"data": "x", "next": "buy", **more}) for more in ({}, {"success": False})]
    assert [each.next for each in results] == ["buy", "buy"]
    assert from_success({"data": "x", "next": None}).next == ""
