"""Records refusals of external agents that happen before there is a call. Limits the entries per minute."""

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
"""Other codes report a call's state, or a request that is unreadable or badly timed."""


async def note_refusal(
    deps: GatewayDeps, caller: AuthenticatedCaller | None, where: str, error: SignoffError, tool: str = ""
) -> None:
    """Records nothing if the call's own entries show the refusal. Raises nothing if the store is down."""
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
    deps: GatewayDeps = request.app.state.deps
    await note_refusal(deps, caller_of(request), f"{request.method} {request.url.path}", error, tool)


def _plain(given: str) -> str:
    # The refused caller chose the text. The store cannot hold NUL or half a surrogate pair.
    return "".join(each if each.isprintable() else "?" for each in given[:_CHARS])
