"""The sections of an actor's own tools, routes and steps in the manifest."""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from signoff.contracts.errors import ConfigError
from signoff.formats.yaml_file import Place, YamlFile
from signoff.formats.yaml_section import read_section
from signoff.registry.hooks import Select
from signoff.registry.import_reference import load_reference
from signoff.registry.manifest.sections import (
    ActorSection,
    LevelSection,
    RouteSection,
    StepSection,
    UseSection,
)
from signoff.registry.manifest.tool_section import OwnToolSection
from signoff.registry.scopes.route import LayerMode, ListedTool, Route, Step, ToolUse
from signoff.registry.tool import Tool

ReadTool = Callable[[Place, str, Any], Tool]
"""How one tool is read: its place in the file, its name, its section."""

# In both spellings: they are taken out of what stands in the file, before aliases are read.
_OF_USE = ("loosens", "min_step", "minStep")
_SELECT = "select"


class ScopeFields(TypedDict):
    """The fields of an `Actor` that this module reads."""

    own_tools: tuple[ToolUse, ...]
    routes: tuple[Route, ...]
    select: Select | None
    route_select: Select | None


class _Level(TypedDict):
    name: str
    description: str
    tools: tuple[ListedTool, ...]
    mode: LayerMode
    tool_filter: str
    tool_filter_reason: str
    select: Select | None


def read_scopes(file: YamlFile, place: Place, section: ActorSection, tool: ReadTool) -> ScopeFields:
    """Reads the scopes of the actor at `place`. Raises `ConfigError` with file and line."""
    declared, where = dict(section.routes), (*place, "routes")
    select = declared.pop(_SELECT, None)
    if _SELECT in section.routes and not isinstance(select, str):
        why = "`select` in `routes` is `module:function`, which chooses routes; a route has another name"
        raise file.error((*where, _SELECT), why, field=_SELECT)
    routes = (_route(file, (*where, name), name, data, tool) for name, data in declared.items())
    return {
        "own_tools": _own(file, (*place, "own_tools"), section.own_tools, tool),
        "routes": tuple(routes),
        "select": _select(file, place, section.select),
        "route_select": _select(file, where, select),
    }


def _route(file: YamlFile, place: Place, name: str, data: Any, tool: ReadTool) -> Route:
    section = read_section(file, place, RouteSection, data, f"route `{name}`")
    steps = (_step(file, (*place, "steps", step), step, each, tool) for step, each in section.steps.items())
    return Route(**_level(file, place, name, section, tool), steps=tuple(steps))


def _step(file: YamlFile, place: Place, name: str, data: Any, tool: ReadTool) -> Step:
    section = read_section(file, place, StepSection, data, f"step `{name}`")
    level = _level(file, place, name, section, tool)
    return Step(**level, requires=tuple(section.requires), collect=section.collect)


def _level(file: YamlFile, place: Place, name: str, section: LevelSection, tool: ReadTool) -> _Level:
    return {
        "name": name,
        "description": section.description,
        "tools": (
            # Own tools first, in the order in which the model sees them: at a step they are the nearer layer.
            *_own(file, (*place, "own_tools"), section.own_tools, tool),
            *(_use(file, (*place, "tools", index), each) for index, each in enumerate(section.tools)),
        ),
        "mode": section.mode,
        "tool_filter": section.tool_filter,
        "tool_filter_reason": section.tool_filter_reason,
        "select": _select(file, place, section.select),
    }


def _select(file: YamlFile, place: Place, reference: str | None) -> Select | None:
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
    return ToolUse(tool=section.name, optional=section.optional, min_step=section.min_step, loosens=section.loosens)


def _own(file: YamlFile, place: Place, given: Mapping[str, Any], tool: ReadTool) -> tuple[ToolUse, ...]:
    return tuple(_own_tool(file, (*place, name), name, data, tool) for name, data in given.items())


def _own_tool(file: YamlFile, place: Place, name: str, data: Any, tool: ReadTool) -> ToolUse:
    """Returns one own tool: a tool's section, and beside it what a `ToolUse` says of it."""
    if not isinstance(data, Mapping):
        raise file.error(place, f"tool `{name}` must be a mapping of keys and values")
    # Reducers are kept by the name of a registered tool: it would shorten another tool's results, or nobody's.
    if "reducer" in data:
        raise file.error((*place, "reducer"), f"own tool `{name}` has a `reducer`; only those of `tools` have one")
    section = dict(read_section(file, place, OwnToolSection, data, f"tool `{name}`"))
    # The tool's section is closed, and would refuse what is said of its use.
    declared = tool(place, name, {key: value for key, value in data.items() if key not in _OF_USE})
    return ToolUse(tool=declared, min_step=section["min_step"], loosens=section["loosens"])
