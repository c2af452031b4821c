"""Counts people towards a quorum and its groups: one person fills one place.

Pure. Turn, gateway and tool share it. A person's approval counts as one vote: their own, or that of one delegator. A
vote fills one place in a group that names one of its entries. A maximum flow (person, vote, group) fills as many places
as possible.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from signoff.contracts.approval import ApprovalRequest, ApproverGroup, Vote
from signoff.contracts.decision import Verdict
from signoff.formats.replace import replace

_ADDED: Final = "added:"
"""Begins the entry of an added approver. No policy can name such an entry."""
_SOURCE: Final = ("source",)
_SINK: Final = ("sink",)


@dataclass(frozen=True)
class Voter:
    """One person who approved.

    `votes` maps each person whose vote it may count as to the approver entries of that vote.
    """

    human: str
    votes: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Progress:
    """The progress of a request: `yes` of `needed` places are filled.

    `open` contains the incomplete groups, with the number of missing people as their quorum.
    """

    yes: int
    needed: int
    open: tuple[ApproverGroup, ...] = ()


def people_needed(quorum: int, groups: Iterable[ApproverGroup]) -> int:
    """Return the larger of the quorum and the groups' sum."""
    return max(quorum, sum(group.quorum for group in groups))


def tally(quorum: int, groups: Sequence[ApproverGroup], voters: Sequence[Voter]) -> Progress:
    """Without groups, everyone fills any place."""
    needed, taken = people_needed(quorum, groups), countable_votes(voters)
    if not groups:
        return Progress(min(taken, needed), needed)
    filled = _fill_groups(groups, voters)
    lacking = [(group, group.quorum - has) for group, has in zip(groups, filled, strict=True)]
    left = tuple(replace(group, quorum=lacks) for group, lacks in lacking if lacks)
    # People who fill no place in a group fill the places of a larger quorum that are open to all.
    others = min(taken - sum(filled), needed - sum(group.quorum for group in groups))
    return Progress(sum(filled) + others, needed, left)


def suffices(quorum: int, groups: Sequence[ApproverGroup], voters: Sequence[Voter]) -> bool:
    state = tally(quorum, groups, voters)
    return state.yes >= state.needed


def countable_votes(voters: Iterable[Voter]) -> int:
    """Return the maximum number of different votes that the approvals of `voters` can be."""
    network: dict[Hashable, dict[Hashable, int]] = {}
    for voter in voters:
        _edge(network, _SOURCE, ("voter", voter.human), 1)
        for holder in voter.votes:
            _edge(network, ("voter", voter.human), ("vote", holder), 1)
            _edge(network, ("vote", holder), _SINK, 1)
    return sum(_flow(network).values())


def progress(request: ApprovalRequest, verdict: Verdict = "approved") -> Progress:
    """Count the people with this verdict."""
    added = added_people(request.assignments)
    voters = [_voter_of(vote, added) for vote in request.votes if vote.verdict == verdict]
    return _with_open_people(tally(*with_added(request.quorum, request.groups, added), voters))


def added_people(assignments: Iterable[Vote]) -> tuple[str, ...]:
    """Return the ids of the people whose own approval is required besides the others."""
    return tuple(dict.fromkeys(each.decision.to for each in assignments if each.verdict == "added"))


def people_who_gave(assignments: Iterable[Vote]) -> tuple[str, ...]:
    """Return the ids of the people who handed the request on, and decide no longer."""
    return tuple(each.person_id or each.subject for each in assignments if each.verdict == "handed_on")


def with_added(
    quorum: int, groups: Sequence[ApproverGroup], added: Sequence[str]
) -> tuple[int, Sequence[ApproverGroup]]:
    """Require the approval of each added person, besides the quorum and the groups."""
    if not added:
        return quorum, groups
    seats = (ApproverGroup(of=(added_entry(person),)) for person in added)
    return people_needed(quorum, groups) + len(added), (*groups, *seats)


def added_entry(person: str) -> str:
    """Return the approver entry that only this person's own vote has."""
    return f"{_ADDED}{person}"


def _voter_of(vote: Vote, added: Sequence[str]) -> Voter:
    human = vote.person_id or vote.subject
    own = {added_entry(human)} if human in added and not vote.on_behalf else set()
    return Voter(human, {vote.on_behalf or human: frozenset(vote.entries) | own})


def _with_open_people(found: Progress) -> Progress:
    named = (replace(group, of=tuple(_as_person(each) for each in group.of)) for group in found.open)
    return Progress(found.yes, found.needed, tuple(named))


def _as_person(entry: str) -> str:
    return f"user:{entry.removeprefix(_ADDED)}" if entry.startswith(_ADDED) else entry


def _fill_groups(groups: Sequence[ApproverGroup], voters: Sequence[Voter]) -> list[int]:
    """Return the filled places of each group, with as many filled as possible."""
    network: dict[Hashable, dict[Hashable, int]] = {}
    votes = {holder: entries for voter in voters for holder, entries in voter.votes.items()}
    for voter in voters:
        # Two people may cast the same vote at different times: use the entries that both found.
        votes |= {holder: votes[holder] & entries for holder, entries in voter.votes.items()}
    for number, group in enumerate(groups):
        _edge(network, ("group", number), _SINK, group.quorum)
    for voter in voters:
        _edge(network, _SOURCE, ("voter", voter.human), 1)
        for holder in voter.votes:
            _edge(network, ("voter", voter.human), ("vote", holder), 1)
    for holder, entries in votes.items():
        # Separate nodes for in and out, because a vote counts once, even if several people may cast it.
        _edge(network, ("vote", holder), ("place", holder), 1)
        for number, group in enumerate(groups):
            if not entries.isdisjoint(group.of):
                _edge(network, ("place", holder), ("group", number), 1)
    into = _flow(network)
    return [into.get(("group", number), 0) for number in range(len(groups))]


def _edge(network: dict[Hashable, dict[Hashable, int]], start: Hashable, end: Hashable, capacity: int) -> None:
    network.setdefault(start, {})[end] = capacity
    network.setdefault(end, {}).setdefault(start, 0)


def _flow(network: dict[Hashable, dict[Hashable, int]]) -> dict[Hashable, int]:
    """Send as much as possible from source to sink.

    Return the flow into the sink by source node.
    """
    while path := _path(network):
        for start, end in pairwise(path):
            network[start][end] -= 1
            network[end][start] += 1
    return {node: back for node, back in network.get(_SINK, {}).items() if back}


def _path(network: Mapping[Hashable, Mapping[Hashable, int]]) -> list[Hashable]:
    """Return a shortest path from source to sink with remaining capacity, or []."""
    came: dict[Hashable, Hashable] = {_SOURCE: _SOURCE}
    waiting = deque([_SOURCE] if _SOURCE in network else [])
    while waiting:
        here = waiting.popleft()
        for there, capacity in network[here].items():
            if capacity > 0 and there not in came:
                came[there] = here
                waiting.append(there)  # type: ignore[arg-type]
    if _SINK not in came:
        return []
    way: list[Hashable] = [_SINK]
    while way[-1] != _SOURCE:
        way.append(came[way[-1]])
    return way[::-1]
