"""The difference between two catalogs, and its effect on waiting calls."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from signoff.registry.catalog import Catalog
from signoff.registry.normal_form import normal_form

Kind = Literal[
    "tool", "actor", "policy", "context", "person", "channel", "rota", "subscription", "mcp_server", "setting"
]

_SECTIONS: Final[tuple[tuple[str, Kind], ...]] = (
    ("tools", "tool"),
    ("actors", "actor"),
    ("policies", "policy"),
    ("context", "context"),
    ("people", "person"),
    ("channels", "channel"),
    ("oncall", "rota"),
    ("subscriptions", "subscription"),
    ("mcp_servers", "mcp_server"),
)
_SETTINGS: Final = (
    "order_of_policies",
    "default_approvers",
    "part_types",
    "requires_peer_consumes",
    "destinations",
    "observer",
    "routing",
    "insights",
    "rooms",
)
_NESTED: Final = ("requires_approval", "limits", "capabilities", "options")
_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}
_DEFINITION: Final = "definition"


class CatalogChange(BaseModel):
    """One difference."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    """The kind of the thing that differs."""
    name: str
    """The name. For a tool its activity."""
    what: Literal["added", "removed", "changed"]
    fields: tuple[str, ...] = ()
    """The changed fields, nested ones dotted."""
    stale: bool = False
    """Whether the definition of a tool changed, so that earlier approvals and requests no longer hold."""

    @property
    def words(self) -> str:
        line = f"{_SIGNS[self.what]} {self.kind} `{self.name}`"
        if self.fields:
            line += f": {', '.join(self.fields)}"
        return f"{line}{self._consequence}"

    @property
    def _consequence(self) -> str:
        if self.kind != "tool" or self.what == "added":
            return ""
        if self.what == "removed":
            return "; its calls that wait become `not_available`"
        return (
            "; its definition changed: earlier approvals are requested again"
            if self.stale
            else "; its definition is unchanged: earlier approvals hold"
        )


class CatalogDiff(BaseModel):
    """Every change from one catalog to another, by section and name.

    The hashes are equal if only people, subscriptions, insights or the functions of the same declaration differ.
    """

    model_config = ConfigDict(frozen=True)

    old: str
    new: str
    changes: tuple[CatalogChange, ...]

    @property
    def stale(self) -> tuple[str, ...]:
        return tuple(change.name for change in self.changes if change.stale)

    @property
    def costs_waiting_calls(self) -> bool:
        """Whether waiting calls need a new request or cannot run."""
        gone = (change for change in self.changes if change.what == "removed" and change.kind in ("tool", "actor"))
        return bool(self.stale) or any(gone)


def catalog_diff(old: Catalog, new: Catalog) -> CatalogDiff:
    """Compares a function by name, not by code."""
    before, after = normal_form(old), normal_form(new)
    changes = [change for section, kind in _SECTIONS for change in _changes(kind, before[section], after[section])]
    changes += [
        CatalogChange(kind="setting", name=name, what="changed") for name in _SETTINGS if _differs(name, before, after)
    ]
    return CatalogDiff(old=old.hash, new=new.hash, changes=tuple(changes))


def _changes(kind: Kind, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[CatalogChange]:
    for name in sorted({*before, *after}):
        if name not in before:
            yield CatalogChange(kind=kind, name=name, what="added")
        elif name not in after:
            yield CatalogChange(kind=kind, name=name, what="removed")
        elif before[name] != after[name]:
            yield _describe_change(kind, name, before[name], after[name])


def _describe_change(kind: Kind, name: str, before: Any, after: Any) -> CatalogChange:
    # A context field is a JSON Schema: its keys are not fields of ours, and one of them alone has no meaning.
    if kind == "context" or not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return CatalogChange(kind=kind, name=name, what="changed")
    fields = tuple(field for field in _fields(before, after) if field != _DEFINITION)
    stale = before.get(_DEFINITION) != after.get(_DEFINITION)
    return CatalogChange(kind=kind, name=name, what="changed", fields=fields, stale=stale)


def _fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for field in sorted({*before, *after}):
        one, other = before.get(field), after.get(field)
        if one == other:
            continue
        # Only if the inner names are ours. From `true` to a policy, or within a schema, the whole value changed.
        if field in _NESTED and isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from (f"{field}.{inner}" for inner in sorted({*one, *other}) if one.get(inner) != other.get(inner))
        else:
            yield field


def _differs(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    if name != "order_of_policies":
        return bool(before[name] != after[name])
    # Compare the order of common rules only. Additions and removals are reported separately.
    kept = [[rule for rule in form[name] if rule in before["policies"]] for form in (before, after)]
    return [rule for rule in kept[0] if rule in after["policies"]] != kept[1]
