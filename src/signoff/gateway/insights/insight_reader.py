"""Reads figures about requests for one person. Rights are part of each query."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Final

from signoff.contracts.limits import FIGURES_BY_DAY, FIGURES_PAST, FIGURES_WAITING
from signoff.contracts.person import Person
from signoff.contracts.responses import ApproverCoverage, EarlierFigures, Insights, Share, WaitingCard
from signoff.gateway.auth.person_lookup import active_people
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.insights.figures import (
    channel_shares,
    day_figures,
    decision_rates,
    find_warnings,
    first_moment,
    rule_name,
    same_time_before,
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
from signoff.texts.insight_words import FEW

DAYS: Final = (7, 30, 90)
_STATES: Final = ("approved", "denied", "timed_out")


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
        slices = await self._count_slices(since)
        approved, denied, unanswered = (sum(slices[state].values()) for state in _STATES)
        edges = [min(each) for each in slices.values() if _is_cut(each)]
        counts = await self._count(named, since)
        before = None if edges else await self._earlier(*(same_time_before(each, days, zone) for each in (since, now)))
        waiting = waiting_figures(await self._waiting(), now, limit=FIGURES_WAITING, persons=named)
        return Insights(
            days=days,
            every=self._reads_all,
            waiting=waiting,
            approved=approved,
            denied=denied,
            unanswered=unanswered,
            more=total_of(counts, *_STATES) < approved + denied + unanswered,
            cut=bool(edges),
            by_day=day_figures(slices, since, days, zone, edges),
            before=before,
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

    async def _earlier(self, since: datetime, until: datetime) -> EarlierFigures | None:
        slices = await self._count_slices(since, until)
        if any(map(_is_cut, slices.values())):
            return None
        approved, denied, unanswered = (sum(slices[state].values()) for state in _STATES)
        counts = await self._count((), since, until) if approved + denied >= FEW else ()
        is_whole = total_of(counts, *_STATES) >= approved + denied + unanswered
        return EarlierFigures(
            approved=approved,
            denied=denied,
            unanswered=unanswered,
            p50=seconds_to_decide(counts, 50) if is_whole else None,
            p95=seconds_to_decide(counts, 95) if is_whole else None,
        )

    # Each part is a read of its own: others must get their turn at the only reader of SQLite.
    async def _count_slices(self, since: datetime, until: datetime | None = None) -> dict[str, dict[datetime, int]]:
        groups, kind = self._groups(), frozenset((mark(self._tenant, "kind", "approval"),))
        slices = {}
        for state in _STATES:
            wanted = PastSearch((*groups, kind, frozenset((mark(self._tenant, "state", state),))), since, until)
            slices[state] = await self._deps.store.read(partial(count_slices, wanted=wanted, limit=FIGURES_BY_DAY))
        return slices

    async def _count(
        self, persons: Collection[str] | None, since: datetime, until: datetime | None = None
    ) -> Sequence[PastCount]:
        wanted = PastSearch(self._groups(), since, until)
        return await self._deps.store.read(partial(count_past, wanted=wanted, persons=persons, limit=FIGURES_PAST))

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


def _is_cut(slices: Mapping[datetime, int]) -> bool:
    return sum(slices.values()) >= FIGURES_BY_DAY
