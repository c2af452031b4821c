"""The API of the kill switch."""

from fastapi import APIRouter, Request

from signoff.contracts.grant import Freeze, FreezeResult
from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.requests import FreezeBody
from signoff.contracts.responses import FreezeList
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import acting_person, channel_of, own_tenant
from signoff.gateway.auth.dependencies import As, Deps, TokenDecider, TokenReader
from signoff.gateway.freeze_service import freeze, thaw
from signoff.gateway.transport.json_route import JsonRoute
from signoff.store.freezes import Freezes

router = APIRouter(prefix="/v1/freezes", tags=["freezes"], responses=FAULTS, route_class=JsonRoute)


@router.get("", summary="Whether the tenant is frozen")
async def list_freezes(deps: Deps, caller: TokenReader, tenant: str | None = None) -> FreezeList:
    """The freeze of the tenant, if there is one."""
    found = await Freezes(deps.store).read(own_tenant(caller, tenant))
    return FreezeList(freezes=() if found is None else (found,))


@router.post("", summary="Deny everything in a tenant")
async def freeze_tenant(
    body: FreezeBody, request: Request, deps: Deps, caller: TokenDecider, as_person: As = None
) -> FreezeResult:
    """Once this has written its row nothing of the tenant starts; then it withdraws what waits.

    Sent again it sweeps again: `swept.waiting` names what could not be withdrawn in time.
    """
    tenant = own_tenant(caller, body.tenant)
    person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=tenant)
    return await freeze(deps, person, reason=body.reason, channel=channel_of(request))


@router.delete("/{tenant}", summary="Lift a freeze")
async def thaw_tenant(tenant: str, request: Request, deps: Deps, caller: TokenDecider, as_person: As = None) -> Freeze:
    """New calls are judged as before; what was denied meanwhile stays denied."""
    tenant = own_tenant(caller, tenant)
    person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=tenant)
    return await thaw(deps, person, channel=channel_of(request))
