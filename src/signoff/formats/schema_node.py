"""The one reader of JSON Schema: what each keyword holds, where a local reference leads, which alternative is meant.

Cards, forms, policy shapes, secret arguments and the checks of a schema all stand on it, so that they see one schema
alike. No reader recurses: how deeply a schema is nested, and whether it goes round in a circle, is up to its author.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

MAX_HOPS: Final = 8
"""How many references and single alternatives are followed in a row: they can go round in a circle."""
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords below which lies data: a `$ref` there is a name as any other."""
_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose values are schemas by names that are no keywords: a property may be called `const`."""
_SAME_VALUE: Final = frozenset({"if", "then", "else", "not", "items", "contains", "unevaluatedItems"})
_EACH_SAME_VALUE: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords that hold a schema, or a list of them, about the same value or about items of it, which have no names."""
_NAMELESS: Final = frozenset({"additionalProperties", "unevaluatedProperties", "propertyNames"})
_UNIONS: Final = ("anyOf", "oneOf")
_OPEN: Final = (dict, list, tuple, Mapping)
_EMPTY: Final[Mapping[str, Any]] = {}


class SchemaNode(NamedTuple):
    """One place in a schema."""

    written: Any
    """What stands there: an object, `true`, `false`, or anything at all where the schema was never checked."""
    root: Any
    """The whole schema, in which references are looked up."""

    @classmethod
    def of(cls, schema: Any) -> "SchemaNode":
        """Returns the node of a whole schema."""
        return cls(schema, schema)

    @property
    def keywords(self) -> Mapping[str, Any]:
        """The keywords that stand here; none of `true`, `false` and what is no schema."""
        written = self.written
        # `dict` first: asking about `Mapping` takes as long as all the rest.
        return written if isinstance(written, (dict, Mapping)) else _EMPTY

    def below(self, written: Any) -> "SchemaNode":
        """Returns the node of another place in the same schema."""
        return SchemaNode(written, self.root)

    # What the value is.

    @property
    def types(self) -> tuple[str, ...]:
        """The names under `type`."""
        declared = self.keywords.get("type")
        named = [declared] if isinstance(declared, str) else declared if isinstance(declared, list | tuple) else []
        return tuple(each for each in named if isinstance(each, str))

    @property
    def kind(self) -> str:
        """The one type beside `null`, "" for none or several."""
        named = [each for each in self.types if each != "null"]
        return named[0] if len(named) == 1 else ""

    @property
    def has_null(self) -> bool:
        """Whether null is a type or an alternative."""
        return "null" in self.types or any(_is_null(each) for key in _UNIONS for each in self._as_list(key))

    # What lies within the value.

    @property
    def fields(self) -> Mapping[str, "SchemaNode"]:
        """The declared properties, by name."""
        declared = self.keywords.get("properties")
        named = declared if isinstance(declared, Mapping) else _EMPTY
        root = self.root
        return {str(name): SchemaNode(each, root) for name, each in named.items()}

    @property
    def required(self) -> frozenset[str]:
        """The names that must be given."""
        return frozenset(each for each in self._as_list("required") if isinstance(each, str))

    @property
    def values(self) -> "SchemaNode":
        """The schema of properties without a name of their own; of no schema where nothing is said of them."""
        return self.below(self.keywords.get("additionalProperties"))

    def item(self, index: int = -1) -> "SchemaNode":
        """Returns the schema of the item at `index`, of any item without one."""
        first = self._as_list("prefixItems")
        return self.below(first[index] if 0 <= index < len(first) else self.keywords.get("items"))

    # Where it leads.

    @property
    def references(self) -> tuple[str, ...]:
        """The targets of `$ref` and `$dynamicRef` here."""
        here = self.keywords
        found = (here["$ref"],) if "$ref" in here else ()
        found += (here["$dynamicRef"],) if "$dynamicRef" in here else ()
        return tuple(each for each in found if isinstance(each, str)) if found else ()

    def target(self, reference: Any) -> "SchemaNode | None":
        """Returns where a local reference leads: `#`, `#/a/pointer` or the one `#anchor`; None for anything else."""
        document, mark, fragment = reference.partition("#") if isinstance(reference, str) else ("", "", "")
        if document or not mark:
            return None
        if fragment and not fragment.startswith("/"):
            return self._find_anchor(fragment)
        found: Any = self.root
        for part in unquote(fragment).split("/")[1:]:
            # `~1` first, as RFC 6901 (section 4) has it: the other way round `~01` would become `/` instead of `~1`.
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isascii() and name.isdecimal() and int(name[:9]) < len(found):
                found = found[int(name[:9])]
            else:
                return None
        return self.below(found)

    def only_alternative(self, keyword: str) -> "SchemaNode | None":
        """Returns the one alternative beside null under `anyOf`, `oneOf` or `allOf`; None where there are others."""
        real = [
            each for each in self._as_list(keyword) if not (isinstance(each, Mapping) and each.get("type") == "null")
        ]
        return self.below(real[0]) if len(real) == 1 else None

    def resolve(self) -> "SchemaNode":
        """Returns the node meant here: references and single alternatives followed, the keywords beside them kept.

        A node without keywords where it cannot be read.
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

    # Everything within.

    def of_same_value(self) -> Iterator["SchemaNode"]:
        """Yields the schemas here that are about the same value or about items of it."""
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
        """Yields the schemas of properties that have no name of their own."""
        for key, each in self.keywords.items():
            if key in _NAMELESS:
                yield SchemaNode(each, self.root)
            elif key == "patternProperties" and isinstance(each, Mapping):
                for one in each.values():
                    yield SchemaNode(one, self.root)

    def walk(self) -> Iterator["SchemaNode"]:
        """Yields this schema and each one written within it, in their order; references are not followed."""
        # Lists and other values stand on the stack as well, so that a keyword nobody knows hides no schema.
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
        found = [each for each in whole.walk() if name in [each.keywords.get(key) for key in _ANCHORS]]
        # Of two with one name nobody knows which another reader means, and one of them may hold what is secret.
        return found[0] if len(found) == 1 else None

    def _as_list(self, key: str) -> list[Any]:
        found = self.keywords.get(key)
        return list(found) if isinstance(found, list | tuple) else []


def without_keyword(schema: Any, keyword: str) -> Any:
    """Returns a checked schema without a keyword, here and in each schema within it; data and names are kept."""
    if isinstance(schema, list):
        return [without_keyword(each, keyword) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {}
    for key, each in schema.items():
        if key in _BY_NAME and isinstance(each, Mapping):
            found[key] = {name: without_keyword(inner, keyword) for name, inner in each.items()}
        elif key != keyword:
            found[key] = each if key in _DATA else without_keyword(each, keyword)
    return found


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"
