"""Reads figures about requests for one person. Rights are part of each query."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from signoff.contracts.limits import FIGURES_PAST, FIGURES_WAITING
from signoff.contracts.person import Person
from signoff.contracts.responses import ApproverCoverage, Insights, Share, WaitingCard
from signoff.gateway.auth.person_lookup import active_people
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.insights.figures import (
    channel_shares,
    decision_rates,
    find_warnings,
    rule_name,
    seconds_to_decide,
    total_of,
    waiting_figures,
)
from signoff.gateway.read_access import reads_all
from signoff.people.eligibility import rights
from signoff.registry.approver_coverage import find_holes
from signoff.registry.gates.inventory import inventory
from signoff.settings import login_roles
from signoff.store.history.past_counts import PastCount, count_past
from signoff.store.history.past_requests import PastSearch
from signoff.store.history.search_words import mark

DAYS: Final = (7, 30, 90)


class InsightReader:
    """Reads a tenant's figures for `person`. `None` is an anonymous caller in development."""

    def __init__(self, deps: GatewayDeps, tenant: str, person: Person | None) -> None:
        self._deps = deps
        self._tenant = tenant
        self._person = person

    async def read(self, days: int) -> Insights:
        """Return the figures of the last `days`. Raises `StoreUnavailable`."""
        counts = await self._count(days)
        now, named = self._deps.clock(), self._named
        waiting = waiting_figures(await self._waiting(), now, limit=FIGURES_WAITING, persons=named)
        return Insights(
            days=days,
            every=self._reads_all,
            waiting=waiting,
            approved=total_of(counts, "approved"),
            denied=total_of(counts, "denied"),
            unanswered=total_of(counts, "timed_out"),
            more=sum(each.requests for each in counts) >= FIGURES_PAST,
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

    async def _count(self, days: int) -> Sequence[PastCount]:
        wanted = PastSearch(self._groups(), since=self._deps.clock() - timedelta(days=days))
        return await self._deps.store.read(partial(count_past, wanted=wanted, persons=self._named, limit=FIGURES_PAST))

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

    def _coverage(self) -> tuple[ApproverCoverage, ...]:
        catalog, people = self._deps.catalog, active_people(self._deps.people, self._tenant)
        holes = find_holes(catalog, people, by_login=login_roles(self._deps.settings))
        return tuple(
            ApproverCoverage(
                tool=row.tool,
                approvers=tuple(
                    Share(name=entry, count=sum(entry in rights(person) for person in people))
                    for entry in row.approvers
                ),
                quorum=catalog.policy(row.tool).rules.quorum,
                holes=holes.get(row.tool, ()),
            )
            for row in inventory(catalog, self._tenant)
            if row.approvers
        )
