"""The section of MCP servers in the manifest, and their imported tools."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from pydantic import Field

from signoff.formats.declared_fields import FieldSpec
from signoff.formats.nearest_name import did_you_mean
from signoff.formats.record_section import RecordSection, record_fields, record_section
from signoff.formats.replace import replace
from signoff.formats.yaml_file import Place, YamlFile
from signoff.formats.yaml_section import read_section, spellings
from signoff.registry.gates.actor_filters import is_mcp, mcp_parts
from signoff.registry.manifest.sections import ManifestSection
from signoff.registry.manifest.tool_section import RUN_KEYS, ToolSection
from signoff.registry.mcp.import_file import import_path, read_import
from signoff.registry.mcp.imported_tool import ImportedTool
from signoff.registry.mcp.tool_server import HANDLER, ToolServer

_SETTINGS_SCHEMA: Final = {"type": "object"}
_ASKS = "The policy of its tools that declare none: `true`, `false` or a policy."
_TRUSTS = (
    "Trust the imported hints: read-only tools are `read_only` and run without approval, idempotent tools are "
    "`idempotent`."
)
_Asks = Annotated[bool | dict[str, Any] | None, FieldSpec(unset="they ask")]

ToolServerSection: Final = record_section(
    ToolServer,
    requires_approval=(
        Annotated[bool | dict[str, Any] | None, FieldSpec(unset="they ask")],
        Field(None, description=_ASKS),
    ),
    trust_hints=(bool, Field(False, description=_TRUSTS)),
)


class ServerFields(TypedDict):
    """The fields of a catalog that this module reads."""

    mcp_servers: list[ToolServer]


def read_servers(file: YamlFile, folder: Path, top: ManifestSection) -> ServerFields:
    """Raises `ConfigError` with file and line."""
    return {"mcp_servers": [read_server(file, folder, name, data)[0] for name, data in top.mcp_servers.items()]}


def read_server(file: YamlFile, folder: Path, name: str, data: Any) -> tuple[ToolServer, YamlFile | None]:
    """Return the server, and the file of its import, if any. Raises `ConfigError`."""
    given = record_fields(_section(file, name, data))
    path = import_path(folder, name)
    part, tools = read_import(path, name, f"{path.parent.name}/{path.name}") if path.is_file() else (None, {})
    command = (given["command"],) if isinstance(given["command"], str) else given["command"]
    return ToolServer(**given | {"name": name, "command": tuple(filter(None, command)), "tools": tools}), part


def add_server_tools(
    file: YamlFile, folder: Path, top: ManifestSection
) -> tuple[YamlFile, ManifestSection, ServerFields]:
    """Add the imported tools to the manifest's tools. The manifest's own keys win. Raises `ConfigError`."""
    servers: list[ToolServer] = []
    tools, parts = dict(top.tools), dict(file.parts)
    for name, data in top.mcp_servers.items():
        section, (server, part) = _section(file, name, data), read_server(file, folder, name, data)
        servers.append(server)
        for index, (key, imported) in enumerate(server.tools.items()):
            place: Place = ("tools", key)
            own = _own_keys(file, place, key, tools.get(key))
            tools[key] = {**_without(_section_of(server, section, imported), own), **own}
            if not own and part is not None:
                parts[place] = (part, ("tools", index))
        for key in top.tools:
            if is_mcp(key) and mcp_parts(key)[0] == name and key not in server.tools and _lacks_handler(top, key):
                near = did_you_mean(key, server.tools)
                why = f"`{key}` is no tool that was imported of `{name}`{near}; run `signoff mcp import {name}`"
                raise file.error(("tools", key), why, tool_name=key, field="handler")
    return (
        dataclasses.replace(file, parts=parts),
        replace(top, tools=tools),
        ServerFields(mcp_servers=servers),
    )


def _section(file: YamlFile, name: str, data: Any) -> RecordSection:
    return read_section(file, ("mcp_servers", name), ToolServerSection, data, f"MCP server `{name}`")


def _section_of(server: ToolServer, section: RecordSection, tool: ImportedTool) -> dict[str, Any]:
    """Make the default section of an imported tool: it asks."""
    wanted = dict(section)
    believed = tool.hints if wanted["trust_hints"] else {}
    reads = believed.get("read_only", False)
    asks = wanted["requires_approval"]
    made: dict[str, Any] = {
        "handler": HANDLER,
        "scope": "generalist",
        "title": tool.title,
        "description": tool.description.strip() or f"`{tool.remote_name}` of {server.name}",
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "requires_approval": not reads if asks is None else asks,
        "read_only": reads,
        "idempotent": believed.get("idempotent", False),
        "untrusted_output": True,
        # A server at another address is another tool: earlier approvals are stale.
        "settings": {"server": server.name, "tool": tool.remote_name, "address": server.address},
        "settings_schema": _SETTINGS_SCHEMA,
    }
    return {key: value for key, value in made.items() if value is not None}


def _own_keys(file: YamlFile, place: Place, name: str, data: Any) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise file.error(place, f"tool `{name}` must be a mapping of keys and values")
    known = spellings(ToolSection)
    for key in data:
        if known.get(key, key) in RUN_KEYS:
            why = f"tool `{name}` is run on its MCP server; drop `{key}`"
            raise file.error((*place, key), why, tool_name=name, field=known.get(key, key))
    return dict(data)


def _without(made: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    known = spellings(ToolSection)
    written = {known.get(key, key) for key in own}
    return {key: value for key, value in made.items() if key not in written}


def _lacks_handler(top: ManifestSection, key: str) -> bool:
    data = top.tools[key]
    known = spellings(ToolSection)
    return not isinstance(data, Mapping) or not {known.get(each, each) for each in data} & {*RUN_KEYS}
