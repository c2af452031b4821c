"""Reads the words of a command as values of a JSON Schema, and makes words for an example."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Schema = Mapping[str, Any]

_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d+)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LARGEST_INTEGER: Final = 2**53 - 1
"""JSON readers agree on no larger integer."""
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "yes": True, "false": False, "no": False}
_UNION_ORDER: Final = ("null", "choice", "boolean", "integer", "number", "array", "object", "string", "")
"""The order of trying a union's types: most words are strings, so string is last."""
_REFERENCES: Final = 8
"""Maximum number of references followed, because they may form a cycle."""
_NAMES: Final[Mapping[str, str]] = {
    "boolean": "`true` or `false`",
    "integer": "an integer",
    "number": "a number",
    "array": "a list such as `a,b`",
    "object": "a JSON object",
    "null": "`null`",
}
_CHOICES_SHOWN: Final = 5
EXAMPLE_NUMBER: Final = 50
"""The number of an example, unless a schema excludes it."""
_BY_FORMAT: Final[Mapping[str, str]] = {
    "date": "2030-01-31",
    "date-time": "2030-01-31T12:00:00Z",
    "email": "ana@example.com",
}
_BY_NAME: Final[Mapping[str, tuple[str, ...]]] = {
    "ana@example.com": ("mail",),
    "A7": ("order", "booking", "flight", "invoice", "ticket", "number", "code"),
    "Lisbon": ("city", "place", "destination", "address", "office"),
    "EUR": ("currency",),
    "late": ("reason", "note", "text", "message"),
}
"""Example texts, with name parts of the parameters that use them."""


class Unreadable(ValueError):
    """A word is not a value of the schema."""


@dataclass(frozen=True)
class Word:
    """One word of a command."""

    text: str
    kind: Literal["plain", "quoted", "json"] = "plain"
    value: Any = None
    """For `json` words."""
    key: str = ""
    """The name before `=`, or ""."""


def read_value(word: Word, schema: Any, root: Schema) -> Any:
    """Raises `Unreadable`. `root` is the schema that holds the definitions."""
    node = resolve(schema, root)
    choices = _choices(node)
    if choices is not None:
        return _read_choice(word, choices)
    options = _options(node)
    if options is not None:
        return _read_union(word, options, root)
    kind = _kind(node)
    if kind == "array":
        return _read_list(word, node, root)
    if kind == "object" and word.kind == "json" and isinstance(word.value, dict):
        return word.value
    if kind == "":
        return word.value if word.kind == "json" else word.text
    if kind == "string":
        return word.text
    return _read_scalar(word, kind)


def describe(schema: Any, root: Schema) -> str:
    """Return the kind of value, for a sentence after "is not"."""
    node = resolve(schema, root)
    choices = _choices(node)
    if choices is not None:
        return "one of " + ", ".join(f"`{_show(each)}`" for each in choices[:_CHOICES_SHOWN])
    options = _options(node)
    if options is not None:
        return " or ".join(dict.fromkeys(describe(each, root) for each in options))
    return _NAMES.get(_kind(node), "a text")


def choices_of(schema: Any, root: Schema) -> tuple[str, ...]:
    """Return the words that a schema takes if it lists them; empty otherwise."""
    return tuple(_show(each) for each in _choices(resolve(schema, root)) or ())


def example_word(name: str, schema: Any, root: Schema, number: int = EXAMPLE_NUMBER) -> str:
    """Return an example or the default of the schema, else a plausible value.

    A plausible number is `number`, or the nearest one in the schema's bounds.
    """
    node = resolve(schema, root)
    for value in _given_examples(node):
        return _quote(value)
    options = _options(node)
    if options is not None:
        useful = (each for each in options if _kind(resolve(each, root)) != "null")
        return example_word(name, next(useful, {}), root, number)
    kind = _kind(node)
    if kind in ("integer", "number"):
        return _show(_plausible_number(node, number))
    if kind == "array":
        return example_word(name, node.get("items", {}), root, number)
    return {"boolean": "true", "object": "{}", "null": "null"}.get(kind) or _plausible_text(name, node)


def resolve(schema: Any, root: Schema) -> Schema:
    """Follow local references. A broken reference accepts any value."""
    node = schema
    for _ in range(_REFERENCES):
        if not isinstance(node, Mapping):
            return {}
        whole = node.get("allOf")
        if isinstance(node.get("$ref"), str):
            node = _follow(node["$ref"], root)
        elif isinstance(whole, Sequence) and len(whole) == 1 and "type" not in node:
            node = whole[0]
        else:
            return node
    return {}


