"""The declaration of a field: how it is described, hashed and written in a manifest.

A field is an annotated line of a record, such as `Tool` or `Actor`, with its description under it. The manifest's
section and JSON Schema, and the table of docs/manifest.md, are made of that line. So are the keywords of `@tool`, the
hashes and the normal form of tools.
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
"""Instead of the type of a key: the manifest has no key for this field."""


class FunctionForm:
    """Annotates a field that takes a function; in a manifest that is `module:attribute`."""


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


@dataclass(frozen=True)
class DeclaredField:
    """One declared field of a record."""

    name: str
    """Its name."""
    info: FieldInfo
    """Its type, default and metadata, as pydantic read them."""
    description: str
    """All of the text under it."""
    spec: FieldSpec
    """How it is hashed and written."""
    function: FunctionForm | None
    """The form of its functions; None where its value is data."""
    default: Any
    """Its default; None where it is required."""

    @property
    def summary(self) -> str:
        """The first paragraph of its description: what editors show."""
        return _first_paragraph(self.description)


_KNOWN: Final[dict[type[Any], Mapping[str, DeclaredField]]] = {}


def declared_fields(cls: type[Any]) -> Mapping[str, DeclaredField]:
    """Return the fields that a dataclass declares, by name, in their order."""
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
