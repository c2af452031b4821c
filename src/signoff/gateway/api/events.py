"""The API of events: read, wait for and follow a tenant's numbered events, and their schemas."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from signoff.approvals.audit_events import admin_entry
from signoff.audit.event_deliveries import EventDeliveries
from signoff.audit.events import EVENT_TYPES, SCHEMA_VERSION, schema_of_type
from signoff.contracts.audit import EventList, FailedEvent, FailedEventList, RetryResult
from signoff.contracts.errors import BadRequest, NotFound
from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.person import Person
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.audit_writer import record
from signoff.gateway.auth.caller import acting_person, channel_of, own_tenant, person_of, scopes_of
from signoff.gateway.auth.dependencies import OPEN, As, Deps, LiveUpdates, TokenDecider, TokenReader
from signoff.gateway.auth.streams import Allowed, stream_events, waiting
from signoff.gateway.conversations import Conversations
from signoff.gateway.events.event_reader import WAIT_SECONDS, EventFilter, EventReader, schema_address
from signoff.gateway.freeze_service import require_operator

router = APIRouter(prefix="/v1/events", tags=["events"], responses=FAULTS)
SSE = "text/event-stream"
_MAX_DIGITS = 18

After = Annotated[int, Query(ge=0, lt=10**_MAX_DIGITS, description="Return events after this number.")]
EventWait = Annotated[float, Query(ge=0, le=WAIT_SECONDS, description="Seconds to wait for an event.")]
EventLimit = Annotated[int, Query(ge=1, le=500)]
LastEventId = Annotated[str | None, Header(description="Same as `after`, for server-sent events.")]


@dataclass(frozen=True)
class EventPart:
    """The requested events: after a number, with a wait and a limit."""

    after: int
    wait: float
    limit: int


async def answer_events(
    request: Request, reader: EventReader, wanted: EventFilter, part: EventPart, still: Allowed | None = None
) -> EventList | StreamingResponse:
    """Streams the events if `request` accepts that. Raises like `EventReader.read`."""
    if SSE not in request.headers.get("accept", ""):
        async with waiting(request, part.wait, f"{wanted} after {part.after}") as seconds:
            return await reader.wait(wanted, part.after, part.limit, seconds)
    # Read before the stream begins, so that a wrong number is answered by a status.
    await reader.read(wanted, part.after, 1)
    return stream_events(request, reader.follow(wanted, part.after, part.limit), still)


@router.get("", response_model=EventList, summary="Read, wait for or follow events")
async def list_events(
    request: Request,
    deps: Deps,
    caller: TokenReader,
    live: LiveUpdates,
    tenant: str | None = None,
    turn: str | None = None,
    after: After = 0,
    wait: EventWait = 0,
    limit: EventLimit = 100,
    last_event_id: LastEventId = None,
) -> EventList | StreamingResponse:
    """CloudEvents 1.0 in order of their numbers. Continue with `after` = `next` to miss none.

    For the roles `admin` and `auditor`, and in development for all. With `turn`, for readers of that turn, without
    events of specialists. With `Accept: text/event-stream`, an endless stream of server-sent events. 410 if events
    after `after` have been removed.
    """
    person, reader, conversations = person_of(caller), EventReader(deps, live), Conversations(deps)
    key = None if turn is None else await conversations.turn_key(turn, person, own_tenant(caller, None))
    own = own_tenant(caller, tenant if key is None else key.tenant)
    wanted = await reader.admit(person, own, key)

    async def still(reading: Person) -> bool:
        return await reader.admit(reading, own, key) == wanted

    part = EventPart(event_number(last_event_id) if last_event_id else after, wait, limit)
    return await answer_events(request, reader, wanted, part, still)


@router.get("/failed", summary="List undelivered events")
async def list_failed(deps: Deps, caller: TokenReader, live: LiveUpdates, tenant: str | None = None) -> FailedEventList:
    """Lists the deliveries to subscriptions that were given up. For readers of all events."""
    own = own_tenant(caller, tenant)
    await EventReader(deps, live).admit(person_of(caller), own)
    dead = await deps.lists.share(
        person_of(caller),
        scopes_of(caller),
        ("api failed events", own),
        lambda: EventDeliveries(deps.store).list_given_up(own),
    )
    return FailedEventList(
        failed=tuple(FailedEvent(subscription=each.subscription, code=each.code, event=each.event) for each in dead)
    )


@router.post("/failed/retry", summary="Retry undelivered events")
async def retry_failed(
    request: Request,
    deps: Deps,
    caller: TokenDecider,
    subscription: str = "",
    as_person: As = None,
    tenant: str | None = None,
) -> RetryResult:
    """Retries all given-up deliveries of a tenant, or of one `subscription`. For the role `admin`."""
    own = own_tenant(caller, tenant)
    person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=own)
    require_operator(deps, person)
    count = await EventDeliveries(deps.store).retry(own, subscription)
    channel = channel_of(request)
    entry = admin_entry(
        own, "retry-events", person.id, deps.clock(), subscription=subscription, number=count, channel=channel
    )
    await record(deps.store, entry)
    return RetryResult(retried=count)


@router.get("/schemas", dependencies=[OPEN], summary="List the types of events")
async def list_schemas(deps: Deps) -> dict[str, str]:
    """Maps each type to the address of the JSON Schema of its `data`."""
    return {name: schema_address(deps.settings.public_url, name) for name in EVENT_TYPES}


@router.get("/schemas/{name}/{version}", dependencies=[OPEN], summary="Read the JSON Schema of a type of event")
async def show_schema(name: str, version: int, deps: Deps) -> dict[str, Any]:
    """Describes the `data` of one type. The type `tool_call:<tool>` of dispatched calls is named `tool_call`."""
    if name not in EVENT_TYPES or version != SCHEMA_VERSION:
        raise NotFound("there is no such schema; `/v1/events/schemas` lists them")
    return {"$id": schema_address(deps.settings.public_url, name), **schema_of_type(name)}


def event_number(text: str) -> int:
    """Raises `BadRequest`."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise BadRequest("`Last-Event-ID` is the number of an event")
    return int(text)
