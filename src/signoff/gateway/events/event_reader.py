"""Reads the events of a tenant or of one turn for permitted readers: at once, with a wait, or as a stream."""

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from signoff.audit.events import SCHEMA_VERSION, schema_name
from signoff.contracts.audit import CloudEvent, EventList
from signoff.contracts.errors import BadRequest, Refused, SignoffError
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person
from signoff.engine.kill_switch import AUDITOR, OPERATOR
from signoff.formats.replace import replace
from signoff.gateway.auth.streams import HeldSeconds
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.errors import fault_of
from signoff.gateway.live import HEARTBEAT_SECONDS, RETRY_MILLISECONDS, Live, event
from signoff.gateway.read_access import reads_record

WAIT_SECONDS: Final = 30.0
"""The longest wait for events."""
LOOK_SECONDS: Final = 0.5
"""Seconds between looks for new events."""


@dataclass(frozen=True)
class EventFilter:
    """The events that a reader may see: of a tenant or one turn, with or without specialists' events."""

    tenant: str
    turn: TurnKey | None = None
    with_private: bool = False


class EventReader:
    """Reads events of one gateway. All methods raise `StoreUnavailable`."""

    def __init__(self, deps: GatewayDeps, live: Live) -> None:
        self._deps = deps
        self._live = live

    async def admit(self, person: Person | None, tenant: str, turn: TurnKey | None = None) -> EventFilter:
        """Readers of the audit log get the whole tenant, others one turn that they may read.

        Raises `Refused` if the person may not read, `NotFound` for an unknown turn or another person's.
        """
        everything = reads_record(self._deps, person)
        if turn is not None:
            await Conversations(self._deps).require_turn(turn, person)
            return EventFilter(turn.tenant, turn, everything)
        if not everything:
            roles = f"the role `{AUDITOR}` or `{OPERATOR}`"
            raise Refused(f"reading all events takes {roles}; name a `turn` that you may read", code="not_allowed")
        return EventFilter(tenant, None, everything)

    async def read(self, wanted: EventFilter, after: int, limit: int) -> EventList:
        """Raises `BadRequest` (410) if events after `after` have been removed: going on would skip them silently."""
        await self._deps.events.extend()
        stream = "" if wanted.turn is None else wanted.turn.workflow_id
        page = await self._deps.events.read(
            wanted.tenant, after, limit=limit, stream=stream, with_private=wanted.with_private
        )
        if 0 < after < page.oldest - 1:
            message = (
                f"events up to {page.oldest - 1} have been removed; continue after that number, or read the audit log"
            )
            raise BadRequest(message, status=410, code="gone")
        return replace(page, events=tuple(map(self._with_schema, page.events)))

    async def wait(self, wanted: EventFilter, after: int, limit: int, seconds: HeldSeconds) -> EventList:
        """Return the events as soon as there are any, or none after `seconds`. Raises like `read`."""
        over = time.monotonic() + seconds
        while True:
            page = await self.read(wanted, after, limit)
            left = over - time.monotonic()
            # A number ahead of the newest comes from an earlier store. The answer has the number to continue with.
            if page.events or after > page.newest or left <= 0 or not await self._live.pause(min(LOOK_SECONDS, left)):
                return page
            after = max(after, page.next)

    async def follow(self, wanted: EventFilter, after: int, limit: int) -> AsyncGenerator[str, None]:
        """Yield server-sent events, each with its number, until streams end."""
        yield f"retry: {RETRY_MILLISECONDS}\n\n"
        while True:
            try:
                page = await self.wait(wanted, after, limit, HeldSeconds(HEARTBEAT_SECONDS))
            except SignoffError as error:
                yield event("problem", fault_of(error).model_dump())
                return
            for each in page.events:
                yield f"id: {each.number}\ndata: {each.model_dump_json()}\n\n"
            after = page.next
            if not page.events:
                yield ": still here\n\n"
            if not await self._live.pause(0):
                return

    def _with_schema(self, found: CloudEvent) -> CloudEvent:
        return replace(found, dataschema=schema_address(self._deps.settings.public_url, found.type))


def schema_address(base: str, kind: str) -> str:
    return f"{base}/v1/events/schemas/{schema_name(kind)}/{SCHEMA_VERSION}"
