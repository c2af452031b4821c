import itertools
from datetime import UTC, datetime
from typing import Any

from answering import decide
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.approvals import deadlines
from signoff.approvals.quorum import (
    Progress,
    Voter,
    countable_votes,
    people_who_gave,
    progress,
    suffices,
    tally,
)
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, ApproverGroup, Vote
from signoff.contracts.decision import Decision
from signoff.testing import a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FINANCE, LEGAL = ApproverGroup(of=("role:finance",)), ApproverGroup(of=("role:legal",))
BOTH = (FINANCE, LEGAL)
ENTRIES = ("role:finance", "role:legal", "user:ana")
PEOPLE = ("ana", "bo", "cy", "di")

groups_of = st.lists(
    st.builds(
        ApproverGroup,
        of=st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=2, unique=True).map(tuple),
        quorum=st.integers(1, 2),
    ),
    max_size=3,
)
entries_of = st.fixed_dictionaries({human: st.frozensets(st.sampled_from(ENTRIES)) for human in PEOPLE})
seats_of = st.dictionaries(
    st.sampled_from(PEOPLE), st.lists(st.sampled_from(PEOPLE), min_size=1, max_size=2), max_size=4
)
voters_of = st.builds(
    lambda asked, seats: [Voter(human, {seat: asked[seat] for seat in lent}) for human, lent in seats.items()],
    entries_of,
    seats_of,
)


def a_vote(who: str, verdict: Any = "approved", **fields: Any) -> Vote:
    decision = Decision(approval_id="a", verdict=verdict, to=fields.pop("to", ""))
    return Vote(subject=who, verdict=verdict, at=NOW, decision=decision, **fields)


@table(
    ("who", "terms", "expected"),
    (("ana",), {}, Progress(1, 2, (ApproverGroup(of=("user:rui",)),))),
    (("rui",), {}, Progress(1, 2)),
    (("ana", "bo"), {}, Progress(1, 2, (ApproverGroup(of=("user:rui",)),))),
    (("ana", "rui"), {}, Progress(2, 2)),
    (("ana", "rui"), {"quorum": 2}, Progress(2, 3)),
    (("ana", "rui", "bo"), {"quorum": 2}, Progress(3, 3)),
    (("ana", "rui"), {"groups": BOTH}, Progress(2, 3, (LEGAL,))),
)
def test_added_approver_takes_an_extra_seat(who: tuple[str, ...], terms: dict[str, Any], expected: Progress) -> None:
    votes = tuple(a_vote(each, entries=("role:finance",)) for each in who)
    request = a_request(votes=votes, assignments=(a_vote("ana", "added", to="rui"),), **terms)
    assert progress(request) == expected


@table(
    "votes",
    (a_vote("ana"), a_vote("cy", on_behalf="rui")),
    (a_vote("rui", on_behalf="bo"),),
)
def test_vote_by_delegation_is_not_an_added_approvers_own(votes: tuple[Vote, ...]) -> None:
    request = a_request(votes=votes, assignments=(a_vote("ana", "added", to="rui"),))
    assert progress(request) == Progress(1, 2, (ApproverGroup(of=("user:rui",)),))


def own(human: str, *entries: str) -> Voter:
    return Voter(human, {human: frozenset(entries)})


def best(groups: list[ApproverGroup], voters: list[Voter]) -> tuple[int, int]:
    options = [
        [None, *((seat, place) for seat in voter.votes for place in (None, *range(len(groups))))] for voter in voters
    ]
    most_places = most_seats = 0
    for chosen in itertools.product(*options):
        taken = [each for each in chosen if each is not None]
        if len({seat for seat, _ in taken}) < len(taken):
            continue
        most_seats = max(most_seats, len(taken))
        places = [place for _, place in taken if place is not None]
        fits = all(
            each is None or each[1] is None or not voter.votes[each[0]].isdisjoint(groups[each[1]].of)
            for voter, each in zip(voters, chosen, strict=True)
        )
        if fits and all(places.count(number) <= group.quorum for number, group in enumerate(groups)):
            most_places = max(most_places, len(places))
    return most_places, most_seats


@given(st.integers(1, 4), groups_of, voters_of)
def test_assignment_fills_the_maximum_number_of_places(
    quorum: int, groups: list[ApproverGroup], voters: list[Voter]
) -> None:
    places, seats = best(groups, voters)
    wanted = sum(group.quorum for group in groups)
    assert suffices(quorum, groups, voters) == (places == wanted and seats >= quorum)
    found = tally(quorum, groups, voters)
    assert found.needed == max(quorum, wanted)
    assert sum(group.quorum for group in found.open) == wanted - places
    assert found.yes <= min(seats, found.needed)


