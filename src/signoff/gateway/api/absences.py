"""The API of absences. They delay cards and give no rights."""

from fastapi import APIRouter, Request

from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.person import Absence
from signoff.contracts.requests import AbsenceBody
from signoff.contracts.responses import AbsenceList
from signoff.gateway.absence_service import come_back, go_away, list_absences
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import acting_person, channel_of, own_tenant
from signoff.gateway.auth.dependencies import As, Deps, TokenDecider, TokenReader
from signoff.gateway.transport.json_route import JsonRoute

router = APIRouter(prefix="/v1/absences", tags=["absences"], responses=FAULTS, route_class=JsonRoute)


@router.get("", summary="List the people who are or will be away")
async def show_absences(deps: Deps, caller: TokenReader, tenant: str | None = None) -> AbsenceList:
    """The soonest return comes first."""
    return AbsenceList(absences=await list_absences(deps, own_tenant(caller, tenant)))


@router.post("", summary="Say that you are away")
async def say_away(
    body: AbsenceBody, request: Request, deps: Deps, caller: TokenDecider, as_person: As = None
) -> Absence:
    """Replaces your earlier absence. Your cards wait for your return if enough others may decide."""
    person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=own_tenant(caller, None))
    return await go_away(deps, person, body, channel_of(request))


@router.delete("", summary="Say that you are back")
async def say_back(request: Request, deps: Deps, caller: TokenDecider, as_person: As = None) -> AbsenceList:
    """Returns the absences of the others."""
    person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=own_tenant(caller, None))
    await come_back(deps, person, channel_of(request))
    return AbsenceList(absences=await list_absences(deps, person.tenant))
