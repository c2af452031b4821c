"""Creates a section of a YAML file from the record of its fields, and vice versa."""

import types
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema, create_model
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from signoff.formats.declared_fields import IN_CODE, DeclaredField, FieldSpec, FunctionForm, declared_fields
from signoff.formats.durations import Seconds, as_text
from signoff.formats.yaml_section import Section


def _handed(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str | list | tuple | dict):
        raise PydanticCustomError("string_type", "must be text")
    return value


Handed = SkipJsonSchema[Annotated[Any, AfterValidator(_handed)]]
"""An object that a program passes directly, such as a function. YAML has none."""
Reference = Annotated[str | Handed, WithJsonSchema({"type": "string", "pattern": "^[^:]+:.+$"})]
"""`module:attribute`, or the object itself."""


class RecordSection(Section):
    """A section created from a record."""

    record: ClassVar[type[Any]]
    declared: ClassVar[Mapping[str, DeclaredField]]
    """The fields of the record by name."""


def record_section(record: type[Any], **more: Any) -> type[RecordSection]:
    """Return the section of a dataclass or a model, with a key for each declared field.

    Fields marked `IN_CODE` have no key. The section also has the keys of `more`. For a field, `more` contains
    the type of its key, if its record is in a lower layer than the manifest and cannot name that type.
    """
    declared = {name: _with_key(field, more.pop(name, None)) for name, field in declared_fields(record).items()}
    keys = {field.name: _key(field) for field in declared.values() if field.spec.key is not IN_CODE} | more
    words = " ".join(str(record.__doc__).partition("\n\n")[0].split())
    created: type[RecordSection] = create_model(
        f"{record.__name__}Section", __base__=RecordSection, __doc__=words, **keys
    )
    created.record, created.declared = record, declared
    created.key_aliases = {alias: field.name for field in declared.values() for alias in field.spec.aliases}
    return created


def _with_key(field: DeclaredField, key: Any) -> DeclaredField:
    return field if key is None else replace(field, spec=replace(field.spec, key=key))


nested_section = cache(record_section)
"""Return the section of a record that is a field of another one."""


def record_fields(section: RecordSection) -> dict[str, Any]:
    """Return the values of a section for its record: tuples for lists, records for sections.

    Values with an explicit key type, and references to functions, are not converted.
    """
    declared = section.declared
    return {name: _value(declared[name], value) for name, value in section if name in declared}


def to_record(section: RecordSection) -> Any:
    return section.record(**record_fields(section))


def key_type(field: DeclaredField) -> Any:
    if field.spec.key is not None:
        return field.spec.key
    return Reference if field.function is not None else _type_in_yaml(field.info.annotation)


def _key(field: DeclaredField) -> tuple[Any, Any]:
    kind, required = key_type(field), field.info.is_required()
    limits = [each for each in field.info.metadata if not isinstance(each, FieldSpec | FunctionForm)]
    annotated: Any = Annotated
    if limits and field.spec.key is None:
        kind = annotated[(kind, *limits)]
    if not required and field.default is None:
        kind = kind | None
    return kind, Field(... if required else _default(field), description=field.summary)


def _default(field: DeclaredField) -> Any:
    if field.default is not None and get_origin(field.spec.key) is dict:
        return {}
    return list(field.default) if isinstance(field.default, tuple) else field.default


def _type_in_yaml(annotation: Any) -> Any:
    annotation, optional = _bare(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    kind = annotation
    if origin is tuple:
        kind = list[_type_in_yaml(arguments[0])]  # type: ignore[misc]
    elif origin in (Mapping, dict):
        kind = dict[str, _type_in_yaml(arguments[1])]  # type: ignore[misc]
    elif isinstance(annotation, type) and is_dataclass(annotation):
        kind = nested_section(annotation)
    elif annotation is float:
        # A number of seconds is written as a duration.
        kind = Seconds
    return kind | None if optional else kind


def _value(field: DeclaredField, value: Any) -> Any:
    return value if field.spec.key is not None else _as_declared(field.info.annotation, value)


def _as_declared(annotation: Any, value: Any) -> Any:
    if value is None or isinstance(value, RecordSection):
        return None if value is None else to_record(value)
    annotation, _ = _bare(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return tuple(_as_declared(arguments[0], each) for each in value)
    if origin in (Mapping, dict):
        return {key: _as_declared(arguments[1], each) for key, each in value.items()}
    return value


def _bare(annotation: Any) -> tuple[Any, bool]:
    """Return whether the annotation accepts `None`, too."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [each for each in get_args(annotation) if each is not types.NoneType]
        if len(kinds) == 1:
            return _bare(kinds[0])[0], True
    return annotation, False


TABLE_HEAD = ("| key | meaning | default |", "|---|---|---|")


def section_table(*sections: type[BaseModel]) -> str:
    keys: dict[str, DeclaredField] = {}
    for section in sections:
        own = section.declared if issubclass(section, RecordSection) else {}
        keys |= {name: own.get(name, field) for name, field in declared_fields(section).items()}
    return "\n".join([*TABLE_HEAD, *map(field_row, keys.values())])


def field_row(field: DeclaredField) -> str:
    return f"| `{field.name}` | {' '.join(field.description.split())} | {_unset(field)} |"


def _unset(field: DeclaredField) -> str:
    return field.spec.unset or ("required" if field.info.is_required() else _words(field.default))


def _words(default: object) -> str:
    if isinstance(default, float):
        return f"`{as_text(default)}`"
    if isinstance(default, bool | int):
        return f"`{str(default).lower()}`"
    if isinstance(default, str) and default:
        return f"`{default}`" if default.replace("-", "").isalpha() else f'`"{default}"`'
    if isinstance(default, tuple) and default:
        return f"`[{', '.join(default)}]`"
    return "empty" if default == "" else "none"
