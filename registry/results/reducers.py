"""Reducers shorten the results of one tool for the model, after it ran and before anything is cut (E21)."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.contracts.ids import is_tool_name
from signoff.registry.hooks import Hook
from signoff.registry.import_reference import load_reference
from signoff.registry.results.built_in_reducers import kanban_list, read_file, terminal
from signoff.registry.results.tool_result import ReducerInput, Result, ToolFailure, ToolResult

logger = logging.getLogger("signoff.registry")

Reducer: TypeAlias = Callable[[Result, ReducerInput], Result]
"""Synchronous and deterministic; no model is asked and nothing is read or written (E39).

It is given the result as the model would read it (`value` is text) and returns one of the same class. Only its text
is taken over: structured data and cost stay what the tool said.
"""

REDUCER: Final = Hook[Result](field="reducer", takes=("result", "given"), style="plain")
BUILT_IN: Final[Mapping[str, Reducer]] = MappingProxyType(
    {"terminal": terminal, "read_file": read_file, "kanban_list": kanban_list}
)


@dataclass(frozen=True)
class ReducerEntry:
    """One entry of a `ReducerRegistry`. Two entries are the same only if they are one object."""

    registry: "ReducerRegistry"
    tool: str
    reducer: Reducer

    def unregister(self) -> None:
        """Removes this very entry; a later one under the same name stays (N16). Again, it does nothing."""
        self.registry.forget(self)


class ReducerRegistry:
    """Holds reducers by the exact name of their tool, filled before a catalog is built; the catalog keeps a copy."""

    def __init__(self) -> None:
        self._entries: dict[str, ReducerEntry] = {}

    def register(self, tool: str, reducer: Reducer) -> ReducerEntry:
        """Adds the reducer of `tool`. Raises `RegistrationError` for a second one, and for what is no function."""
        if not is_tool_name(tool):
            raise _refuse(tool, f"`{tool}` is no tool's name")
        if tool in self._entries:
            raise _refuse(tool, f"Reducer already registered for tool '{tool}'")
        _check(tool, reducer)
        self._entries[tool] = ReducerEntry(self, tool, reducer)
        return self._entries[tool]

    def forget(self, entry: ReducerEntry) -> None:
        """Removes `entry` if it is still the one under its name."""
        if self._entries.get(entry.tool) is entry:
            del self._entries[entry.tool]

    def get(self, tool: str) -> Reducer | None:
        """Returns the reducer of the tool of exactly this name, or None."""
        entry = self._entries.get(tool)
        return None if entry is None else entry.reducer

    def snapshot(self) -> Mapping[str, Reducer]:
        """Copies the present reducers by name; the mapping does not change any more."""
        return MappingProxyType({name: entry.reducer for name, entry in self._entries.items()})


def reduce_result(reducer: Reducer | None, result: Result, given: ReducerInput) -> Result:
    """Returns `result` with the text that the reducer makes of it; one that fails changes nothing. Never raises."""
    if reducer is None:
        return result
    try:
        answer: object = reducer(result, given)
    # The effect has happened: neither a mistake of a reducer nor a library that exits may take its result away.
    except (Exception, SystemExit) as error:
        # The name alone: the words of an error may quote the result.
        logger.warning("the reducer of a result failed: %s", type(error).__name__)
        return result
    if isinstance(result, ToolResult) and isinstance(answer, ToolResult) and isinstance(answer.value, str):
        return replace(result, value=answer.value)
    if isinstance(result, ToolFailure) and isinstance(answer, ToolFailure) and isinstance(answer.message, str):
        return replace(result, message=answer.message)
    logger.warning("the reducer of a result returned a %s: the result stays as it is", type(answer).__name__)
    return result


def named_reducer(name: str) -> Reducer:
    """Returns the reducer that the manifest calls `name`, built in or `module:function`. Raises `ConfigError`."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if ":" not in name:
        known = ", ".join(f"`{each}`" for each in BUILT_IN)
        raise ConfigError(f"`{name}` is neither {known} nor `module:function`", field="reducer", value=name)
    reducer: Any = load_reference(name)
    return reducer  # type: ignore[no-any-return]


def _check(tool: str, reducer: Any) -> None:
    objection = REDUCER.objection(reducer)
    if objection:
        raise _refuse(tool, f"tool `{tool}` {objection}")


def _refuse(tool: str, why: str) -> RegistrationError:
    return RegistrationError(why, tool_name=tool, field="reducer", value=tool)
