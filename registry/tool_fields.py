"""The declaration of a field: how it is described, hashed and written in a manifest.

A field is an annotated line of a record, such as `Tool` or `Actor`, with its description under it. The manifest's
section and JSON Schema, and the table of docs/manifest.md, are made of that line. So are the keywords of `@tool`, the
hashes and the normal form of tools.
"""

import ast
import dataclasses
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from signoff.formats.nearest_name import did_you_mean
from signoff.registry.hooks import Hook

IN_CODE: Final = object()
"""Instead of the type of a key: the manifest has no key for this field."""

Hashed = Literal["definition", "catalog", "no"]


@dataclass(frozen=True)
class FieldSpec:
    """The properties of a declared field beside its type, its default and its description."""

    hashed: Hashed = "catalog"
    """`definition`: a change makes approvals stale. `catalog`: a change is another catalog. `no`: neither.

    Of a function only that there is one is covered: its code has nothing that is the same in every process.
    """
    shadow: Literal["", "same", "subset"] = ""
    """What a tool that shadows one with it must have here (X03): the same, or some of the same and no others."""
    key: Any = None
    """The type of its key in the manifest, where that is not the field's own; `IN_CODE`: it has no key."""
    aliases: tuple[str, ...] = ()
    """Other designs' words for it (X20)."""
    form: str = ""
    """What it has to be, as words after `needs FIELD to be`; where it is empty, the type says so."""
    unset: str = ""
    """What holds where it is not given, for the documentation; where it is empty, the default says so."""


DEFINITION: Final = FieldSpec(hashed="definition")
_PLAIN: Final = FieldSpec()


def _as_tuple(value: Any) -> Any:
    # A list could be changed after it was hashed. A text is left to be refused: its letters are no names.
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""Texts, given as a tuple or a list."""


class FieldProblem(NamedTuple):
    """A mistake in a declaration."""

    field: str
    """The field, nested ones dotted."""
    value: object
    """Its value."""
    why: str
    """What to say after the tool's name."""


@dataclass(frozen=True)
class ToolField:
    """One declared field of a record."""

    name: str
    """Its name."""
    info: FieldInfo
    """Its type, default and metadata, as pydantic read them."""
    description: str
    """All of the text under it."""
    spec: FieldSpec
    """How it is hashed and written."""
    hook: Hook[Any] | None
    """The hook that its value is."""
    default: Any
    """Its default; None where it is required."""

    @property
    def summary(self) -> str:
        """The first paragraph of its description: what editors show."""
        return _first_paragraph(self.description)


_KNOWN: Final[dict[type[Any], Mapping[str, ToolField]]] = {}


def tool_fields(cls: type[Any]) -> Mapping[str, ToolField]:
    """Return the fields that a dataclass declares, by name, in their order."""
    if cls not in _KNOWN:
        infos: Mapping[str, FieldInfo] | None = getattr(cls, "__pydantic_fields__", None)
        infos = _infos(cls) if infos is None else infos
        _KNOWN[cls] = {name: _tool_field(cls, name, info) for name, info in infos.items()}
    return _KNOWN[cls]


def _infos(cls: type[Any]) -> Mapping[str, FieldInfo]:
    hints = get_type_hints(cls, include_extras=True)
    infos = {each.name: FieldInfo.from_annotation(hints[each.name]) for each in dataclasses.fields(cls)}
    for each in dataclasses.fields(cls):
        if each.default is not dataclasses.MISSING:
            infos[each.name].default = each.default
        elif each.default_factory is not dataclasses.MISSING:
            infos[each.name].default_factory = each.default_factory
    return infos


def _tool_field(cls: type, name: str, info: FieldInfo) -> ToolField:
    spec = next((each for each in info.metadata if isinstance(each, FieldSpec)), _PLAIN)
    hook = next((each for each in info.metadata if isinstance(each, Hook)), None)
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    return ToolField(name, info, _description(cls, name) or info.description or "", spec, hook, default)


def first_words(cls: type, name: str) -> str:
    """Return the first paragraph of the text under a field of a class."""
    return _first_paragraph(_description(cls, name))


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _description(cls: type, name: str) -> str:
    return next((texts[name] for texts in map(_texts, cls.__mro__) if name in texts), "")


