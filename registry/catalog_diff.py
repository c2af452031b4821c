"""The difference between two catalogs, and what it means for calls that wait."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from signoff.registry.catalog import Catalog
from signoff.registry.normal_form import normal_form

Kind = Literal["tool", "actor", "policy", "context", "person", "channel", "subscription", "mcp_server", "setting"]

_SECTIONS: Final[tuple[tuple[str, Kind], ...]] = (
    ("tools", "tool"),
    ("actors", "actor"),
    ("policies", "policy"),
    ("context", "context"),
    ("people", "person"),
    ("channels", "channel"),
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
)
_NESTED: Final = ("requires_approval", "limits", "capabilities", "options")
_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}
_DEFINITION: Final = "definition"


class CatalogChange(BaseModel):
    """One thing that differs."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    """What kind of thing."""
    name: str
    """Its name; of a tool its activity."""
    what: Literal["added", "removed", "changed"]
    """What became of it."""
    fields: tuple[str, ...] = ()
    """The fields that changed, nested ones dotted."""
    stale: bool = False
    """Whether a tool's definition is another, so that approvals asked for or given before do not hold."""

    @property
    def words(self) -> str:
        """The change as one line of text."""
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
            "; its definition is another: what was approved before is asked again"
            if self.stale
            else "; its definition is the same: what was approved before holds"
        )


class CatalogDiff(BaseModel):
    """Every change from one catalog to another, by section and name.

    The hashes are equal where people or subscriptions alone differ, or functions of the same declaration.
    """

    model_config = ConfigDict(frozen=True)

    old: str
    """The hash of the one."""
    new: str
    """The hash of the other."""
    changes: tuple[CatalogChange, ...]
    """What differs."""

    @property
    def stale(self) -> tuple[str, ...]:
        """Returns the tools whose approvals do not hold any more."""
        return tuple(change.name for change in self.changes if change.stale)

    @property
    def costs_waiting_calls(self) -> bool:
        """Whether calls that wait are asked again or cannot run any more: a tool, or an actor, is another or gone."""
        gone = (change for change in self.changes if change.what == "removed" and change.kind in ("tool", "actor"))
        return bool(self.stale) or any(gone)


def catalog_diff(old: Catalog, new: Catalog) -> CatalogDiff:
    """Compares two catalogs by what they declare (`normal_form`): a function is its name here, not its code."""
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
    # A field of the context is a JSON Schema: its keys are no fields of ours, and one of them alone tells nothing.
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
        # Only where the inner names are ours: from `true` to a policy, or within a schema, all of it has changed.
        if field in _NESTED and isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from (f"{field}.{inner}" for inner in sorted({*one, *other}) if one.get(inner) != other.get(inner))
        else:
            yield field


def _differs(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    if name != "order_of_policies":
        return bool(before[name] != after[name])
    # The order of those that are in both: what is new or gone is said by itself.
    kept = [[rule for rule in form[name] if rule in before["policies"]] for form in (before, after)]
    return [rule for rule in kept[0] if rule in after["policies"]] != kept[1]
