"""Applies an actor's filters: which tools exist on a surface, and which of a toolset, plugin or MCP server.

None is no filter, an empty one lets nothing through (X08). Tools of MCP servers are named `mcp__<server>__<tool>`.
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
    """Returns whether the tool does not exist on the surface that the turn came by (E12). Nothing is stronger."""
    surface = actor.surfaces.get(channel)
    return surface is not None and tool.name in surface.exclude


def is_permitted(actor: Actor, tool: Tool) -> bool:
    """Returns whether the actor's own list and filters let the tool through.

    The list is the boundary (B45). Tools of MCP servers and plugins pass it also where the actor has filters for what
    they come from (E13), and pass those filters in any case. What the framework itself brings needs no list (X25).
    """
    if tool.is_external and actor.external is None:
        # Nobody would ever use the permit of its calls.
        return False
    # First: further down every actor without a list would see it once a single one declares it.
    if tool.of_framework:
        return actor.read_rest or tool.name != READ_REST
    # Before the list and the toolset: naming a tool there does not bring back what its server or plugin may not.
    if not (_server_passes(actor, tool) and _plugin_passes(actor, tool)):
        return False
    if is_built_in(tool):
        # Of the toolset alone: the list is the boundary, which no author of a tool moves (B45).
        in_toolset = actor.toolset is None or tool.toolset == actor.toolset or tool.always_include
        return in_toolset and _is_listed(actor, tool)
    return _is_listed(actor, tool) or _has_filters_for(actor, tool)


def is_built_in(tool: Tool) -> bool:
    """Returns whether a tool is the installation's own: neither of an MCP server nor of a plugin."""
    return not (is_mcp(tool.name) or tool.plugin)


def needs_no_list(tool: Tool) -> bool:
    """Returns whether some actor may see the tool without listing it."""
    return tool.of_framework or not is_built_in(tool)


def is_mcp(name: str) -> bool:
    """Returns whether a name is that of an MCP server's tool."""
    return name.startswith(_MCP)


def mcp_parts(name: str) -> tuple[str, str]:
    """Splits the name of an MCP tool into server and bare name; the bare name may hold `__` itself (E36)."""
    server, _, bare = name.removeprefix(_MCP).partition("__")
    return server, bare


def check_filters(actor: Actor, registry: ToolRegistry) -> None:
    """Raises `ConfigError` for a filter that is of the wrong kind, or names what no tool has."""
    # Most actors have none of these, and a catalog may have thousands of tools: not all are gone through for each.
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
            # No turn comes by such a channel, so that what it leaves out would be there after all.
            why = f"is for `{channel}`, which is no channel's name: it must match `{ID_PATTERN[:-2]}$`"
            raise _wrong(actor, "surfaces", channel, why)
        if not isinstance(surface, Surface):
            raise _wrong(actor, f"surfaces.{channel}", surface, "must be a `Surface`")
        # A misspelt name would leave nothing out, and the strongest gate there is would stand open unseen.
        _check_list(actor, f"surfaces.{channel}.exclude", surface.exclude, {*registry.list(), *actor.own_names})


def _is_listed(actor: Actor, tool: Tool) -> bool:
    # What nobody declared stands in no list; an actor has it where its declaration says so, and nowhere else.
    return actor.tools is None or tool.name in actor.tools or tool.undeclared


def _server_passes(actor: Actor, tool: Tool) -> bool:
    if not is_mcp(tool.name):
        return True
    server, bare = mcp_parts(tool.name)
    if actor.allowed_mcp_servers is not None and server not in actor.allowed_mcp_servers:
        return False
    # A server that is not named in it is not narrowed by it: whether its tools pass at all is for the list to say.
    names = None if actor.allowed_mcp_tools is None else actor.allowed_mcp_tools.get(server)
    return names is None or bare in names


def _plugin_passes(actor: Actor, tool: Tool) -> bool:
    return not tool.plugin or actor.allowed_plugins is None or tool.plugin in actor.allowed_plugins


def _has_filters_for(actor: Actor, tool: Tool) -> bool:
    """Returns whether the actor has a filter for everything that the tool comes from; passing them was checked
    before.
    """
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
        # A text is a sequence of letters too, and would let tools through by accident.
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
