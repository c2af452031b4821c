"""Plans notices for requesters and watchers, from the store's questions, answers and tickets alone.

Several gateways over one store may plan: each notice has one row. Continues where the last planner stopped, so that an
event during an outage of all gateways has its notices too.
"""

import heapq
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from signoff.approvals.audit_events import notice_entry
from signoff.approvals.notifications import REQUESTER, Notice, NoticeEvent, NoticeKind
from signoff.audit.event_sources import EventSources
from signoff.channels.outbound.dispatcher import due, list_addresses
from signoff.channels.outbound.notice_sender import may_know
from signoff.contracts.approval import ApprovalRequest, Question
from signoff.contracts.audit import AuditEntry
from signoff.contracts.clock import Clock
from signoff.contracts.errors import NotFound, Unavailable
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.people.eligibility import rights
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.store.messages.notices import FinishedCall, NewNotice, Notices
from signoff.store.questions.questions import ApprovalProgress, OpenPlace, Questions
from signoff.store.request_reader import RequestReader
from signoff.store.tickets import digest_of_key
from signoff.telemetry.json_log import bind_log_fields, fields_of_request
from signoff.telemetry.stack_trace import trace_without_words

SOURCE: Final = "notices"
"""The name under which the planner's place is stored."""
OVERLAP: Final = timedelta(seconds=10)
"""How far each look reaches back: a transaction that commits late writes an earlier time."""
GRACE: Final = timedelta(seconds=2)
"""Delay after a deadline: an answer in time may still be in a transaction."""
_STORED_EACH: Final = timedelta(minutes=1)
_DOUBT_SECONDS: Final = 60.0
"""The pause between two looks at a call with an unknown outcome, or with notices that cannot be planned."""
_PAGE: Final = 500
_NEXT: Final = timedelta(days=365)
"""The distance of a further channel: only the failure of an earlier one makes it due."""
_log = logging.getLogger(__name__)

Told = Mapping[str, Sequence[str]]
"""The events of a tool's `tell`, by `requester`, `user:<id>` or `role:<role>`."""
MayRead = Callable[[Person, ApprovalRequest], bool]


class Recipients(NamedTuple):
    """The recipients of a notice, and the people without the right to read its request."""

    people: tuple[Person, ...]
    refused: tuple[Person, ...]


@dataclass(frozen=True)
class PlannerDeps:
    """`tell` returns the declaration of a question's tool, `record` appends to the audit log."""

    notices: Notices
    questions: Questions
    requests: RequestReader
    sources: EventSources
    people: Directory
    tell: Callable[[Question], Told]
    may_read: MayRead
    record: Callable[[Sequence[AuditEntry]], Awaitable[object]] = field(repr=False)
    clock: Clock = field(repr=False)


def find_recipients(
    event: NoticeEvent, notice: Notice, tell: Told, people: Iterable[Person], may_read: MayRead
) -> Recipients:
    """Find the recipients of a request's notice among a tenant's people, each once."""
    request = notice.request
    wanted = {who for who, events in tell.items() if event in events}
    told: list[Person] = []
    refused: list[Person] = []
    for person in people:
        asks = request is not None and person.id == request.requester.user and REQUESTER in wanted
        if person.active and (asks or not wanted.isdisjoint(rights(person))):
            (told if may_know(person, notice, may_read) else refused).append(person)
    return Recipients(tuple(told), tuple(refused))


def route_notice(
    notice: Notice, person: Person, identities: Mapping[str, str], rules: RoutingRules, now: datetime
) -> list[NewNotice]:
    """Plan a notice on a person's channels, in the person's order, after the quiet hours.

    A channel after the first gets it only if the earlier ones fail. All channels get the notice of a passkey, at once
    and in quiet hours too: it may be an attacker's.
    """
    request = notice.request
    reach = None if request is None else person.reach
    if request is None or (reach is not None and reach.channels):
        wanted = tuple(identities)
    else:
        wanted = request.notify or rules.default
    known = {name: {person.id: own[0]} for name, kind in identities.items() if (own := person.identities.get(kind))}
    found = list_addresses(replace(person, reach=reach), wanted, known)
    begins, several = due(reach, now, None), request is None or rules.all
    rows: list[NewNotice] = []
    for rank, (channel, address) in enumerate(found):
        at = begins if several else begins + rank * _NEXT
        rows.append(
            NewNotice(
                notice=notice,
                tenant=person.tenant,
                person=person.id,
                channel=channel,
                address=address,
                due_at=at if at > now else None,
            )
        )
    return rows


