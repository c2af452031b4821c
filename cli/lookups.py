"""From what a person typed to a request or a turn."""

from collections.abc import Sequence

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from signoff import listing
from signoff.client import Signoff
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
from signoff.registry.nearest import did_you_mean, shown

_RECENT = 200


async def find_approval(
    signoff: Signoff, text: str, *, tenant: str, approvers: Sequence[str] | None = None
) -> ApprovalKey:
    """The request that an approval id or a short code names, among those `approvers` may decide, when given.

    Raises `NotFound` that offers the nearest codes, `Refused` when two requests have this code.
    """
    key = parse_approval_id(text.strip())
    if key is not None:
        return key
    code = read_code(text)
    ids = await listing.by_code(signoff.temporal, code, tenant=tenant, approvers=approvers) if code else []
    if len(ids) > 1:
        raise Refused(f"the code `{show_code(code or '')}` fits several requests, name one by its id: {', '.join(ids)}")
    found = parse_approval_id(ids[0]) if ids else None
    if found is None:
        raise NotFound(f"there is no request {shown(text)}{await _near(signoff.temporal, text, tenant, approvers)}")
    return found


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
    recent = await listing.turns(signoff.temporal, tenant=tenant, limit=_RECENT)
    known = {TurnKey(row.tenant, row.session, row.turn) for row in recent}
    named = [key for key in known if key.turn == text] or [key for key in known if text and key.turn.startswith(text)]
    if len(named) > 1:
        ids = ", ".join(sorted(".".join(key) for key in named))
        raise Refused(f"{shown(text)} fits several turns, name one of them whole: {ids}")
    if named:
        return named[0]
    # The index comes later than the turn; one begun without a session has its own id for that, too.
    if is_id(text) and await _exists(signoff, TurnKey(tenant, text, text)):
        return TurnKey(tenant, text, text)
    raise NotFound(f"there is no turn {shown(text)}{did_you_mean(text, (key.turn for key in known))}")


async def find_either(signoff: Signoff, text: str, *, tenant: str) -> ApprovalKey | TurnKey:
    """The request or turn that `text` names. Raises `NotFound` or `Refused`."""
    if parse_approval_id(text.strip()) is not None:
        return await find_approval(signoff, text, tenant=tenant)
    code = read_code(text)
    if code is not None and await listing.by_code(signoff.temporal, code, tenant=tenant):
        return await find_approval(signoff, text, tenant=tenant)
    try:
        return await find_turn(signoff, text, tenant=tenant)
    except NotFound:
        near = await _near(signoff.temporal, text, tenant, None)
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


async def _near(client: Client, text: str, tenant: str, approvers: Sequence[str] | None) -> str:
    cards = await listing.waiting(client, tenant=tenant, approvers=approvers)
    return did_you_mean(text, [name for card in cards for name in (show_code(card.code), card.id)])
