"""Evaluates with cel-expr-python, the binding of Google's C++ runtime.

It runs first, because it rejects hostile input in milliseconds. Its checker checks types, but nothing is evaluated in a
typed environment.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2, wrappers_pb2

from signoff.policy.answer import EngineOutcome
from signoff.policy.operators import lower_ascii, split_text, upper_ascii
from signoff.policy.schema_shapes import DataShape

NAME: Final = "cel-expr-python"
VERSION: Final = version("cel-expr-python")


# The engine's own operators, so that `includes` compares like `in` and `contains`. celpy's version has other code
# (operators).
_IN: Final = cel.NewEnv(variables={"holder": cel.Type.DYN, "item": cel.Type.DYN}).compile("item in holder")
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# CEL's other reserved words may follow a point.
_UNSPEAKABLE: Final = frozenset({"in", "true", "false", "null"})
# No `number`: the checker compares no double with an int, and would reject `args.price < 50`. It stays dynamic.
_SCALARS: Final = {"int": _FIELD.TYPE_INT64, "string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL}
# For nullable values, which a plain scalar of protobuf cannot be.
_WRAPPERS: Final = {
    "int": ".google.protobuf.Int64Value",
    "string": ".google.protobuf.StringValue",
    "bool": ".google.protobuf.BoolValue",
}
_ANY: Final = ".google.protobuf.Value"
_MAP: Final = ".google.protobuf.Struct"
_KNOWN: Final = (struct_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR)
_FILE: Final = descriptor_pb2.FileDescriptorProto(
    name="policy.proto", package="policy", dependency=[known.name for known in _KNOWN]
)


def _is_in(holder: list[Any], item: Any) -> bool:
    found = _IN.eval(data={"holder": holder, "item": item})
    if found.type() != cel.Type.BOOL:
        raise TypeError("no such overload")
    return found.value() is True


# At run time an overload of DYN accepts nothing, so there is one for each kind in JSON and CEL.
_ITEMS: Final = (
    *(cel.Type.NULL, cel.Type.BOOL, cel.Type.INT, cel.Type.UINT, cel.Type.DOUBLE, cel.Type.STRING, cel.Type.BYTES),
    *(cel.Type.LIST, cel.Type.MAP, cel.Type.TIMESTAMP, cel.Type.DURATION),
)
INCLUDES: Final = cel.FunctionDecl(
    "includes",
    [
        cel.Overload(
            "string_includes_string", cel.Type.BOOL, [cel.Type.STRING, cel.Type.STRING], True, str.__contains__
        ),
        *(
            cel.Overload(f"list_includes_{kind.name().lower()}", cel.Type.BOOL, [cel.Type.LIST, kind], True, _is_in)
            for kind in _ITEMS
        ),
    ],
)
"""JavaScript's `list.includes(item)` and `text.includes(part)`.

The designs use them for rules over tags.
"""


def _join(items: list[Any], separator: str) -> str:
    if any(not isinstance(each, str) for each in items):
        raise TypeError("no such overload")
    return separator.join(items)


_TEXT: Final = cel.Type.STRING
EXTENSIONS: Final = (
    INCLUDES,
    cel.FunctionDecl("lowerAscii", [cel.Overload("string_lower_ascii", _TEXT, [_TEXT], True, lower_ascii)]),
    cel.FunctionDecl("upperAscii", [cel.Overload("string_upper_ascii", _TEXT, [_TEXT], True, upper_ascii)]),
    cel.FunctionDecl("split", [cel.Overload("string_split_string", cel.Type.LIST, [_TEXT, _TEXT], True, split_text)]),
    cel.FunctionDecl("join", [cel.Overload("list_join_string", _TEXT, [cel.Type.LIST, _TEXT], True, _join)]),
)
"""The functions beyond CEL's own.