def _follow(reference: str, root: Schema) -> Any:
    node: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
    return node


def _kind(node: Schema) -> str:
    kind = node.get("type", "object" if "properties" in node else "")
    return kind if isinstance(kind, str) else ""


def _choices(node: Schema) -> Sequence[Any] | None:
    if "const" in node:
        return [node["const"]]
    choices = node.get("enum")
    return choices if isinstance(choices, Sequence) and not isinstance(choices, str) else None


def _options(node: Schema) -> Sequence[Any] | None:
    """Return the schemas of a union, or `None` for a single type."""
    for key in ("anyOf", "oneOf"):
        if isinstance(node.get(key), Sequence):
            options: Sequence[Any] = node[key]
            return options
    kinds = node.get("type")
    if isinstance(kinds, Sequence) and not isinstance(kinds, str):
        return [{**node, "type": kind} for kind in kinds]
    return None


def _read_union(word: Word, options: Sequence[Any], root: Schema) -> Any:
    def rank(option: Any) -> int:
        node = resolve(option, root)
        kind = "choice" if _choices(node) is not None else _kind(node)
        return _UNION_ORDER.index(kind) if kind in _UNION_ORDER else len(_UNION_ORDER)

    for option in sorted(options, key=rank):
        # Otherwise one word would be a list of one, for every union of a text and a list.
        if _kind(resolve(option, root)) == "array" and word.kind != "json" and "," not in word.text:
            continue
        try:
            return read_value(word, option, root)
        except Unreadable:
            continue
    raise Unreadable


def _read_choice(word: Word, choices: Sequence[Any]) -> Any:
    texts = [each for each in choices if isinstance(each, str)]
    if word.text in texts:
        return word.text
    if word.kind == "plain":
        for each in choices:
            if not isinstance(each, str) and word.text == _show(each):
                return each
    folded = [each for each in texts if each.casefold() == word.text.casefold()]
    if len(folded) == 1:
        return folded[0]
    raise Unreadable


def _read_list(word: Word, node: Schema, root: Schema) -> list[Any]:
    if word.kind == "json":
        if isinstance(word.value, list):
            return word.value
        raise Unreadable
    items = node.get("items", {})
    # Only JSON can write a list of lists.
    if _kind(resolve(items, root)) == "array":
        raise Unreadable
    if word.kind == "quoted":
        return [read_value(word, items, root)]
    parts = word.text.split(",")
    if word.text.startswith(("[", "{")) or not all(parts):
        raise Unreadable
    return [read_value(Word(part), items, root) for part in parts]


def _read_scalar(word: Word, kind: str) -> Any:
    # A quoted word is a text, even if it looks like a number.
    if word.kind == "plain":
        if kind == "boolean" and word.text.casefold() in _BOOLEANS:
            return _BOOLEANS[word.text.casefold()]
        if kind == "null" and word.text == "null":
            return None
        if kind in ("integer", "number"):
            return _read_number(word.text, kind)
    raise Unreadable


def _read_number(text: str, kind: str) -> int | float:
    # Python rejects integers of thousands of digits.
    if _INTEGER.fullmatch(text) and len(text) <= len(str(_LARGEST_INTEGER)) + 1:
        whole = int(text)
        if abs(whole) <= _LARGEST_INTEGER:
            return whole
    elif kind == "number" and _NUMBER.fullmatch(text):
        number = float(text)
        if math.isfinite(number):
            return number
    raise Unreadable


def _given_examples(node: Schema) -> Iterator[Any]:
    examples = node.get("examples")
    if isinstance(examples, Sequence) and not isinstance(examples, str):
        yield from examples
    yield from (node[key] for key in ("example", "default") if node.get(key) is not None)
    yield from _choices(node) or ()


def _plausible_number(node: Schema, number: int | float) -> int | float:
    low = node.get("minimum", node.get("exclusiveMinimum"))
    high = node.get("maximum", node.get("exclusiveMaximum"))
    if isinstance(low, int | float) and number <= low:
        number = low if "minimum" in node else low + 1
    if isinstance(high, int | float) and number >= high:
        number = high if "maximum" in node else high - 1
    return number


def _plausible_text(name: str, node: Schema) -> str:
    if node.get("format") in _BY_FORMAT:
        return _BY_FORMAT[str(node["format"])]
    folded = name.casefold()
    if folded.endswith("id"):
        return "A7"
    return next((text for text, parts in _BY_NAME.items() if any(part in folded for part in parts)), "ana")


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _quote(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value and not re.search(r"[\s=]", value) and value[0] not in "\"'“„«\u2018[{":
        return value
    return f'"{value}"'
