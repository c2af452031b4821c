"""The API of freezes."""

from fastapi import APIRouter, Request

from signoff.contracts.grant import Freeze, FreezeResult
from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.requests import FreezeBody
from signoff.contracts.responses import FreezeList
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import acting_person, channel_of, own_tenant
from signoff.gateway.auth.dependencies import As, Deps, TokenDecider, TokenReader
from signoff.gateway.freeze_service import freeze, unfreeze
from signoff.gateway.transport.json_route import JsonRoute
from signoff.store.freezes import Freezes

router = APIRouter(prefix="/v1/freezes", tags=["freezes"], responses=FAULTS, route_class=JsonRoute)


@router.get("", summary="Read the freeze of a tenant")
async def list_freezes(deps: Deps, caller: TokenReader, tenant: str | None = None) -> FreezeList:
    """Returns the tenant's freeze, if there is one."""
    active = await Freezes(deps.store).read(own_tenant(caller, tenant))
    return FreezeList(freezes=() if active is None else (active,))


@router.post("", summary="Freeze a tenant")
async def freeze_tenant(
    body: FreezeBody, request: Request, deps: Deps, caller: TokenDecider, as_person: As = None
) -> FreezeResult:
    """Stores the freeze, after which nothing of the tenant starts. Then withdraws its pending requests.

    A repeated request withdraws again: `swept.waiting` lists requests that could not be withdrawn in time.
    """
    tenant = own_tenant(caller, body.tenant)
    person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=tenant)
    return await freeze(deps, person, reason=body.reason, channel=channel_of(request))


@router.delete("/{tenant}", summary="Unfreeze a tenant")
async def unfreeze_tenant(
    tenant: str, request: Request, deps: Deps, caller: TokenDecider, as_person: As = None
) -> Freeze:
    """Gates judge new calls as before. Calls denied during the freeze stay denied."""
    tenant = own_tenant(caller, tenant)
    person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=tenant)
    return await unfreeze(deps, person, channel=channel_of(request))
