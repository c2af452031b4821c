"""What the hash of an actor holds of its own tools and routes."""

from collections.abc import Iterable

from signoff.registry.actor import Actor
from signoff.registry.registry import tool_content
from signoff.registry.scopes.route import Level, Listed, Step, uses


def scope_content(actor: Actor) -> dict[str, object]:
    """What the hash of an actor holds of its own tools and routes, where it has some."""
    given = {
        "own_tools": _contents(actor.own_tools),
        "routes": [
            {**_level(route), "steps": [{**_level(step), **_data(step)} for step in route.steps]}
            for route in actor.routes
        ],
        "shadowing": "" if actor.shadowing == "forbid" else actor.shadowing,
        "selects": actor.select is not None,
    }
    return {name: value for name, value in given.items() if value}


def _level(level: Level) -> dict[str, object]:
    return {
        "name": level.name,
        "description": level.description,
        "tools": _contents(level.tools),
        "mode": level.mode,
        "tool_filter": level.tool_filter,
        "selects": level.select is not None,
    }


def _data(step: Step) -> dict[str, object]:
    return {"requires": step.requires, "collect": dict(step.collect)}


def _contents(listed: Iterable[Listed]) -> list[dict[str, object]]:
    return [
        {
            "tool": use.tool if isinstance(use.tool, str) else tool_content(use.tool),
            "optional": use.optional,
            "min_step": use.min_step,
            "loosens": use.loosens,
        }
        for use in uses(tuple(listed))
    ]
