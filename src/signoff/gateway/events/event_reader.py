"""Reads the events of a tenant, or of one turn, for those who may: once, for as long as nothing comes, or for good."""

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
"""How long an answer without events may be waited for."""
LOOK_SECONDS: Final = 0.5
"""How often it is looked whether something happened."""


@dataclass(frozen=True)
class EventFilter:
    """Selects the events that somebody reads: of a tenant, of one turn where named, and specialists' where allowed."""

    tenant: str
    turn: TurnKey | None = None
    with_private: bool = False


class EventReader:
    """Reads events of one gateway. All methods raise `StoreUnavailable`."""

    def __init__(self, deps: GatewayDeps, live: Live) -> None:
        self._deps = deps
        self._live = live

    async def admit(self, person: Person | None, tenant: str, turn: TurnKey | None = None) -> EventFilter:
        """Returns the filter of a person: all of a tenant by the record's rule, else of one turn that they may read.

        Raises `Refused` for who may not, and `NotFound` for a turn that is not there or not theirs.
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
        """Returns the events after a number that are there now.

        Raises `BadRequest` (410) where some after it are not kept any more: going on would pass over them unsaid.
        """
        await self._deps.events.extend()
        stream = "" if wanted.turn is None else wanted.turn.workflow_id
        found = await self._deps.events.read(
            wanted.tenant, after, limit=limit, stream=stream, with_private=wanted.with_private
        )
        if 0 < after < found.oldest - 1:
            message = f"events up to {found.oldest - 1} are not kept any more; go on after that, or read the record"
            raise BadRequest(message, status=410, code="gone")
        return replace(found, events=tuple(map(self._with_schema, found.events)))

    async def wait(self, wanted: EventFilter, after: int, limit: int, seconds: HeldSeconds) -> EventList:
        """Returns the events after a number as soon as there are any, or none after `seconds`. Raises as `read`."""
        over = time.monotonic() + seconds
        while True:
            found = await self.read(wanted, after, limit)
            left = over - time.monotonic()
            # A number ahead of the newest, as one of a store that was begun anew, is answered with where to go on.
            if found.events or after > found.newest or left <= 0 or not await self._live.pause(min(LOOK_SECONDS, left)):
                return found
            after = max(after, found.next)

    async def follow(self, wanted: EventFilter, after: int, limit: int) -> AsyncGenerator[str, None]:
        """Yields the events after a number as server-sent events, each under its number, until streams end."""
        yield f"retry: {RETRY_MILLISECONDS}\n\n"
        while True:
            try:
                found = await self.wait(wanted, after, limit, HeldSeconds(HEARTBEAT_SECONDS))
            except SignoffError as error:
                yield event("problem", fault_of(error).model_dump())
                return
            for each in found.events:
                yield f"id: {each.number}\ndata: {each.model_dump_json()}\n\n"
            after = found.next
            if not found.events:
                yield ": still here\n\n"
            if not await self._live.pause(0):
                return

    def _with_schema(self, found: CloudEvent) -> CloudEvent:
        return replace(found, dataschema=schema_address(self._deps.settings.public_url, found.type))


def schema_address(base: str, kind: str) -> str:
    """Returns the address of the JSON Schema of a type of events at a gateway."""
    return f"{base}/v1/events/schemas/{schema_name(kind)}/{SCHEMA_VERSION}"