@table(
    ("voters", "open_of"),
    ([], ["role:finance", "role:legal"]),
    ([own("ana", "role:finance"), own("bo", "role:finance")], ["role:legal"]),
    ([own("ana", "role:finance", "role:legal")], ["role:legal"]),
    ([own("ana", "role:finance", "role:legal"), own("bo", "role:finance")], []),
    ([own("ana"), own("bo"), own("cy")], ["role:finance", "role:legal"]),
    ([Voter("di", {"ana": frozenset({"role:finance"}), "bo": frozenset({"role:legal"})})], ["role:legal"]),
    ([Voter("di", {"ana": frozenset({"role:legal"})}), own("ana", "role:legal")], ["role:finance"]),
    ([Voter("di", {"ana": frozenset({"role:legal"})}), own("ana")], ["role:finance", "role:legal"]),
)
def test_one_person_fills_one_place(voters: list[Voter], open_of: list[str]) -> None:
    found = tally(1, BOTH, voters)
    assert [entry for group in found.open for entry in group.of] == open_of
    assert suffices(1, BOTH, voters) is (open_of == [])


def test_one_person_and_one_vote_count_once() -> None:
    for_two = Voter("di", {"ana": frozenset(), "bo": frozenset()})
    for_ana = Voter("cy", {"ana": frozenset()})
    assert countable_votes([for_two]) == 1
    assert countable_votes([for_ana, own("ana")]) == 1
    assert countable_votes([for_ana, for_two]) == 2
    assert countable_votes([for_ana, for_two, own("ana"), own("bo")]) == 2
    assert tally(2, (), [for_two]) == Progress(1, 2)


def test_vote_cast_by_two_delegates_fills_one_place() -> None:
    ana = {"ana": frozenset({"role:finance", "role:legal"})}
    found = tally(1, BOTH, [Voter("cy", ana), Voter("di", ana)])
    assert (found.yes, sum(group.quorum for group in found.open)) == (1, 1)


def test_open_group_shows_its_missing_number() -> None:
    three = ApproverGroup(of=("role:finance",), quorum=3)
    found = tally(1, (three,), [own("ana", "role:finance")])
    assert found == Progress(1, 3, (ApproverGroup(of=("role:finance",), quorum=2),))


def test_quorum_above_the_groups_needs_one_more_person() -> None:
    two = [own("ana", "role:finance"), own("bo", "role:legal")]
    assert tally(3, BOTH, two) == Progress(2, 3)
    assert suffices(3, BOTH, [*two, own("cy", "role:finance")])


def request(**fields: Any) -> ApprovalRequest:
    given: dict[str, Any] = {"approvers": ("role:finance", "role:legal"), "groups": BOTH, "quorum": 2}
    return a_request(opened=NOW, **given | {"escalate_to": ("role:cfo",)} | fields)


def say(
    before: ApprovalRequest, who: str, *entries: str, verdict: str = "approved"
) -> tuple[ApprovalRequest, tuple[str, ...]]:
    given = Decision.model_validate({"approval_id": before.id, "revision": 1, "verdict": verdict})
    authority = Authority(allowed=True, subject=who, assurance="session", entries=entries)
    after, receipt = decide(before, given, authority, NOW)
    return after, tuple(entry for group in receipt.open for entry in group.of)


def test_request_waits_for_each_group() -> None:
    first, still = say(request(), "ana", "role:finance")
    assert (first.state, still) == ("pending", ("role:legal",))
    second, still = say(first, "bo", "role:finance")
    assert (second.state, still, progress(second)) == ("pending", ("role:legal",), Progress(1, 2, (LEGAL,)))
    third, still = say(second, "cy", "role:legal")
    assert (third.state, still) == ("approved", ())


def test_denial_from_any_group_denies() -> None:
    first, _ = say(request(), "ana", "role:finance")
    assert say(first, "cy", "role:legal", verdict="denied")[0].state == "denied"


def test_escalation_approver_fills_any_place() -> None:
    escalated = deadlines.escalate(request())
    first, still = say(escalated, "cfo", "role:cfo")
    assert (first.state, len(still)) == ("pending", 2)
    assert say(first, "ana", "role:finance")[0].state == "approved"
    assert say(request(), "cfo", "role:cfo")[0].state == "pending"


def test_people_who_handed_on_are_named_by_their_ids() -> None:
    given = (a_vote("ana", "handed_on", person_id="u7"), a_vote("bo", "added", to="cy"), a_vote("di", "handed_on"))
    assert people_who_gave(given) == ("u7", "di")
