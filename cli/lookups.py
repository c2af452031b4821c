"""From what a person typed to a request or a turn."""

from temporalio.service import RPCError, RPCStatusCode

from signoff.contracts.errors import NotFound, Refused, ServerUnavailable
from signoff.contracts.ids import (
    ApprovalKey,
    TurnKey,
    is_id,
    parse_approval_id,
    parse_workflow_id,
    read_code,
    show_code,
)
from signoff.engine import turn_list
from signoff.engine.turn_client import Signoff
from signoff.formats.nearest_name import did_you_mean, shown
from signoff.gateway.deps import GatewayDeps

_RECENT = 200


async def find_approval(deps: GatewayDeps, text: str, *, tenant: str) -> ApprovalKey:
    """The request that an approval id or a short code names. Raises `NotFound` that offers the nearest codes."""
    key = parse_approval_id(text.strip())
    if key is not None:
        return key
    code = read_code(text)
    found = await deps.requests.by_code(tenant, code) if code else None
    named = parse_approval_id(found) if found else None
    if named is None:
        raise NotFound(f"there is no request {shown(text)}{await _near(deps, text, tenant)}")
    return named


async def find_turn(signoff: Signoff, text: str, *, tenant: str) -> TurnKey:
    """The turn that `<tenant>.<session>.<turn>`, a workflow id, or a turn's own id (or its beginning) names.

    Raises `NotFound` that offers the nearest ids, `Refused` when the beginning fits several.
    """
    text = text.strip()
    parts = text.split(".")
    key = TurnKey(*parts) if len(parts) == 3 and all(map(is_id, parts)) else parse_workflow_id(text)
    if key is not None:
        return key
    # Workflow ids begin with the tenant and the session: by its own id alone no turn can be asked for.
    known = set(await turn_list.turn_keys(signoff.temporal, tenant=tenant, limit=_RECENT))
    named = [key for key in known if key.turn == text] or [key for key in known if text and key.turn.startswith(text)]
    if len(named) > 1:
        ids = ", ".join(sorted(".".join(key) for key in named))
        raise Refused(f"{shown(text)} fits several turns, name one of them whole: {ids}")
    if named:
        return named[0]
    # The index comes later than the turn; one begun without a session has its own id for that in development.
    if is_id(text) and await _exists(signoff, TurnKey(tenant, text, text)):
        return TurnKey(tenant, text, text)
    raise NotFound(f"there is no turn {shown(text)}{did_you_mean(text, (key.turn for key in known))}")


async def find_either(deps: GatewayDeps, text: str, *, tenant: str) -> ApprovalKey | TurnKey:
    """The request or turn that `text` names. Raises `NotFound` or `Refused`."""
    if parse_approval_id(text.strip()) is not None:
        return await find_approval(deps, text, tenant=tenant)
    code = read_code(text)
    if code is not None and await deps.requests.by_code(tenant, code):
        return await find_approval(deps, text, tenant=tenant)
    try:
        return await find_turn(deps.desk, text, tenant=tenant)
    except NotFound:
        near = await _near(deps, text, tenant)
        raise NotFound(f"there is no request and no turn {shown(text)}{near}") from None


async def _exists(signoff: Signoff, key: TurnKey) -> bool:
    """Whether this turn is there, though visibility may not know it yet."""
    try:
        await signoff.temporal.get_workflow_handle(key.workflow_id).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise ServerUnavailable(f"the Temporal server did not answer: {error.message.partition(chr(10))[0]}") from None
    return True


async def _near(deps: GatewayDeps, text: str, tenant: str) -> str:
    cards = await deps.requests.waiting(tenant)
    return did_you_mean(text, [name for card in cards for name in (show_code(card.code), card.id)])
