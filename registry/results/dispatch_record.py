"""Facts recorded with a call's outcome: its actor and its dispatch."""

from collections.abc import Mapping
from typing import Any, Final

from signoff.approvals.redaction import HIDDEN, hide
from signoff.contracts.ids import completion_of
from signoff.registry.tool import Tool

SPECIALIST: Final = "specialist_execution"


def dispatch_event(tool: Tool, actor: str) -> dict[str, Any]:
    """Return the first event of a routed call; {} for a bypass.

    Only the calling actor may react to a private event, and only auditors may read it.
    """
    if tool.routing == "bypass":
        return {}
    event = {"source": f"actor:{actor}", "event": f"tool_call:{tool.name}"}
    return {**event, "private": True} if tool.scope == "specialist" else event


def execution_facts(tool: Tool, actor: str, call: str) -> dict[str, Any]:
    reason = tool.bypass_routing.reason if tool.bypass_routing is not None else ""
    kept: dict[str, Any] = {"record": SPECIALIST} if tool.scope == "specialist" else {}
    return {
        **kept,
        "actor": actor,
        "scope": tool.scope,
        "routing": tool.routing,
        "bypass_reason": reason,
        "justification": tool.justification,
        "site": tool.site,
        "tags": list(tool.tags),
        "completion": completion_of(call),
    }


def mask_arguments(tool: Tool, args: Mapping[str, Any]) -> dict[str, Any]:
    return dict(hide(args, tool.masked_arguments, lambda _: HIDDEN))
