from itertools import permutations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.approvals.tightening import ORDERS, are_stricter, tighten
from signoff.contracts.approval import AppliedTerm, ApproverGroup, Terms, TermValues
from signoff.contracts.decision import ASSURANCES
from signoff.formats.replace import replace
from signoff.testing.builders import a_question

APPROVERS = ("role:finance", "role:legal", "user:ana")
TARGETS = ("role:cfo", "role:board", "user:eve")
SECONDS = st.sampled_from((60.0, 600.0, 3_600.0))
GROUPS = st.lists(
    st.builds(
        ApproverGroup,
        of=st.lists(st.sampled_from(APPROVERS), min_size=1, unique=True).map(tuple),
        quorum=st.integers(1, 3),
    ),
    max_size=3,
    unique_by=lambda group: frozenset(group.of),
).map(tuple)
SHARED: dict[str, Any] = {
    "quorum": st.integers(1, 5),
    "groups": GROUPS,
    "min_assurance": st.sampled_from(ASSURANCES),
    "escalate_after": st.none() | SECONDS,
}
SOME_TARGETS = st.lists(st.sampled_from(TARGETS), unique=True).map(tuple)
VALUES = st.builds(TermValues, **SHARED, timeout=st.none() | SECONDS, escalate_to=st.none() | SOME_TARGETS)
TERMS = st.builds(Terms, **SHARED, timeout=SECONDS, escalate_to=SOME_TARGETS, on_timeout=st.just("escalate"))
EITHER = VALUES | TERMS


def values_of(terms: TermValues) -> dict[str, Any]:
    """Order and spelling of lists are no part of a value."""
    groups = {frozenset(group.of): group.quorum for group in terms.groups}
    to = None if terms.escalate_to is None else frozenset(terms.escalate_to)
    return {name: getattr(terms, name) for name in ORDERS} | {"groups": groups, "escalate_to": to}


def is_as_strict(terms: TermValues, least: TermValues) -> bool:
    """Compare each value by a rule of its own, without `tighten`."""
    groups, asked = values_of(terms)["groups"], values_of(least)["groups"]
    to, allowed = terms.escalate_to, least.escalate_to
    return (
        terms.quorum >= least.quorum
        and all(groups.get(of, 0) >= quorum for of, quorum in asked.items())
        and ASSURANCES.index(terms.min_assurance) >= ASSURANCES.index(least.min_assurance)
        and _is_sooner(terms.timeout, least.timeout)
        and _is_sooner(terms.escalate_after, least.escalate_after)
        and (allowed is None or (to is not None and set(to) <= set(allowed)))
    )


def _is_sooner(span: float | None, least: float | None) -> bool:
    return least is None or (span is not None and span <= least)


def test_every_value_of_terms_has_an_order() -> None:
    assert ORDERS.keys() == TermValues.model_fields.keys()


@given(EITHER, EITHER)
def test_tightened_terms_are_as_strict_as_both(one: TermValues, other: TermValues) -> None:
    found = tighten(one, other)
    assert is_as_strict(found, one)
    assert is_as_strict(found, other)


@given(EITHER, EITHER, VALUES)
def test_stricter_values_never_tighten_less(one: TermValues, other: TermValues, more: TermValues) -> None:
    assert is_as_strict(tighten(one, tighten(other, more)), tighten(one, other))


@given(EITHER, EITHER)
def test_tightening_twice_changes_nothing(one: TermValues, other: TermValues) -> None:
    found = tighten(one, other)
    assert tighten(one, one) == one
    assert tighten(found, other) == tighten(found, one) == found


@given(st.lists(EITHER, min_size=2, max_size=3))
def test_order_of_tightening_does_not_matter(given_terms: list[TermValues]) -> None:
    first, *others = (values_of(tighten(*each)) for each in permutations(given_terms))
    assert all(each == first for each in others)


@given(EITHER, EITHER)
def test_tightened_value_is_one_of_those_given(one: TermValues, other: TermValues) -> None:
    """Nothing is stricter than necessary."""
    found, sides = values_of(tighten(one, other)), (values_of(one), values_of(other))
    for name in ORDERS.keys() - {"groups", "escalate_to"}:
        assert found[name] in [side[name] for side in sides]
    assert all(quorum in [side["groups"].get(of) for side in sides] for of, quorum in found["groups"].items())
    limits = [side["escalate_to"] for side in sides if side["escalate_to"] is not None]
    assert found["escalate_to"] == (frozenset.intersection(*limits) if limits else None)


@given(TERMS)
def test_default_values_tighten_nothing(terms: Terms) -> None:
    assert tighten(terms, TermValues()) == terms
    assert tighten(terms, AppliedTerm(reason="it is the weekend")) == terms


def test_tightened_question_keeps_all_else() -> None:
    question = a_question(approvers=("role:finance",), on_timeout="escalate", escalate_to=("role:cfo",))
    found = tighten(question, AppliedTerm(reason="it is the weekend", quorum=2, timeout=60.0))
    assert found == replace(question, quorum=2, timeout=60.0)


@given(TERMS, VALUES)
def test_answer_to_stricter_terms_is_enough_for_looser_ones(terms: Terms, more: TermValues) -> None:
    asked = tighten(terms, TermValues(**dict(more) | {"groups": ()}))
    assert not are_stricter(terms, asked)
    compared = ("quorum", "min_assurance", "timeout")
    assert are_stricter(asked, terms) is any(getattr(asked, name) != getattr(terms, name) for name in compared)


FINANCE, LEGAL = ApproverGroup(of=("role:finance",)), ApproverGroup(of=("role:legal",))


@table(
    ("groups", "stricter"),
    ((), False),
    ((FINANCE,), False),
    ((LEGAL,), True),
    ((FINANCE, LEGAL), True),
    ((replace(FINANCE, quorum=2),), True),
)
def test_terms_with_other_groups_are_stricter(groups: tuple[ApproverGroup, ...], stricter: bool) -> None:
    question = Terms(quorum=3, groups=(FINANCE,))
    assert are_stricter(Terms(groups=groups), question) is stricter
