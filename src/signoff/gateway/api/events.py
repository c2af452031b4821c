"""The API of events: what happened in a tenant, numbered, to be waited for and followed; and their schemas."""

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

After = Annotated[int, Query(ge=0, lt=10**_MAX_DIGITS, description="The number to go on after.")]
EventWait = Annotated[float, Query(ge=0, le=WAIT_SECONDS, description="How many seconds to wait for one.")]
EventLimit = Annotated[int, Query(ge=1, le=500)]
LastEventId = Annotated[str | None, Header(description="The same as `after`, for server-sent events.")]


@dataclass(frozen=True)
class EventPart:
    """Says which events are asked for: those after a number, how long to wait for one, and how many at most."""

    after: int
    wait: float
    limit: int


async def answer_events(
    request: Request, reader: EventReader, wanted: EventFilter, part: EventPart, still: Allowed | None = None
) -> EventList | StreamingResponse:
    """Answers with events, or streams them where `request` accepts that. Raises as `EventReader.read`."""
    if SSE not in request.headers.get("accept", ""):
        async with waiting(request, part.wait, f"{wanted} after {part.after}") as seconds:
            return await reader.wait(wanted, part.after, part.limit, seconds)
    # Before the stream begins: what is wrong with the number is answered by a status.
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
    """CloudEvents 1.0 in the order of their numbers; go on with `after` = `next`, and none is missed.

    For the roles `admin` and `auditor`, and in development for everybody; with `turn` for whoever may read that turn,
    without the events of specialists. With `Accept: text/event-stream` the same as server-sent events, without an end.
    410 where events after `after` are not kept any more.
    """
    person, reader, conversations = person_of(caller), EventReader(deps, live), Conversations(deps)
    key = None if turn is None else await conversations.turn_key(turn, person, own_tenant(caller, None))
    own = own_tenant(caller, tenant if key is None else key.tenant)
    wanted = await reader.admit(person, own, key)

    async def still(reading: Person) -> bool:
        return await reader.admit(reading, own, key) == wanted

    part = EventPart(event_number(last_event_id) if last_event_id else after, wait, limit)
    return await answer_events(request, reader, wanted, part, still)


@router.get("/failed", summary="Events that did not arrive")
async def list_failed(deps: Deps, caller: TokenReader, live: LiveUpdates, tenant: str | None = None) -> FailedEventList:
    """Those that subscriptions were to be sent and that were given up; for who may read all events."""
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


@router.post("/failed/retry", summary="Send again what did not arrive")
async def retry_failed(
    request: Request,
    deps: Deps,
    caller: TokenDecider,
    subscription: str = "",
    as_person: As = None,
    tenant: str | None = None,
) -> RetryResult:
    """All that was given up in a tenant, or of one `subscription`; for the role `admin`."""
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


@router.get("/schemas", dependencies=[OPEN], summary="The types of events")
async def list_schemas(deps: Deps) -> dict[str, str]:
    """Each type with the address of the JSON Schema of its `data`."""
    return {name: schema_address(deps.settings.public_url, name) for name in EVENT_TYPES}


@router.get("/schemas/{name}/{version}", dependencies=[OPEN], summary="The JSON Schema of a type of events")
async def show_schema(name: str, version: int, deps: Deps) -> dict[str, Any]:
    """Of the `data` of one type; that of dispatched calls, `tool_call:<tool>`, is called `tool_call`."""
    if name not in EVENT_TYPES or version != SCHEMA_VERSION:
        raise NotFound("there is no such schema; `/v1/events/schemas` lists them")
    return {"$id": schema_address(deps.settings.public_url, name), **schema_of_type(name)}


def event_number(text: str) -> int:
    """Parses a `Last-Event-ID`. Raises `BadRequest`."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise BadRequest("`Last-Event-ID` is the number of an event")
    return int(text)
