"""The tools of an MCP server as imported: in Signoff's schema dialect, compared and written to a file."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.errors import ConfigError
from signoff.formats.json_schema import compile_schema
from signoff.formats.linear_pattern import pattern_problem

_OLDER: Final = ("draft-04/schema", "draft-05/schema", "draft-06/schema", "draft-07/schema", "draft/2019-09/schema")
"""Suffixes of dialects that differ from 2020-12 only in the constructs that are rewritten here."""
_STRICT_LIMITS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
"""Flags of draft 4 and OpenAPI 3.0, and the limits that they modify."""
_SAFE: Final = 2**53 - 1
"""The largest integer that JSON carries exactly. Calls with a larger one are rejected."""
_ONE: Final = frozenset(
    (
        "items", "additionalItems", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else",
        "unevaluatedItems", "unevaluatedProperties",
    )
)  # fmt: skip
"""Keywords whose value is a schema."""
_MANY: Final = frozenset(("allOf", "anyOf", "oneOf"))
_NAMED: Final = frozenset(("properties", "patternProperties", "definitions", "$defs", "dependentSchemas"))

HINTS: Final[Mapping[str, str]] = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
"""The protocol's hints, and their names in an imported file."""
MAX_TOOLS: Final = 1_000
"""The maximum number of imported tools per server."""
_NAME_CHARS: Final = 64
_DIGEST_CHARS: Final = 8
_MALFORMED: Final = "signoff/malformed"
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class ImportedTool:
    """One tool as its server described it at import."""

    remote_name: str
    """The server's name for it."""
    description: str
    """The server's description. Unverified."""
    input_schema: Mapping[str, Any] = field(hash=False)
    """JSON Schema of its arguments, in the dialect of Signoff."""
    output_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    """JSON Schema of its structured result, if declared."""
    title: str = ""
    hints: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """The server's claims about its effects. Unverified."""

    @property
    def content(self) -> dict[str, Any]:
        """For writing and comparing."""
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
        """The SHA-256 of the whole import. Raises `NotCanonical`."""
        return sha256_hex(self.content)


class Listing(NamedTuple):
    """A server's tools, as far as they can be imported."""

    tools: Mapping[str, ImportedTool]
    """By catalog name, `mcp__<server>__<tool>`."""
    left_out: Mapping[str, str]
    """Reasons why tools cannot be imported, by the server's names."""
    warnings: Mapping[str, str] = {}
    """Checks that only the server performs, by the server's names."""


