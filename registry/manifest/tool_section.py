"""The section of a tool in the manifest, made of the declared fields of `Tool`, and their table in docs/manifest.md."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from pydantic import Field, WithJsonSchema, create_model

from signoff.contracts.usage import UsageLimit
from signoff.formats.durations import Seconds
from signoff.formats.yaml_section import Section
from signoff.registry.capabilities import Capabilities
from signoff.registry.tool import BypassRouting, Tool
from signoff.registry.tool_fields import IN_CODE, ToolField, tool_fields


def _record_section(record: type) -> type[Section]:
    """Makes the section of a field that is a record itself, of the record's own fields."""
    hints = get_type_hints(record, include_extras=True)
    keys: dict[str, Any] = {}
    annotated: Any = Annotated
    for each in fields(record):
        kind, *declared = get_args(hints[each.name])
        # A number of seconds is written as a span, as everywhere in a manifest.
        written = Seconds if kind is float else _type_in_yaml(kind)
        keys[each.name] = (annotated[(written, *declared)], ... if each.default is MISSING else each.default)
    words = str(record.__doc__).partition("\n")[0]
    made: type[Section] = create_model(f"{record.__name__}Section", __base__=Section, __doc__=words, **keys)
    return made


Reference = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^[^:]+:.+$"})]
"""`module:attribute`."""

HANDLERS: Final = ("handler", "per_call")
"""The keys of which a tool has exactly one."""
RUN_KEYS: Final = (*HANDLERS, "runs")
"""The keys that say by what a tool is run; of one that was imported of an MCP server they are not the manifest's."""
_PER_CALL: Final = (
    "In place of `handler`: `module:function`, a function `(context)` that makes the handler `(args, context)` of one "
    "call, of its user or tenant."
)
_FIRST: Final = ("name", "handler", "description", "input_schema", "scope")
_REDUCER: Final = "Shortens its results: `terminal`, `read_file`, `kanban_list` or `module:function`."


def tool_section(cls: type = Tool) -> type[Section]:
    """Makes the section of a class of tools: a key for each field, all of them optional, `per_call` and `reducer`.

    What is not given is left to the handler's own declaration.
    """
    declared = tool_fields(cls).values()
    keys: dict[str, Any] = {field.name: _key(field) for field in declared if field.spec.key is not IN_CODE}
    keys["per_call"] = (Reference | None, Field(None, description=_PER_CALL))
    keys["reducer"] = (str | None, Field(None, description=_REDUCER))
    words = "One tool; its name is its key. What is not given is left to the handler's own declaration."
    made: type[Section] = create_model("ToolSection", __base__=Section, __doc__=words, **keys)
    made.key_aliases = {alias: field.name for field in declared for alias in field.spec.aliases}
    return made


def _key(field: ToolField) -> tuple[Any, Any]:
    kind = _key_type(field)
    return kind | None, Field(None, description=field.summary)


def _key_type(field: ToolField) -> Any:
    if field.spec.key is not None:
        return field.spec.key
    if field.hook is not None:
        return Reference
    return _type_in_yaml(field.info.annotation)


def _type_in_yaml(annotation: Any) -> Any:
    """Returns the type of a value in YAML: what stands in a file has lists, mappings and sections."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        [annotation] = [each for each in get_args(annotation) if each is not type(None)]
        return _type_in_yaml(annotation)
    if origin is Annotated:
        return _type_in_yaml(get_args(annotation)[0])
    if origin is tuple:
        return list[str]
    if is_dataclass(annotation) and isinstance(annotation, type):
        return NESTED[annotation]
    return dict[str, Any] if origin is Mapping else annotation


NESTED: Final[Mapping[type, type[Section]]] = {
    record: _record_section(record) for record in (BypassRouting, Capabilities, UsageLimit)
}
"""The sections of those fields that are records themselves."""

ToolSection: Final = tool_section()
ALIASES: Final[Mapping[str, str]] = ToolSection.key_aliases
"""Other designs' words for a tool's fields (X20)."""


def _own_tool_section(tool: type[Section]) -> type[Section]:
    keys: dict[str, Any] = {
        "loosens": (str, Field("", description="Why what it shadows need not be obeyed.")),
        "min_step": (str, Field("", description="Seen from this step of the route on.")),
    }
    return create_model("OwnToolSection", __base__=tool, __doc__="A tool of an actor, route or step alone.", **keys)


OwnToolSection: Final = _own_tool_section(ToolSection)


ServerToolSection: Final = create_model(
    "ServerToolSection", __base__=ToolSection, __doc__="What is wanted of a tool that was imported of an MCP server."
)
"""For editors alone: such a tool has no handler of its own."""


def tool_table(cls: type = Tool) -> str:
    """Writes the table of docs/manifest.md: each key, what it means, and what holds where it is left out."""
    declared = tool_fields(cls)
    order = dict.fromkeys((*_FIRST, *declared))
    rows = [_row(declared[name]) for name in order if declared[name].spec.key is not IN_CODE]
    rows.insert(_FIRST.index("handler") + 1, f"| `per_call` | {_PER_CALL} [Below](#handlers-of-one-call). | none |")
    reducer = f"| `reducer` | {_REDUCER} [results.md](results.md#reducers). | none |"
    return "\n".join(["| key | meaning | default |", "|---|---|---|", *rows, reducer])


def _row(field: ToolField) -> str:
    default = "required" if field.name == "handler" else field.spec.unset or _default(field.default)
    return f"| `{field.name}` | {' '.join(field.description.split())} | {default} |"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str) and value:
        return f"`{value}`" if value.isalpha() else f'`"{value}"`'
    return "empty" if value == "" else "none"
