"""The API of past requests: search and export."""

from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.person import Person
from signoff.contracts.responses import PastRequestList
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import AuthenticatedCaller, acting_person, own_tenant, person_of
from signoff.gateway.auth.dependencies import As, Deps, TokenReader
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.history.past_export import stream_export
from signoff.gateway.history.past_reader import TEXT_CHARS, PastFilter, PastReader, Scope
from signoff.gateway.transport.json_route import JsonRoute
from signoff.texts.past_lines import ExportForm

router = APIRouter(prefix="/v1/decisions", tags=["decisions"], responses=FAULTS, route_class=JsonRoute)
_MAX_CHARS: Final = 200
Words = Annotated[str, Query(max_length=TEXT_CHARS, description="Only cards with each of these words.")]
Of = Annotated[Scope, Query(alias="scope", description="`mine`: I answered. `team`: asked of one of my roles.")]
Name = Annotated[str, Query(max_length=_MAX_CHARS)]
Who = Annotated[
    str, Query(max_length=_MAX_CHARS, description="The id of its requester, or of someone who answered it.")
]
Since = Annotated[datetime | None, Query(description="Ended at this time or later.")]
Until = Annotated[datetime | None, Query(description="Ended before this time.")]


async def _filter(
    text: Words = "",
    scope: Of = "all",
    tool: Name = "",
    actor: Name = "",
    person: Who = "",
    state: Name = "",
    channel: Name = "",
    since: Since = None,
    until: Until = None,
) -> PastFilter:
    return PastFilter(text, scope, tool, actor, person, state, channel, _utc(since), _utc(until))


Filter = Annotated[PastFilter, Depends(_filter)]


@router.get("", summary="Search past requests, newest first")
async def list_decisions(
    deps: Deps,
    caller: TokenReader,
    chosen: Filter,
    as_person: As = None,
    tenant: str | None = None,
    after: Annotated[str, Query(max_length=_MAX_CHARS, description="`next` of the previous page.")] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> PastRequestList:
    """Lists and counts only requests that the caller may read. A request appears a few seconds after its end."""
    tenant, reader = own_tenant(caller, tenant), person_of(caller)
    own = _own(deps, caller, chosen, as_person, tenant)
    past = PastReader(deps, tenant, reader)
    return await deps.lists.limited(reader, lambda: past.find(chosen, own=own, after=after, limit=limit))


@router.get("/export", summary="Export past requests", response_class=StreamingResponse)
async def export_decisions(
    deps: Deps,
    caller: TokenReader,
    chosen: Filter,
    as_person: As = None,
    tenant: str | None = None,
    form: Annotated[ExportForm, Query(alias="format")] = "jsonl",
) -> StreamingResponse:
    """CSV, or one JSON object a line, newest first, at most 100,000."""
    tenant, reader = own_tenant(caller, tenant), person_of(caller)
    own = _own(deps, caller, chosen, as_person, tenant)
    return await stream_export(PastReader(deps, tenant, reader), chosen, form, own=own)


def _own(
    deps: GatewayDeps, caller: AuthenticatedCaller | None, chosen: PastFilter, named: str | None, tenant: str
) -> Person | None:
    if chosen.scope == "all" and named is None:
        return None
    return acting_person(deps, caller, named, default=DEFAULT_DECIDER, tenant=tenant)


def _utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
