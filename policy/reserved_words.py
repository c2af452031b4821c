"""Lists names that no global rule may have: they are the reasons of the gates' own questions."""

from typing import Final

_NAMES: Final = frozenset(
    {
        "auto_approve_if",
        "deny_if",
        "handler",
        "in_doubt",
        "permission",
        "policies",
        "require_approval_if",
        "requester",
        "requires_approval",
        "route_to",
    }
)
_BEGINNINGS: Final = ("grant:", "handler:")


def is_reserved(name: str) -> bool:
    """Returns whether a rule of this name could be taken for a question of the gates' own, or for one beside others."""
    # Rules are joined by commas where a handler asks beside one (`_asked` of policy/handler_verdict.py): no name may
    # read so.
    parts = (part.strip() for part in name.split(","))
    return any(part in _NAMES or part.startswith(_BEGINNINGS) for part in parts)
