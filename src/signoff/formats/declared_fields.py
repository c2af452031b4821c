"""The declaration of a field: its description, hashing and form in a manifest.

A field is an annotated line of a record such as `Tool` or `Actor`, followed by its description. The line
generates the manifest's section and JSON Schema, the table in docs/manifest.md, the keywords of `@tool`, and the hashes
and normal form of tools.
"""

import ast
import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

IN_CODE: Final = object()
"""Used instead of the type of a key: the manifest has no key for this field."""


class FunctionForm:
    """Annotates a field that takes a function. In a manifest it is `module:attribute`."""


Hashed = Literal["definition", "catalog", "no"]


@dataclass(frozen=True)
class FieldSpec:
    """The properties of a declared field."""

    hashed: Hashed = "catalog"
    """The effect of a change.

    `definition` makes approvals stale, `catalog` makes another catalog. `no` has neither effect. For a function, only
    its presence counts, because its code has no stable form in all processes.
    """
    shadow: Literal["", "same", "subset"] = ""
    """The value required of a tool that shadows one with this field.

    It is the same, or a subset.
    """
    key: Any = None
    """The type of its key in the manifest, if not the field's.

    `IN_CODE` means that it has none.
    """
    aliases: tuple[str, ...] = ()
    form: str = ""
    """The required form, as text after `needs FIELD to be`. If empty, the type states it."""
    unset: str = ""
    """The meaning of a missing value, for the documentation. If empty, the default states it."""


DEFINITION: Final = FieldSpec(hashed="definition")
_PLAIN: Final = FieldSpec()


def _as_tuple(value: Any) -> Any:
    # Convert lists, which could be changed after hashing. Leave a text to be rejected: its letters are not names.
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
"""Texts, as a tuple or a list."""


@dataclass(frozen=True)
class DeclaredField:
    """One declared field of a record."""

    name: str
    info: FieldInfo
    """As read by pydantic."""
    description: str
    """The whole text below the field."""
    spec: FieldSpec
    function: FunctionForm | None
    """`None` if the field's value is data."""
    default: Any
    """`None` if it is required."""

    @property
    def summary(self) -> str:
        """The first paragraph of its description, shown by editors."""
        return _first_paragraph(self.description)


_KNOWN: Final[dict[type[Any], Mapping[str, DeclaredField]]] = {}


def declared_fields(cls: type[Any]) -> Mapping[str, DeclaredField]:
    if cls not in _KNOWN:
        infos: Mapping[str, FieldInfo] | None = getattr(cls, "__pydantic_fields__", None)
        infos = _infos(cls) if infos is None else infos
        _KNOWN[cls] = {name: _declared_field(cls, name, info) for name, info in infos.items()}
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


def _declared_field(cls: type, name: str, info: FieldInfo) -> DeclaredField:
    spec = next((each for each in info.metadata if isinstance(each, FieldSpec)), _PLAIN)
    function = next((each for each in info.metadata if isinstance(each, FunctionForm)), None)
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    return DeclaredField(name, info, _description(cls, name) or info.description or "", spec, function, default)


def first_words(cls: type, name: str) -> str:
    return _first_paragraph(_description(cls, name))


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _description(cls: type, name: str) -> str:
    return next((texts[name] for texts in map(_texts, cls.__mro__) if name in texts), "")


# Replaces pydantic's `use_attribute_docstrings`, which searches the source of each class and its bases eight times.
# That took 80 ms, a fifteenth of every program's start.
@cache
def _texts(cls: type) -> Mapping[str, str]:
    """Return none if the class's module has no source."""
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
