"""Derives a catalog from another by adding, replacing and removing tools. The old one is unchanged."""

from collections.abc import Iterable, Mapping

from signoff.contracts.errors import ConfigError
from signoff.contracts.message import PART_TYPES
from signoff.contracts.names import READ_REST
from signoff.formats.nearest_name import did_you_mean
from signoff.people.directory import declared_people
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.results.reducers import ReducerRegistry, ToolReducer
from signoff.registry.tool import Tool


def derive(
    catalog: Catalog,
    *,
    add: Iterable[Tool] = (),
    replace: Iterable[Tool] = (),
    remove: Iterable[str] = (),
    actors: Iterable[Actor] | None = None,
) -> Catalog:
    """Return a new catalog with these tools added, replaced and removed.

    `actors` are all actors of the new one; `None` keeps the old ones. All checks of `build_catalog` apply. Raises
    `ConfigError` with `tool_name` for a name that is taken (`add`) or missing (`replace`, `remove`).
    """
    # Actors that declare the framework's own tool bring it. Its name is reserved for tools that callers pass.
    tools = {tool.name: tool for tool in catalog.tools() if tool.name != READ_REST}
    gone, others = _find_removed(tools, remove), _find_replaced(tools, replace)
    kept = {name: others.get(name, tool) for name, tool in tools.items() if name not in gone}
    both = next((name for name in others if name in gone), None)
    if both is not None:
        raise _refuse(both, "remove", f"tool `{both}` is both replaced and removed; choose one")
    return build_catalog(
        tools=[*kept.values(), *_find_added(kept, add)],
        actors=catalog.actors.values() if actors is None else actors,
        policies=catalog.declared_rules,
        default_approvers=catalog.default_approvers,
        # Unwrapped: otherwise each derivation would wrap the built-in people again.
        people=declared_people(catalog.people),
        context=catalog.fields.declared,
        # The types of every catalog are reserved and cannot be declared.
        part_types=[each for each in catalog.part_types if each not in PART_TYPES],
        requires_peer_consumes=catalog.requires_peer_consumes,
        reducers=_reducers(catalog, gone),
        destinations=catalog.distribution.destinations.values(),
        observer=catalog.distribution.observer,
        channels=catalog.channels.declared.values(),
        routing=catalog.channels.routing,
        rooms=catalog.channels.rooms,
        on_call=catalog.on_call.values(),
        subscriptions=catalog.subscriptions.values(),
        insights_by_person=catalog.insights_by_person,
        mcp_servers=catalog.mcp_servers.values(),
        timezone=str(catalog.zone),
    )


def _find_added(kept: Mapping[str, Tool], add: Iterable[Tool]) -> list[Tool]:
    tools = list(add)
    for tool in tools:
        if tool.name in kept:
            raise _refuse(
                tool.name, "name", f"tool `{tool.name}` is already registered; `replace` it, or give it another name"
            )
    return tools


def _find_replaced(tools: Mapping[str, Tool], replace: Iterable[Tool]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for tool in replace:
        if tool.name not in tools:
            raise _refuse(
                tool.name, "name", f"there is no tool `{tool.name}` to replace{did_you_mean(tool.name, tools)}"
            )
        if tool.name in found:
            raise _refuse(tool.name, "name", f"tool `{tool.name}` is replaced twice; keep one")
        found[tool.name] = tool
    return found


def _find_removed(tools: Mapping[str, Tool], remove: Iterable[str]) -> frozenset[str]:
    names = frozenset(remove)
    for name in sorted(names):
        if name not in tools:
            raise _refuse(name, "name", f"there is no tool `{name}` to remove{did_you_mean(name, tools)}")
    return names


def _reducers(catalog: Catalog, gone: frozenset[str]) -> ReducerRegistry:
    found = ReducerRegistry()
    for name, reducer in catalog.reducers.items():
        # Drop the reducer of a removed tool: the new catalog would reject it, and its author could not fix that.
        if name not in gone:
            found.register(ToolReducer(name, reducer))
    return found


def _refuse(name: str, field: str, why: str) -> ConfigError:
    return ConfigError(why, tool_name=name, field=field, value=name)
