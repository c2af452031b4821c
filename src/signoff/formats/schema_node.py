"""The only reader of JSON Schema: keywords, local references and alternatives.

Cards, forms, policy shapes, secret arguments and schema checks use it, so that all see the same schema. It never
recurses: a schema's author controls its depth, and whether it contains a circle.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

MAX_HOPS: Final = 8
"""The number of references and single alternatives followed. They may form a circle."""
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords that contain data: a `$ref` inside is an ordinary name."""
_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords that map names to schemas.

The names are no keywords: a property may be called `const`.
"""
_SAME_VALUE: Final = frozenset({"if", "then", "else", "not", "items", "contains", "unevaluatedItems"})
_EACH_SAME_VALUE: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords with one or several schemas for the same value or its unnamed items."""
_NAMELESS: Final = frozenset({"additionalProperties", "unevaluatedProperties", "propertyNames"})
_UNIONS: Final = ("anyOf", "oneOf")
_OPEN: Final = (dict, list, tuple, Mapping)
_EMPTY: Final[Mapping[str, Any]] = {}


class SchemaNode(NamedTuple):
    """One place in a schema."""

    written: Any
    """An object, `true`, `false`, or anything else in an unchecked schema."""
    root: Any

    @classmethod
    def of(cls, schema: Any) -> "SchemaNode":
        return cls(schema, schema)

    @property
    def keywords(self) -> Mapping[str, Any]:
        """Empty for `true`, `false` and anything that is no schema."""
        written = self.written
        # Check `dict` first: checking `Mapping` takes as long as everything else.
        return written if isinstance(written, (dict, Mapping)) else _EMPTY

    def below(self, written: Any) -> "SchemaNode":
        return SchemaNode(written, self.root)

    # The value.

    @property
    def types(self) -> tuple[str, ...]:
        declared = self.keywords.get("type")
        named = [declared] if isinstance(declared, str) else declared if isinstance(declared, list | tuple) else []
        return tuple(each for each in named if isinstance(each, str))

    @property
    def kind(self) -> str:
        """The only type apart from `null`, or "" for none or several."""
        named = [each for each in self.types if each != "null"]
        return named[0] if len(named) == 1 else ""

    @property
    def has_null(self) -> bool:
        return "null" in self.types or any(_is_null(each) for key in _UNIONS for each in self._as_list(key))

    # Parts of the value.

    @property
    def fields(self) -> Mapping[str, "SchemaNode"]:
        declared = self.keywords.get("properties")
        named = declared if isinstance(declared, Mapping) else _EMPTY
        root = self.root
        return {str(name): SchemaNode(each, root) for name, each in named.items()}

    @property
    def required(self) -> frozenset[str]:
        return frozenset(each for each in self._as_list("required") if isinstance(each, str))

    @property
    def values(self) -> "SchemaNode":
        """Without `additionalProperties` the node is no schema."""
        return self.below(self.keywords.get("additionalProperties"))

    def item(self, index: int = -1) -> "SchemaNode":
        """By default, the schema is of any item."""
        first = self._as_list("prefixItems")
        return self.below(first[index] if 0 <= index < len(first) else self.keywords.get("items"))

    # References.

    @property
    def references(self) -> tuple[str, ...]:
        """The targets of `$ref` and `$dynamicRef`."""
        here = self.keywords
        targets = (here["$ref"],) if "$ref" in here else ()
        targets += (here["$dynamicRef"],) if "$dynamicRef" in here else ()
        return tuple(each for each in targets if isinstance(each, str)) if targets else ()

    def target(self, reference: Any) -> "SchemaNode | None":
        """A local reference is `#`, `#/a/pointer` or a unique `#anchor`."""
        document, mark, fragment = reference.partition("#") if isinstance(reference, str) else ("", "", "")
        if document or not mark:
            return None
        if fragment and not fragment.startswith("/"):
            return self._find_anchor(fragment)
        place: Any = self.root
        for part in unquote(fragment).split("/")[1:]:
            # Replace `~1` first (RFC 6901, section 4): otherwise `~01` would become `/` instead of `~1`.
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(place, Mapping) and name in place:
                place = place[name]
            elif isinstance(place, list) and name.isascii() and name.isdecimal() and int(name[:9]) < len(place):
                place = place[int(name[:9])]
            else:
                return None
        return self.below(place)

    def only_alternative(self, keyword: str) -> "SchemaNode | None":
        real = [
            each for each in self._as_list(keyword) if not (isinstance(each, Mapping) and each.get("type") == "null")
        ]
        return self.below(real[0]) if len(real) == 1 else None

    def resolve(self) -> "SchemaNode":
        """Follow references and single alternatives, and keep other keywords.

        Returns a node without keywords if it cannot be read.
        """
        node = self
        for _ in range(MAX_HOPS):
            here = node.keywords
            key = next((key for key in ("$ref", *_UNIONS, "allOf") if key in here), None)
            if key is None:
                return node if here else self.below(_EMPTY)
            found = node.target(here[key]) if key == "$ref" else node.only_alternative(key)
            rest = {name: each for name, each in here.items() if name != key}
            node = self.below(rest if found is None else {**found.keywords, **rest})
        return self.below(_EMPTY)

    # Everything inside.

    def of_same_value(self) -> Iterator["SchemaNode"]:
        root = self.root
        for key, each in self.keywords.items():
            if key in _SAME_VALUE:
                yield SchemaNode(each, root)
            elif key in _EACH_SAME_VALUE and isinstance(each, list | tuple):
                for one in each:
                    yield SchemaNode(one, root)
            elif key == "dependentSchemas" and isinstance(each, Mapping):
                for one in each.values():
                    yield SchemaNode(one, root)

    def of_nameless(self) -> Iterator["SchemaNode"]:
        """Yield the schemas of properties without declared names."""
        for key, each in self.keywords.items():
            if key in _NAMELESS:
                yield SchemaNode(each, self.root)
            elif key == "patternProperties" and isinstance(each, Mapping):
                for one in each.values():
                    yield SchemaNode(one, self.root)

    def walk(self) -> Iterator["SchemaNode"]:
        """Yield schemas in order. Does not follow references."""
        # Include lists and other values, so that an unknown keyword cannot hide a schema.
        stack = [self.written] if isinstance(self.written, _OPEN) else []
        while stack:
            here = stack.pop()
            if not isinstance(here, Mapping):
                stack += [each for each in reversed(here) if isinstance(each, _OPEN)]
                continue
            yield SchemaNode(here, self.root)
            inner: list[Any] = []
            for key, each in here.items():
                if key in _BY_NAME and isinstance(each, Mapping):
                    inner += [one for one in each.values() if isinstance(one, _OPEN)]
                elif isinstance(each, _OPEN) and key not in _DATA:
                    inner.append(each)
            inner.reverse()
            stack += inner

    def _find_anchor(self, name: str) -> "SchemaNode | None":
        whole = SchemaNode.of(self.root)
        nodes = [each for each in whole.walk() if name in [each.keywords.get(key) for key in _ANCHORS]]
        # If two have the same name, other readers may choose either one, and one may be secret.
        return nodes[0] if len(nodes) == 1 else None

    def _as_list(self, key: str) -> list[Any]:
        value = self.keywords.get(key)
        return list(value) if isinstance(value, list | tuple) else []


def without_keyword(schema: Any, keyword: str) -> Any:
    """Remove a keyword at any depth, but keep data, and properties with its name."""
    if isinstance(schema, list):
        return [without_keyword(each, keyword) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    cleaned = {}
    for key, each in schema.items():
        if key in _BY_NAME and isinstance(each, Mapping):
            cleaned[key] = {name: without_keyword(inner, keyword) for name, inner in each.items()}
        elif key != keyword:
            cleaned[key] = each if key in _DATA else without_keyword(each, keyword)
    return cleaned


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"
