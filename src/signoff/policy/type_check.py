"""Builds a typed CEL environment of shapes: it only checks, nothing is evaluated in it."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Final

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2, wrappers_pb2

from signoff.policy.first_engine import EXTENSIONS
from signoff.policy.schema_shapes import DataShape

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# CEL's other reserved words may stand behind a point.
_UNSPEAKABLE: Final = frozenset({"in", "true", "false", "null"})
# No `number`: the checker compares no double with an int, and would refuse `args.price < 50`. It stays dynamic.
_SCALARS: Final = {"int": _FIELD.TYPE_INT64, "string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL}
# For what may be null, which a plain scalar of protobuf cannot be.
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


def is_cel_name(name: str) -> bool:
    """Returns whether CEL can spell `name` after a point."""
    return _NAME.match(name) is not None and name not in _UNSPEAKABLE


def typed_environment(variables: Mapping[str, DataShape]) -> cel.Env:
    """Builds an environment whose checker knows every declared field of `variables`, objects or maps of free names."""
    # A pool of its own: each environment has its own `policy.proto`, and the default pool takes a file name once.
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto()
    file.CopyFrom(_FILE)
    for known in _KNOWN:
        copy = descriptor_pb2.FileDescriptorProto()
        known.CopyToProto(copy)
        pool.Add(copy)
    numbers = itertools.count()
    # One of free names is checked no further: the arguments of any tool.
    types = {name: _MAP if shape.kind == "map" else _message(file, shape, numbers) for name, shape in variables.items()}
    pool.Add(file)
    variables_by_type = {name: cel.Type(full.removeprefix(".")) for name, full in types.items()}
    return cel.NewEnv(pool, variables=variables_by_type, functions=list(EXTENSIONS))


def _message(file: descriptor_pb2.FileDescriptorProto, shape: DataShape, numbers: Iterator[int]) -> str:
    """Adds a message for an object; returns its full name with a leading point."""
    message = file.message_type.add(name=f"Object{next(numbers)}")
    # Fields have JSON names whether anybody reads them or not; those of `a_b` and `aB` would collide.
    message.options.deprecated_legacy_json_field_conflicts = True
    spoken = [(name, inner) for name, inner in shape.fields.items() if is_cel_name(name)]
    for number, (name, inner) in enumerate(spoken, 1):
        added = message.field.add(name=name, number=number)
        # Protobuf has neither a list of lists nor one that may be null: such a list stays dynamic.
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
