"""Remembered answers: what people asked to be remembered, and to which calls it applies. Pure rules."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from signoff.contracts.canonical import sha256_hex
from signoff.contracts.decision import Decision, Remember, Verdict
from signoff.contracts.limits import MAX_REMEMBERED_SECONDS, MAX_REMEMBERED_USES

GRANT_RULE: Final = "grant:"
_ID_CHARS: Final = 16


def likeness(tool: str, definition: str, args: Mapping[str, Any]) -> str:
    """The digest of a call without its turn and number: what `exactly these arguments` means.

    Raises `NotCanonical` for arguments that RFC 8785 cannot write.
    """
    return sha256_hex({"v": 1, "tool": tool, "definition": definition, "args": dict(args)})


def grant_id(approval_id: str, revision: int, verdict: Verdict) -> str:
    """The id of what an answer left behind: the same each time it is written, so that it is written once."""
    return f"g{sha256_hex([approval_id, revision, verdict])[: _ID_CHARS - 1]}"


def grant_rule(grant: str) -> str:
    """The rule that a call ran by: `grant:<id>`."""
    return f"{GRANT_RULE}{grant}"


def wish_problem(wish: Remember) -> str:
    """Why an answer cannot be remembered for so long or so often; "" when it can."""
    if not 0 < wish.seconds <= MAX_REMEMBERED_SECONDS:
        days = MAX_REMEMBERED_SECONDS / 86_400
        return f"`remember.seconds`: more than 0, and {MAX_REMEMBERED_SECONDS:.0f} ({days:.0f} days) at most"
    if not 1 <= wish.uses <= MAX_REMEMBERED_USES:
        return f"`remember.uses`: 1 to {MAX_REMEMBERED_USES}"
    return ""


def agreed_wish(decisions: Sequence[Decision], quorum: int) -> Remember | None:
    """What everybody who approved wants remembered; None unless that is one thing, wanted by all of a quorum.

    Of different lengths and counts the smallest hold. The caller has checked whose decisions these are.
    """
    wishes = [decision.remember for decision in decisions]
    people = {decision.subject for decision in decisions}
    # Calls yet to come must not hang on somebody who cannot be named or looked up.
    if "" in people or len(people) < max(quorum, 1):
        return None
    kept = [wish for wish in wishes if wish is not None]
    if len(kept) != len(wishes) or len({(wish.scope, wish.where.strip()) for wish in kept}) != 1:
        return None
    return kept[0].model_copy(
        update={"seconds": min(wish.seconds for wish in kept), "uses": min(wish.uses for wish in kept)}
    )
