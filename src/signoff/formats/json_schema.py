"""Compiles JSON Schema 2020-12. Its messages never contain a value, which may be a secret."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from signoff.contracts.content import Remark, Words
from signoff.contracts.errors import RegistrationError
from signoff.formats.linear_pattern import begin_check, pattern_problem, validator_of
from signoff.formats.nearest_name import nearest_names, quote_name
from signoff.formats.read_only import read_only
from signoff.formats.schema_node import SchemaNode
from signoff.languages.remarks import english

_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_REFERENCE: Final = re.compile(r"#/\$defs/[A-Za-z0-9_]+\Z")

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_LIMITS: Final = {
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusiveMinimum": "more_than",
    "exclusiveMaximum": "less_than",
    "multipleOf": "multiple",
    "minLength": "characters.least",
    "maxLength": "characters.most",
    "minItems": "items.least",
    "maxItems": "items.most",
    "minProperties": "properties.least",
    "maxProperties": "properties.most",
}
"""The remark of each keyword that limits a number."""


class SchemaProblem(NamedTuple):
    """One problem in the data."""

    path: str
    """Such as `items[0].price`, or "" for the whole value."""
    message: Words

    @property
    def words(self) -> Words:
        """Return the message, with the place if there is one."""
        return Remark.of("at", place=f"`{self.path}`", detail=self.message) if self.path else self.message


@dataclass(frozen=True)
class CompiledSchema:
    """A checked schema."""

    schema: Mapping[str, Any]

    @cached_property
    def validator(self) -> Draft202012Validator:
        return validator_of(self.schema)

    def check(self, value: Any) -> list[SchemaProblem]:
        """Return problems in the order of the schema. Never raises."""
        begin_check()
        try:
            return [problem for error in self.validator.iter_errors(value) for problem in _problems(error)]
        except Exception:
            # A schema can still fail on some data (endless `$ref`, invalid Unicode). Such data are not valid.
            return [SchemaProblem("", Remark.of("unchecked"))]


def compile_schema(
    schema: Mapping[str, Any], *, tool_name: str = "", field: str = "input_schema", of_object: bool = True
) -> CompiledSchema:
    """Use a read-only copy. Raises `RegistrationError` if the schema is not usable."""
    where = f"`{field}` of tool `{tool_name}`" if tool_name else f"`{field}`"

    def refuse(why: str, value: object) -> RegistrationError:
        return RegistrationError(f"{where} {why}", tool_name=tool_name, field=field, value=value)

    if not isinstance(schema, Mapping):
        raise refuse("must be a JSON Schema object", schema)
    own: dict[str, Any] = read_only(schema)
    # The URI of a dialect may end in an empty fragment.
    if str(own.get("$schema", DIALECT)).rstrip("#") != DIALECT:
        raise refuse(f"declares the dialect `{own['$schema']}`; write it in JSON Schema 2020-12", own["$schema"])
    plain = plainly_valid(own)
    try:
        if not plain:
            # Patterns are checked below, in the syntax that matches them.
            Draft202012Validator.check_schema(own, format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        place = dotted_path(error.absolute_path)
        raise refuse(f"is not valid JSON Schema 2020-12 at `{place or '(top)'}`: {error.message}", place) from None
    if of_object and own.get("type") != "object":
        raise refuse("must have `type: object` at the top: arguments are a JSON object", own.get("type"))
    pattern, why = ("", "") if plain else pattern_problem(own)
    if why:
        raise refuse(why, pattern)
    for node in SchemaNode.of(own).walk():
        for reference in node.references:
            _check_reference(own, reference, refuse)
        # Below an `$id`, a validator resolves references from there, but cards and secrets from the top: they would see
        # different schemas.
        if node.written is not own and "$id" in node.keywords and any(each.references for each in node.walk()):
            raise refuse("has an `$id` within it, above a `$ref`; leave that `$id` out", node.keywords["$id"])
    return CompiledSchema(own)


def _check_reference(own: dict[str, Any], reference: str, refuse: Callable[[str, object], RegistrationError]) -> None:
    # A remote schema could change while an approval waits: the definition hash covers only this schema.
    if not reference.startswith("#"):
        raise refuse(
            f"has the remote `$ref` `{reference}`; put the schema under `$defs` and refer to it there", reference
        )
    registry: Registry[Any] = Registry().with_resource(
        "", Resource.from_contents(own, default_specification=DRAFT202012)
    )
    try:
        registry.resolver("").lookup(reference)
    except Unresolvable:
        raise refuse(f"has the `$ref` `{reference}`, which leads nowhere", reference) from None


def dotted_path(path: Iterable[str | int]) -> str:
    """Return `["items", 0, "price"]` as `items[0].price`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def describe_place(path: Iterable[str | int]) -> str:
    """Cut each name as `quote_name` does: it may be the model's own, and of any length."""
    return dotted_path(part if isinstance(part, int) else quote_name(part)[1:-1] for part in path)


