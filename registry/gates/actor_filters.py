"""Applies an actor's filters.

`None` is no filter, an empty one passes nothing. Tools of MCP servers are named `mcp__<server>__<tool>`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import ID_PATTERN, is_id
from signoff.contracts.names import READ_REST
from signoff.formats.nearest_name import did_you_mean
from signoff.registry.actor import Actor, Surface
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool import Tool

_MCP: Final = "mcp__"


def is_excluded(actor: Actor, tool: Tool, channel: str) -> bool:
    """Return whether the tool does not exist on the turn's surface. Nothing overrides this."""
    surface = actor.surfaces.get(channel)
    return surface is not None and tool.name in surface.exclude


def is_permitted(actor: Actor, tool: Tool) -> bool:
    """Return whether the actor's list and filters pass the tool.

    The list is the boundary. Filters for MCP servers or plugins also pass those tools without the list, and always
    apply to them. The framework's own tools need no list.
    """
    if tool.is_external and actor.external is None:
        # An internal actor could never use the permit of such a call.
        return False
    # Check first: otherwise one actor's declaration would show the tool to every actor without a list.
    if tool.of_framework:
        return actor.read_rest or tool.name != READ_REST
    # Check before list and toolset: naming a tool there must not bring back a tool of an excluded server or plugin.
    if not (_server_passes(actor, tool) and _plugin_passes(actor, tool)):
        return False
    if is_built_in(tool):
        # `always_include` bypasses the toolset only: no author of a tool moves the list, which is the boundary.
        in_toolset = actor.toolset is None or tool.toolset == actor.toolset or tool.always_include
        return in_toolset and _is_listed(actor, tool)
    return _is_listed(actor, tool) or _has_filters_for(actor, tool)


def is_built_in(tool: Tool) -> bool:
    """Return whether a tool is the installation's own, not from an MCP server or a plugin."""
    return not (is_mcp(tool.name) or tool.plugin)


def needs_no_list(tool: Tool) -> bool:
    """Return whether some actor may see the tool without listing it."""
    return tool.of_framework or not is_built_in(tool)


def is_mcp(name: str) -> bool:
    return name.startswith(_MCP)


def mcp_parts(name: str) -> tuple[str, str]:
    """Return server and bare name. The bare name may hold `__` itself."""
    server, _, bare = name.removeprefix(_MCP).partition("__")
    return server, bare


def check_filters(actor: Actor, registry: ToolRegistry) -> None:
    """Raise `ConfigError` for a filter of the wrong type, or with a name that no tool has."""
    # Most actors have no filters, and a catalog may have thousands of tools: do not scan them for every actor.
    filters = (actor.toolset, actor.allowed_plugins, actor.allowed_mcp_servers, actor.allowed_mcp_tools)
    tools: list[Tool] = []
    if any(each is not None for each in filters):
        tools = [tool for tool in map(registry.resolve, registry.list()) if tool is not None] + list(actor.own)
    servers = {mcp_parts(tool.name)[0] for tool in tools if is_mcp(tool.name)}
    if actor.toolset is not None:
        _check_names(actor, "toolset", (actor.toolset,), {tool.toolset for tool in tools} - {""})
    _check_list(actor, "allowed_plugins", actor.allowed_plugins, {tool.plugin for tool in tools} - {""})
    _check_list(actor, "allowed_mcp_servers", actor.allowed_mcp_servers, servers)
    for server, names in _make_mapping(actor, "allowed_mcp_tools", actor.allowed_mcp_tools).items():
        field = f"allowed_mcp_tools.{server}"
        _check_names(actor, "allowed_mcp_tools", (server,), servers)
        _check_list(actor, field, names, {mcp_parts(tool.name)[1] for tool in tools if _of(tool, server)})
    for channel, surface in _make_mapping(actor, "surfaces", actor.surfaces).items():
        if not isinstance(channel, str) or not is_id(channel):
            # No turn uses such a channel, so its exclusions would never apply.
            why = f"is for `{channel}`, which is no channel's name: it must match `{ID_PATTERN[:-2]}$`"
            raise _wrong(actor, "surfaces", channel, why)
        if not isinstance(surface, Surface):
            raise _wrong(actor, f"surfaces.{channel}", surface, "must be a `Surface`")
        # A misspelled name would exclude nothing, and disable the strongest gate unnoticed.
        _check_list(actor, f"surfaces.{channel}.exclude", surface.exclude, {*registry.list(), *actor.own_names})


def _is_listed(actor: Actor, tool: Tool) -> bool:
    # Undeclared tools are in no list. An actor has them only if its own declaration allows them.
    return actor.tools is None or tool.name in actor.tools or tool.undeclared


def _server_passes(actor: Actor, tool: Tool) -> bool:
    if not is_mcp(tool.name):
        return True
    server, bare = mcp_parts(tool.name)
    if actor.allowed_mcp_servers is not None and server not in actor.allowed_mcp_servers:
        return False
    # A server without an entry is not narrowed: the list decides whether its tools pass.
    names = None if actor.allowed_mcp_tools is None else actor.allowed_mcp_tools.get(server)
    return names is None or bare in names


def _plugin_passes(actor: Actor, tool: Tool) -> bool:
    return not tool.plugin or actor.allowed_plugins is None or tool.plugin in actor.allowed_plugins


def _has_filters_for(actor: Actor, tool: Tool) -> bool:
    """The actor's filters have passed already."""
    server = mcp_parts(tool.name)[0]
    by_server = actor.allowed_mcp_servers is not None or server in (actor.allowed_mcp_tools or {})
    by_plugin = actor.allowed_plugins is not None
    return (by_server or not is_mcp(tool.name)) and (by_plugin or not tool.plugin)


def _of(tool: Tool, server: str) -> bool:
    return is_mcp(tool.name) and mcp_parts(tool.name)[0] == server


def _make_mapping(actor: Actor, field: str, given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _wrong(actor, field, given, "must be a mapping, or left out")
    return given


def _check_list(actor: Actor, field: str, given: Any, known: Iterable[str]) -> None:
    if given is None:
        return
    if not isinstance(given, tuple):
        # A string is a sequence of letters, and would pass tools by accident.
        raise _wrong(actor, field, given, "must be a list of names, `[]` for none, or left out for all")
    _check_names(actor, field, given, known)


def _check_names(actor: Actor, field: str, names: Iterable[Any], known: Iterable[str]) -> None:
    there = sorted(known)
    for name in names:
        if name not in there:
            near = did_you_mean(str(name), there) or f"; known: {', '.join(f'`{each}`' for each in there) or 'none'}"
            raise _wrong(actor, field, name, f"names `{name}`, which no tool has{near}")


def _wrong(actor: Actor, field: str, value: object, why: str) -> ConfigError:
    message = f"actor `{actor.name}`: `{field}` {why}"
    return ConfigError(message, actor=actor.name, field=field, value=value)
