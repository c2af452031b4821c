"""What an MCP server says of its tools, as it is imported: in Signoff's own schemas, compared and written to a file."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.errors import ConfigError
from signoff.formats.json_schema import compile_schema
from signoff.registry.mcp.schema_dialect import as_2020_12, leave_patterns

HINTS: Final[Mapping[str, str]] = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
"""The protocol's hints, and what they are called in an imported file."""
MAX_TOOLS: Final = 1_000
"""More tools of one server are not imported."""
_NAME_CHARS: Final = 64
_DIGEST_CHARS: Final = 8
_MALFORMED: Final = "signoff/malformed"
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class ImportedTool:
    """One tool as its server described it when it was imported."""

    remote_name: str
    """What the server calls it."""
    description: str
    """Its description; the server's, not ours."""
    input_schema: Mapping[str, Any] = field(hash=False)
    """JSON Schema of its arguments, in the dialect of Signoff."""
    output_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    """JSON Schema of its structured result, if it declares one."""
    title: str = ""
    """A short name for people."""
    hints: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """What the server says of its effects. Nobody vouches for it."""

    @property
    def content(self) -> dict[str, Any]:
        """All that was imported, as it is written and compared."""
        return {
            "name": self.remote_name,
            **({"title": self.title} if self.title else {}),
            **({"description": self.description} if self.description else {}),
            **({"hints": dict(self.hints)} if self.hints else {}),
            "input_schema": self.input_schema,
            **({"output_schema": self.output_schema} if self.output_schema is not None else {}),
        }

    @cached_property
    def digest(self) -> str:
        """The sha-256 of all that was imported. Raises `NotCanonical`."""
        return sha256_hex(self.content)


class Listing(NamedTuple):
    """What a server offers, as far as it can be imported."""

    tools: Mapping[str, ImportedTool]
    """By the name of the tool in the catalog, `mcp__<server>__<tool>`."""
    left_out: Mapping[str, str]
    """Why a tool cannot be imported, by the server's name of it."""
    warnings: Mapping[str, str] = {}
    """What is not checked here of a tool's calls, by the server's name of it."""


def read_listing(server: str, listed: Iterable[Mapping[str, Any]]) -> Listing:
    """Reads tools as `tools/list` sends them. What Signoff could not check calls of is left out, with the reason."""
    tools: dict[str, ImportedTool] = {}
    left_out: dict[str, str] = {}
    warnings: dict[str, str] = {}
    named: dict[str, list[Mapping[str, Any]]] = {}
    for each in listed:
        # By its letters alone: names that differ by case only are one name to whoever reads them.
        named.setdefault(catalog_name(server, str(each.get("name", ""))).casefold(), []).append(each)
    for alike in named.values():
        remote = str(alike[0].get("name", ""))
        if len(alike) > 1:
            # Which of them a call would reach is for nobody here to say.
            names = ", ".join(sorted({f"`{each.get('name', '')}`" for each in alike}))
            left_out |= {str(each.get("name", "")): f"{names} would have one name here" for each in alike}
        elif len(tools) >= MAX_TOOLS:
            left_out[remote] = f"the server has more than {MAX_TOOLS} tools"
        elif why := malformed_reason(alike[0]):
            left_out[remote] = f"it is no tool by the protocol: {why}"
        else:
            try:
                tools[catalog_name(server, remote)], patterns = _read_tool(remote, alike[0])
                if patterns:
                    named_patterns = ", ".join(f"`{each}`" for each in dict.fromkeys(patterns))
                    warnings[remote] = f"the server alone checks the pattern {named_patterns}, which RE2 cannot read"
            except (ConfigError, NotCanonical) as error:
                left_out[remote] = str(error)
    return Listing(tools, left_out, warnings)


def catalog_name(server: str, remote: str) -> str:
    """Returns the name in the catalog of a server's tool: what a catalog's names cannot hold is `_`, and a long one is
    cut, with a digest of the whole.
    """
    name = f"mcp__{server}__{_OTHER.sub('_', remote)}"
    if len(name) <= _NAME_CHARS:
        return name
    digest = hashlib.sha256(remote.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: _NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def listing_changes(before: Mapping[str, ImportedTool], after: Mapping[str, ImportedTool]) -> list[str]:
    """Returns one line for each tool that was added, removed or changed; the server's own words are in none."""
    lines: list[str] = []
    for name in sorted({*before, *after}):
        if name not in before:
            lines.append(f"+ tool `{name}`{_hint_words(after[name])}")
        elif name not in after:
            lines.append(f"- tool `{name}`")
        elif before[name].digest != after[name].digest:
            lines.append(f"~ tool `{name}`: {', '.join(changed_fields(before[name], after[name]))}")
    return lines


def changed_fields(before: ImportedTool, after: ImportedTool) -> list[str]:
    """Returns the fields in which two imports of one tool differ."""
    old, new = before.content, after.content
    return [key for key in sorted({*old, *new}) if _differ(old.get(key), new.get(key))]


def _differ(old: Any, new: Any) -> bool:
    # By their bytes: to Python `1` and `true` are equal.
    return sha256_hex([old]) != sha256_hex([new])


def _hint_words(tool: ImportedTool) -> str:
    claims = [word for key, word in (("read_only", "only reads"), ("destructive", "destroys")) if tool.hints.get(key)]
    return f" (the server says that it {' and '.join(claims)})" if claims else ""


def mark_malformed(name: str, why: str) -> dict[str, Any]:
    """Return a stand-in for a tool of a list that breaks the protocol, so that the others can be read."""
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": {_MALFORMED: why}}


def malformed_reason(data: Mapping[str, Any]) -> str:
    """Return why a tool of a list breaks the protocol; "" if it does not."""
    meta = data.get("_meta")
    return str(meta.get(_MALFORMED, "")) if isinstance(meta, Mapping) else ""


def _read_tool(remote: str, data: Mapping[str, Any]) -> tuple[ImportedTool, list[str]]:
    """Return the tool, and its patterns that are left to the server. Raises `ConfigError` or `NotCanonical`."""
    annotations = data.get("annotations") or {}
    given = {HINTS[key]: value for key, value in annotations.items() if key in HINTS}
    given_output = data.get("outputSchema")
    arguments, patterns = leave_patterns(as_2020_12(data.get("inputSchema")))
    result, more_patterns = leave_patterns(as_2020_12(given_output))
    tool = ImportedTool(
        remote_name=remote,
        description=str(data.get("description") or ""),
        input_schema=arguments,
        output_schema=result,
        title=str(data.get("title") or annotations.get("title") or ""),
        # In the order of the protocol, not of the server, which may change from answer to answer.
        hints={name: given[name] for name in HINTS.values() if isinstance(given.get(name), bool)},
    )
    check_imported(tool)
    return tool, [*patterns, *more_patterns]


def check_imported(tool: ImportedTool) -> None:
    """Raises `ConfigError` or `NotCanonical` for a tool by whose schemas no call could be checked."""
    compile_schema(tool.input_schema)
    if tool.output_schema is not None:
        compile_schema(tool.output_schema, field="output_schema", of_object=False)
    # What approvals and comparisons stand on.
    _ = tool.digest
