"""The API of remembered answers."""

from typing import Annotated

from fastapi import APIRouter, Query

from signoff.contracts.grant import Grant
from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.responses import GrantList
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import acting_person, own_tenant, person_of, scopes_of
from signoff.gateway.auth.dependencies import As, Deps, TokenDecider, TokenReader
from signoff.gateway.grant_service import readable_grants, take_back
from signoff.gateway.transport.json_route import JsonRoute
from signoff.store.grants import masked_grant

router = APIRouter(prefix="/v1/grants", tags=["grants"], responses=FAULTS, route_class=JsonRoute)


@router.get("", summary="List remembered answers")
async def list_grants(
    deps: Deps,
    caller: TokenReader,
    tenant: str | None = None,
    every: Annotated[bool, Query(description="Include expired, used up and revoked answers.")] = False,
) -> GrantList:
    """Newest first. Lists answers that the caller gave, benefits from, or could have given."""
    own, person = own_tenant(caller, tenant), person_of(caller)
    what = ("api grants", own, every)
    grants = await deps.lists.share(
        person, scopes_of(caller), what, lambda: readable_grants(deps, person, own, every=every)
    )
    return GrantList(grants=tuple(masked_grant(grant) for grant in grants))


@router.delete("/{grant}", summary="Revoke a remembered answer")
async def revoke_grant(
    grant: str, deps: Deps, caller: TokenDecider, as_person: As = None, tenant: str | None = None
) -> Grant:
    """For its authors and the role `admin`."""
    tenant = own_tenant(caller, tenant)
    person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=tenant)
    return await take_back(deps, grant, person, tenant)