# In place of pydantic's `use_attribute_docstrings`, which looks for the source of each class and its bases eight times:
# that was 80 ms, a fifteenth of the start of every program.
@cache
def _texts(cls: type) -> Mapping[str, str]:
    """Returns the text under each field that a class itself declares, and none where its module has no source."""
    if "__annotations__" not in vars(cls):
        return {}
    try:
        module = inspect.getsource(sys.modules[cls.__module__])
    except (OSError, TypeError):
        return {}
    return {name: inspect.cleandoc(text) for name, text in _texts_under(_declaration(ast.parse(module), cls))}


def _declaration(tree: ast.Module, cls: type) -> ast.ClassDef | None:
    named = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == cls.__name__)
    return next(named, None)


def _texts_under(declaration: ast.ClassDef | None) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(declaration.body if declaration else ()):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                yield name, words


def hashed_content(tool: Any) -> dict[str, object]:
    """Returns the part of a tool that a catalog's hash covers beside its definition: what differs from defaults.

    So a field that a later version adds changes the hash of no tool that does not use it.
    """
    values = vars(tool)
    return {
        name: _plain(values[name])
        for name, field in tool_fields(type(tool)).items()
        if field.spec.hashed == "catalog" and values[name] is not field.default and values[name] != field.default
    }


def dropped_gate(tool: Any, over: Iterable[Any]) -> str:
    """Returns the first field that is a gate of a tool of `over`, and that `tool` would stand there without; or "".

    Functions are the same or not: what another one says cannot be compared.
    """
    gates = [field for field in tool_fields(type(tool)).values() if field.spec.shadow]
    dropped = (field.name for each in over for field in gates if not _keeps(field, vars(tool), vars(each)))
    return next(dropped, "")


def _keeps(field: ToolField, own: Mapping[str, Any], shadowed: Mapping[str, Any]) -> bool:
    mine, theirs = own[field.name], shadowed[field.name]
    if theirs == field.default or mine == theirs:
        return True
    # Compared as they are written: two that mean the same are refused, none that is wider gets through.
    return field.spec.shadow == "subset" and bool(mine) and set(mine) <= set(theirs)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float):
        # RFC 8785 writes both alike; without a float `canonical_json` takes its quick way.
        return int(value) if value.is_integer() else value
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = ((field, vars(value)[field.name]) for field in dataclasses.fields(value))
        return {field.name: _plain(each) for field, each in given if each != field.default}
    if callable(value):
        return True
    if isinstance(value, Mapping):
        return {name: True if callable(each) else each for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def field_problem(cls: type, error: ErrorDetails) -> FieldProblem:
    """Says in Signoff's words what pydantic found wrong with the fields given to `cls`."""
    loc = [str(each) for each in error["loc"]]
    name = loc[0] if loc else ""
    fields, kind = tool_fields(cls), error["type"]
    if kind == "unexpected_positional_argument":
        return FieldProblem("", error["input"], "takes its fields by name, such as `Tool(name=..., ...)`")
    if name not in fields:
        near = did_you_mean(name, fields)
        return FieldProblem(
            name, error["input"], f"has no field `{name}`{near}; fields are {', '.join(f'`{f}`' for f in fields)}"
        )
    field = fields[name]
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return FieldProblem(name, None, f"is declared without `{name}`, which every tool has")
    if kind == "hook":
        return FieldProblem(name, error["input"], error["msg"])
    value = error["input"]
    allowed = [str(each) for each in _literals(field.info.annotation)]
    if allowed:
        listed = ", ".join(f"`{each}`" for each in allowed)
        return FieldProblem(
            name, value, f"has `{name}` `{value}`; allowed: {listed}{did_you_mean(str(value), allowed)}"
        )
    return FieldProblem(name, value, f"needs `{name}` to be {field.spec.form or _form(field.info.annotation)}")


def _literals(annotation: Any) -> Iterator[object]:
    for each in get_args(annotation):
        if each is not type(None):
            yield from _literals(each) if get_args(each) else ((each,) if isinstance(each, str) else ())


def _form(annotation: Any) -> str:
    first = annotation if not get_args(annotation) else get_args(annotation)[0]
    words: Mapping[Any, str] = {bool: "true or false", str: "text", int: "a whole number", float: "a number"}
    if first in words and annotation is first:
        return words[first]
    return "a list of names" if "tuple" in str(annotation) else f"a `{getattr(first, '__name__', first)}`"
