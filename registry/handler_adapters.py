"""Adapters for handlers of other designs. The author chooses one. Nothing is detected."""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast, get_args

from signoff.contracts.errors import ConfigError
from signoff.registry.hooks import HANDLER, PER_CALL, Handler, HandlerFactory
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import FailureCode, Result, ToolFailure, ToolResult

_CODES: Final = get_args(FailureCode)


def context_first(handler: Callable[[ToolContext, dict[str, Any]], Awaitable[Any]]) -> Handler:
    """Adapt a handler that takes `(context, args)` instead of `(args, context)`."""

    @functools.wraps(handler)
    async def run(args: dict[str, Any], context: ToolContext) -> Any:
        return await handler(context, args)

    return _unwrap(run)


def per_call(factory: HandlerFactory, tool: str = "") -> Handler:
    """Make a handler from a factory `(context)` that makes the handler of one call, for example of its user.

    A factory of several tools returns their handlers by name. `tool` is the name of the handler to run. Raises
    `ConfigError` for a function of another form.
    """
    objection = PER_CALL.objection(factory)
    if objection:
        raise ConfigError(f"a tool {objection}", field=PER_CALL.field)

    @functools.wraps(factory)
    async def run(args: dict[str, Any], context: ToolContext) -> Any:
        # Make it for each call: a cached one would serve the next person with this person's context.
        return await _made_for(factory(context), tool)(args, context)

    return _unwrap(run)


def _made_for(made: Handler | Mapping[str, Handler], tool: str) -> Handler:
    """Raises `TypeError`."""
    handler: object = made
    if isinstance(made, Mapping):
        handler = made.get(tool)
        if handler is None:
            names = ", ".join(f"`{each}`" for each in made)
            raise TypeError(f"the `per_call` result for this call has no handler `{tool}`, only {names or 'none'}")
    flaw = HANDLER.problem(handler)
    if flaw:
        raise TypeError(f"the `per_call` result for this call {flaw}")
    return cast(Handler, handler)


def ok_results(handler: Handler) -> Handler:
    """Adapt a handler that returns `{ok: true, value, structured?, cost_usd?}` or `{ok: false, code, error}`."""

    @functools.wraps(handler)
    async def run(args: dict[str, Any], context: ToolContext) -> Result:
        return from_ok(await handler(args, context))

    return _unwrap(run)


def success_results(handler: Handler) -> Handler:
    """Adapt a handler of results `{data?, success?, error?, dataUpdate?, meta?, next?}`.

    Also reads `contextUpdate`. Any value except a mapping is data. `success` is true unless it is exactly false. A
    failed call keeps its data and updates.
    """

    @functools.wraps(handler)
    async def run(args: dict[str, Any], context: ToolContext) -> Result:
        return from_success(await handler(args, context))

    return _unwrap(run)


def from_ok(value: Any) -> Result:
    """Convert an `{ok, ...}` result. A result without `ok` is a failure: the handler breaks its declared form."""
    # Only a boolean: the text `false` is true in Python, and a failure would pass for success.
    if not isinstance(value, Mapping) or not isinstance(value.get("ok"), bool):
        return ToolFailure("the tool returned no `{ok, ...}` result, though it had run")
    if value["ok"]:
        return ToolResult(value.get("value", ""), value.get("structured"), value.get("cost_usd", 0.0))
    code, error = value.get("code", "execution_failed"), str(value.get("error") or "the tool failed")
    # An unknown code moves into the text of the failure.
    return ToolFailure(error, code) if code in _CODES else ToolFailure(f"{code}: {error}")


def from_success(value: Any) -> Result:
    """Convert a `{data, success, error, ...}` result. Any value except a mapping is data.

    `success` is true unless it is exactly false. A failed call keeps its data and updates.
    """
    if not isinstance(value, Mapping):
        return ToolResult(value)
    words = (("data_update", "dataUpdate"), ("context_update", "contextUpdate"), ("meta", "meta"))
    beside: dict[str, Any] = {name: value.get(word) for name, word in words} | {"next": value.get("next") or ""}
    if value.get("success") is False:
        return ToolFailure(str(value.get("error") or "the tool failed"), value=value.get("data"), **beside)
    return ToolResult(value.get("data"), **beside)


def _unwrap(run: Handler) -> Handler:
    # With it, the signature check would see the inner handler's signature.
    vars(run).pop("__wrapped__", None)
    return run


async def run_elsewhere(args: dict[str, Any], context: ToolContext) -> Any:
    """Raise an error: the proposing agent runs the calls of a tool with `runs: external`."""
    raise ConfigError("this tool is run by the agent that proposes its calls", field="runs")
