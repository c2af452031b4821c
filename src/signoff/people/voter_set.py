"""Who may answer for one call, and whether those who said yes are enough: by every spec that asks about it."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from signoff.approvals.quorum import Voter, countable_votes, suffices
from signoff.contracts.decision import UNSIGNED, Decision
from signoff.people.directory import Directory
from signoff.people.eligibility import ApproverSpec, VotingRights, resolve_voting_rights


class Escalation(NamedTuple):
    """Whom a question goes to beside those asked first, from which moment on (UTC)."""

    since: datetime
    to: tuple[str, ...]


@dataclass(frozen=True)
class VoterSet:
    """The people of one call, by the directory and by every one of `specs`: the present policy's and the questions'.

    `now` is for answers whose time nobody proves. `escalations` add people to all of them from a moment on.
    """

    people: Directory
    specs: tuple[ApproverSpec, ...]
    now: datetime
    escalations: tuple[Escalation, ...] = ()

    def count(self, decisions: Sequence[Decision]) -> int:
        """Returns how many people of `decisions`, whose signatures hold, have different votes by the strictest
        spec.
        """
        return min(countable_votes(self._voters(spec, decisions)) for spec in self.specs)

    def suffices(self, decisions: Sequence[Decision], least: int = 1) -> bool:
        """Returns whether `decisions`, whose signatures hold, fill the groups of every spec, and are as many as any
        wants.

        `least` is how many people it takes in any case.
        """
        # The largest quorum counts in each: a policy that was loosened meanwhile releases nothing.
        quorum = max(least, *(spec.quorum for spec in self.specs))
        return all(suffices(quorum, spec.groups, self._voters(spec, decisions)) for spec in self.specs)

    def _voters(self, spec: ApproverSpec, decisions: Sequence[Decision]) -> list[Voter]:
        found: dict[str, dict[str, frozenset[str]]] = {}
        own: dict[str, frozenset[str]] = {}
        for decision in decisions:
            human = self.people.person_id(decision.subject, spec.tenant)
            rights = self._rights(spec, decision)
            if rights.own is not None:
                own[human] = own.get(human, frozenset()) | rights.own
            elif rights.delegated:
                found[human] = found.get(human, {}) | dict(rights.delegated)
        # Whoever has a vote of their own by another entry needs no second one.
        found |= {human: {human: entries} for human, entries in own.items()}
        return [Voter(human, rights) for human, rights in found.items()]

    def _rights(self, spec: ApproverSpec, decision: Decision) -> VotingRights:
        if decision.subject == UNSIGNED and not decision.signature:
            # Where answers are taken that name nobody, all of them together are one, and in no group.
            return VotingRights(own=frozenset())
        # Delegations and escalations are judged by when the answer was given. Only a signed time is believed.
        received = decision.received_at if decision.signature else None
        moment = received if received is not None and received.tzinfo is not None else self.now
        person = self.people.find(decision.subject, spec.tenant)
        added = tuple(to for each in self.escalations if each.since <= moment for to in each.to)
        if not added:
            return resolve_voting_rights(person, self.people, spec, moment)
        wider = dataclasses.replace(spec, approvers=(*spec.approvers, *added))
        return _anywhere(resolve_voting_rights(person, self.people, wider, moment), frozenset(added), spec)


def _anywhere(rights: VotingRights, added: frozenset[str], spec: ApproverSpec) -> VotingRights:
    """Returns `rights` where whoever is asked because of an escalation fills a place of any group."""
    every = frozenset(entry for group in spec.groups for entry in group.of)

    def widen(entries: frozenset[str]) -> frozenset[str]:
        return entries if entries.isdisjoint(added) else entries | every

    own = None if rights.own is None else widen(rights.own)
    return dataclasses.replace(
        rights, own=own, delegated={human: widen(each) for human, each in rights.delegated.items()}
    )
