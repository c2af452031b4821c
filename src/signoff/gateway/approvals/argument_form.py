"""Makes a form of a call's arguments from the tool's JSON Schema: types, choices, required fields.

Simple values get a plain field each, also in nested objects. Every other value gets a JSON field. Pure.
"""

import copy
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from signoff.approvals.argument_rows import label_of
from signoff.approvals.redaction import redact_arguments, secret_values
from signoff.contracts.content import Words
from signoff.formats.json_schema import dotted_path
from signoff.formats.schema_node import SchemaNode
from signoff.formats.visible_text import number, one_line
from signoff.gateway.approvals.secret_masks import masked_args

FIELDS: Final = 60
"""With more fields, the arguments become one JSON field."""
NESTED: Final = 3
WIDE_CHARS: Final = 60
HELP_CHARS: Final = 200
LABEL_CHARS: Final = 120
_SCALARS: Final = ("string", "number", "integer")

Kind = Literal["text", "number", "integer", "choice", "lines", "json"]
Path = tuple[str, ...]


class AbsentValue:
    """The type of `ABSENT`, the value of a missing argument."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __copy__(self) -> "AbsentValue":
        return self

    def __deepcopy__(self, memo: object) -> "AbsentValue":
        return self


ABSENT: Final = AbsentValue()


@dataclass(frozen=True)
class FieldOption:
    """One value of a closed set, as JSON and as shown."""

    value: str
    label: str


@dataclass(frozen=True)
class ArgumentField:
    """One field. `original` is the value in the request, or `ABSENT`. `shown` is the initial text.

    A `secret` field shows nothing; left empty, it keeps its value. `needed` is false if the value may be absent.
    `is_null` says whether it is null. `problem` explains a wrong value.
    """

    path: Path
    kind: Kind
    label: str
    needed: bool
    original: Any
    shown: str = ""
    wide: bool = False
    nullable: bool = False
    is_null: bool = False
    items: str = ""
    choices: tuple[FieldOption, ...] = ()
    help: str = ""
    least: float | None = None
    most: float | None = None
    secret: bool = False
    problem: Words = ""

    @property
    def key(self) -> str:
        """The field's name in a form: a JSON pointer after `args`."""
        return "args" + "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in self.path)

    @property
    def null_key(self) -> str:
        """The form name that sets the value to null, regardless of the field's text."""
        return f"null{self.key.removeprefix('args')}"

    @property
    def dotted(self) -> str:
        return dotted_path(self.path)


def fields_of(
    args: Mapping[str, Any], schema: Mapping[str, Any], secrets: Collection[str] = ()
) -> tuple[ArgumentField, ...]:
    """Includes possible arguments that are absent. `secrets` are dotted names of hidden values."""
    form = _Form(frozenset(secrets), masked_args(args, secrets))
    args = redact_arguments(args, secrets, secret_values(args, secrets))
    root = SchemaNode.of(schema).resolve()
    fields = tuple(form.fields((), "", args, root)) if _simple_object(root) else ()
    few = 0 < len(fields) <= FIELDS or not (fields or args)
    return fields if few else (whole_field(args, secrets),)


def whole_field(args: Mapping[str, Any], secrets: Collection[str] = ()) -> ArgumentField:
    form = _Form(frozenset(secrets), masked_args(args, secrets))
    return form.json((), "", args, needed=True)


