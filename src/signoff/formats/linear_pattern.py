"""Matches schema patterns in linear time.

A model writes the text, and backtracking may never end.
"""

import re
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
from signoff.formats.schema_node import SchemaNode, without_keyword

_LOOKS: Final = {"(?=": True, "(?!": False}
_MOST_LOOKS: Final = 16
"""The number of look-aheads handled. RE2 rejects further ones."""
_ESCAPE: Final = re.compile(
    r"\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u(?P<four>[0-9a-fA-F]{4})|\\u\{(?P<code>[0-9a-fA-F]+)\}|\\.",
    re.DOTALL,
)

_NO_OTHERS: Final = Draft202012Validator.VALIDATORS["additionalProperties"]
# Otherwise RE2 also writes errors to stderr.
_QUIET: Final = re2.Options()
_QUIET.log_errors = False


def pattern_problem(schema: Any) -> tuple[str, str]:
    """Return the first pattern of a schema that cannot be matched, and the problem with its remedy.

    Returns two empty texts if there is none.
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
        # jsonschema finds the evaluated properties itself, and matches patterns differently.
        why = "has `patternProperties` and `unevaluatedProperties`; write `additionalProperties` in its place"
        return "unevaluatedProperties", why
    return "", ""


def validator_of(schema: Mapping[str, Any]) -> Draft202012Validator:
    """The schema must have no problem by `pattern_problem`."""
    # Remove the dialect: jsonschema would choose its own validator for it, which matches patterns differently.
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
    # jsonschema's version would match these names with `re`. Match them here and hide them and the patterns from it.
    if patterns and validator.is_type(instance, "object"):
        instance = {name: each for name, each in instance.items() if not any(_is_found(one, name) for one in patterns)}
        schema = {name: each for name, each in schema.items() if name != "patternProperties"}
    yield from _NO_OTHERS(validator, wanted, instance, schema) or ()


class SchemaStepLimit(Exception):
    """Raised for a check of more than `SCHEMA_STEPS` steps."""


class _Steps(threading.local):
    left = SCHEMA_STEPS


_STEPS: Final = _Steps()


def begin_check() -> None:
    """Reset the step count of this thread."""
    _STEPS.left = SCHEMA_STEPS


def _count_steps(check: Any) -> Any:
    """Each branch of a union is checked to its end, so a tree of unions would take forever."""

    def counting(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _STEPS.left -= 1
        if _STEPS.left < 0:
            raise SchemaStepLimit
        yield from check(validator, wanted, instance, schema) or ()

    return counting


def _unique_items(validator: Any, unique: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # jsonschema's version compares each item with each: a second for a few hundred objects.
    if unique and validator.is_type(instance, "array"):
        written = {canonical_json([each]) for each in instance}
        if len(written) < len(instance):
            yield ValidationError("has items that are equal")


def _multiple_of(validator: Any, unit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # Use the decimal numbers as written: in floating point, 4.02 is no whole number of cents.
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
        # Keywords that can repeat a schema.
        **{
            name: _count_steps(Draft202012Validator.VALIDATORS[name])
            for name in ("$ref", "$dynamicRef", "anyOf", "oneOf")
        },
    },
)


def _is_found(pattern: str, text: str) -> bool:
    # Patterns of JSON Schema are not anchored, so search instead of matching.
    return all((each.search(text) is not None) is wanted for each, wanted in _compile(pattern))


@lru_cache(maxsize=1_000)
def _compile(pattern: str) -> tuple[tuple[Any, bool], ...]:
    """Each pattern has a flag that shows whether it must be found in a text. Raises `re2.error`."""
    return tuple((re2.compile(part, _QUIET), wanted) for part, wanted in _split_pattern(pattern))


def _patterns(node: SchemaNode) -> Iterator[str]:
    pattern, named = node.keywords.get("pattern"), node.keywords.get("patternProperties")
    if isinstance(pattern, str):
        yield pattern
    if isinstance(named, Mapping):
        yield from named


def _split_pattern(pattern: str) -> list[tuple[str, bool]]:
    """Return patterns without look-ahead that are equivalent together.

    Each has its required result. `^(?!A)(?=B)C` matches if `^C` and `^(?:B)` match and `^(?:A)` does not: each takes
    linear time. Look-around elsewhere is kept, and RE2 rejects it.
    """
    parts: list[tuple[str, bool]] = []
    rest = _ESCAPE.sub(_escape, pattern)
    # With an alternative at the top level, `^` and the look-ahead belong only to its first branch.
    if rest.startswith("^") and not _has_branches(rest):
        at = 1
        while (
            len(parts) < _MOST_LOOKS
            and (wanted := _LOOKS.get(rest[at : at + 3])) is not None
            and (end := _end_of_group(rest, at))
        ):
            parts.append((f"^(?:{rest[at + 3 : end]})", wanted))
            at = end + 1
        # A quantifier would belong to the look-ahead.
        if rest[at : at + 1] in tuple("*+?{"):
            return [(rest, True)]
        # A back-reference to the look-ahead's group may follow. RE2 does not support it and rejects it.
        rest = f"^{rest[at:]}"
    return [*parts, (rest, True)]


def _escape(found: re.Match[str]) -> str:
    if found["high"]:
        code = 0x10000 + ((int(found["high"], 16) - 0xD800) << 10) + int(found["low"], 16) - 0xDC00
        return f"\\x{{{code:x}}}"
    digits = found["four"] or found["code"]
    return f"\\x{{{digits}}}" if digits else found[0]


def _end_of_group(pattern: str, start: int) -> int:
    """Return 0 if the group has no end."""
    for at, depth in _depths(pattern, start):
        if depth == 0:
            return at
    return 0


def _has_branches(pattern: str) -> bool:
    return any(pattern[at] == "|" and depth == 0 for at, depth in _depths(pattern, 0))


def _depths(pattern: str, start: int) -> list[tuple[int, int]]:
    depths: list[tuple[int, int]] = []
    depth, at, in_class = 0, start, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 2
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        else:
            depth += (char == "(") - (char == ")")
            depths.append((at, depth))
        at += 1
    return depths
