"""Reads YAML with line numbers and without its traps.

There are no yes/no booleans, duplicate keys, tags or variables.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from signoff.contracts.errors import ConfigError

Place: TypeAlias = tuple[str | int, ...]

# Counted while following aliases: ten lines of them can produce billions of nodes (`billion laughs`).
_MAX_NODES: Final = 100_000
_TAG: Final = "tag:yaml.org,2002:"
_VARIABLE: Final = re.compile(r"\$\{[^}]*\}?")


@dataclass(frozen=True)
class YamlFile:
    """Plain data and the line of each part.

    `name` is the file's name in messages.

    `parts` maps the places with data from another file to their places in it.
    """

    name: str
    data: Any
    lines: Mapping[Place, int]
    parts: Mapping[Place, tuple["YamlFile", Place]] = field(default_factory=dict)

    def where(self, place: Place) -> tuple[str, int]:
        """Use the nearest part around `place` without a line. Keys may be in either spelling."""
        for end in range(len(place), -1, -1):
            if place[:end] in self.parts:
                part, inner = self.parts[place[:end]]
                return part.where((*inner, *place[end:]))
            line = self.lines.get(place[:end]) or self.lines.get(_normalize(place[:end]))
            if line:
                return self.name, line
        return self.name, 1

    def error(self, place: Place, message: str, **context: object) -> ConfigError:
        """The error starts with `file:line:` and has `file` and `line`."""
        name, line = self.where(place)
        return ConfigError(f"{name}:{line}: {message}", **{**context, "file": name, "line": line})


class _CoreLoader(yaml.SafeLoader):
    """Loads the core schema of YAML 1.2.

    Only true and false are booleans, and 12:30 and 010 are text.
    """

    # Empty, so that no YAML 1.1 resolvers of PyYAML are inherited, for which `no` is false and 12:30 is 750.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_CoreLoader.add_implicit_resolver(f"{_TAG}null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_CoreLoader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_CoreLoader.add_implicit_resolver(f"{_TAG}int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
_CoreLoader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def read_yaml(path: Path, name: str = "", *, quotes: bool = False) -> YamlFile:
    """Read one file.

    With `quotes` it may contain `${...}` as quoted text.

    Raises `ConfigError` with one sentence, file and line.
    """
    name = name or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{name}: there is no such file", file=name) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: cannot be read as UTF-8 text ({type(error).__name__})", file=name) from None
    return parse_yaml(text, name, quotes=quotes)


def parse_yaml(text: str, name: str, *, quotes: bool = False) -> YamlFile:
    """Read a text as `read_yaml` reads a file."""
    try:
        # Compose instead of constructing: nodes have line numbers, and no tag can create an object.
        root = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem}", file=name, line=line) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {str(error).partition(chr(10))[0]}", file=name) from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply", file=name) from None
    reader = _Reader(name, quotes=quotes)
    return YamlFile(name, reader.value(root, ()) if root is not None else None, reader.lines)


class _Reader:
    def __init__(self, name: str, *, quotes: bool) -> None:
        self.name = name
        self.quotes = quotes
        self.lines: dict[Place, int] = {}
        self._open: list[yaml.Node] = []
        self._count = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        self._mark(place, node)
        self._count += 1
        # An anchor inside its own target would be followed endlessly.
        if node in self._open or self._count > _MAX_NODES:
            raise self._error(node, "an alias repeats its own surroundings or too much; write it out")
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, place)
            if isinstance(node, yaml.SequenceNode):
                self._plain(node, "seq")
                return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
            return self._scalar(node)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        self._plain(node, "map")
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, "a key must be a word")
            key = str(key_node.value)
            self._check_text(key_node, key)
            if key in result:
                first = self.lines[(*place, key)]
                raise self._error(key_node, f"the key `{key}` is given twice (first on line {first}); keep one")
            self._mark((*place, key), key_node)
            result[key] = self.value(value_node, (*place, key))
        return result

    def _scalar(self, node: yaml.Node) -> Any:
        text = str(node.value)
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return int(text)
            case "float":
                return float(text)
            case "str":
                self._check_text(node, text)
                return text
        raise self._error(node, f"the tag `{node.tag}` is not supported; write plain YAML")

    def _plain(self, node: yaml.Node, kind: str) -> None:
        if node.tag != f"{_TAG}{kind}":
            raise self._error(node, f"the tag `{node.tag}` is not supported; write plain YAML")

    def _check_text(self, node: yaml.Node, text: str) -> None:
        # Authors expect a variable to be replaced. Accepted as written, it would pass for the value.
        variable = None if self.quotes else _VARIABLE.search(text)
        if variable:
            raise self._error(
                node, f"`{variable[0]}`: variables are not read here; write the value, keep secrets elsewhere"
            )

    def _mark(self, place: Place, node: yaml.Node) -> None:
        line = node.start_mark.line + 1
        self.lines.setdefault(place, line)
        self.lines.setdefault(_normalize(place), line)

    def _error(self, node: yaml.Node, message: str) -> ConfigError:
        line = node.start_mark.line + 1
        return ConfigError(f"{self.name}:{line}: {message}", file=self.name, line=line)


def _normalize(place: Place) -> Place:
    """Make snake_case and camelCase keys equal, with a mark that real keys lack."""
    return ("~", *(part.replace("_", "").lower() if isinstance(part, str) else part for part in place))
