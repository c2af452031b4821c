"""Reads and writes `mcp/<server>.yaml`, next to the manifest: the imported tools of an MCP server."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.errors import ConfigError
from signoff.formats.yaml_file import YamlFile, read_yaml
from signoff.formats.yaml_section import Section, read_section
from signoff.formats.yaml_writer import write_yaml
from signoff.registry.mcp.imported_tool import HINTS, ImportedTool, catalog_name, check_imported

FOLDER: Final = "mcp"
_HEAD: Final = (
    "# Written by `signoff mcp import {}`, which replaces it: the server's description of its tools.\n"
    "# Write your own keys, such as `requires_approval`, in the manifest, under `tools`.\n"
)


class ImportSection(Section):
    """The whole file."""

    keys_in_help: ClassVar[bool] = False
    version: Literal[1] = Field(description="The version of the file's format: `1`.")
    tools: list[Any] = Field([], description="The tools, by their names.")


class ImportedToolSection(Section):
    """One tool in its server's description."""

    keys_in_help: ClassVar[bool] = False
    name: str = Field(description="The server's name for it.")
    title: str = Field("", description="A short name for people.")
    description: str = Field("", description="The server's words for the model.")
    hints: dict[str, bool] = Field({}, description="The server's claims about its effects; unverified.")
    input_schema: dict[str, Any] = Field(description="JSON Schema of its arguments.")
    output_schema: dict[str, Any] | None = Field(None, description="JSON Schema of its structured result.")


def import_path(folder: Path, server: str) -> Path:
    """`folder` is the manifest's base directory."""
    return folder / FOLDER / f"{server}.yaml"


def read_import(path: Path, server: str, name: str = "") -> tuple[YamlFile, Mapping[str, ImportedTool]]:
    """Return the file, and its tools by their catalog names, in its order. Raises `ConfigError` with file and line."""
    # The server's text may hold `${...}`, which must not be substituted.
    file = read_yaml(path, name or str(path), quotes=True)
    top = read_section(file, (), ImportSection, file.data, "an import of an MCP server")
    tools: dict[str, ImportedTool] = {}
    for index, data in enumerate(top.tools):
        section = read_section(file, ("tools", index), ImportedToolSection, data, f"tool {index + 1}")
        tool = ImportedTool(
            remote_name=section.name,
            description=section.description,
            input_schema=section.input_schema,
            output_schema=section.output_schema,
            title=section.title,
            hints=section.hints,
        )
        unknown = next((each for each in section.hints if each not in HINTS.values()), "")
        if unknown:
            raise file.error(("tools", index, "hints", unknown), f"there is no hint `{unknown}`")
        try:
            check_imported(tool)
        except (ConfigError, NotCanonical) as error:
            raise file.error(("tools", index), f"tool `{section.name}`: {error}") from None
        key = catalog_name(server, section.name)
        if key in tools:
            raise file.error(("tools", index), f"tool `{section.name}` is there twice; import the server again")
        tools[key] = tool
    return file, tools


def write_import(path: Path, server: str, tools: Iterable[ImportedTool]) -> None:
    """Replace the import of a server, completely or not at all."""
    # Sorted by name: a server's own order may change between answers.
    data = {"version": 1, "tools": [each.content for each in sorted(tools, key=lambda each: each.remote_name)]}
    # Escaped: a reviewer must see every character that a model will read.
    text = _HEAD.format(server) + write_yaml(_plain(data), ascii_only=True)
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
