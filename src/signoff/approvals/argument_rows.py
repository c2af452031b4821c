"""Flattens a call's arguments: one leaf a value, named by path, labelled by schema."""

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from signoff.contracts.limits import CARD_VALUE_CHARS
from signoff.formats.lookalikes import mark_words, suspect_words
from signoff.formats.schema_node import SchemaNode
from signoff.formats.visible_text import VisibleLine, cut_visible, scalar_line

JOINED_CHARS: Final = 120
"""A list takes one row only up to this length, so that no item is hidden by truncation."""
NAME_CHARS: Final = 80
UNDECLARED: Final = "⟦not declared⟧"
"""Appended to the label of an argument that the tool's schema does not name."""
DEFAULT: Final = "⟦default⟧"
"""Appended to the label of an argument that the call leaves out: the schema's default applies."""
# A quoted name as in JSON, or everything up to the next dot.
_STEP = re.compile(r'"(?:[^"\\]|\\.)*"(?=\.|$)|[^.]*')
# Booleans and empty values as cards write them in every language, and as programs do.
_READS_AS_OTHER: Final = frozenset(
    ["yes", "no", "true", "false", "null", "none", "ja", "nein", "sí", "oui", "non", "sì", "sim", "não"]
)
_NUMBER: Final = re.compile(r"[-+]?[0-9.,'\u2019\s]*[0-9](?:[.,]|e[-+]?[0-9]+)?|[-+]?(?:nan|inf|infinity)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ArgumentLeaf(NamedTuple):
    """One value to show."""

    name: str
    """Its unique dotted path, with indices from 0; see `step_from_key`."""
    dotted: str
    """The path with every key unquoted. Several values may share it."""
    bare: str
    """The path without indices. Several values may share it."""
    top: str
    """The top-level argument."""
    label: str
    value: Any
    """A scalar, a short list of scalars, an empty container, or any value if `secret`."""
    schema: SchemaNode
    """The resolved part of the schema for it."""
    secret: bool
    declared: bool = True
    """False if it is, or is inside, a key that the schema does not name."""


def leaves(args: Mapping[str, Any], schema: Mapping[str, Any], secrets: Collection[str]) -> Iterator[ArgumentLeaf]:
    """Yield values in order, nested ones by dotted names. Does not open secret values."""
    # No recursion: the author of the arguments controls how deeply they are nested.
    stack = list(reversed(_children(None, args, SchemaNode.of(schema).resolve(), secrets)))
    while stack:
        leaf = stack.pop()
        if leaf.secret or not _opens(leaf.value):
            yield leaf
        else:
            stack.extend(reversed(_children(leaf, leaf.value, leaf.schema, secrets)))


def default_leaves(args: Mapping[str, Any], schema: Mapping[str, Any], secrets: Collection[str]) -> list[ArgumentLeaf]:
    """Return leaves for omitted top-level arguments with a default.

    Omits null, secret arguments, and values that need several rows.
    """
    node = SchemaNode.of(schema).resolve()
    defaults = {name: default for name, field in node.fields.items() if (default := _default(field)) is not None}
    absent = {name: default for name, default in defaults.items() if name not in args}
    return [leaf for leaf in _children(None, absent, node, secrets) if not leaf.secret and not _opens(leaf.value)]


def _default(field: SchemaNode) -> Any:
    # It may be next to a `$ref`: `resolve` keeps it.
    return field.resolve().keywords.get("default")


def leaf_line(leaf: ArgumentLeaf, limit: int, suspects: Collection[str] = ()) -> VisibleLine:
    """Marks look-alike letters.

    If the schema allows several types, it quotes a text that looks like another type: `"5"`, `"yes"`.
    """
    is_list = isinstance(leaf.value, list | tuple)
    line = value_line(leaf.value, limit, quotes=_is_open(leaf.schema.item().resolve() if is_list else leaf.schema))
    marked = mark_words(line.text, suspects)
    if len(marked) > limit:
        return VisibleLine(cut_visible(marked, limit), line.length, cut=True)
    return line._replace(text=marked)


def suspects_of(found: Iterable[ArgumentLeaf]) -> frozenset[str]:
    """Return the words of a call with look-alike letters."""
    return suspect_words(_texts_of(found))


def has_invisible(found: Iterable[ArgumentLeaf]) -> bool:
    """Return whether a name or text of a call holds characters that no screen draws, except for line ends and tabs."""
    found = list(found)
    names = (leaf.name for leaf in found)
    return any(not each.isprintable() and any(map(_is_invisible, each)) for each in (*names, *_texts_of(found)))


def _is_invisible(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp") and char not in "\n\r\t"


def _texts_of(found: Iterable[ArgumentLeaf]) -> Iterator[str]:
    values = [leaf.value for leaf in found if not leaf.secret]
    items = (item for value in values for item in (value if isinstance(value, list | tuple) else (value,)))
    return (item for item in items if isinstance(item, str))


def value_line(value: Any, limit: int, *, quotes: bool = False) -> VisibleLine:
    """Return one line of at most `limit` characters.

    A count replaces a container that does not fit. With `quotes`, a text that looks like another type is quoted.
    """
    if not isinstance(value, Mapping | list | tuple):
        return _scalar(value, limit, quotes=quotes)
    if not value:
        return VisibleLine("⟦empty⟧", 0)
    joined = None if isinstance(value, Mapping) else _join(value, quotes=quotes)
    if joined is None or len(joined) > limit:
        return VisibleLine(plural(len(value), "value"), 0)
    return VisibleLine(joined, len(joined))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def is_secret(name: str, secrets: Collection[str]) -> bool:
    """Also true if an argument around the dotted `name` is secret. Ignores indices."""
    parts = keys_from_name(name)
    bare = [part for part in parts if not _is_index(part)]
    return any(above in secrets for path in (parts, bare) for above in accumulate(path, "{}.{}".format))


def find(args: Mapping[str, Any], name: str, absent: Any) -> Any:
    """Return the value at the dotted `name`, or `absent`."""
    value: Any = args
    # Do not also look up `a.b` as a single key: a model could use it to shadow the `b` inside `a` that runs.
    for each in keys_from_name(name):
        if isinstance(value, Mapping) and each in value:
            value = value[each]
        elif isinstance(value, list | tuple) and _is_index(each) and int(each) < len(value):
            value = value[int(each)]
        else:
            return absent
    return value


def step_from_key(key: str) -> str:
    """Return a key as one step of a dotted name, quoted as in JSON if it is ambiguous."""
    plain = key and "." not in key and '"' not in key and not _is_index(key)
    return key if plain else json.dumps(key, ensure_ascii=False)


def keys_from_name(name: str) -> list[str]:
    keys: list[str] = []
    at = 0
    while at <= len(name):
        matched = _STEP.match(name, at)
        written = "" if matched is None else matched[0]
        keys.append(_unquote(written))
        at += len(written) + 1
    return keys


def humanise(name: str) -> str:
    """Convert `totalCost` and `total_cost` to `Total cost`. Words in capitals do not change."""
    spaced = _CAMEL.sub(" ", name[: 2 * NAME_CHARS]).replace("_", " ").replace("-", " ")
    words = " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in spaced.split())
    return words[:1].upper() + words[1:]


def format_of(leaf: ArgumentLeaf) -> str:
    """Return the schema's `format`, or its `type`, or the JSON type of the value."""
    declared = leaf.schema.keywords.get("format") or next((each for each in leaf.schema.types if each != "null"), None)
    return declared[:NAME_CHARS] if isinstance(declared, str) else _json_type(leaf.value)


def _children(
    parent: ArgumentLeaf | None, value: Any, schema: SchemaNode, secrets: Collection[str]
) -> list[ArgumentLeaf]:
    if parent is not None and not isinstance(value, Mapping):
        return [_item(parent, index, item, schema, secrets) for index, item in enumerate(value)]
    known, others, children = schema.fields, schema.values, []
    for key, item in value.items():
        below = known.get(key, others).resolve()
        name = step_from_key(key) if parent is None else f"{parent.name}.{step_from_key(key)}"
        dotted = key if parent is None else f"{parent.dotted}.{key}"
        bare = key if parent is None else f"{parent.bare}.{key}"
        # A schema without names declares nothing about keys. A schema that types further keys declares them.
        unnamed = bool(known) and key not in known and not isinstance(others.written, Mapping)
        declared = not unnamed and (parent is None or parent.declared)
        label = label_of(key, below) if parent is None else f"{parent.label} / {label_of(key, below)}"
        top = key if parent is None else parent.top
        # Keep the end of the label, which tells values apart. Whole labels would grow with each level of nesting.
        label = label[-4 * NAME_CHARS :]
        secret = dotted in secrets or bare in secrets
        children.append(ArgumentLeaf(name, dotted, bare, top, label, item, below, secret, declared))
    return children


def _item(parent: ArgumentLeaf, index: int, item: Any, schema: SchemaNode, secrets: Collection[str]) -> ArgumentLeaf:
    dotted = f"{parent.dotted}.{index}"
    label = f"{parent.label} {index + 1}"
    return ArgumentLeaf(
        f"{parent.name}.{index}", dotted, parent.bare, parent.top, label, item, schema.item(index).resolve(),
        dotted in secrets, parent.declared,
    )  # fmt: skip


def _opens(value: Any) -> bool:
    """Opens a list that does not fit one row with quotes: its row would show only the number of its items."""
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list | tuple) and bool(value) and _join(value, quotes=True) is None


def _is_open(schema: SchemaNode) -> bool:
    pinned = schema.keywords.get("enum", [schema.keywords["const"]] if "const" in schema.keywords else None)
    if isinstance(pinned, list | tuple):
        return len({_json_type(each) for each in pinned}) > 1
    return len({"number" if each == "integer" else each for each in schema.types if each != "null"}) != 1


def _scalar(value: Any, limit: int, *, quotes: bool) -> VisibleLine:
    line = scalar_line(value, limit)
    if not quotes or not isinstance(value, str) or not value or line.cut:
        return line
    word = value.strip().casefold()
    # Quote a text that starts with a quote as well, because it would look like this mark.
    other = word in _READS_AS_OTHER or _NUMBER.fullmatch(word) is not None or line.text.startswith('"')
    return line._replace(text=f'"{line.text}"') if other else line


def _join(items: Sequence[Any], *, quotes: bool) -> str | None:
    """Return `None` if the line is too long or ambiguous."""
    if len(items) > JOINED_CHARS or any(isinstance(item, Mapping | list | tuple) for item in items):
        return None
    texts = [_scalar(item, CARD_VALUE_CHARS, quotes=quotes).text for item in items]
    joined = ", ".join(texts)
    # An item that contains a comma would look like two.
    return joined if len(joined) <= JOINED_CHARS and not any("," in text for text in texts) else None


def label_of(key: str, schema: SchemaNode | None = None) -> str:
    """Return the label of the argument `key`: a schema's title that says more, or the name."""
    title = schema.keywords.get("title") if schema is not None else None
    # pydantic generates titles (`totalCost` -> `Totalcost`). The name reads better.
    if isinstance(title, str) and title.strip() and title != key.replace("_", " ").title():
        return title
    return humanise(key) or key


def _unquote(written: str) -> str:
    if not written.startswith('"'):
        return written
    try:
        read = json.loads(written)
    except ValueError:
        return written
    return read if isinstance(read, str) else written


def _is_index(part: str) -> bool:
    # `int` accepts digits of any script, and raises for more than 4,300 of them.
    return part.isascii() and part.isdecimal() and len(part) <= 6


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if value is None:
        return "null"
    return "object" if isinstance(value, Mapping) else "array"
