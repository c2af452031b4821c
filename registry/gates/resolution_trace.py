"""Describes the resolution of a name for log and audit log."""

from collections.abc import Mapping
from typing import Any, Final

from signoff.formats.nearest_name import quote_name
from signoff.registry.gates.tool_view import ToolView
from signoff.registry.scopes.position import LayerName

_LEVELS: Final[Mapping[LayerName, str]] = {
    "transient": "turn",
    "step_inline": "step",
    "step_reference": "step",
    "route": "route",
    "agent": "agent",
    "registry": "registry",
}


def resolution_facts(view: ToolView, name: str) -> dict[str, Any]:
    """Return the tool, the levels that name it, nearest first, and the part of each.

    `tool` is the activity of the visible tool, "" if there is none.
    """
    found = view.resolution(name)
    seen = found.visible_tool
    held = [each for index, each in enumerate(found.trace) if index == found.at or each.outcome == "lost"]
    return {
        "route": "" if view.position is None else view.position.route,
        "step": "" if view.position is None else view.position.step,
        "tool": "" if seen is None else seen.activity,
        "levels": list(dict.fromkeys(_LEVELS[each.layer] for each in held)),
        "why": found.why,
        "layers": [f"{each.where}: {each.outcome}, {each.why}" for each in found.trace],
    }


def resolution_line(name: str, facts: Mapping[str, Any]) -> str:
    """Format as `tool search in step query: search@desk.help.query (step > route > agent)`."""
    place = f" in step {facts['step']}" if facts["step"] else f" on route {facts['route']}" if facts["route"] else ""
    levels = f" ({' > '.join(facts['levels'])})" if facts["levels"] else ""
    meant = facts["tool"] or f"none, {facts['why']}"
    return f"tool {quote_name(name)}{place}: {meant}{levels}"
