"""Composes a program with a manifest, which may only add and tighten.

Both may give fields that have an order: the manifest's value must be the stricter one. Both policies are evaluated. Any
other field given twice is an error with both places.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from signoff.contracts.errors import ConfigError
from signoff.formats.declared_fields import IN_CODE, declared_fields
from signoff.formats.durations import Seconds
from signoff.formats.yaml_file import Place, YamlFile
from signoff.formats.yaml_section import spellings
from signoff.registry.manifest.mappings import TwoPolicies
from signoff.registry.manifest.tool_section import ToolSection
from signoff.registry.program.plain_values import plain
from signoff.registry.tool import DEFAULT_TIMEOUT, Tool

Data = dict[str, Any]
_NAMED: Final = (
    *("tools", "actors", "channels", "oncall", "subscriptions", "mcp_servers", "destinations", "context", "defaults"),
)
_LISTS: Final = ("policies", "part_types", "requires_peer_consumes", "path")
_FROM_CODE: Final = (
    "handler", "per_call", "input_schema", "scope", "routing", "bypass_routing", "runs", "read_only", "idempotent",
    "validation", "remarks", "always_include", "concurrency", "capabilities", "updates",
    "tags", "toolset", "plugin", "metadata",
)  # fmt: skip
"""Fields that a manifest may not give a tool of the code: they define its effect, or could loosen it.