class NoticePlanner:
    """Plans the notices of a store's requests, calls and passkeys, for the channels in `identities`."""

    def __init__(self, deps: PlannerDeps, identities: Mapping[str, str], rules: RoutingRules) -> None:
        self._deps = deps
        self._identities = identities
        self._rules = rules
        self._since: datetime | None = None
        self._stored: datetime | None = None
        self._known: dict[str, ApprovalProgress] = {}
        self._due: list[tuple[datetime, str]] = []

    async def step(self) -> int:
        """Plan the notices of the events since the last step. Returns their number. Raises `StoreUnavailable`."""
        return await self._plan_requests() + await self._plan_outcomes() + await self._plan_passkeys()

    async def _plan_requests(self) -> int:
        deps, new = self._deps, set[str]()
        if self._since is None:
            new |= await self._catch_up()
        assert self._since is not None
        touched, now = await deps.questions.list_changed(self._since)
        new |= {each.approval for each in touched if self._known.get(each.approval) != each}
        while self._due and self._due[0][0] <= now:
            new.add(heapq.heappop(self._due)[1])
        planned = 0
        for approval in sorted(new):
            planned += await self._plan_one(approval)
        # Only after all of them: after a failure above, they are read again.
        self._known = {each.approval: each for each in touched}
        self._since = now - OVERLAP
        if new or self._stored is None or now - self._stored >= _STORED_EACH:
            await deps.sources.advance(SOURCE, self._since)
            await deps.notices.drop_old()
            self._stored = now
        return planned

    async def _catch_up(self) -> set[str]:
        """Return the approvals that wait, and those whose deadline passed without a planner."""
        deps, now = self._deps, self._deps.clock()
        # Never in the future: a store's clock that was once ahead would hide later events.
        self._since = min(await deps.sources.read(SOURCE, now), now) - OVERLAP
        waiting, _ = await deps.questions.list_changed(None)
        found = {each.approval for each in waiting}
        place = OpenPlace(int((self._since - GRACE).timestamp() * 1000), "")
        while page := await deps.questions.list_overdue(place, _PAGE):
            found |= {each.approval for each in page}
            place = page[-1]
        return found

    async def _plan_one(self, approval: str) -> int:
        with bind_log_fields(fields_of_request(approval)):
            try:
                return await self._plan_request(approval)
            except NotFound:
                # An unproved or deleted row.
                return 0
            except Unavailable:
                raise
            # One request must not hold up the others.
            except Exception as error:
                _log.error("the notices of %s cannot be planned: %s", approval, trace_without_words(error))
                return 0

    async def _plan_request(self, approval: str) -> int:
        rows = await self._deps.questions.read(approval)
        tell = {} if rows is None else self._deps.tell(rows.latest)
        if not any(tell.values()):
            return 0
        loaded = await self._deps.requests.load(approval)
        request, now = loaded.request, loaded.rows.now
        if request.state == "pending":
            if request.expires_at is not None:
                heapq.heappush(self._due, (request.expires_at + GRACE, approval))
            if request.kind != "approval":
                return 0
            return await self._plan("waiting", request, tell, request.opened_at or now)
        settled = (request.decided_at or now) + GRACE if request.state == "timed_out" else now
        if request.state == "denied":
            # Until the denial can no longer be undone, it is no decision.
            settled = now + timedelta(seconds=loaded.rows.undo_seconds)
        if settled > now:
            heapq.heappush(self._due, (settled, approval))
            return 0
        followed = 0
        if request.state == "approved" and any("ran" in events for events in tell.values()):
            followed = await self._follow(request, now)
        return followed + await self._plan("decided", request, tell, request.decided_at or now)

    async def _follow(self, request: ApprovalRequest, now: datetime) -> int:
        notice = Notice(kind="ran", about=request.id, at=request.decided_at or now, request=request)
        return await self._deps.notices.follow(notice, request)

    async def _plan(self, event: NoticeEvent, request: ApprovalRequest, tell: Told, at: datetime) -> int:
        notice = Notice(kind=event, about=request.id, at=at, request=request)
        ended = "" if request.state == "pending" else request.id
        return await self._deps.notices.plan(await self._rows(event, notice, tell), ended=ended)

    async def _rows(self, event: NoticeEvent, notice: Notice, tell: Told) -> list[NewNotice]:
        deps, request, now = self._deps, notice.request, self._deps.clock()
        tenant = "" if request is None else request.tenant
        found = find_recipients(event, notice, tell, deps.people.all(tenant), deps.may_read)
        if found.refused:
            skipped = [
                notice_entry(notice, tenant, person.id, "notice skipped", now, code="not_allowed")
                for person in found.refused
            ]
            await deps.record(skipped)
        return [
            row for person in found.people for row in route_notice(notice, person, self._identities, self._rules, now)
        ]

    async def _plan_outcomes(self) -> int:
        planned = 0
        for call in await self._deps.notices.list_finished():
            planned += await self._plan_one_outcome(call)
        return planned

    async def _plan_one_outcome(self, call: FinishedCall) -> int:
        with bind_log_fields(fields_of_request(call.row.notice.about)):
            try:
                return await self._plan_outcome(call)
            except Unavailable:
                raise
            # One call must not hold up the others.
            except Exception as error:
                _log.error("the notices of a call cannot be planned: %s", trace_without_words(error))
                await self._deps.notices.release(call.row.token, _DOUBT_SECONDS)
                return 0

    async def _plan_outcome(self, call: FinishedCall) -> int:
        deps, approval = self._deps, call.row.notice.about
        if call.outcome.code == "in_doubt":
            # A probe or a person may still find the outcome.
            await deps.notices.release(call.row.token, _DOUBT_SECONDS)
            return 0
        try:
            rows = (await deps.requests.find(approval)).rows
            # The ticket names the arguments that ran: another turn, or another revision, may have used the call's id.
            ran = next((each for each in reversed(rows.questions) if _has_run(each, call)), None)
            request = None if ran is None else (await deps.requests.load(approval, ran.revision)).request
        except NotFound:
            request = None
        if request is None:
            await deps.notices.drop(call.row.token)
            return 0
        kind: NoticeKind = "ran" if call.outcome.code == "ok" else "failed"
        notice = Notice(kind=kind, about=approval, at=call.at, request=request)
        return await deps.notices.plan(await self._rows("ran", notice, deps.tell(request)), call.row.token)

    async def _plan_passkeys(self) -> int:
        deps, planned = self._deps, 0
        for row in await deps.notices.list_unrouted():
            person = deps.people.find(row.person, row.tenant)
            now = deps.clock()
            rows = [] if person is None else route_notice(row.notice, person, self._identities, self._rules, now)
            planned += await deps.notices.plan(rows, row.token)
        return planned


def _has_run(question: Question, call: FinishedCall) -> bool:
    return (question.requester.nonce, question.digest) == (call.nonce, digest_of_key(call.ticket))
