"""What happens to requests, read from the store: the dispatcher's only source, so that no turn can tell it anything."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from signoff.approvals import deadlines
from signoff.approvals.request_events import RequestEvent, events_between
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound
from signoff.store.questions import Questions, Touched
from signoff.store.requests import RequestReader

OVERLAP: Final = timedelta(seconds=10)
"""How far back each look goes: what was written in a transaction that ended late has an earlier time."""


class RequestEvents:
    """Follows the requests of one store. Several of these over one store tell the same, each by itself."""

    def __init__(self, questions: Questions, requests: RequestReader, clock: Callable[[], datetime]) -> None:
        self._questions = questions
        self._requests = requests
        self._clock = clock
        self._since: datetime | None = None
        self._known: dict[str, Touched] = {}
        self._open: dict[str, ApprovalRequest] = {}

    async def poll(self) -> list[RequestEvent]:
        """What has happened since the last look; at the first, that everything that waits was opened.

        Raises `StoreUnavailable`.
        """
        touched, now = await self._questions.touched(self._since)
        news = {each.approval: None for each in touched if self._known.get(each.approval) != each}
        news |= {approval: None for approval, request in self._open.items() if self._is_due(request)}
        found: list[RequestEvent] = []
        for approval in news:
            found += await self._changes(approval)
        # Only once everything was told: what fails above is looked at again.
        self._known = {each.approval: each for each in touched}
        self._since = now - OVERLAP
        return found

    async def ending(self, request: ApprovalRequest) -> ApprovalRequest | None:
        """`request` as it ended, if it is over or was asked again since; else None. Raises `StoreUnavailable`."""
        try:
            now = (await self._requests.load(request.id)).request
        except NotFound:
            return None
        over = next((each for each in events_between(request, now, self._clock()) if each.kind == "closed"), None)
        return None if over is None else over.request

    async def _changes(self, approval: str) -> tuple[RequestEvent, ...]:
        before = self._open.pop(approval, None)
        try:
            after = (await self._requests.load(approval)).request
        except NotFound:
            return ()
        if after.state == "pending":
            self._open[approval] = after
        return events_between(before, after, self._clock())

    def _is_due(self, request: ApprovalRequest) -> bool:
        coming = deadlines.due(request)
        return coming is not None and coming.at <= self._clock()
