"""Records what external agents were refused before it became a call, whichever way it came; so many a minute."""

from typing import Final

from starlette.requests import Request

from signoff.approvals.audit_events import admin_entry
from signoff.contracts.errors import Refused, SignoffError
from signoff.contracts.names import DEFAULT_TENANT
from signoff.gateway.auth.caller import AuthenticatedCaller, caller_of
from signoff.gateway.deps import GatewayDeps

_ACT: Final = "refused to an agent"
_CHARS: Final = 200
_NOTED: Final = frozenset({"scope", "not_allowed", "unknown", "conflict", "stale", "unproved"})
"""Other codes say how a call stands, or that nobody could read the request or take it now."""


async def note_refusal(
    deps: GatewayDeps, caller: AuthenticatedCaller | None, where: str, error: SignoffError, tool: str = ""
) -> None:
    """Writes down that a caller was refused at `where`, and why; nothing where the call's own record tells it.

    Never raises for a store that is away.
    """
    if not isinstance(error, Refused) or error.code not in _NOTED:
        return
    entry = admin_entry(
        DEFAULT_TENANT if caller is None else caller.person.tenant,
        _ACT,
        "" if caller is None else caller.person.id,
        deps.clock(),
        kind="attempt",
        where=_plain(where),
        code=error.code,
        tool=_plain(tool),
        reason=_plain(error.message),
    )
    await deps.attempts.note(deps.store, entry, error.code)


async def note_refused_request(request: Request, error: SignoffError, tool: str = "") -> None:
    """Writes down that a request was refused, as `note_refusal`."""
    deps: GatewayDeps = request.app.state.deps
    await note_refusal(deps, caller_of(request), f"{request.method} {request.url.path}", error, tool)


def _plain(given: str) -> str:
    # Names come from whoever is refused: half of a surrogate pair or a NUL no record can carry.
    return "".join(each if each.isprintable() else "?" for each in given[:_CHARS])