def read_listing(server: str, listed: Iterable[Mapping[str, Any]]) -> Listing:
    """Read tools as `tools/list` sends them. Leaves out tools whose calls Signoff could not check, with the reason."""
    tools: dict[str, ImportedTool] = {}
    left_out: dict[str, str] = {}
    warnings: dict[str, str] = {}
    named: dict[str, list[Mapping[str, Any]]] = {}
    for each in listed:
        # Case-insensitive: readers confuse names that differ by case only.
        named.setdefault(catalog_name(server, str(each.get("name", ""))).casefold(), []).append(each)
    for alike in named.values():
        remote = str(alike[0].get("name", ""))
        if len(alike) > 1:
            # Signoff cannot decide which of them a call would reach.
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
    """Characters that catalog names cannot hold become `_`. A long name is cut and gets a digest of the whole."""
    name = f"mcp__{server}__{_OTHER.sub('_', remote)}"
    if len(name) <= _NAME_CHARS:
        return name
    digest = hashlib.sha256(remote.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: _NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def listing_changes(before: Mapping[str, ImportedTool], after: Mapping[str, ImportedTool]) -> list[str]:
    """Return one line for each added, removed or changed tool, without the server's own text."""
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
    old, new = before.content, after.content
    return [key for key in sorted({*old, *new}) if _differ(old.get(key), new.get(key))]


def _differ(old: Any, new: Any) -> bool:
    # Compared as bytes: `1` and `true` are equal in Python.
    return sha256_hex([old]) != sha256_hex([new])


def _hint_words(tool: ImportedTool) -> str:
    claims = [word for key, word in (("read_only", "only reads"), ("destructive", "destroys")) if tool.hints.get(key)]
    return f" (the server says that it {' and '.join(claims)})" if claims else ""


def mark_malformed(name: str, why: str) -> dict[str, Any]:
    """Return a placeholder for a tool that violates the protocol, so that the other tools can be read."""
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": {_MALFORMED: why}}


def malformed_reason(data: Mapping[str, Any]) -> str:
    """Return why a tool violates the protocol, or ""."""
    meta = data.get("_meta")
    return str(meta.get(_MALFORMED, "")) if isinstance(meta, Mapping) else ""


def _read_tool(remote: str, data: Mapping[str, Any]) -> tuple[ImportedTool, list[str]]:
    """Return the tool and the patterns that only the server checks. Raises `ConfigError` or `NotCanonical`."""
    annotations = data.get("annotations") or {}
    given = {HINTS[key]: value for key, value in annotations.items() if key in HINTS}
    given_output = data.get("outputSchema")
    arguments, patterns = _leave_patterns(as_2020_12(data.get("inputSchema")))
    result, more_patterns = _leave_patterns(as_2020_12(given_output))
    tool = ImportedTool(
        remote_name=remote,
        description=str(data.get("description") or ""),
        input_schema=arguments,
        output_schema=result,
        title=str(data.get("title") or annotations.get("title") or ""),
        # In the order of the protocol: the server's order may change between answers.
        hints={name: given[name] for name in HINTS.values() if isinstance(given.get(name), bool)},
    )
    check_imported(tool)
    return tool, [*patterns, *more_patterns]


def check_imported(tool: ImportedTool) -> None:
    """Raise `ConfigError` or `NotCanonical` for a tool whose schemas could check no call."""
    compile_schema(tool.input_schema)
    if tool.output_schema is not None:
        compile_schema(tool.output_schema, field="output_schema", of_object=False)
    # Approvals and comparisons need the digest.
    _ = tool.digest


def as_2020_12(schema: Any) -> Any:
    """A schema of 2020-12, or without a dialect, is returned unchanged.

    An unknown dialect stays, so that the schema compiler rejects it.
    """
    if not isinstance(schema, Mapping):
        return schema
    dialect = str(schema.get("$schema", "")).rstrip("#")
    return _rewrite(schema, is_old=dialect.endswith(_OLDER))


def _rewrite(schema: Any, *, is_old: bool) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _ONE and isinstance(value, Mapping):
            made[key] = _rewrite(value, is_old=is_old)
        elif key in _MANY and isinstance(value, list):
            made[key] = [_rewrite(each, is_old=is_old) for each in value]
        elif key in _NAMED and isinstance(value, Mapping):
            made[key] = {name: _rewrite(each, is_old=is_old) for name, each in value.items()}
        else:
            made[key] = value
    if is_old:
        made = _rewrite_keywords(made)
    return _let_null(_fit_limits(made))


def _fit_limits(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert limits to the form of 2020-12, as numbers that JSON carries exactly."""
    made = dict(schema)
    for flag, limit in _STRICT_LIMITS.items():
        if isinstance(made.get(flag), bool):
            is_strict = made.pop(flag)
            if is_strict and limit in made:
                made[flag] = made.pop(limit)
    for key in ("maximum", "exclusiveMaximum"):
        if _is_integer(made.get(key)) and made[key] > _SAFE:
            del made[key]
            made["maximum"] = min(_SAFE, made.get("maximum", _SAFE))
    for key in ("minimum", "exclusiveMinimum"):
        if _is_integer(made.get(key)) and made[key] < -_SAFE:
            del made[key]
            made["minimum"] = max(-_SAFE, made.get("minimum", -_SAFE))
    if _is_integer(made.get("default")) and abs(made["default"]) > _SAFE:
        del made["default"]
    return made


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _let_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Accept null if the schema has OpenAPI 3.0's `nullable`."""
    if not isinstance(schema.get("nullable"), bool):
        return schema
    made = {key: value for key, value in schema.items() if key != "nullable"}
    if not schema["nullable"]:
        return made
    kind = made.get("type")
    if kind is not None:
        kinds = [kind] if isinstance(kind, str) else list(kind)
        return made | {"type": [*kinds, *(["null"] if "null" not in kinds else [])]}
    if not made.keys() & {"$ref", *_MANY}:
        return made
    words: dict[str, Any] = {key: made.pop(key) for key in ("title", "description", "default") if key in made}
    return words | {"anyOf": [made, {"type": "null"}]}


def _leave_patterns(schema: Any) -> tuple[Any, list[str]]:
    """Remove the patterns that RE2 cannot read, and return them: the server checks them.

    Each stays in a comment, so that a change is visible.
    """
    left: list[str] = []

    def leave(node: Any) -> Any:
        if not isinstance(node, Mapping):
            return node
        made: dict[str, Any] = {}
        for key, value in node.items():
            if key in _ONE and isinstance(value, Mapping):
                made[key] = leave(value)
            elif key in (*_MANY, "prefixItems") and isinstance(value, list):
                made[key] = [leave(each) for each in value]
            elif key in _NAMED and isinstance(value, Mapping):
                made[key] = {name: leave(each) for name, each in value.items()}
            elif key == "pattern" and isinstance(value, str) and pattern_problem({"pattern": value})[1]:
                made["$comment"] = f"The server checks the pattern: {value}"
                left.append(value)
            else:
                made[key] = value
        return made

    return leave(schema), left


def _rewrite_keywords(schema: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema":
            continue
        if key == "items" and isinstance(value, list):
            made["prefixItems"] = [_rewrite(each, is_old=True) for each in value]
            if "additionalItems" in schema:
                made["items"] = schema["additionalItems"]
        elif key == "additionalItems":
            # Without several schemas of items it has no effect.
            continue
        elif key == "dependencies" and isinstance(value, Mapping):
            made |= _dependencies(value)
        else:
            made[key] = value
    return made


def _dependencies(given: Mapping[str, Any]) -> dict[str, Any]:
    required = {name: each for name, each in given.items() if isinstance(each, list)}
    schemas = {name: _rewrite(each, is_old=True) for name, each in given.items() if not isinstance(each, list)}
    return {
        **({"dependentRequired": required} if required else {}),
        **({"dependentSchemas": schemas} if schemas else {}),
    }
