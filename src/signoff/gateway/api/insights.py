"""The API of figures about requests."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.responses import Insights
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import acting_person, own_tenant, person_of
from signoff.gateway.auth.dependencies import As, Deps, TokenReader
from signoff.gateway.insights.insight_reader import InsightReader
from signoff.gateway.transport.json_route import JsonRoute

router = APIRouter(prefix="/v1/insights", tags=["decisions"], responses=FAULTS, route_class=JsonRoute)


@router.get("", summary="Read figures about requests")
async def read_insights(
    deps: Deps,
    caller: TokenReader,
    as_person: As = None,
    tenant: str | None = None,
    days: Annotated[
        Literal["7", "30", "90"], Query(description="Counts requests of so many days, today included.")
    ] = "30",
) -> Insights:
    """Operators and auditors read figures of all requests. Other people read their own figures.

    Figures by person are the caller's own, unless the manifest permits operators and auditors all of them. Days are
    days in UTC.
    """
    tenant, person = own_tenant(caller, tenant), person_of(caller)
    if as_person is not None:
        person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=tenant)
    reader, span = InsightReader(deps, tenant, person), int(days)
    return await deps.lists.share(person, (), ("insights", tenant, span), lambda: reader.read(span))
