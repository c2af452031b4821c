"""Handlers and results of other designs, taken over by name and never by their looks."""

from typing import Any

import pytest
from registry_kit import a_context, a_tool

from signoff.registry.adapters import context_first, from_ok, from_success, ok_results, success_results
from signoff.registry.context import ToolContext
from signoff.registry.registry import ToolRegistry
from signoff.registry.result import ToolFailure, ToolResult


@pytest.mark.row("X19")
async def test_a_handler_that_takes_its_context_first_is_adapted() -> None:
    """It registers as any other, keeps its name, and gets what it expects."""

    async def old(context: ToolContext, args: dict[str, Any]) -> str:
        return f"{context.call_id} {args['flight']}"

    handler = context_first(old)
    ToolRegistry([a_tool(handler=handler)])
    assert await handler({"flight": "AZ1"}, a_context()) == "c1.1 AZ1"
    assert repr(handler).split()[1].endswith("old")


@pytest.mark.row("E08")
@pytest.mark.row("X14")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
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
    ],
)
async def test_results_with_ok_are_adapted(given: Any, expected: Any) -> None:
    """Value, data and cost, or code and words; a code that no outcome has is told in the words."""

    async def old(args: dict[str, Any], context: ToolContext) -> Any:
        return given

    assert from_ok(given) == expected
    assert await ok_results(old)({}, a_context()) == expected


@pytest.mark.row("X14")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"data": 3}, ToolResult(3)),
        ({"data": 3, "success": True}, ToolResult(3)),
        ({"success": None, "error": "odd"}, ToolResult(None)),
        (
            {"data": 3, "dataUpdate": {"a": 1}, "contextUpdate": {"b": 2}},
            ToolResult(3, data_update={"a": 1}, context_update={"b": 2}),
        ),
        ({"success": False, "error": "no", "data": 3, "dataUpdate": {"a": 1}}, ToolFailure("no")),
        ({"success": False}, ToolFailure("the tool failed")),
        ([1], ToolResult([1])),
    ],
)
async def test_results_with_success_are_adapted(given: Any, expected: Any) -> None:
    """`success` is true unless it is exactly false; what is no mapping is data."""

    async def old(args: dict[str, Any], context: ToolContext) -> Any:
        return given

    assert from_success(given) == expected
    assert await success_results(old)({}, a_context()) == expected
