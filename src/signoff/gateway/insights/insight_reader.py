"""Reads figures about requests for one person. Rights are part of each query."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import Connection

from signoff.contracts.limits import FIGURES_BY_DAY, FIGURES_PAST, FIGURES_WAITING
from signoff.contracts.person import Person
from signoff.contracts.responses import ApproverCoverage, EarlierFigures, Insights, Share, WaitingCard
from signoff.gateway.auth.person_lookup import active_people
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.insights.figures import (
    channel_shares,
    count_before,
    day_figures,
    decision_rates,
    find_warnings,
    first_moment,
    rule_name,
    seconds_to_decide,
    total_of,
    waiting_figures,
)
from signoff.gateway.read_access import reads_all
from signoff.people.eligibility import rights
from signoff.people.on_call import find_on_call
from signoff.registry.approver_coverage import find_holes
from signoff.registry.gates.inventory import inventory
from signoff.settings import login_roles
from signoff.store.history.past_counts import PastCount, count_past, count_slices
from signoff.store.history.past_requests import PastSearch
from signoff.store.history.search_words import mark

DAYS: Final = (7, 30, 90)
_STATES: Final = ("approved", "denied", "timed_out")


class _Counts(NamedTuple):
    newest: Sequence[PastCount]
    earlier: Sequence[PastCount]
    slices: Mapping[str, Mapping[datetime, int]]
    """By state, with the time before."""


class InsightReader:
    """Reads a tenant's figures for `person`. `None` is an anonymous caller in development."""

    def __init__(self, deps: GatewayDeps, tenant: str, person: Person | None) -> None:
        self._deps = deps
        self._tenant = tenant
        self._person = person

    async def read(self, days: int, zone: tzinfo = UTC) -> Insights:
        """Return the figures of the last `days` in `zone`. Raises `StoreUnavailable`."""
        now, named = self._deps.clock(), self._named
        since = first_moment(now, days, zone)
        found = await self._deps.store.read(partial(self._count, since=since, before=since - (now - since)))
        counts, by_day = found.newest, day_figures(found.slices, since, days, zone)
        approved, denied, unanswered = (
            sum(getattr(each, name) for each in by_day) for name in ("approved", "denied", "unanswered")
        )
        cut = any(sum(each.values()) >= FIGURES_BY_DAY for each in found.slices.values())
        waiting = waiting_figures(await self._waiting(), now, limit=FIGURES_WAITING, persons=named)
        return Insights(
            days=days,
            every=self._reads_all,
            waiting=waiting,
            approved=approved,
            denied=denied,
            unanswered=unanswered,
            more=total_of(counts, *_STATES) < approved + denied + unanswered,
            cut=cut,
            by_day=by_day,
            before=None if cut else _earlier_figures(found, since),
            p50=seconds_to_decide(counts, 50),
            p95=seconds_to_decide(counts, 95),
            by_tool=decision_rates(counts, lambda each: each.tool),
            by_rule=decision_rates(counts, rule_name),
            by_person=decision_rates(counts, lambda each: each.person),
            by_channel=channel_shares(counts),
            warnings=find_warnings(counts),
            coverage=self._coverage() if self._reads_all else (),
        )

    @property
    def _reads_all(self) -> bool:
        if self._person is None:
            return self._deps.development
        own = self._person.tenant == self._tenant
        return own and reads_all(self._person, development=self._deps.development)

    @property
    def _named(self) -> Collection[str] | None:
        """The people whose figures the reader may see. `None`: all."""
        if self._reads_all and self._deps.catalog.insights_by_person:
            return None
        return frozenset(() if self._person is None else (self._person.id,))

    def _count(self, connection: Connection, since: datetime, before: datetime) -> _Counts:
        groups, kind = self._groups(), frozenset((mark(self._tenant, "kind", "approval"),))
        newest, earlier = PastSearch(groups, since), PastSearch(groups, before, since)
        slices = {}
        for state in _STATES:
            both = PastSearch((*groups, kind, frozenset((mark(self._tenant, "state", state),))), before)
            slices[state] = count_slices(connection, both, FIGURES_BY_DAY)
        return _Counts(
            count_past(connection, newest, self._named, FIGURES_PAST),
            count_past(connection, earlier, (), FIGURES_PAST),
            slices,
        )

    def _groups(self) -> tuple[frozenset[str], ...]:
        tenant, person = frozenset((mark(self._tenant, "tenant"),)), self._person
        if self._reads_all:
            return (tenant,)
        if person is None or not person.active or person.tenant != self._tenant:
            return tenant, frozenset()
        return tenant, frozenset((mark(self._tenant, "answer", person.id),))

    async def _waiting(self) -> list[WaitingCard]:
        entries: tuple[str, ...] | None = None
        if not self._reads_all:
            person = self._person
            if person is None or not person.active or person.tenant != self._tenant:
                return []
            entries = self._deps.rights(person)
        return await self._deps.requests.list_waiting(self._tenant, approvers=entries, limit=FIGURES_WAITING + 1)

    def _entries(self, person: Person) -> tuple[str, ...]:
        deps = self._deps
        return (*rights(person), *find_on_call(deps.people, person.id, person.tenant, deps.clock()))

    def _coverage(self) -> tuple[ApproverCoverage, ...]:
        catalog, people = self._deps.catalog, active_people(self._deps.people, self._tenant)
        holes = find_holes(catalog, people, by_login=login_roles(self._deps.settings))
        # Once a person: a tenant may have many tools, people and rotas.
        counts = Counter(entry for person in people for entry in set(self._entries(person)))
        return tuple(
            ApproverCoverage(
                tool=row.tool,
                approvers=tuple(Share(name=entry, count=counts[entry]) for entry in row.approvers),
                quorum=catalog.policy(row.tool).rules.quorum,
                holes=holes.get(row.tool, ()),
            )
            for row in inventory(catalog, self._tenant)
            if row.approvers
        )


def _earlier_figures(found: _Counts, since: datetime) -> EarlierFigures:
    approved, denied, unanswered = (count_before(found.slices[state], since) for state in _STATES)
    is_whole = total_of(found.earlier, *_STATES) >= approved + denied + unanswered
    return EarlierFigures(
        approved=approved,
        denied=denied,
        unanswered=unanswered,
        p50=seconds_to_decide(found.earlier, 50) if is_whole else None,
        p95=seconds_to_decide(found.earlier, 95) if is_whole else None,
    )
