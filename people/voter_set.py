"""Who may answer for one call, and whether those who said yes are enough: by every table that asks about it."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from signoff.approvals.quorum import Voter, seats_taken, suffices
from signoff.contracts.decision import UNSIGNED, Decision
from signoff.people.directory import Directory
from signoff.people.eligibility import ApproverSpec, Seats, seats_of


class Escalation(NamedTuple):
    """Whom a question goes to beside those asked first, from which moment on (UTC)."""

    since: datetime
    to: tuple[str, ...]


@dataclass(frozen=True)
class VoterSet:
    """The people of one call, by the directory and by every one of `tables`: the present policy's and the questions'.

    `now` is for answers whose time nobody proves. `escalations` add people to all tables from a moment on.
    """

    people: Directory
    tables: tuple[ApproverSpec, ...]
    now: datetime
    escalations: tuple[Escalation, ...] = ()

    def count(self, decisions: Sequence[Decision]) -> int:
        """Returns how many people of `decisions`, whose signatures hold, sit on different seats by the strictest
        table.
        """
        return min(seats_taken(self._voters(table, decisions)) for table in self.tables)

    def suffices(self, decisions: Sequence[Decision], least: int = 1) -> bool:
        """Returns whether `decisions`, whose signatures hold, fill the groups of every table, and are as many as any
        wants.

        `least` is how many people it takes in any case.
        """
        # The largest quorum counts in each: a policy that was loosened meanwhile releases nothing.
        quorum = max(least, *(table.quorum for table in self.tables))
        return all(suffices(quorum, table.groups, self._voters(table, decisions)) for table in self.tables)

    def _voters(self, table: ApproverSpec, decisions: Sequence[Decision]) -> list[Voter]:
        found: dict[str, dict[str, frozenset[str]]] = {}
        own: dict[str, frozenset[str]] = {}
        for decision in decisions:
            human = self.people.person_id(decision.subject, table.tenant)
            seats = self._seats(table, decision)
            if seats.own is not None:
                own[human] = own.get(human, frozenset()) | seats.own
            elif seats.lent:
                found[human] = found.get(human, {}) | dict(seats.lent)
        # Whoever has a seat of their own by another entry needs no second one.
        found |= {human: {human: entries} for human, entries in own.items()}
        return [Voter(human, seats) for human, seats in found.items()]

    def _seats(self, table: ApproverSpec, decision: Decision) -> Seats:
        if decision.subject == UNSIGNED and not decision.signature:
            # Where answers are taken that name nobody, all of them together are one, and in no group.
            return Seats(own=frozenset())
        # Delegations and escalations are judged by when the answer was given. Only a signed time is believed.
        received = decision.received_at if decision.signature else None
        moment = received if received is not None and received.tzinfo is not None else self.now
        person = self.people.find(decision.subject, table.tenant)
        added = tuple(to for each in self.escalations if each.since <= moment for to in each.to)
        if not added:
            return seats_of(person, self.people, table, moment)
        wider = dataclasses.replace(table, approvers=(*table.approvers, *added))
        return _anywhere(seats_of(person, self.people, wider, moment), frozenset(added), table)


def _anywhere(seats: Seats, added: frozenset[str], table: ApproverSpec) -> Seats:
    """Returns `seats` where whoever is asked because of an escalation fills a place of any group."""
    every = frozenset(entry for group in table.groups for entry in group.of)

    def widened(entries: frozenset[str]) -> frozenset[str]:
        return entries if entries.isdisjoint(added) else entries | every

    own = None if seats.own is None else widened(seats.own)
    return dataclasses.replace(seats, own=own, lent={human: widened(each) for human, each in seats.lent.items()})
