"""The section of a tool in the manifest, made from the fields of `Tool`, and its table in docs/manifest.md."""

from typing import Any, Final

from pydantic import Field, create_model

from signoff.formats.declared_fields import IN_CODE, DeclaredField, declared_fields
from signoff.formats.record_section import TABLE_HEAD, Handed, Reference, field_row, key_type
from signoff.formats.yaml_section import Section
from signoff.registry.actor import ToolUse
from signoff.registry.tool import Tool

HANDLERS: Final = ("handler", "per_call")
"""A tool has exactly one of these keys."""
RUN_KEYS: Final = (*HANDLERS, "runs")
"""The keys that choose how a tool runs. A manifest cannot set them for a tool of an MCP server."""
_PER_CALL: Final = "Instead of `handler`: `(context)` makes the handler of one call, or of several tools by name."
_FIRST: Final = ("name", "handler", "description", "input_schema", "scope")
_REDUCER: Final = "Shortens its results: `terminal`, `read_file`, `kanban_list` or `module:function`."


def tool_section(cls: type = Tool) -> type[Section]:
    """Make optional keys for each field, `per_call` and `reducer`. Missing keys keep the handler's declaration."""
    declared = declared_fields(cls).values()
    keys: dict[str, Any] = {field.name: _key(field) for field in declared if field.spec.key is not IN_CODE}
    keys["per_call"] = (Reference | None, Field(None, description=_PER_CALL))
    keys["reducer"] = (str | Handed | None, Field(None, description=_REDUCER))
    words = "One tool; its name is its key. Missing keys keep the handler's own declaration."
    made: type[Section] = create_model("ToolSection", __base__=Section, __doc__=words, **keys)
    made.key_aliases = {alias: field.name for field in declared for alias in field.spec.aliases}
    return made


def _key(field: DeclaredField) -> tuple[Any, Any]:
    return key_type(field) | None, Field(None, description=field.summary)


ToolSection: Final = tool_section()


def _own_tool_section(tool: type[Section]) -> type[Section]:
    uses = declared_fields(ToolUse)
    keys: dict[str, Any] = {name: (str, Field("", description=uses[name].summary)) for name in ("loosens", "min_step")}
    return create_model("OwnToolSection", __base__=tool, __doc__="A tool of an actor, route or step alone.", **keys)


OwnToolSection: Final = _own_tool_section(ToolSection)


ServerToolSection: Final = create_model(
    "ServerToolSection",
    __base__=ToolSection,
    __doc__="The manifest's keys of a tool that was imported from an MCP server.",
)
"""For editors only: such a tool has no handler of its own."""


def tool_table(cls: type = Tool) -> str:
    """For docs/manifest.md."""
    declared = declared_fields(cls)
    order = dict.fromkeys((*_FIRST, *declared))
    rows = [field_row(declared[name]) for name in order if declared[name].spec.key is not IN_CODE]
    per_call = f"| `per_call` | {_PER_CALL} [tools.md](tools.md#handlers-of-one-call). | none |"
    rows.insert(_FIRST.index("handler") + 1, per_call)
    reducer = f"| `reducer` | {_REDUCER} [results.md](results.md#reducers). | none |"
    return "\n".join([*TABLE_HEAD, *rows, reducer])