The last four are facts for rules: a new tag could let a tool escape a rule that denies tools without it.
"""


def compose(code: YamlFile, manifest: YamlFile) -> YamlFile:
    """Raises `ConfigError` with both places for an entry that neither adds nor tightens."""
    return _Composer(code, manifest).compose()


class _Composer:
    def __init__(self, code: YamlFile, manifest: YamlFile) -> None:
        self._code = code
        self._manifest = manifest
        self._data: Data = dict(manifest.data)
        self._parts = dict(manifest.parts)

    def compose(self) -> YamlFile:
        for key, value in self._code.data.items():
            if key == "version":
                continue
            theirs = self._data.get(key)
            if theirs is None:
                self._take((key,), value)
            elif key in _NAMED and isinstance(theirs, Mapping):
                self._data[key] = dict(theirs)
                self._add_named(key, value)
            elif key in _LISTS and isinstance(theirs, list):
                self._add_list(key, value)
            else:
                raise self._twice((key,), f"`{key}`")
        return dataclasses.replace(self._manifest, data=self._data, parts=self._parts)

    def _take(self, place: Place, value: Any) -> None:
        target = self._data
        for key in place[:-1]:
            target = target[str(key)]
        target[str(place[-1])] = value
        self._parts[place] = (self._code, place)

    def _add_named(self, section: str, entries: Mapping[str, Any]) -> None:
        for name, value in entries.items():
            theirs = self._data[section].get(name)
            if theirs is None:
                self._take((section, name), value)
            elif section == "tools" and isinstance(theirs, Mapping):
                self._data[section][name] = self._tighten(name, value, theirs)
            else:
                raise self._twice((section, name), f"`{name}` of `{section}`")

    def _add_list(self, key: str, entries: list[Any]) -> None:
        known = list(self._data[key])
        for index in range(len(entries)):
            self._parts[key, len(known) + index] = (self._code, (key, index))
        self._data[key] = [*known, *entries]

    def _tighten(self, name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Data:
        place: Place = ("tools", name)
        known = spellings(ToolSection)
        declared = dict(_given(ours))
        merged = dict(ours)
        self._parts[place] = (self._code, place)
        for written, value in theirs.items():
            key = known.get(written, written)
            self._parts[*place, key] = self._part(*place, written)
            if value is None:
                continue
            if key in _FROM_CODE:
                raise self._refuse(place, written, f"tool `{name}` has `{key}` from its code; drop it here")
            if key == "requires_approval":
                merged[key] = TwoPolicies(declared[key], value) if declared.get(key) else value
                continue
            problem = _problem(key, declared.get(key), value)
            if problem:
                raise self._refuse(place, written, f"`{key}` of tool `{name}` {problem}")
            merged[key] = [*declared.get(key, ()), *value] if key == "secrets" else value
        return merged

    def _part(self, *place: str | int) -> tuple[YamlFile, Place]:
        return self._manifest, place

    def _refuse(self, place: Place, key: str, why: str) -> ConfigError:
        file, line = self._code.where(place)
        return self._manifest.error((*place, key), f"{why} (declared at {file}:{line})", field=key)

    def _twice(self, place: Place, what: str) -> ConfigError:
        file, line = self._code.where(place)
        return self._manifest.error(
            place, f"{what} is declared here and at {file}:{line}; keep one", field=str(place[-1])
        )


def _given(section: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    handler = section.get("handler")
    if isinstance(handler, Tool):
        values = vars(handler)
        for name, field in declared_fields(Tool).items():
            if field.spec.key is not IN_CODE and values[name] != field.default:
                yield name, plain(values[name])
    known = spellings(ToolSection)
    yield from ((known.get(key, key), value) for key, value in section.items() if value is not None)


def _problem(key: str, ours: Any, theirs: Any) -> str:
    order = _ORDERS.get(key)
    if order is not None:
        return order(ours, theirs)
    return "" if ours is None or ours == theirs else f"is {_shown(ours)} in code and {_shown(theirs)} here; keep one"


def _at_most(ours: Any, theirs: Any) -> str:
    try:
        limit = None if ours is None else _SECONDS.validate_python(ours)
        looser = limit is not None and _SECONDS.validate_python(theirs) > limit
    except ValidationError:
        # The section reader reports the error.
        return ""
    return f"may be at most {_shown(ours)}, which the code declares" if looser else ""


def _timeout(ours: Any, theirs: Any) -> str:
    return _at_most(DEFAULT_TIMEOUT if ours is None else ours, theirs)


def _attempts(ours: Any, theirs: Any) -> str:
    return _at_most(1 if ours is None else ours, theirs)


def _cache(ours: Any, theirs: Any) -> str:
    return "is not in the code, which asks for each call" if ours is None else _at_most(ours, theirs)


def _subset(ours: Any, theirs: Any) -> str:
    mine, their = ([each] if isinstance(each, str) else each for each in (ours, theirs))
    if mine is None or not isinstance(their, list) or set(map(str, their)) <= set(map(str, mine)):
        return ""
    return f"may only narrow {_shown(ours)}, which the code declares"


def _only(allowed: bool) -> Callable[[Any, Any], str]:
    def problem(ours: Any, theirs: Any) -> str:
        # Both fields are false if the code leaves them out.
        return "" if theirs is allowed or theirs == bool(ours) else f"may only become `{str(allowed).lower()}` here"

    return problem


def _usage_limit(ours: Any, theirs: Any) -> str:
    if ours is None or not isinstance(theirs, Mapping):
        return ""
    same = ours.get("per") == theirs.get("per") and _at_most(ours["period"], theirs.get("period", 0)) == ""
    longer = _at_most(theirs.get("period", 0), ours["period"]) == ""
    fewer = isinstance(theirs.get("count"), int) and theirs["count"] <= ours["count"]
    return "" if same and longer and fewer else f"may only lower the count of {_shown(ours)}, which the code declares"


def _more(ours: Any, theirs: Any) -> str:
    return ""


_SECONDS: Final = TypeAdapter(Seconds)
_ORDERS: Final[Mapping[str, Callable[[Any, Any], str]]] = {
    "timeout": _timeout,
    "max_result_chars": _at_most,
    "attempts": _attempts,
    "cache_permission": _cache,
    "hours": _subset,
    "tenants": _subset,
    "peer_exposed": _only(False),
    "untrusted_output": _only(True),
    "usage_limit": _usage_limit,
    "secrets": _more,
}


def _shown(value: Any) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
