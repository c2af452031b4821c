import asyncio
import copy
import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
from activity_kit import pinned
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.hooks import tool_hooks
from signoff.activities.hooks.tool_hooks import withheld_tools
from signoff.contracts.errors import ConfigError
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.hooks import SELECT, HookContext

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)

NAMES = ("pay", "look", "note")


@pytest.mark.row("F11")
async def test_selection_function_chooses_by_tool_metadata() -> None:
    async def select(context: HookContext, data: dict[str, Any]) -> list[str]:
        return [name for name, tool in context.tools.items() if tool.metadata.get("min_step", 0) <= data["step"]]

    tools = [pay_tool(Ledger(), False, name=name, metadata={"min_step": n}) for n, name in enumerate(NAMES)]
    known = build_catalog(tools=tools, actors=[Actor(name="desk", model="scripted", select=select)])
    assert await withheld_tools(known, pinned(extra={"data": {"step": 1}}), at=NOW) == {"note"}


def catalog(**fields: Any) -> Catalog:
    tools = [pay_tool(Ledger(), False, name=name) for name in NAMES]
    return build_catalog(tools=tools, actors=[Actor(**{"name": "desk", "model": "scripted", **fields})])


def chooses(answer: Any) -> Any:
    async def select(context: HookContext, data: dict[str, Any]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer(context, data) if callable(answer) else answer

    return select


@pytest.mark.row("F10", "V12")
@table(
    ("answer", "left_out"),
    (["pay", "look", "note"], set()),
    (("pay",), {"look", "note"}),
    (frozenset({"pay", "wire"}), {"look", "note"}),
    ([], set(NAMES)),
    (None, set(NAMES)),
    ("pay", set(NAMES)),
    (["pay", 1], set(NAMES)),
    (RuntimeError("no"), set(NAMES)),
    (lambda context, data: ["pay", *data["more"]] if context.channel == "slack" else [], {"note"}),
)
async def test_selection_function_only_narrows_the_available_tools(answer: Any, left_out: set[str]) -> None:
    ctx = pinned(channel="slack", extra={"data": {"more": ["look"]}})
    assert await withheld_tools(catalog(select=chooses(answer)), ctx, at=NOW) == left_out


@pytest.mark.row("F10")
async def test_actor_route_and_step_selections_apply_in_turn() -> None:
    step = Step(name="s", select=chooses(["pay"]))
    routes = (Route(name="r", select=chooses(["pay", "look"]), steps=(step, Step(name="t"))),)
    known = catalog(routes=routes, select=chooses(["pay", "look", "note"]))
    found = [
        await withheld_tools(known, pinned(route=route, step=name), at=NOW)
        for route, name in (("", ""), ("r", "t"), ("r", "s"))
    ]
    assert found == [frozenset(), {"note"}, {"look", "note"}]


@pytest.mark.row("F10")
@table(
    ("answer", "left_out"),
    (["r"], set()), (["r", "nowhere"], set()), (["q"], set(NAMES)), ([], set(NAMES)), (None, set(NAMES)),
     ("r", set(NAMES)), (RuntimeError("no"), set(NAMES)),
)  # fmt: skip
async def test_unselected_route_offers_no_tools(answer: Any, left_out: set[str]) -> None:
    routes = (Route(name="r", steps=(Step(name="s"),)), Route(name="q"))
    known = catalog(routes=routes, route_select=chooses(answer))
    for step in ("", "s"):
        assert await withheld_tools(known, pinned(route="r", step=step), at=NOW) == left_out
    assert await withheld_tools(known, pinned(), at=NOW) == frozenset()
    assert [tool.name for tool in known.available(pinned(route="r"))] == []
    assert [tool.name for tool in known.available(pinned())] == sorted(NAMES)


def test_invalid_route_selection_is_an_error_at_build() -> None:
    routes = (Route(name="r"),)
    with pytest.raises(ConfigError, match="has a function that chooses its `routes`, but declares none"):
        catalog(route_select=chooses([]))
    with pytest.raises(ConfigError, match="has a route `select`, which is the key"):
        catalog(routes=(Route(name="select"),))
    with pytest.raises(ConfigError, match=r"`routes.select` to be .*, but it is not `async def`"):
        catalog(routes=routes, route_select=len)
    assert catalog(routes=routes, route_select=chooses([])).hash != catalog(routes=routes).hash


async def test_slow_selection_function_hides_all_tools_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_hooks, "SELECT", dataclasses.replace(SELECT, seconds=0.05))

    async def slow(context: HookContext, data: dict[str, Any]) -> list[str]:
        data["city"] = "changed"
        await asyncio.Event().wait()
        return list(NAMES)

    ctx = pinned(extra={"data": {"city": "Porto"}})
    assert await withheld_tools(catalog(select=slow), ctx, at=NOW) == set(NAMES)
    assert ctx.extra == {"data": {"city": "Porto"}}


async def test_selection_function_receives_a_deep_copy_of_collected_data() -> None:
    entries: list[Any] = []

    async def select(context: HookContext, data: dict[str, Any]) -> list[str]:
        entries.append(copy.deepcopy(data))
        data.setdefault("legs", []).clear()
        return list(NAMES)

    known, data = catalog(select=select), {"legs": [1, 2]}
    for extra in ({"data": data}, {}, {"data": "none"}):
        assert await withheld_tools(known, pinned(extra=extra), at=NOW) == frozenset()
    assert entries == [data, {}, {}] == [{"legs": [1, 2]}, {}, {}]


def test_invalid_selection_function_is_an_error_at_build() -> None:
    async def one(context: HookContext) -> list[str]:
        return []

    for field, select, words in (("select", len, "but it is not `async def`"), ("select", one, "does not take")):
        with pytest.raises(ConfigError, match=words):
            catalog(**{field: select})
    with pytest.raises(ConfigError, match=r"`routes.r.steps.s.select` to be .*, but it does not take"):
        catalog(routes=(Route(name="r", steps=(Step(name="s", select=one),)),))  # type: ignore[arg-type]
    assert catalog(select=chooses([])).hash != catalog().hash


@table(
    ("answer", "words"),
    (RuntimeError("secret"), "failed (RuntimeError)"),
    ("pay", "returned a str that is no answer"),
)
async def test_failed_selection_is_logged_with_its_function(
    answer: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await withheld_tools(catalog(select=chooses(answer)), pinned(), at=NOW) == set(NAMES)
    assert caplog.messages == [f"no tool is chosen: `select` of actor desk {words}"]
