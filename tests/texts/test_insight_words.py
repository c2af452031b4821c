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
    (412, 381, "8 % more than in the same period 30 days earlier"),
    (100, 1_000, "90 % fewer than in the same period 30 days earlier"),
    (0, 50, "100 % fewer than in the same period 30 days earlier"),
    (2_000, FEW, "19,900 % more than in the same period 30 days earlier"),
    (1_001, 1_000, "About as many as in the same period 30 days earlier"),
    (12, FEW - 1, "9 in the same period 30 days earlier"),
    (12, 0, "None in the same period 30 days earlier"),
    (0, 0, ""),
    (0, 3, "3 in the same period 30 days earlier"),
)
def test_decisions_are_compared_with_the_time_before(now: int, before: int, words: str) -> None:
    earlier = EarlierFigures(approved=before // 2, denied=before - before // 2, unanswered=7)
    assert decided_change(insights(approved=now, before=earlier), FORMATTER) == words


@table(
    ("now", "before", "words"),
    (90.0, 60.0, "p50: 50 % longer than in the same period 30 days earlier"),
    (30.0, 60.0, "p50: 50 % shorter than in the same period 30 days earlier"),
    (60.0, 60.0, "p50: about as long as in the same period 30 days earlier"),
    (None, 60.0, ""),
    (60.0, None, ""),
    (60.0, 0.0, ""),
)
def test_time_to_decide_is_compared_with_the_time_before(now: float | None, before: float | None, words: str) -> None:
    earlier = EarlierFigures(approved=FEW, p50=before)
    assert time_change(insights(approved=FEW, p50=now, before=earlier), FORMATTER) == words


def test_uncounted_or_few_decisions_make_no_comparison() -> None:
    assert decided_change(insights(approved=9), FORMATTER) == time_change(insights(p50=9), FORMATTER) == ""
    earlier = EarlierFigures(approved=FEW, p50=6)
    assert time_change(insights(approved=FEW, p50=9, more=True, before=earlier), FORMATTER) == ""
    assert time_change(insights(approved=FEW - 1, p50=9, before=earlier), FORMATTER) == ""
    few = EarlierFigures(approved=FEW - 1, p50=6)
    assert time_change(insights(approved=FEW, p50=9, before=few), FORMATTER) == ""


@table(("language", "words"), ("en", "1 request."), ("de", "1 Anfrage."), ("fr", "1 demande."), ("pt", "1 pedido."))
def test_one_request_on_the_highest_day_is_singular(language: str, words: str) -> None:
    formatter = Formatter(language, UTC, datetime(2026, 3, 1, tzinfo=UTC))
    assert formatter.text("insights.day_words", days=30, n=1).endswith(words)
    assert not formatter.text("insights.day_words", days=30, n=2).endswith(words[2:])
