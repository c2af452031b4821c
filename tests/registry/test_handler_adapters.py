from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from registry_kit import a_context, a_tool
from some import some
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.formats.yaml_file import read_yaml
from signoff.registry.handler_adapters import (
    context_first,
    from_ok,
    from_success,
    ok_results,
    per_call,
    success_results,
)
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.manifest.schema_export import manifest_schema
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure, ToolResult


@pytest.mark.row("X19")
async def test_handler_with_context_first_is_adapted() -> None:
    async def old(context: ToolContext, args: dict[str, Any]) -> str:
        return f"{context.call_id} {args['flight']}"

    handler = context_first(old)
    ToolRegistry([a_tool(handler=handler)])
    assert await handler({"flight": "AZ1"}, a_context()) == "c1.1 AZ1"
    assert repr(handler).split()[1].endswith("old")


@pytest.mark.row("F02")
async def test_foreign_tool_format_is_accepted_by_explicit_adapter(tmp_path: Path) -> None:
    (tmp_path / "by_id.py").write_text(
        "from signoff.registry.handler_adapters import context_first\n\n\n"
        "@context_first\nasync def weather(context, args):\n    return f'{context.user_id}: {args[\"city\"]}'\n"
    )
    text = (
        "version: 1\ntools:\n  weather:\n    id: weather\n    description: Tells the weather.\n"
        "    parameters: {type: object, properties: {city: {type: string}}, required: [city]}\n"
        "    handler: by_id:weather\n    scope: generalist\n"
    )
    (tmp_path / "signoff.yaml").write_text(text)
    found = some(load_manifest(tmp_path / "signoff.yaml").registry.resolve("weather"))
    assert (found.description, found.schema.schema["required"]) == ("Tells the weather.", ["city"])
    assert await found.handler({"city": "Porto"}, a_context()) == "guest: Porto"
    (tmp_path / "signoff.yaml").write_text(text.replace("id: weather", "id: weather\n    name: Weather"))
    named = some(load_manifest(tmp_path / "signoff.yaml").registry.resolve("weather"))
    assert (named.name, named.title) == ("weather", "Weather")
    (tmp_path / "signoff.yaml").write_text(text.replace("id: weather", "id: weather\n    name: Weather\n    title: W"))
    with pytest.raises(ConfigError, match="`id` and `name` of tool `weather` mean the same and differ"):
        load_manifest(tmp_path / "signoff.yaml")


@pytest.mark.row("E08", "X14")
@table(
    ("given", "expected"),
    ({"ok": True, "value": "v"}, ToolResult("v")),
    ({"ok": True, "value": "v", "structured": [1], "cost_usd": 0.5}, ToolResult("v", [1], 0.5)),
    ({"ok": False, "code": "input_invalid", "error": "no"}, ToolFailure("no", "input_invalid")),
    ({"ok": False, "code": "not_available", "error": "no"}, ToolFailure("no", "not_available")),
    ({"ok": False, "code": "execution_failed", "error": "no"}, ToolFailure("no")),
    ({"ok": False, "code": "STALE_WRITE", "error": "no"}, ToolFailure("STALE_WRITE: no")),
    ({"ok": False, "code": ["x"], "error": ""}, ToolFailure("['x']: the tool failed")),
    ({"ok": False}, ToolFailure("the tool failed")),
    ({"ok": 1, "value": "v"}, ToolFailure("the tool returned no `{ok, ...}` result, though it had run")),
    ("v", ToolFailure("the tool returned no `{ok, ...}` result, though it had run")),
)
async def test_results_with_ok_are_adapted(given: Any, expected: Any) -> None:
    async def old(args: dict[str, Any], context: ToolContext) -> Any:
        return given

    assert from_ok(given) == expected
    assert await ok_results(old)({}, a_context()) == expected


@pytest.mark.row("X14")
@table(
    ("given", "expected"),
    ({"data": 3}, ToolResult(3)),
    ({"data": 3, "success": True}, ToolResult(3)),
    ({"success": None, "error": "odd"}, ToolResult(None)),
    (
        {"data": 3, "dataUpdate": {"a": 1}, "contextUpdate": {"b": 2}},
        ToolResult(3, data_update={"a": 1}, context_update={"b": 2}),
    ),
    ({"data": 3, "meta": {"ms": 4}}, ToolResult(3, meta={"ms": 4})),
    (
        {"success": False, "error": "no", "data": 3, "contextUpdate": {"b": 2}, "meta": {"ms": 4}},
        ToolFailure("no", context_update={"b": 2}, meta={"ms": 4}, value=3),
    ),
    ({"success": False, "error": "no", "dataUpdate": {"a": 1}}, ToolFailure("no", data_update={"a": 1})),
    ({"success": False}, ToolFailure("the tool failed")),
    ([1], ToolResult([1])),
)
async def test_results_with_success_are_adapted(given: Any, expected: Any) -> None:
    async def old(args: dict[str, Any], context: ToolContext) -> Any:
        return given

    assert from_success(given) == expected
    assert await success_results(old)({}, a_context()) == expected


