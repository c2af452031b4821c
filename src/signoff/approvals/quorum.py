"""Counts people towards a quorum and its groups: one person fills one place. Pure; the same for turn, gateway and tool.

A person's yes counts as one vote: their own, or that of one of those whom they stand in for. A vote fills one place of
a group that names one of its entries. Which vote and which place is chosen so that as many places as possible are
filled, as a maximum flow: person, vote, group.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from signoff.contracts.approval import ApprovalRequest, ApproverGroup, Vote
from signoff.formats.replace import replace

_SOURCE: Final = ("source",)
_SINK: Final = ("sink",)


@dataclass(frozen=True)
class Voter:
    """One human who said yes.

    `votes` has for each human whose vote it may count as the approver entries under which they are asked.
    """

    human: str
    votes: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Progress:
    """How far a request has come: `yes` of `needed` places are filled; `open` are the groups that lack somebody.

    In `open` each group's quorum is how many it lacks.
    """

    yes: int
    needed: int
    open: tuple[ApproverGroup, ...] = ()


def people_needed(quorum: int, groups: Iterable[ApproverGroup]) -> int:
    """Returns how many different people a quorum beside groups takes: as many as the groups together, if those are
    more.
    """
    return max(quorum, sum(group.quorum for group in groups))


def tally(quorum: int, groups: Sequence[ApproverGroup], voters: Sequence[Voter]) -> Progress:
    """Returns how many places `voters` fill of a quorum and its groups; without groups anybody fills any place."""
    needed, taken = people_needed(quorum, groups), countable_votes(voters)
    if not groups:
        return Progress(min(taken, needed), needed)
    filled = _fill_groups(groups, voters)
    lacking = [(group, group.quorum - has) for group, has in zip(groups, filled, strict=True)]
    left = tuple(replace(group, quorum=lacks) for group, lacks in lacking if lacks)
    # Who fills no place of a group fills one of those that a larger quorum leaves to anybody.
    others = min(taken - sum(filled), needed - sum(group.quorum for group in groups))
    return Progress(sum(filled) + others, needed, left)


def suffices(quorum: int, groups: Sequence[ApproverGroup], voters: Sequence[Voter]) -> bool:
    """Returns whether `voters` are as many different people as the quorum, and fill every group."""
    found = tally(quorum, groups, voters)
    return found.yes >= found.needed


def countable_votes(voters: Iterable[Voter]) -> int:
    """Returns as how many different votes the yes-es of `voters` can count at most, one each."""
    network: dict[Hashable, dict[Hashable, int]] = {}
    for voter in voters:
        _edge(network, _SOURCE, ("voter", voter.human), 1)
        for holder in voter.votes:
            _edge(network, ("voter", voter.human), ("vote", holder), 1)
            _edge(network, ("vote", holder), _SINK, 1)
    return sum(_flow(network).values())


def voter_of(vote: Vote) -> Voter:
    """Returns the voter of a counted vote, which says itself whose vote it is and under which entries it counts."""
    human = vote.person_id or vote.subject
    return Voter(human, {vote.on_behalf or human: frozenset(vote.entries)})


def progress(request: ApprovalRequest) -> Progress:
    """Returns how far the counted votes have brought a request."""
    voters = [voter_of(vote) for vote in request.votes if vote.verdict == "approved"]
    return tally(request.quorum, request.groups, voters)


def _fill_groups(groups: Sequence[ApproverGroup], voters: Sequence[Voter]) -> list[int]:
    """Returns how many places of each group are filled when as many as possible are."""
    network: dict[Hashable, dict[Hashable, int]] = {}
    votes = {holder: entries for voter in voters for holder, entries in voter.votes.items()}
    for voter in voters:
        # Where two may cast one vote, at different times, it is asked under what both found.
        votes |= {holder: votes[holder] & entries for holder, entries in voter.votes.items()}
    for number, group in enumerate(groups):
        _edge(network, ("group", number), _SINK, group.quorum)
    for voter in voters:
        _edge(network, _SOURCE, ("voter", voter.human), 1)
        for holder in voter.votes:
            _edge(network, ("voter", voter.human), ("vote", holder), 1)
    for holder, entries in votes.items():
        # In and out apart, as one vote counts once, whoever casts it.
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
    """Sends as much as possible from source to sink; what arrives at the sink, by the node that it comes from."""
    while path := _path(network):
        for start, end in pairwise(path):
            network[start][end] -= 1
            network[end][start] += 1
    return {node: back for node, back in network.get(_SINK, {}).items() if back}


def _path(network: Mapping[Hashable, Mapping[Hashable, int]]) -> list[Hashable]:
    """Returns a shortest way from source to sink on which one more can be sent; [] where there is none."""
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
