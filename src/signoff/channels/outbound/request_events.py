"""Reads the events of requests from the store, the dispatcher's only source: a turn cannot make it send anything."""

import logging
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from signoff.approvals import deadlines
from signoff.approvals.notifications import RequestEvent, events_between, names_channel
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import Clock
from signoff.contracts.errors import NotFound, Unavailable
from signoff.people.eligibility import approver_spec_of
from signoff.registry.manifest.room_sections import TeamRooms, find_rooms
from signoff.store.questions.questions import ApprovalProgress, Questions
from signoff.store.request_reader import LoadedRequest, RequestReader
from signoff.telemetry.stack_trace import trace_without_words

OVERLAP: Final = timedelta(seconds=10)
"""How far each look reaches back: a transaction that commits late writes an earlier time."""

_log = logging.getLogger(__name__)


class RequestEvents:
    """Several instances over one store each report all events."""

    def __init__(
        self,
        questions: Questions,
        requests: RequestReader,
        clock: Clock,
        rooms: TeamRooms = MappingProxyType({}),
    ) -> None:
        """A request without a channel has events, too, if one of `rooms` shows it."""
        self._rooms = rooms
        self._questions = questions
        self._requests = requests
        self._clock = clock
        self._since: datetime | None = None
        self._known: dict[str, ApprovalProgress] = {}
        self._open: dict[str, ApprovalRequest] = {}

    async def poll(self) -> list[RequestEvent]:
        """Return the events since the last look.

        The first look reports each pending request as opened. Raises `StoreUnavailable`.
        """
        touched, now = await self._questions.list_changed(self._since)
        news = {each.approval: None for each in touched if self._known.get(each.approval) != each}
        news |= {approval: None for approval, request in self._open.items() if self._is_due(request)}
        events: list[RequestEvent] = []
        waiting, held = dict(self._open), set[str]()
        for approval in news:
            before, loaded = waiting.get(approval), await self._load(approval)
            if before is not None and loaded is not None and _may_reopen(loaded):
                held.add(approval)
                continue
            waiting.pop(approval, None)
            if loaded is None:
                continue
            after = loaded.request
            if after.state == "pending":
                waiting[approval] = after
            events += events_between(before, after, self._clock(), self._is_sent)
        # Store the state only after all reads: if one fails, no event was reported, and the next look repeats them.
        self._open = waiting
        self._known = {each.approval: each for each in touched if each.approval not in held}
        self._since = now - OVERLAP
        return events

    async def ending(self, request: ApprovalRequest) -> ApprovalRequest | None:
        """Return `request` in its end state if it has ended or has a newer revision, else `None`.

        Raises `StoreUnavailable`.
        """
        loaded = await self._load(request.id)
        if loaded is None or _may_reopen(loaded):
            return None
        events = events_between(request, loaded.request, self._clock(), self._is_sent)
        over = next((each for each in events if each.kind == "closed"), None)
        return None if over is None else over.request

    async def _load(self, approval: str) -> LoadedRequest | None:
        """Return `None` if the request is not proved, or cannot be read."""
        try:
            return await self._requests.load(approval)
        except NotFound:
            return None
        except Unavailable:
            raise
        # One request must not hold up the others.
        except Exception as error:
            _log.error("the request %s cannot be read: %s", approval, trace_without_words(error))
            return None

    def _is_sent(self, request: ApprovalRequest) -> bool:
        approvers = approver_spec_of(request).terms.approvers
        return names_channel(request) or bool(find_rooms(self._rooms, approvers, request.tenant))

    def _is_due(self, request: ApprovalRequest) -> bool:
        coming = deadlines.next_event(request)
        return coming is not None and coming.at <= self._clock()


def _may_reopen(loaded: LoadedRequest) -> bool:
    """Return whether a denial has settled a request but can be undone. Until it cannot, the cards stay open."""
    return loaded.request.state == "denied" and loaded.rows.undo_seconds > 0
