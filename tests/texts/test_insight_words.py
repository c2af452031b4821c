from datetime import UTC, datetime
from typing import Any

from tables import table

from signoff.contracts.responses import EarlierFigures, Insights, WaitingFigures
from signoff.languages.catalogue import ENGLISH
from signoff.texts.formatter import Formatter
from signoff.texts.insight_words import FEW, decided_change, time_change

FORMATTER = Formatter(ENGLISH, UTC, datetime(2026, 3, 1, tzinfo=UTC))


def insights(**fields: Any) -> Insights:
    return Insights(days=30, every=True, waiting=WaitingFigures(count=0), **fields)


@table(
    ("now", "before", "words"),
    (412, 381, "8 % more than in the 30 days before"),
    (100, 1_000, "90 % fewer than in the 30 days before"),
    (0, 50, "100 % fewer than in the 30 days before"),
    (2_000, FEW, "19,900 % more than in the 30 days before"),
    (1_001, 1_000, "About as many as in the 30 days before"),
    (12, FEW - 1, "9 in the 30 days before"),
    (12, 0, "None in the 30 days before"),
    (0, 0, ""),
    (0, 3, "3 in the 30 days before"),
)
def test_decisions_are_compared_with_the_time_before(now: int, before: int, words: str) -> None:
    earlier = EarlierFigures(approved=before // 2, denied=before - before // 2, unanswered=7)
    assert decided_change(insights(approved=now, before=earlier), FORMATTER) == words


@table(
    ("now", "before", "words"),
    (90.0, 60.0, "p50: 50 % longer than in the 30 days before"),
    (30.0, 60.0, "p50: 50 % shorter than in the 30 days before"),
    (60.0, 60.0, "p50: about as long as in the 30 days before"),
    (None, 60.0, ""),
    (60.0, None, ""),
    (60.0, 0.0, ""),
)
def test_time_to_decide_is_compared_with_the_time_before(now: float | None, before: float | None, words: str) -> None:
    earlier = EarlierFigures(approved=FEW, p50=before)
    assert time_change(insights(p50=now, before=earlier), FORMATTER) == words


def test_uncounted_or_few_decisions_make_no_comparison() -> None:
    assert decided_change(insights(approved=9), FORMATTER) == time_change(insights(p50=9), FORMATTER) == ""
    earlier = EarlierFigures(approved=FEW, p50=6)
    assert time_change(insights(p50=9, more=True, before=earlier), FORMATTER) == ""
    assert time_change(insights(p50=9, before=EarlierFigures(approved=FEW - 1, p50=6)), FORMATTER) == ""