These are `includes`, and functions of CEL's string extension whose cost is known.
"""


@dataclass(frozen=True)
class FirstProgram:
    """One expression over variables of type DYN.

    An absent field is therefore an error, never 0 or false.
    """

    expression: cel.Expression

    def run(self, data: Mapping[str, Any]) -> EngineOutcome:
        """Never raises. `data` is plain JSON."""
        try:
            value = self.expression.eval(data=dict(data))
            # An error is returned as a value, with a truthy text. Check its type before anything else.
            kind = value.type()
            if kind == cel.Type.BOOL:
                return EngineOutcome("true") if value.value() is True else EngineOutcome("false")
            if kind == cel.Type.ERROR:
                return EngineOutcome("error", _note(str(value.value())))
            return EngineOutcome("other", f"a {kind.name().lower()}", value.plain_value())
        except Exception as error:
            return EngineOutcome("error", _note(str(error)))


def first_program(text: str, variables: Iterable[str]) -> FirstProgram:
    """Raises `RuntimeError` with the compiler's messages."""
    return FirstProgram(_environment(tuple(sorted(variables))).compile(text))


# There are three sets of variables: for policies, for rules and filters, and for grants.
@lru_cache(maxsize=16)
def _environment(variables: tuple[str, ...]) -> cel.Env:
    return cel.NewEnv(variables=dict.fromkeys(variables, cel.Type.DYN), functions=list(EXTENSIONS))


def _note(text: str) -> str:
    # The text after ` : ` may quote the data, unless it lists types.
    line = text.partition("\n")[0]
    code, _, rest = line.partition(": ")
    message = rest if code.isupper() else line
    head, _, tail = message.partition(" : ")
    shown = f"{head}: {tail}" if head == "No matching overloads found" else head
    return shown.removesuffix(" [INTERNAL]")[:200]


def is_cel_name(name: str) -> bool:
    """Return whether CEL can spell `name` after a point."""
    return _NAME.match(name) is not None and name not in _UNSPEAKABLE


def typed_environment(variables: Mapping[str, DataShape]) -> cel.Env:
    """Return an environment whose checker knows every declared field of `variables`, objects or maps."""
    # A separate pool: each environment has its own `policy.proto`, and the default pool accepts a file name once.
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto()
    file.CopyFrom(_FILE)
    for known in _KNOWN:
        copy = descriptor_pb2.FileDescriptorProto()
        known.CopyToProto(copy)
        pool.Add(copy)
    numbers = itertools.count()
    # A map with arbitrary names, the arguments of any tool, is not checked further.
    types = {name: _MAP if shape.kind == "map" else _message(file, shape, numbers) for name, shape in variables.items()}
    pool.Add(file)
    variables_by_type = {name: cel.Type(full.removeprefix(".")) for name, full in types.items()}
    return cel.NewEnv(pool, variables=variables_by_type, functions=list(EXTENSIONS))


def _message(file: descriptor_pb2.FileDescriptorProto, shape: DataShape, numbers: Iterator[int]) -> str:
    message = file.message_type.add(name=f"Object{next(numbers)}")
    # Fields have JSON names even if they are unused, and those of `a_b` and `aB` would collide.
    message.options.deprecated_legacy_json_field_conflicts = True
    spoken = [(name, inner) for name, inner in shape.fields.items() if is_cel_name(name)]
    for number, (name, inner) in enumerate(spoken, 1):
        added = message.field.add(name=name, number=number)
        # Protobuf has neither lists of lists nor nullable lists: such a list stays dynamic.
        if inner.kind == "list" and not inner.nullable and inner.items is not None and inner.items.kind != "list":
            added.label = _FIELD.LABEL_REPEATED
            inner = inner.items
        _set_type(file, added, inner, numbers)
    return f".policy.{message.name}"


def _set_type(
    file: descriptor_pb2.FileDescriptorProto,
    added: descriptor_pb2.FieldDescriptorProto,
    shape: DataShape,
    numbers: Iterator[int],
) -> None:
    if shape.kind in _SCALARS and not shape.nullable:
        added.type = _SCALARS[shape.kind]
        return
    added.type = _FIELD.TYPE_MESSAGE
    if shape.kind == "object":
        added.type_name = _message(file, shape, numbers)
    elif shape.kind == "map" and not shape.nullable:
        added.type_name = _MAP
    else:
        added.type_name = _WRAPPERS.get(shape.kind, _ANY)
