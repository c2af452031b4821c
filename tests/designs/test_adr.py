from typing import Any

import pytest

import signoff
from signoff.testing import a_call_context, execute_parallel
from signoff.tools import ToolRegistry, ToolResolver, create_tool_registry

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


async def weather(args: Any, context: signoff.ToolContext) -> str:
    if not isinstance(args.get("city"), str):
        raise TypeError("city must be a text")
    return f"Sunny in {args['city']}."


async def today(args: Any, context: signoff.ToolContext) -> str:
    return "2026-01-01"


def tool(name: str = "get_weather", handler: Any = weather) -> signoff.Tool:
    return signoff.Tool(
        name=name,
        description="Read the weather of a city.",
        input_schema=SCHEMA,
        handler=handler,
        scope="generalist",
        read_only=True,
        validation="off",
    )


def test_registry_built_from_an_array_resolves_lists_and_counts() -> None:
    registry = ToolRegistry([tool(), tool("get_date", today)])
    resolver: ToolResolver = registry
    assert resolver.resolve("get_weather") is not None
    assert registry.list() == ("get_date", "get_weather")
    assert registry.size == 2
    assert create_tool_registry([tool("get_date", today), tool()]).hash == registry.hash


def test_lookup_is_exact_and_an_unknown_name_gives_none() -> None:
    registry = ToolRegistry([tool()])
    assert registry.resolve("Get_Weather") is None
    assert registry.resolve("get_wether") is None


def test_duplicate_name_is_a_config_error_of_the_constructor() -> None:
    with pytest.raises(signoff.ConfigError) as refused:
        ToolRegistry([tool(), tool(handler=today)])
    assert refused.value.context["tool_name"] == "get_weather"


def test_registry_has_no_way_to_change() -> None:
    registry = ToolRegistry([tool()])
    assert [name for name in dir(registry) if not name.startswith("_")] == ["hash", "list", "resolve", "size"]
    resolved: Any = registry.resolve("get_weather")
    with pytest.raises(TypeError):
        resolved.input_schema["type"] = "array"
    with pytest.raises(TypeError):
        resolved.input_schema["properties"]["city"]["type"] = "number"


def app_of(registry: Any) -> signoff.App:
    app = signoff.App(model="openai:gpt-5", registry=registry)
    app.actor("guide", tools=["get_weather"])
    return app


async def test_registered_tool_runs_and_bad_input_is_a_soft_error() -> None:
    catalog = app_of(ToolRegistry([tool()])).build()
    asked = [("get_weather", {"city": "Lisbon"}), ("get_weather", {"city": 7}), ("Get_Weather", {"city": "Lisbon"})]
    made = await execute_parallel(catalog, asked, a_call_context(actor="guide"))
    assert [each.outcome.code for each in made if each.outcome] == ["ok", "execution_failed", "not_available"]
    said = [each.outcome.value.inline for each in made if each.outcome]
    assert said[0] == "Sunny in Lisbon."
    assert "city must be a text" in str(said[1])


class Resolver:
    def resolve(self, name: str) -> signoff.Tool | None:
        return tool() if name == "get_weather" else None


async def test_tools_of_a_custom_resolver_run() -> None:
    catalog = app_of(Resolver()).build()
    [made] = await execute_parallel(catalog, [("get_weather", {"city": "Faro"})], a_call_context(actor="guide"))
    assert made.outcome is not None
    assert made.outcome.value.inline == "Sunny in Faro."


def test_name_unknown_to_the_resolver_is_an_error_at_the_start() -> None:
    app = signoff.App(model="openai:gpt-5", registry=Resolver())
    app.actor("guide", tools=["get_wether"])
    with pytest.raises(signoff.ConfigError, match="get_wether"):
        app.build()


def test_tools_that_differ_only_by_case_are_refused() -> None:
    with pytest.raises(signoff.ConfigError, match="differ by case only"):
        ToolRegistry([tool(), tool("Get_Weather")])


def test_tool_added_after_the_build_is_refused() -> None:
    app = app_of(ToolRegistry([tool()]))
    app.build()
    with pytest.raises(signoff.ConfigError, match="nothing can be declared after that"):
        app.add(tool("get_date", today))


@signoff.tool
async def read_clock(zone: str) -> str:
    """Read the clock of a time zone."""
    return f"noon in {zone}"


async def test_plain_tool_in_an_array_needs_no_scope() -> None:
    app = signoff.App(model="openai:gpt-5", registry=[read_clock])
    app.actor("guide")
    [made] = await execute_parallel(app, [("read_clock", {"zone": "UTC"})], a_call_context(actor="guide"))
    assert made.outcome is not None
    assert made.outcome.value.inline == "noon in UTC"
