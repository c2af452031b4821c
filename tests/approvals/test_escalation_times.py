"""When those to whom a request escalates could answer it, revision by revision."""

from datetime import UTC, datetime, timedelta

import pytest

from signoff.approvals.escalation import NOT_ESCALATED, Asked, Escalation

START = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
AFTER = timedelta(hours=2)


def escalation(*asked: tuple[float, bool]) -> Escalation:
    """One that comes two hours after revisions that were asked at these hours, by an edit or not."""
    found = {number: Asked(START + HOUR * at, edited) for number, (at, edited) in enumerate(asked, 1)}
    return Escalation(("user:cfo",), AFTER, found)


@pytest.mark.parametrize(
    ("asked", "revision", "hours", "reached"),
    [
        (((0, False),), 1, 1.99, False),
        (((0, False),), 1, 2, True),
        (((0, False),), 2, 9, False),
        ((), 1, 9, False),
        (((0, False), (3, True)), 2, 3, True),
        (((0, False), (1, True)), 2, 2.5, False),
        (((0, False), (1, True)), 2, 3, True),
        (((0, False), (3, False)), 2, 4, False),
        (((0, False), (3, False)), 2, 5, True),
        (((0, False), (1, True), (1.5, True)), 3, 3.4, False),
        (((0, False), (1, True), (3.5, True)), 3, 3.6, True),
        (((0, False), (3, True)), 2, 1, False),
        (((0, False), (3, True)), 1, 1, False),
    ],
)
def test_an_edit_keeps_what_escalated_and_a_new_question_does_not(
    asked: tuple[tuple[float, bool], ...], revision: int, hours: float, reached: bool
) -> None:
    """The clock runs from when each revision was asked; of what is not on record nothing had escalated."""
    assert escalation(*asked).reached(revision, START + HOUR * hours) is reached


def test_nothing_escalates_by_itself() -> None:
    """A policy that escalates to nobody has no such moment."""
    assert not NOT_ESCALATED.reached(1, START)