FACTORIES = """
async def kept(args, context): return args["query"]
def user_tool(context):
    '''Search within the data of a user.'''
    async def run(args, given):
        return f"{args['query']} of {context.user_id}"
    return run
async def late(context): return kept
def other(args, context): return kept
def several(context):
    '''Work with the data of a user.'''
    async def search(args, given):
        return f"{args['query']} of {context.user_id}"
    async def count(args, given):
        return len(context.user_id)
    return {"user_search": search, "user_count": count, "odd": "no handler"}
"""
PER_CALL = (
    "version: 1\ntools:\n  user_search:\n    per_call: factories:user_tool\n    scope: generalist\n"
    "    parameters: {type: object, properties: {query: {type: string}}}\n"
)


@pytest.mark.row("F16")
async def test_manifest_names_a_handler_factory(tmp_path: Path) -> None:
    (tmp_path / "factories.py").write_text(FACTORIES)
    (tmp_path / "signoff.yaml").write_text(PER_CALL)
    found = some(load_manifest(tmp_path / "signoff.yaml").registry.resolve("user_search"))
    assert found.description == "Search within the data of a user."
    assert await found.handler({"query": "tea"}, a_context()) == "tea of guest"
    assert await found.handler({"query": "tea"}, a_context(user_id="ana")) == "tea of ana"
    schema = Draft202012Validator(manifest_schema())
    assert list(schema.iter_errors(read_yaml(tmp_path / "signoff.yaml").data)) == []
    assert list(schema.iter_errors({"version": 1, "tools": {"search": {"scope": "generalist"}}})) != []


@pytest.mark.row("F16")
async def test_single_factory_makes_handlers_of_several_tools(tmp_path: Path) -> None:
    (tmp_path / "factories.py").write_text(FACTORIES)
    text = PER_CALL.replace("user_tool", "several")
    sections = [text, *(text.partition("tools:\n")[2].replace("user_search", name) for name in ("user_count", "odd"))]
    (tmp_path / "signoff.yaml").write_text("".join(sections))
    registry = load_manifest(tmp_path / "signoff.yaml").registry
    search, count, odd = (some(registry.resolve(name)) for name in ("user_search", "user_count", "odd"))
    assert await search.handler({"query": "tea"}, a_context(user_id="ana")) == "tea of ana"
    assert await count.handler({}, a_context(user_id="ana")) == 3
    with pytest.raises(TypeError, match="the `per_call` result for this call is no function"):
        await odd.handler({}, a_context())
    other = per_call(lambda context: {"search": search.handler, "count": count.handler}, "user_search")
    with pytest.raises(TypeError, match="has no handler `user_search`, only `search`, `count`"):
        await other({}, a_context())


@table(
    ("old", "new", "words"),
    ("    per_call", "    handler: factories:kept\n    per_call", ":3: tool `user_search` has both `handler` and"),
    ("    per_call: factories:user_tool\n", "", ":3: `handler` of tool `user_search` is missing, or `per_call`"),
    ("user_tool", "late", ":4: tool `user_search` needs `per_call` to be `def .context.`, but it is `async def`"),
    ("user_tool", "other", ":4: .* but it does not take `.context.`; slow work belongs in its handler"),
    ("user_tool", "nobody", ":4: `per_call` of tool `user_search`: "),
    ("    parameters: {type: object, properties: {query: {type: string}}}\n", "", ":4: .* give its `input_schema`"),
)
def test_invalid_factory_is_an_error_with_its_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    (tmp_path / "factories.py").write_text(FACTORIES)
    (tmp_path / "signoff.yaml").write_text(PER_CALL.replace(old, new, 1))
    with pytest.raises(ConfigError, match=words):
        load_manifest(tmp_path / "signoff.yaml")
    with pytest.raises(ConfigError, match="a tool needs `per_call` to be"):
        per_call(lambda: None)  # type: ignore[arg-type, misc]
