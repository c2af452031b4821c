"""Parses sections of YAML files: closed models."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from signoff.formats.nearest_name import KEYS_LISTED, did_you_mean
from signoff.formats.yaml_file import Place, YamlFile

_EXPECTED: Final = {
    "string_type": "must be text; put it in quotes",
    "bool_type": "must be `true` or `false`",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "missing": "is missing",
}


class Section(BaseModel):
    """Closed and strict: a text is not a number, and an unknown key is an error.

    Descriptions are shown by editors and are part of the manifest's schema.
    """

    key_aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of its fields, mapped to fields."""

    keys_in_help: ClassVar[bool] = True
    """Whether `signoff manifest schema --help` lists its keys."""

    # A manifest uses few of the sections: pydantic prepares each when it reads the first value.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        loc_by_alias=False,
        defer_build=True,
    )


S = TypeVar("S", bound=Section)


def read_section(file: YamlFile, place: Place, model: type[S], data: Any, what: str) -> S:
    """Raises `ConfigError` with file, line, key, allowed values and the nearest name."""
    # A key without a value is null in YAML.
    if data is None:
        data = {}
    if not isinstance(data, Mapping):
        raise file.error(place, f"{what} must be a mapping of keys and values")
    written = check_keys(file, place, model, data, what)
    try:
        return model.model_validate({field: data[key] for field, key in written.items()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    field = str(first["loc"][0])
    inner = (written.get(field, field), *first["loc"][1:])
    raise file.error((*place, *inner), f"`{written.get(field, field)}` of {what} {_expectation(first)}", field=field)


def spellings(model: type[BaseModel]) -> dict[str, str]:
    """Map each accepted key of `model` to its field."""
    aliases = dict(model.key_aliases) if issubclass(model, Section) else {}
    return aliases | {to_camel(name): name for name in model.model_fields} | {name: name for name in model.model_fields}


def check_keys(
    file: YamlFile, place: Place, model: type[BaseModel], data: Mapping[str, Any], what: str
) -> dict[str, str]:
    """Raise `ConfigError` for unknown keys, and for two keys of one field with different values."""
    known = spellings(model)
    written: dict[str, str] = {}
    for key in data:
        field = known.get(key)
        if field is None:
            # In the spelling used, snake_case or camelCase.
            near = did_you_mean(key, [name for name in known if (name.islower() if key.islower() else "_" not in name)])
            hint = f"{near} {KEYS_LISTED}" if near else f"; {KEYS_LISTED}"
            if issubclass(model, Section) and not model.keys_in_help:
                hint = near or f"; allowed: {', '.join(f'`{name}`' for name in model.model_fields)}"
            raise file.error((*place, key), f"unknown key `{key}` of {what}{hint}", field=key)
        first = written.setdefault(field, key)
        if data[first] != data[key]:
            raise file.error(
                (*place, key), f"`{first}` and `{key}` of {what} mean the same and differ; keep one", field=field
            )
    return written


def _expectation(error: ErrorDetails) -> str:
    if error["type"] == "literal_error":
        return f"must be {error['ctx']['expected'].replace(chr(39), '`')}" if "ctx" in error else "is not allowed"
    if error["type"] == "extra_forbidden":
        return f"has an unknown key `{error['loc'][-1]}`"
    return _EXPECTED.get(error["type"]) or f"is not right: {error['msg'][:1].lower()}{error['msg'][1:]}"