def _problems(error: ValidationError, within: tuple[str | int, ...] | None = None) -> Iterator[SchemaProblem]:
    path: tuple[str | int, ...] = tuple(error.absolute_path)[len(within or ()) :]
    given: Any = error.instance
    expected: Any = error.validator_value
    keyword = str(error.validator)
    if keyword == "required":
        # jsonschema reports one missing name for each error, and names it only in its message.
        missing = [name for name in expected if name not in given and repr(name) in error.message]
        yield from (SchemaProblem(describe_place((*path, name)), Remark.of("required")) for name in missing[:1])
    elif keyword in {"additionalProperties", "unevaluatedProperties"}:
        known = list(error.schema.get("properties", {})) if isinstance(error.schema, Mapping) else []
        # A model may send any number of names. Three are enough to show the problem.
        unknown = [name for name in given if name not in known]
        yield from (SchemaProblem(describe_place((*path, name)), _unknown(name, known)) for name in unknown[:3])
    elif keyword in {"anyOf", "oneOf"} and not _names_types(expected):
        remark = Remark.of("keyword.nearest", keyword=keyword, detail=_nearest_branch(error))
        # A schema may nest unions endlessly. Only the outermost one is translated.
        yield SchemaProblem(describe_place(path), english(remark) if within is not None else remark)
    else:
        yield SchemaProblem(describe_place(path), _message(keyword, expected))


def _names_types(branches: Any) -> bool:
    return all(isinstance(each, Mapping) and set(each) <= {"type", "title"} and "type" in each for each in branches)


def _nearest_branch(error: ValidationError) -> Remark:
    branches: dict[int, list[ValidationError]] = {}
    for each in error.context or ():
        branches.setdefault(int(each.relative_schema_path[0]), []).append(each)
    if not branches:
        return Remark.of("branches")
    at, errors = min(branches.items(), key=lambda branch: (_distance(branch[1]), branch[0]))
    # The surrounding problem already contains the path to this place.
    first = next(_problems(errors[0], within=tuple(error.absolute_path)))
    written: Any = error.validator_value
    title = written[at].get("title") if isinstance(written[at], Mapping) else None
    name = quote_name(title) if isinstance(title, str) else str(at + 1)
    return Remark.of("branch", name=name, detail=first.words)


def _distance(errors: list[ValidationError]) -> tuple[int, int, int]:
    is_other_type = any(each.validator == "type" and not each.relative_path for each in errors)
    is_other_kind = any(each.validator in ("const", "enum") for each in errors)
    return int(is_other_type), int(is_other_kind), len(errors)


def _unknown(name: str, known: list[str]) -> Remark:
    if not known:
        return Remark.of("unknown.none")
    if near := nearest_names(name, known):
        return Remark.of("unknown", near=_either([_quote(each) for each in near]))
    return Remark.of("unknown.allowed", names=", ".join(map(_quote, known)))


def _quote(name: str) -> str:
    return f"`{name}`"


def _message(keyword: str, expected: Any) -> Remark:
    if keyword in _LIMITS:
        return Remark.of(_LIMITS[keyword], n=str(expected))
    if keyword == "pattern":
        return Remark.of("pattern", pattern=str(expected))
    if keyword == "const":
        return Remark.of("constant", value=str(expected))
    if keyword == "type":
        return Remark.of("type", type=_either(_types(expected)))
    if keyword == "enum":
        return Remark.of("one_of", values=", ".join(f"`{value}`" for value in expected[:20]))
    if keyword in {"anyOf", "oneOf"} and expected:
        return Remark.of("type", type=_either([name for each in expected for name in _types(each["type"])]))
    return Remark.of("keyword", keyword=keyword)


def _types(expected: Any) -> list[str]:
    return [expected] if isinstance(expected, str) else list(expected)


def _either(names: Sequence[str]) -> Words:
    *others, last = names
    return Remark.of("either", one=", ".join(others), other=last) if others else last


def plainly_valid(schema: Any) -> bool:
    """True only for schemas that surely meet the metaschema. False means that it must be asked."""
    # Compare exact types of scalars: `isinstance` accepts a boolean as a number, and a subclass may behave arbitrarily.
    if not isinstance(schema, dict):
        return type(schema) is bool
    for keyword, value in schema.items():
        fits = _FITS.get(keyword)
        if fits is None or not fits(value):
            return False
    return True


def _text(value: Any) -> bool:
    return type(value) is str


def _flag(value: Any) -> bool:
    return type(value) is bool


def _number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _type(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(type(each) is str and each in _TYPES for each in value) and _unique(value)
    return type(value) is str and value in _TYPES


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is str for each in value) and _unique(value)


def _unique(values: list[str]) -> bool:
    return len(set(values)) == len(values)


def _is_anything(value: Any) -> bool:
    return True


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(plainly_valid, value))


def _named_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(type(name) is str and plainly_valid(each) for name, each in value.items())


def _reference(value: Any) -> bool:
    return type(value) is str and _REFERENCE.match(value) is not None


# Never add `pattern` or `patternProperties`: `compile_schema` checks patterns for linear time only in other schemas.
_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "type": _type,
    "properties": _named_schemas,
    "$defs": _named_schemas,
    "$ref": _reference,
    "required": _names,
    "additionalProperties": plainly_valid,
    "items": plainly_valid,
    "anyOf": _schemas,
    "oneOf": _schemas,
    "allOf": _schemas,
    "enum": _list,
    "examples": _list,
    "const": _is_anything,
    "default": _is_anything,
    "title": _text,
    "description": _text,
    "format": _text,
    "writeOnly": _flag,
    "readOnly": _flag,
    "deprecated": _flag,
    "uniqueItems": _flag,
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _number,
    "exclusiveMaximum": _number,
    "minLength": _count,
    "maxLength": _count,
    "minItems": _count,
    "maxItems": _count,
    "minProperties": _count,
    "maxProperties": _count,
}