@dataclass(frozen=True)
class _Form:
    secrets: frozenset[str]
    masked: Any

    def fields(self, path: Path, above: str, args: Any, schema: SchemaNode) -> Iterator[ArgumentField]:
        """`args` are the object's values, or `ABSENT`."""
        properties, required = schema.fields, schema.required
        given: Mapping[str, Any] = {} if isinstance(args, AbsentValue) else args
        for name, written in properties.items():
            below = written.resolve()
            label = (f"{above} / " if above else "") + label_of(name, below)
            value = given.get(name, ABSENT)
            here = (*path, name)
            needed = name in required
            if self._opens(here, value, below):
                yield from self.fields(here, label, value, below)
            else:
                yield self.field(here, label, value, written, needed=needed)
        for name, value in given.items():
            if name not in properties:
                label = (f"{above} / " if above else "") + label_of(name)
                yield self.json((*path, name), label, value, needed=False)

    def field(self, path: Path, label: str, value: Any, written: SchemaNode, *, needed: bool) -> ArgumentField:
        """Use JSON if a simpler field would change the value."""
        schema = written.resolve()
        described = schema.keywords.get("description")
        field = replace(
            self.json(path, label, value, needed=needed),
            help=one_line(described, HELP_CHARS).text if isinstance(described, str) else "",
            nullable=schema.has_null or written.has_null,
            is_null=value is None,
        )
        if "enum" in schema.keywords or "const" in schema.keywords or schema.kind == "boolean":
            return _choice(field, schema.keywords) or field
        match schema.kind:
            case "number" | "integer":
                return _number(field, schema.keywords, whole=schema.kind == "integer")
            case "string":
                return _text(field)
            case "array":
                return _list(field, schema)
        return field

    def json(self, path: Path, label: str, value: Any, *, needed: bool) -> ArgumentField:
        """Uses ASCII, so that every character is visible. Masks hidden values."""
        secret = ".".join(path) in self.secrets
        shown = "" if secret or isinstance(value, AbsentValue) else json.dumps(self._masked_at(path), indent=2)
        return ArgumentField(
            path=path,
            kind="json",
            label=one_line(label, LABEL_CHARS).text,
            needed=needed,
            original=copy.deepcopy(value),
            shown=shown,
            wide=True,
            secret=secret,
        )

    def _opens(self, path: Path, value: Any, schema: SchemaNode) -> bool:
        if ".".join(path) in self.secrets or len(path) >= NESTED or not _simple_object(schema):
            return False
        return isinstance(value, Mapping | AbsentValue)

    def _masked_at(self, path: Path) -> Any:
        value = self.masked
        for part in path:
            value = value[part]
        return value


def is_plain(text: str) -> bool:
    """Return whether a form shows and returns `text` unchanged, without invisible characters."""
    return "\r" not in text and all(one_line(line, len(line) + 2).text == line for line in text.split("\n"))


def _simple_object(schema: SchemaNode) -> bool:
    return schema.keywords.get("type") == "object" and bool(schema.fields)


def _choice(field: ArgumentField, schema: Mapping[str, Any]) -> ArgumentField | None:
    """Return `None` if the allowed values do not fit one line each."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [True, False])
    if field.secret or any(isinstance(value, list | dict) for value in values):
        return None
    is_present = not isinstance(field.original, AbsentValue)
    choices = tuple(FieldOption(json.dumps(value), _word(value)) for value in values)
    shown = json.dumps(field.original) if is_present else ""
    if is_present and shown not in {choice.value for choice in choices}:
        return None
    return replace(field, kind="choice", choices=choices, shown=shown, wide=False)


def _number(field: ArgumentField, schema: Mapping[str, Any], *, whole: bool) -> ArgumentField:
    value = field.original
    if not (field.secret or _is_number(value) or value is None or isinstance(value, AbsentValue)):
        return field
    return replace(
        field,
        kind="integer" if whole else "number",
        shown=number(value) if _is_number(value) and not field.secret else "",
        wide=False,
        least=_bound(schema, "minimum"),
        most=_bound(schema, "maximum"),
    )


def _text(field: ArgumentField) -> ArgumentField:
    value = field.original
    if field.secret:
        return replace(field, kind="text", wide=False)
    if not (value is None or isinstance(value, AbsentValue) or (isinstance(value, str) and is_plain(value))):
        return field
    text = value if isinstance(value, str) else ""
    return replace(field, kind="text", shown=text, wide="\n" in text or len(text) > WIDE_CHARS)


def _list(field: ArgumentField, schema: SchemaNode) -> ArgumentField:
    value, items = field.original, schema.item().resolve().keywords.get("type")
    if items not in _SCALARS or "prefixItems" in schema.keywords or field.secret or not _fits_lines(value):
        return field
    lines = "\n".join(_line(item) for item in value) if isinstance(value, list) else ""
    return replace(field, kind="lines", shown=lines, items=str(items))


def _word(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value, LABEL_CHARS).text
    return "" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else number(value)


def _fits_lines(value: Any) -> bool:
    if not isinstance(value, list):
        return value is None or isinstance(value, AbsentValue)
    return all(_is_number(item) or (isinstance(item, str) and _is_line(item)) for item in value)


def _is_line(text: str) -> bool:
    return text != "" and text == text.strip() and "\n" not in text and is_plain(text)


def _line(item: Any) -> str:
    return item if isinstance(item, str) else number(item)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bound(schema: Mapping[str, Any], name: str) -> float | None:
    value = schema.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
