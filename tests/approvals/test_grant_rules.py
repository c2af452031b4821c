"""The pure rules of remembered answers."""

import pytest

from signoff.approvals.grant_rules import agreed_wish, exact_digest, grant_id, grant_rule, wish_problem
from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.limits import MAX_REMEMBERED_SECONDS, MAX_REMEMBERED_USES
from signoff.testing import a_decision

WISH = GrantRequest(scope="tenant", where="args.amount < 5.0", seconds=60.0, uses=3)


def by(subject: str, remember: GrantRequest | None = WISH) -> Decision:
    """An approval."""
    return a_decision(subject=subject, remember=remember)


def test_the_same_arguments_are_alike_whatever_the_call() -> None:
    """Tool, definition and arguments make the digest, numbers by value; nothing of the turn does."""
    plain = exact_digest("pay", "d", {"amount": 1, "to": "Ana"})
    assert plain == sha256_hex({"v": 1, "tool": "pay", "definition": "d", "args": {"to": "Ana", "amount": 1.0}})
    others = [("book", "d", {"amount": 1, "to": "Ana"}), ("pay", "e", {"amount": 1, "to": "Ana"}), ("pay", "d", {})]
    assert plain not in {exact_digest(*other) for other in others}
    with pytest.raises(NotCanonical):
        exact_digest("pay", "d", {"amount": float("nan")})


def test_an_answer_has_one_id() -> None:
    """The same each time; another for another request, revision or verdict."""
    ids = {
        grant_id(*each)
        for each in (("a", 1, "approved"), ("b", 1, "approved"), ("a", 2, "approved"), ("a", 1, "denied"))
    }
    assert len(ids) == 4
    assert all(each.startswith("g") and len(each) == 16 for each in ids)
    assert grant_rule("g1") == "grant:g1"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"seconds": 0.0}, "`remember.seconds`: more than 0, and 2592000 (30 days) at most"),
        ({"seconds": -1.0}, "seconds"),
        ({"seconds": MAX_REMEMBERED_SECONDS + 1}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"uses": 0}, "`remember.uses`: 1 to 1000"),
        ({"uses": MAX_REMEMBERED_USES + 1}, "uses"),
    ],
)
def test_wishes_have_bounds(fields: dict[str, float], says: str) -> None:
    """Neither for ever nor for nothing."""
    assert says in wish_problem(WISH.model_copy(update=fields))


@pytest.mark.parametrize(
    "fields", [{}, {"seconds": MAX_REMEMBERED_SECONDS, "uses": MAX_REMEMBERED_USES}, {"seconds": 0.5, "uses": 1}]
)
def test_wishes_within_bounds_are_taken(fields: dict[str, float]) -> None:
    """From the least to the most, both included."""
    assert wish_problem(WISH.model_copy(update=fields)) == ""


def test_as_many_people_as_the_quorum_want_the_same() -> None:
    """The smallest length and count of all hold; spaces around a predicate do not matter."""
    short = WISH.model_copy(update={"seconds": 5.0, "uses": 9, "where": f" {WISH.where} "})
    assert agreed_wish([by("ana")], 1) == WISH
    assert agreed_wish([by("ana"), by("bo", short)], 2) == WISH.model_copy(update={"seconds": 5.0})
    assert agreed_wish([by("bo", short), by("ana")], 2) == short.model_copy(update={"uses": 3})


@pytest.mark.parametrize(
    ("decisions", "quorum"),
    [
        ([], 0),
        ([by("ana")], 2),
        ([by("ana"), by("ana")], 2),
        ([by("")], 1),
        ([by("ana", None)], 1),
        ([by("ana"), by("bo", None)], 2),
        ([by("ana"), by("bo", WISH.model_copy(update={"scope": "session"}))], 2),
        ([by("ana"), by("bo", WISH.model_copy(update={"where": "true"}))], 2),
    ],
)
def test_less_than_that_is_not_remembered(decisions: list[Decision], quorum: int) -> None:
    """Nobody, too few, one person twice, an answer without a name, or wishes that differ."""
    assert agreed_wish(decisions, quorum) is None
