"""Matches the patterns of schemas in linear time: a model writes the text, and a backtracking search never ends."""

import threading
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import re2
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.limits import SCHEMA_STEPS
from signoff.formats.ecma_pattern import split_pattern
from signoff.formats.schema_node import SchemaNode, without_keyword

_NO_OTHERS: Final = Draft202012Validator.VALIDATORS["additionalProperties"]
# RE2 writes what it cannot compile to stderr, beside what it raises.
_QUIET: Final = re2.Options()
_QUIET.log_errors = False


def pattern_problem(schema: Any) -> tuple[str, str]:
    """Returns the first pattern of a schema that cannot be matched, and what is wrong, with the remedy; "" and "" if
    none.
    """
    nodes = list(SchemaNode.of(schema).walk())
    for pattern in chain.from_iterable(map(_patterns, nodes)):
        try:
            _compile(pattern)
        except re2.error as error:
            (reason,) = error.args or ("",)
            why = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
            remedy = "write it in RE2's syntax, without look-around and back-references"
            return pattern, f"has the pattern `{pattern}`, which RE2 cannot read ({why}); {remedy}"
    if {"patternProperties", "unevaluatedProperties"} <= {key for node in nodes for key in node.keywords}:
        # What was evaluated is found by jsonschema itself, which matches patterns its own way.
        why = "has `patternProperties` and `unevaluatedProperties`; write `additionalProperties` in its place"
        return "unevaluatedProperties", why
    return "", ""


def validator_of(schema: Mapping[str, Any]) -> Draft202012Validator:
    """Makes the validator of a schema in which `pattern_problem` finds nothing."""
    # A schema that names its dialect is checked by what jsonschema has for that, which matches patterns its own way.
    validator: Draft202012Validator = _Validator(without_keyword(schema, "$schema"))
    return validator


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _is_found(pattern, instance):
        yield ValidationError("does not match the pattern")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, inner in patterns.items():
            for name, value in instance.items():
                if _is_found(pattern, name):
                    yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    patterns = schema.get("patternProperties", {})
    # jsonschema's own would match these names by `re`: they are matched here, and it sees neither them nor the
    # patterns.
    if patterns and validator.is_type(instance, "object"):
        instance = {name: each for name, each in instance.items() if not any(_is_found(one, name) for one in patterns)}
        schema = {name: each for name, each in schema.items() if name != "patternProperties"}
    yield from _NO_OTHERS(validator, wanted, instance, schema) or ()


class SchemaStepLimit(Exception):
    """A check that took more than `SCHEMA_STEPS` steps."""


class _Steps(threading.local):
    left = SCHEMA_STEPS


_STEPS: Final = _Steps()


def begin_check() -> None:
    """Gives the check that this thread begins now all its steps."""
    _STEPS.left = SCHEMA_STEPS


def _count_steps(check: Any) -> Any:
    """Returns `check`, which is a step: each branch of a union is checked to its end, so that a tree of them takes for
    ever.
    """

    def counting(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _STEPS.left -= 1
        if _STEPS.left < 0:
            raise SchemaStepLimit
        yield from check(validator, wanted, instance, schema) or ()

    return counting


def _unique_items(validator: Any, unique: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # jsonschema's own compares each item with each: a second for a few hundred objects.
    if unique and validator.is_type(instance, "array"):
        written = {canonical_json([each]) for each in instance}
        if len(written) < len(instance):
            yield ValidationError("has items that are equal")


def _multiple_of(validator: Any, unit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # As the decimal numbers that were written: in floating point 4.02 is no whole number of cents.
    if validator.is_type(instance, "number") and Fraction(str(instance)) % Fraction(str(unit)):
        yield ValidationError("is not a multiple")


_Validator: Final[Any] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
        "multipleOf": _multiple_of,
        # What a schema repeats itself by.
        **{
            name: _count_steps(Draft202012Validator.VALIDATORS[name])
            for name in ("$ref", "$dynamicRef", "anyOf", "oneOf")
        },
    },
)


def _is_found(pattern: str, text: str) -> bool:
    # Patterns of JSON Schema are not anchored, so it is no full match.
    return all((each.search(text) is not None) is wanted for each, wanted in _compile(pattern))


@lru_cache(maxsize=1_000)
def _compile(pattern: str) -> tuple[tuple[Any, bool], ...]:
    """Return patterns with whether each has to be found in a text. Raises `re2.error`."""
    return tuple((re2.compile(part, _QUIET), wanted) for part, wanted in split_pattern(pattern))


def _patterns(node: SchemaNode) -> Iterator[str]:
    pattern, named = node.keywords.get("pattern"), node.keywords.get("patternProperties")
    if isinstance(pattern, str):
        yield pattern
    if isinstance(named, Mapping):
        yield from named
