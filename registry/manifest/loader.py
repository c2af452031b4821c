"""Loads the manifest: actors, tools, people and policies in YAML, composed over code."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, get_type_hints

from pydantic import ValidationError

from signoff.contracts.errors import ConfigError
from signoff.contracts.names import RESPOND
from signoff.contracts.person import Person
from signoff.formats.declared_fields import declared_fields
from signoff.formats.record_section import RecordSection, record_fields, to_record
from signoff.formats.yaml_file import Place, YamlFile
from signoff.formats.yaml_section import check_keys, read_section
from signoff.people.directory import Directory
from signoff.people.people_file import FileDirectory, read_people
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.function import is_context_type, tool_from_function
from signoff.registry.handler_adapters import per_call, run_elsewhere
from signoff.registry.hooks import PER_CALL, Handler
from signoff.registry.import_reference import extend_path, load_reference
from signoff.registry.manifest.channel_sections import read_channels
from signoff.registry.manifest.destination_sections import read_distribution, read_filters
from signoff.registry.manifest.folder_reader import read_manifest
from signoff.registry.manifest.mappings import read_policies
from signoff.registry.manifest.on_call_sections import read_on_call
from signoff.registry.manifest.scope_sections import read_scopes
from signoff.registry.manifest.sections import (
    ActorSection,
    Defaults,
    InsightsSection,
    LimitsSection,
    ManifestSection,
)
from signoff.registry.manifest.server_sections import ServerFields, add_server_tools, read_servers
from signoff.registry.manifest.subscription_sections import read_subscriptions
from signoff.registry.manifest.tool_section import HANDLERS, ToolSection
from signoff.registry.mcp.tool_server import ToolServer, build_servers
from signoff.registry.results.reducers import ReducerRegistry, ToolReducer, named_reducer
from signoff.registry.tool import Tool, declared_at
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_fields import id_and_title

_READ_HERE: Final = ("handler", "per_call", "name", "input_schema", "reducer", "requires_approval")
"""Keys that the tool does not get unchanged."""


def load_manifest(path: str | os.PathLike[str]) -> Catalog:
    """Read a manifest, a file or a directory, and return its catalog.

    Reads everything that it refers to. Raises `ConfigError` of one sentence: file, line and problem.
    """
    return load_document(*read_document(path, str(path)))


def read_document(path: str | os.PathLike[str], name: str) -> tuple[YamlFile, Path]:
    """Read a manifest without its sections.

    Returns it and the base directory of its paths. `name` is its name in messages. Raises `ConfigError`.
    """
    file, folder = read_manifest(Path(path), name)
    if not isinstance(file.data, Mapping):
        raise file.error((), "a manifest is a mapping that begins with `version: 1`")
    # Check this before any key: without a version the file may not be a manifest at all.
    if "version" not in file.data:
        raise file.error((), "`version` is missing; begin with `version: 1`", field="version")
    return file, folder


def load_document(file: YamlFile, folder: Path, *, people: Directory | None = None) -> Catalog:
    """Build the catalog of a parsed manifest, or of a program's declarations in the same shape.

    `people` replaces the document's people. Raises `ConfigError` with file and line.
    """
    top = _sections(file)
    try:
        file, top, servers = add_server_tools(file, folder, top)
        return _catalog(file, folder, top, servers, people)
    except ConfigError as error:
        raise _locate(file, error) from error


def load_servers(path: str | os.PathLike[str]) -> tuple[Path, Mapping[str, ToolServer]]:
    """Read only the MCP servers of a manifest: actors may name tools that are not imported yet.

    Returns the base directory of imports and the servers by name. Raises `ConfigError`.
    """
    file, folder = read_document(path, str(path))
    top = _sections(file)
    try:
        return folder, build_servers(read_servers(file, folder, top)["mcp_servers"])
    except ConfigError as error:
        raise _locate(file, error) from error


def _sections(file: YamlFile) -> ManifestSection:
    return read_section(file, (), ManifestSection, file.data, "the manifest")


def _catalog(
    file: YamlFile, folder: Path, top: ManifestSection, servers: ServerFields, people: Directory | None
) -> Catalog:
    # Before tools and actors: reading them imports their handlers.
    extend_path((folder / each).resolve() for each in top.path)
    defaults = read_section(file, ("defaults",), Defaults, top.defaults, "`defaults`")
    return build_catalog(
        tools=[_tool(file, ("tools", name), name, data) for name, data in top.tools.items()],
        actors=[_actor(file, name, data, defaults.model) for name, data in top.actors.items()],
        policies=[_rule(file, index, data) for index, data in enumerate(top.policies)],
        default_approvers=defaults.approvers,
        people=_people(file, folder, top.people) if people is None else people,
        context=top.context,
        timezone=top.timezone,
        part_types=top.part_types,
        requires_peer_consumes=top.requires_peer_consumes,
        reducers=_reducers(file, top.tools),
        **read_distribution(file, top),
        **read_channels(file, top),
        **read_subscriptions(file, top),
        on_call=read_on_call(file, top.oncall),
        insights_by_person=read_section(file, ("insights",), InsightsSection, top.insights, "`insights`").by_person,
        **servers,
    )


def _reducers(file: YamlFile, tools: Mapping[str, Any]) -> ReducerRegistry:
    found = ReducerRegistry()
    for name, data in tools.items():
        reference = data.get("reducer")
        try:
            if reference is not None:
                found.register(ToolReducer(name, named_reducer(reference)))
        except ConfigError as error:
            where = f"`reducer` of tool `{name}`: {error.message}"
            raise file.error(("tools", name, "reducer"), where, **error.context | {"field": "reducer"}) from error
    return found


def _people(file: YamlFile, folder: Path, given: list[Any] | str) -> Directory | tuple[Person, ...]:
    return FileDirectory(folder / given) if isinstance(given, str) else read_people(file, ("people",), given)


def _actor(file: YamlFile, name: str, data: Any, default_model: str) -> Actor:
    place = ("actors", name)
    given = record_fields(read_section(file, place, ActorSection, data, f"actor `{name}`"))
    limits = read_section(file, (*place, "limits"), LimitsSection, given["limits"], f"`limits` of actor `{name}`")
    # An external agent has no model here, not even the default one.
    given["model"] = given["model"] or ("" if given["external"] is not None else default_model)
    given["limits"] = to_record(limits)
    return Actor(**given | {"name": name, **read_scopes(file, place, given, partial(_tool, file))})


def _rule(file: YamlFile, index: int, data: Any) -> GlobalRule:
    place = ("policies", index)
    if isinstance(data, Mapping):
        # Our own message first: the nearest key and its line help more than pydantic's text.
        check_keys(file, place, GlobalRule, data, "a rule of `policies`")
    try:
        return GlobalRule.model_validate(data)
    except ConfigError as error:
        field = str(error.context.get("field", ""))
        raise file.error((*place, field), f"a rule of `policies`: {error.message}", **error.context) from None
    except ValidationError:
        raise file.error(place, "a rule of `policies` is a mapping with `rule` and `effect`") from None


def _tool(file: YamlFile, place: Place, name: str, data: Any) -> Tool:
    data = id_and_title(data) if isinstance(data, Mapping) else data
    section = dict(read_section(file, place, ToolSection, data, f"tool `{name}`"))
    # Before any lookup in `data`, which may be null.
    given = [key for key in HANDLERS if section[key] is not None]
    external = section["runs"] == "external"
    if external and (given or section["input_schema"] is None):
        why = f"has a `{given[0]}`, which would never run; drop it" if given else "needs its `input_schema`"
        key = given[0] if given else "runs"
        raise file.error((*place, key), f"tool `{name}` is run by its agent and {why}", tool_name=name, field=key)
    if len(given) != 1 and not external:
        missing = f"`handler` of tool `{name}` is missing, or `per_call` in its place"
        why = f"tool `{name}` has both `handler` and `per_call`; keep one" if given else missing
        raise file.error(place, why, tool_name=name, field="handler")
    # From here on `key` is the spelling in the file: the line is found by it.
    own_name, key = section["name"], "name" if "name" in data else "id"
    if own_name is not None and own_name.casefold() == RESPOND:
        raise file.error((*place, key), f"`{own_name}` is a reserved name: every actor has `respond` by itself")
    if own_name not in (None, name):
        raise file.error((*place, key), f"tool `{name}` calls itself `{own_name}`; drop `{key}` or rename the tool")
    fields = {
        key: _value(file, place, name, key, value)
        for key, value in section.items()
        if value is not None and key not in _READ_HERE
    }
    fields |= {"name": name, "site": ":".join(map(str, file.where(place)))}
    fields |= read_policies(file, (*place, "requires_approval"), name, section["requires_approval"])
    target = run_elsewhere if external else _load(file, place, name, given[0], section[given[0]])
    try:
        if given == ["per_call"]:
            target = _of_call(target, name, section["input_schema"])
        return _declare(target, name, section["input_schema"], fields)
    except ConfigError as error:
        inner = (*place, str(error.context.get("field", "")))
        raise file.error(inner, _without_site(error), **error.context) from None


def _value(file: YamlFile, place: Place, name: str, key: str, value: Any) -> Any:
    if declared_fields(Tool)[key].function is not None:
        return _load(file, place, name, key, value)
    if key == "filters":
        return read_filters(file, place, name, value)
    if isinstance(value, RecordSection):
        return to_record(value)
    return value


def _load(file: YamlFile, place: Place, name: str, key: str, reference: str) -> Any:
    try:
        return load_reference(reference)
    except ConfigError as error:
        where = f"`{key}` of tool `{name}`: {error.message}{_where_to_look(reference, error.__cause__)}"
        raise file.error((*place, key), where, **error.context | {"field": key}) from error


def _where_to_look(reference: str, why: BaseException | None) -> str:
    package = reference.partition(":")[0].partition(".")[0]
    lost = isinstance(why, ModuleNotFoundError) and why.name == package
    return "; add its directory to `path`" if lost else ""


def _declare(target: Any, name: str, input_schema: Mapping[str, Any] | None, fields: dict[str, Any]) -> Tool:
    if isinstance(target, Tool):
        return _override(target, name, input_schema, fields)
    # Only a function lacks one; the manifest may leave the scope of a tool in code unchanged.
    if "scope" not in fields:
        why = "needs `scope`: `generalist`, the application's, or `specialist`, one actor's alone"
        raise ConfigError(f"tool `{name}` {why}", tool_name=name, field="scope")
    if not callable(target):
        raise ConfigError(
            f"`handler` of tool `{name}` is neither a function nor a tool", tool_name=name, field="handler"
        )
    if input_schema is None:
        # Read as a signature, it would be a tool with one argument `args`, which its author cannot mean.
        if _is_raw(target):
            raise ConfigError(
                f"`handler` of tool `{name}` takes `(args, context)`; give its `input_schema`, or name its arguments",
                tool_name=name,
                field="handler",
            )
        return tool_from_function(target, fields)
    own = "" if target is run_elsewhere else inspect.getdoc(target) or ""
    words = {"description": own.partition("\n\n")[0]}
    return Tool(handler=target, input_schema=input_schema, **{**words, **fields})


def _of_call(factory: Any, name: str, input_schema: Mapping[str, Any] | None) -> Handler:
    objection = PER_CALL.objection(factory)
    if not objection and input_schema is None:
        objection = "has `per_call`, whose handler is there with its call alone; give its `input_schema`"
    if objection:
        raise ConfigError(f"tool `{name}` {objection}", tool_name=name, field=PER_CALL.field)
    return per_call(factory, name)


def _override(target: Tool, name: str, input_schema: Mapping[str, Any] | None, fields: dict[str, Any]) -> Tool:
    if target.name != name:
        raise ConfigError(
            f"tool `{name}` has a handler that is the tool `{target.name}`; use that name",
            tool_name=name,
            field="handler",
        )
    # The function's signature makes the values. Another schema would check one thing and run another.
    if input_schema is not None and input_schema != dict(target.input_schema):
        raise ConfigError(
            f"tool `{name}` has an `input_schema` here and another one in code; keep one",
            tool_name=name,
            field="input_schema",
        )
    if fields.get("validate_input") is not None and target.validate_input is not None:
        raise ConfigError(
            f"tool `{name}` has a `validate_input` here and checks its arguments in code as well; keep one",
            tool_name=name,
            field="validate_input",
        )
    # The function of a policy is dropped with the policy that the manifest replaces.
    replaced = fields.get("requires_approval", target.requires_approval) != target.requires_approval
    return dataclasses.replace(target, **{**({"policy_function": None} if replaced else {}), **fields})


def _is_raw(function: Callable[..., Any]) -> bool:
    """Return whether a function looks like `(args, context)` rather than one parameter per argument."""
    try:
        names = list(inspect.signature(function).parameters)
        hints = get_type_hints(function, include_extras=True)
    # Annotations may raise anything when evaluated. `tool_from_function` reports that with a remedy.
    except Exception:
        return False
    return len(names) == 2 and names[0] == "args" and is_context_type(hints.get(names[1], ToolContext))


def _locate(file: YamlFile, error: ConfigError) -> ConfigError:
    """Keep any file and line that the error has."""
    if "file" in error.context:
        return error
    return file.error(_place(file.data, error), _without_site(error), **error.context)


def _without_site(error: ConfigError) -> str:
    # The prefix has file and line already: drop the place of the declaration in code.
    return error.message.removesuffix(declared_at(str(error.context.get("site", ""))))


def _place(data: Mapping[str, Any], error: ConfigError) -> Place:
    context = error.context
    field = str(context.get("field", ""))
    rules = [each.get("name") or each.get("rule") for each in data.get("policies") or () if isinstance(each, Mapping)]
    if context.get("tool_name"):
        # Errors of a policy name its bare field. A name that tools also have, such as `timeout`, means the tool's.
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
