"""What happens to requests, as a test tells it: in place of what the dispatcher reads from the store."""

from collections.abc import Sequence

from signoff.approvals.notifications import RequestEvent, RequestEventKind
from signoff.contracts.approval import ApprovalRequest


class ScriptedEvents:
    """Hands on what it is told, once; several dispatchers that share it see each event once among them."""

    def __init__(self) -> None:
        self._events: list[RequestEvent] = []
        self._over: dict[tuple[str, int], ApprovalRequest] = {}

    def add(self, kind: RequestEventKind, request: ApprovalRequest) -> None:
        """Adds an event of a request."""
        self._events.append(RequestEvent(kind, request))
        if kind == "closed":
            self._over[(request.id, request.revision)] = request

    async def poll(self) -> Sequence[RequestEvent]:
        """See `signoff.channels.outbound.dispatcher.EventSource`."""
        events, self._events = self._events, []
        return events

    async def ending(self, request: ApprovalRequest) -> ApprovalRequest | None:
        """See `signoff.channels.outbound.dispatcher.EventSource`."""
        return self._over.get((request.id, request.revision))
