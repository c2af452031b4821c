"""The hash of a catalog, over everything that affects its behaviour."""

import dataclasses
from collections.abc import Iterable, Mapping
from zoneinfo import ZoneInfo

from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.policy.compiled_policy import CompiledPolicy, CompiledRules
from signoff.registry.actor import Actor, Level, ListedTool, Step, tool_uses
from signoff.registry.actor_checks import actor_error
from signoff.registry.cel_context import ContextFields
from signoff.registry.manifest.channel_sections import Channels
from signoff.registry.registry import ToolRegistry, tool_content
from signoff.registry.results.destinations import Distribution


def catalog_hash(
    registry: ToolRegistry,
    actors: Mapping[str, Actor],
    policies: Mapping[str, CompiledPolicy],
    rules: CompiledRules,
    bounds: CompiledRules,
    approvers: tuple[str, ...],
    fields: ContextFields,
    types: tuple[str, ...],
    distribution: Distribution,
    channels: Channels,
    zone: ZoneInfo,
) -> str:
    """The same in every process."""
    return sha256_hex(
        {
            "tools": registry.hash,
            # Sorted: the same sections in another order are the same catalog. RFC 8785 sorts the names of mappings.
            "actors": [_actor_content(actors[name]) for name in sorted(actors)],
            "policies": {name: policies[name].hash for name in policies},
            "rules": rules.hash,
            "default_approvers": approvers,
            "context": fields.declared,
            "part_types": types,
            # Left out if empty, as below: new kinds of declarations must not change existing hashes.
            **({"destinations": distribution.content} if distribution.destinations else {}),
            **({"channels": channels.content} if channels.declared else {}),
            **({"bounds": bounds.hash} if bounds.rules else {}),
            **({"timezone": str(zone)} if str(zone) != "UTC" else {}),
        }
    )


def _filters(actor: Actor) -> dict[str, object]:
    given = {
        "toolset": actor.toolset,
        "allowed_plugins": actor.allowed_plugins,
        "allowed_mcp_servers": actor.allowed_mcp_servers,
        "allowed_mcp_tools": None if actor.allowed_mcp_tools is None else dict(actor.allowed_mcp_tools),
        "surfaces": {channel: surface.exclude for channel, surface in actor.surfaces.items()} or None,
    }
    own = {"read_rest": True} if actor.read_rest else {}
    return {**{name: value for name, value in given.items() if value is not None}, **own}


def _conduct(actor: Actor) -> dict[str, object]:
    given: dict[str, tuple[object, object]] = {
        "mode": (actor.mode, "parallel"),
        "on_failure": (actor.on_failure, "continue"),
        "leave_open": (actor.leave_open, False),
    }
    given |= {"result_chars": (actor.result_chars, None)}
    # Without `autonomy`: its compiled rules are hashed.
    path = actor.escalation
    given |= {"escalation": (None if path is None else dataclasses.asdict(path), None)}
    given |= {"external": (None if actor.external is None else dataclasses.asdict(actor.external), None)}
    return {name: value for name, (value, default) in given.items() if value != default}


def _domain(actor: Actor) -> dict[str, object]:
    return {} if actor.domain_data is None else {"domain_data": actor.domain_data, "domain_merge": actor.domain_merge}


def _actor_content(actor: Actor) -> dict[str, object]:
    content: dict[str, object] = {
        "name": actor.name,
        "model": actor.model,
        "description": actor.description,
        "instructions": actor.instructions,
        "tools": actor.tools,
        **_filters(actor),
        **_conduct(actor),
        **_scope_content(actor),
        **_domain(actor),
        "limits": actor.limits.model_dump(mode="json"),
        "model_settings": dict(actor.model_settings),
        "scope": actor.scope,
        "tags": actor.tags,
    }
    try:
        # Hash each actor separately, so that the error names it. Its settings are the only unchecked part.
        sha256_hex(content)
    except NotCanonical as error:
        raise actor_error(actor, "model_settings", "", f"has settings that are not plain JSON: {error}") from None
    return content


def _scope_content(actor: Actor) -> dict[str, object]:
    given = {
        "own_tools": _contents(actor.own_tools),
        "routes": [
            {**_level(route), "steps": [{**_level(step), **_data(step)} for step in route.steps]}
            for route in actor.routes
        ],
        "shadowing": "" if actor.shadowing == "forbid" else actor.shadowing,
        "selects": actor.select is not None,
        "selects_routes": actor.route_select is not None,
    }
    return {name: value for name, value in given.items() if value}


def _level(level: Level) -> dict[str, object]:
    return {
        "name": level.name,
        "description": level.description,
        **({"instructions": level.instructions} if level.instructions else {}),
        "tools": _contents(level.tools),
        "mode": level.mode,
        "tool_filter": level.tool_filter,
        **({"tool_filter_reason": level.tool_filter_reason} if level.tool_filter_reason else {}),
        "selects": level.select is not None,
    }


def _data(step: Step) -> dict[str, object]:
    return {"requires": step.requires, "collect": dict(step.collect)}


def _contents(listed: Iterable[ListedTool]) -> list[dict[str, object]]:
    return [
        {
            "tool": use.tool if isinstance(use.tool, str) else tool_content(use.tool),
            "optional": use.optional,
            "min_step": use.min_step,
            "loosens": use.loosens,
        }
        for use in tool_uses(tuple(listed))
    ]
