"""The sections of an actor's own tools, routes and steps in the manifest."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict

from pydantic import Field

from signoff.contracts.errors import ConfigError
from signoff.formats.record_section import RecordSection, record_fields, record_section
from signoff.formats.yaml_file import Place, YamlFile
from signoff.formats.yaml_section import read_section
from signoff.registry.actor import ListedTool, Route, Step, ToolUse
from signoff.registry.hooks import Select
from signoff.registry.import_reference import load_reference
from signoff.registry.manifest.tool_section import OwnToolSection
from signoff.registry.tool import Tool

ReadTool = Callable[[Place, str, Any], Tool]
"""Reads one tool: its place in the file, its name, its section."""

# In both spellings: they are removed from the file's data before aliases are resolved.
_OF_USE = ("loosens", "min_step", "minStep")
_SELECT = "select"
_OWN: Final[Any] = (dict[str, Any], Field({}, description="Tools of this place alone, by name."))

RouteSection: Final = record_section(Route, own_tools=_OWN)
StepSection: Final = record_section(Step, own_tools=_OWN)
UseSection: Final = record_section(ToolUse, name=(str, Field(description="The tool's name.")))


class ScopeFields(TypedDict):
    """The fields of an `Actor` that this module reads."""

    own_tools: tuple[ToolUse, ...]
    routes: tuple[Route, ...]
    select: Select | None
    route_select: Select | None


def read_scopes(file: YamlFile, place: Place, given: Mapping[str, Any], tool: ReadTool) -> ScopeFields:
    """Raises `ConfigError` with file and line."""
    declared, where = dict(given["routes"]), (*place, "routes")
    select = declared.pop(_SELECT, None)
    if _SELECT in given["routes"] and isinstance(select, Mapping | list | int | float | None):
        why = "`select` in `routes` is `module:function`, which chooses routes; a route has another name"
        raise file.error((*where, _SELECT), why, field=_SELECT)
    routes = (_route(file, (*where, name), name, data, tool) for name, data in declared.items())
    return {
        "own_tools": _own(file, (*place, "own_tools"), given["own_tools"], tool),
        "routes": tuple(routes),
        "select": _select(file, place, given["select"]),
        "route_select": _select(file, where, select),
    }


def _route(file: YamlFile, place: Place, name: str, data: Any, tool: ReadTool) -> Route:
    given = _level(file, place, name, read_section(file, place, RouteSection, data, f"route `{name}`"), tool)
    steps = (_step(file, (*place, "steps", step), step, each, tool) for step, each in given["steps"].items())
    return Route(**given | {"steps": tuple(steps)})


def _step(file: YamlFile, place: Place, name: str, data: Any, tool: ReadTool) -> Step:
    return Step(**_level(file, place, name, read_section(file, place, StepSection, data, f"step `{name}`"), tool))


def _level(file: YamlFile, place: Place, name: str, section: RecordSection, tool: ReadTool) -> dict[str, Any]:
    given = record_fields(section)
    tools = (
        # Own tools first, in the model's order: at a step they are the nearer layer.
        *_own(file, (*place, "own_tools"), dict(section)["own_tools"], tool),
        *(_use(file, (*place, "tools", index), each) for index, each in enumerate(given["tools"])),
    )
    return given | {"name": name, "tools": tools, "select": _select(file, place, given["select"])}


def _select(file: YamlFile, place: Place, reference: object) -> Select | None:
    try:
        found: Select | None = None if reference is None else load_reference(reference)
    except ConfigError as error:
        raise file.error(
            (*place, "select"), f"`select`: {error.message}", **error.context | {"field": "select"}
        ) from error
    return found


def _use(file: YamlFile, place: Place, data: Any) -> ListedTool:
    if isinstance(data, str):
        return data
    section = read_section(file, place, UseSection, data, "an entry of `tools`")
    return ToolUse(tool=dict(section)["name"], **record_fields(section))


def _own(file: YamlFile, place: Place, given: Mapping[str, Any], tool: ReadTool) -> tuple[ToolUse, ...]:
    return tuple(_own_tool(file, (*place, name), name, data, tool) for name, data in given.items())


def _own_tool(file: YamlFile, place: Place, name: str, data: Any, tool: ReadTool) -> ToolUse:
    """An own tool is a tool's section with the additional keys of a `ToolUse`."""
    if not isinstance(data, Mapping):
        raise file.error(place, f"tool `{name}` must be a mapping of keys and values")
    # Reducers are stored by the name of a registered tool: this one would shorten another tool's results, or none.
    if "reducer" in data:
        raise file.error((*place, "reducer"), f"own tool `{name}` has a `reducer`; only those of `tools` have one")
    section = dict(read_section(file, place, OwnToolSection, data, f"tool `{name}`"))
    # The tool's section is closed and would reject the keys of its use.
    declared = tool(place, name, {key: value for key, value in data.items() if key not in _OF_USE})
    return ToolUse(tool=declared, min_step=section["min_step"], loosens=section["loosens"])
