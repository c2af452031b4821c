"""The manifest: actors, tools, people and policies as one YAML file, composed over code (V04)."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, cast, get_type_hints

from pydantic import ValidationError

from signoff.contracts.activity_messages import TurnLimits
from signoff.contracts.errors import ConfigError
from signoff.contracts.names import RESPOND
from signoff.contracts.person import Person
from signoff.contracts.usage import UsageLimit
from signoff.formats.yaml_file import Place, YamlFile
from signoff.formats.yaml_section import Section, check_keys, read_section
from signoff.people.directory import Directory
from signoff.people.people_file import FileDirectory, read_people
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Actor, Surface
from signoff.registry.capabilities import Capabilities
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.function import ToolFields, from_function
from signoff.registry.import_reference import extend_path, load_reference
from signoff.registry.manifest.channel_sections import read_channels
from signoff.registry.manifest.destination_sections import read_distribution, read_filters
from signoff.registry.manifest.folder_reader import read_manifest
from signoff.registry.manifest.scope_sections import read_scopes
from signoff.registry.manifest.sections import ActorSection, Defaults, LimitsSection, ToolSection, Top
from signoff.registry.results.reducers import ReducerRegistry, named_reducer
from signoff.registry.tool import BypassRouting, Tool
from signoff.registry.tool_context import ToolContext

_TUPLES: Final = ("tags", "secrets", "fallbacks", "tenants", "updates")
_FUNCTIONS: Final = ("probe", "available", "check_permissions")
_OWN: Final = ("handler", "name", "input_schema", "capabilities", "reducer", "filters", *_FUNCTIONS)
"""Keys that are not simply handed to the tool."""


def load_manifest(path: str | os.PathLike[str]) -> Catalog:
    """Read a manifest, a file or a folder, and everything it names.

    Raises `ConfigError` of one sentence: file, line, what is wrong.
    """
    file, folder = read_manifest(Path(path), str(path))
    if not isinstance(file.data, Mapping):
        raise file.error((), "a manifest is a mapping that begins with `version: 1`")
    # Before any key is judged: without it this may be no manifest at all, and its first key says nothing of that.
    if "version" not in file.data:
        raise file.error((), "`version` is missing; begin with `version: 1`", field="version")
    top = read_section(file, (), Top, file.data, "the manifest")
    try:
        return _catalog(file, folder, top)
    except ConfigError as error:
        raise _located(file, error) from error


def _catalog(file: YamlFile, folder: Path, top: Top) -> Catalog:
    # Before tools and actors are read: reading them imports their handlers.
    extend_path((folder / each).resolve() for each in top.path)
    defaults = read_section(file, ("defaults",), Defaults, top.defaults, "`defaults`")
    return build_catalog(
        tools=[_tool(file, ("tools", name), name, data) for name, data in top.tools.items()],
        actors=[_actor(file, name, data, defaults.model) for name, data in top.actors.items()],
        policies=[_rule(file, index, data) for index, data in enumerate(top.policies)],
        default_approvers=defaults.approvers,
        people=_people(file, folder, top.people),
        context=top.context,
        part_types=top.part_types,
        reducers=_reducers(file, top.tools),
        **read_distribution(file, top),
        **read_channels(file, top),
    )


def _reducers(file: YamlFile, tools: Mapping[str, Any]) -> ReducerRegistry:
    found = ReducerRegistry()
    for name, data in tools.items():
        reference = data.get("reducer")
        try:
            if reference is not None:
                found.register(name, named_reducer(reference))
        except ConfigError as error:
            where = f"`reducer` of tool `{name}`: {error.message}"
            raise file.error(("tools", name, "reducer"), where, **error.context | {"field": "reducer"}) from error
    return found


def _people(file: YamlFile, folder: Path, given: list[Any] | str) -> Directory | tuple[Person, ...]:
    return FileDirectory(folder / given) if isinstance(given, str) else read_people(file, ("people",), given)


def _actor(file: YamlFile, name: str, data: Any, default_model: str) -> Actor:
    place = ("actors", name)
    section = read_section(file, place, ActorSection, data, f"actor `{name}`")
    limits = read_section(file, (*place, "limits"), LimitsSection, section.limits, f"`limits` of actor `{name}`")
    return Actor(
        name=name,
        model=section.model or default_model,
        description=section.description,
        instructions=section.instructions,
        tools=None if section.tools is None else tuple(section.tools),
        toolset=section.toolset,
        allowed_plugins=None if section.allowed_plugins is None else tuple(section.allowed_plugins),
        allowed_mcp_servers=None if section.allowed_mcp_servers is None else tuple(section.allowed_mcp_servers),
        allowed_mcp_tools=None
        if section.allowed_mcp_tools is None
        else {server: tuple(names) for server, names in section.allowed_mcp_tools.items()},
        read_rest=section.read_rest,
        surfaces={channel: Surface(exclude=tuple(each.exclude)) for channel, each in section.surfaces.items()},
        mode=section.mode,
        on_failure=section.on_failure,
        domain_data=section.domain_data,
        domain_merge=section.domain_merge,
        # What is not given is left out, so that defaults stand in one place.
        limits=TurnLimits(**_given(limits)),
        model_settings=section.model_settings,
        tags=tuple(section.tags),
        shadowing=section.shadowing,
        **read_scopes(file, place, section, partial(_tool, file)),
    )


def _rule(file: YamlFile, index: int, data: Any) -> GlobalRule:
    place = ("policies", index)
    if isinstance(data, Mapping):
        # First with our own words: the nearest key and its line say more than what pydantic tells of it.
        check_keys(file, place, GlobalRule, data, "a rule of `policies`")
    try:
        return GlobalRule.model_validate(data)
    except ConfigError as error:
        field = str(error.context.get("field", ""))
        raise file.error((*place, field), f"a rule of `policies`: {error.message}", **error.context) from None
    except ValidationError:
        raise file.error(place, "a rule of `policies` is a mapping with `name`, `rule` and `effect`") from None


def _tool(file: YamlFile, place: Place, name: str, data: Any) -> Tool:
    section = read_section(file, place, ToolSection, data, f"tool `{name}`")
    # Below, `key` is the word that was written: the line is looked up by it.
    if section.name is not None and section.name.casefold() == RESPOND:
        key = "name" if "name" in data else "id"
        raise file.error((*place, key), f"`{section.name}` is a reserved name: every actor has `respond` by itself")
    if section.name not in (None, name):
        key = "name" if "name" in data else "id"
        raise file.error((*place, key), f"tool `{name}` calls itself `{section.name}`; drop `{key}` or rename the tool")
    fields = _fields(file, place, name, section)
    target = _loaded(file, place, name, "handler", section.handler)
    for key in _FUNCTIONS:
        reference = dict(section)[key]
        if reference is not None:
            fields[key] = _loaded(file, place, name, key, reference)
    try:
        return _declared(target, name, section, fields)
    except ConfigError as error:
        raise file.error((*place, str(error.context.get("field", ""))), error.message, **error.context) from None


def _loaded(file: YamlFile, place: Place, name: str, key: str, reference: str) -> Any:
    try:
        return load_reference(reference)
    except ConfigError as error:
        where = f"`{key}` of tool `{name}`: {error.message}{_where_to_look(reference, error.__cause__)}"
        raise file.error((*place, key), where, **error.context | {"field": key}) from error


def _where_to_look(reference: str, why: BaseException | None) -> str:
    """The remedy where the package itself is not found."""
    package = reference.partition(":")[0].partition(".")[0]
    lost = isinstance(why, ModuleNotFoundError) and why.name == package
    return "; add the folder it lies in to `path`" if lost else ""


def _fields(file: YamlFile, place: Place, name: str, section: ToolSection) -> dict[str, Any]:
    fields = {key: value for key, value in _given(section).items() if key not in _OWN}
    for key in _TUPLES:
        if key in fields:
            # A `Tool` is frozen, and its checks refuse lists: one could be changed after it was hashed.
            fields[key] = tuple(fields[key])
    if section.bypass_routing is not None:
        fields["bypass_routing"] = BypassRouting(section.bypass_routing.reason)
    if section.capabilities is not None:
        fields["capabilities"] = Capabilities(**_tuples(section.capabilities))
    if section.hours is not None:
        fields["hours"] = (section.hours,) if isinstance(section.hours, str) else tuple(section.hours)
    if section.usage_limit is not None:
        fields["usage_limit"] = UsageLimit(**dict(section.usage_limit))
    if section.filters is not None:
        fields["filters"] = read_filters(file, place, name, section.filters)
    if isinstance(section.requires_approval, dict):
        inner: Place = (*place, "requires_approval")
        check_keys(file, inner, ApprovalPolicy, section.requires_approval, f"`requires_approval` of tool `{name}`")
        try:
            fields["requires_approval"] = ApprovalPolicy.model_validate(section.requires_approval)
        except ConfigError as error:
            inner = (*inner, *str(error.context.get("field", "")).split("."))
            raise file.error(inner, f"`requires_approval` of tool `{name}`: {error.message}", **error.context) from None
    return {**fields, "name": name, "site": ":".join(map(str, file.where(place)))}


def _declared(target: Any, name: str, section: ToolSection, fields: dict[str, Any]) -> Tool:
    if isinstance(target, Tool):
        return _overridden(target, name, section, fields)
    # Only a function lacks one; a tool declared in code brings its own, which the manifest may leave alone.
    if section.scope is None:
        raise ConfigError(f"tool `{name}` needs `scope`: `generalist` or `specialist`", tool_name=name, field="scope")
    if not callable(target):
        raise ConfigError(
            f"`handler` of tool `{name}` is neither a function nor a tool", tool_name=name, field="handler"
        )
    if section.input_schema is None:
        # Read as a signature it would be a tool with one argument called `args`, which no handler like this means.
        if _is_raw(target):
            raise ConfigError(
                f"`handler` of tool `{name}` takes `(args, context)`; give its `input_schema`, or name its arguments",
                tool_name=name,
                field="handler",
            )
        return from_function(target, **cast(ToolFields, fields))
    words = {"description": (inspect.getdoc(target) or "").partition("\n\n")[0]}
    return Tool(handler=target, input_schema=section.input_schema, **{**words, **fields})


def _overridden(target: Tool, name: str, section: ToolSection, fields: dict[str, Any]) -> Tool:
    if target.name != name:
        raise ConfigError(
            f"tool `{name}` has a handler that is the tool `{target.name}`; use that name",
            tool_name=name,
            field="handler",
        )
    # The values that a function is given are made by its own signature: another schema would check one thing and
    # run another.
    if section.input_schema is not None and section.input_schema != dict(target.input_schema):
        raise ConfigError(
            f"tool `{name}` has an `input_schema` here and another one in code; keep one",
            tool_name=name,
            field="input_schema",
        )
    return dataclasses.replace(target, **fields)


def _is_raw(function: Callable[..., Any]) -> bool:
    """Whether a function looks like `(args, context)` rather than one parameter an argument."""
    try:
        names = list(inspect.signature(function).parameters)
        hints = get_type_hints(function)
    # Whatever its annotations raise when they are evaluated: `from_function` tells of that with a remedy.
    except Exception:
        return False
    return len(names) == 2 and names[0] == "args" and hints.get(names[1], ToolContext) is ToolContext


def _given(section: Section) -> dict[str, Any]:
    return {key: value for key, value in section if value is not None}


def _tuples(section: Section) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in section}


def _located(file: YamlFile, error: ConfigError) -> ConfigError:
    """The error with the file and line it is about, unless it has them."""
    if "file" in error.context:
        return error
    # The file and line in front say where; the place of the declaration in code would say it again.
    message = error.message.removesuffix(str(error.context.get("site", "")))
    return file.error(_place(file.data, error), message, **error.context)


def _place(data: Mapping[str, Any], error: ConfigError) -> Place:
    context = error.context
    field = str(context.get("field", ""))
    rules = [each.get("name") for each in data.get("policies") or () if isinstance(each, Mapping)]
    if context.get("tool_name"):
        # Errors of a policy name its bare field. A name that tools have too, such as `timeout`, is the tool's.
        of_policy = field.split(".")[0] in ApprovalPolicy.model_fields.keys() - ToolSection.model_fields.keys()
        return ("tools", str(context["tool_name"]), *(("requires_approval",) if of_policy else ()), *field.split("."))
    if context.get("actor"):
        place: Place = ("actors", str(context["actor"]), *field.split("."))
        listed = data["actors"][context["actor"]].get("tools") if field == "tools" else None
        return (*place, listed.index(context["value"])) if listed and context.get("value") in listed else place
    if field in rules:
        return ("policies", rules.index(field), "rule")
    if field.startswith("context."):
        return ("context", field.removeprefix("context."))
    return ("defaults", "approvers") if field == "default_approvers" else tuple(field.split("."))
