"""Decides who may vote on one call, and whether the approvals meet every spec."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from signoff.approvals.quorum import Voter, added_entry, countable_votes, suffices, with_added
from signoff.approvals.tightening import tighten
from signoff.contracts.decision import UNSIGNED, Decision
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.people.eligibility import ApproverSpec, VotingRights, resolve_voting_rights


class Escalation(NamedTuple):
    """Approvers added to a question from a time on (UTC)."""

    since: datetime
    to: tuple[str, ...]


@dataclass(frozen=True)
class VoterSet:
    """The people of one call, by the directory and every spec of the present policy and the questions.

    `now` is used for decisions without a proved time. `escalations` add approvers to all specs from a time on. `added`
    has the ids of the people whose own approval is required besides.
    """

    people: Directory
    specs: tuple[ApproverSpec, ...]
    now: datetime
    escalations: tuple[Escalation, ...] = ()
    added: tuple[str, ...] = ()

    def count(self, decisions: Sequence[Decision]) -> int:
        """Count people with different votes by the strictest spec. The caller has verified all signatures."""
        return min(countable_votes(self._voters(spec, decisions)) for spec in self.specs)

    def without(self, editors: Sequence[str]) -> "VoterSet":
        """Return the voters for an answer instead of a run: never the requester or one of the `editors`."""
        specs = (
            dataclasses.replace(each, allow_self=False, proposers=(*each.proposers, *editors)) for each in self.specs
        )
        return dataclasses.replace(self, specs=tuple(specs))

    def suffices(self, decisions: Sequence[Decision], least: int = 1) -> bool:
        """Return whether `decisions` meet the largest quorum and fill the groups of every spec.

        The caller has verified all signatures. `least` is the minimum number of people.
        """
        # Use the largest quorum for each: loosening a policy in between must release nothing.
        quorum = max(least, tighten(*(spec.terms for spec in self.specs)).quorum)
        return all(
            suffices(*with_added(quorum, spec.terms.groups, self.added), self._voters(spec, decisions))
            for spec in self.specs
        )

    def _voters(self, spec: ApproverSpec, decisions: Sequence[Decision]) -> list[Voter]:
        votes: dict[str, dict[str, frozenset[str]]] = {}
        own: dict[str, frozenset[str]] = {}
        for decision in decisions:
            human = self.people.person_id(decision.subject, spec.tenant)
            rights = self._rights(spec, decision)
            if rights.own is not None:
                seat = {added_entry(human)} if human in self.added else set()
                own[human] = own.get(human, frozenset()) | rights.own | seat
            elif rights.delegated:
                votes[human] = votes.get(human, {}) | dict(rights.delegated)
        # A person who is asked under another account has their own vote and needs no second one.
        votes |= {human: {human: entries} for human, entries in own.items()}
        return [Voter(human, rights) for human, rights in votes.items()]

    def _rights(self, spec: ApproverSpec, decision: Decision) -> VotingRights:
        if decision.subject == UNSIGNED and not decision.signature:
            # Where anonymous decisions are accepted, all of them together are one person, in no group.
            return VotingRights(own=frozenset())
        # Judge delegations and escalations by the time of the decision. Trust only a signed time.
        received = decision.received_at if decision.signature else None
        moment = received if received is not None and received.tzinfo is not None else self.now
        person = self.people.find(decision.subject, spec.tenant)
        # No vendor is asked here: the gateway has signed the rotas that the person was on.
        on_call = decision.on_call if decision.signature else ()
        added = tuple(to for each in self.escalations if each.since <= moment for to in each.to)
        if not added:
            return resolve_voting_rights(person, self.people, spec, moment, on_call)
        wider = dataclasses.replace(spec, terms=replace(spec.terms, approvers=(*spec.terms.approvers, *added)))
        return _anywhere(resolve_voting_rights(person, self.people, wider, moment, on_call), frozenset(added), spec)


def _anywhere(rights: VotingRights, added: frozenset[str], spec: ApproverSpec) -> VotingRights:
    """Approvers added by an escalation fill a place of any group."""
    every = frozenset(entry for group in spec.terms.groups for entry in group.of)

    def widen(entries: frozenset[str]) -> frozenset[str]:
        return entries if entries.isdisjoint(added) else entries | every

    own = None if rights.own is None else widen(rights.own)
    return dataclasses.replace(
        rights, own=own, delegated={human: widen(each) for human, each in rights.delegated.items()}
    )
