"""Describes figures and courses for the pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Final

from signoff.contracts.responses import ApproverCoverage, DayFigures, DecisionRate, Insights, Share
from signoff.gateway.insights.back_test import ToolVerdicts
from signoff.gateway.insights.course import CourseStep
from signoff.languages.catalogue import has_text
from signoff.texts.endings import where_words
from signoff.texts.formatter import FormattedTime, Formatter
from signoff.texts.insight_words import rate_words

WIDTH: Final = 100


@dataclass(frozen=True)
class Bar:
    """A part of a bar."""

    start: int
    length: int
    tone: str


@dataclass(frozen=True)
class RateRow:
    """One row of a table of decisions."""

    name: str
    bars: tuple[Bar, ...]
    rate: DecisionRate
    percent: str


@dataclass(frozen=True)
class ShareRow:
    """One row of a table of numbers."""

    name: str
    bars: tuple[Bar, ...]
    count: int


@dataclass(frozen=True)
class DayColumn:
    """One day of the chart."""

    day: str
    words: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class VerdictRow:
    """One row of a back-test."""

    name: str
    bars: tuple[Bar, ...]
    verdicts: ToolVerdicts


@dataclass(frozen=True)
class CourseRow:
    """One step in words."""

    kind: str
    words: str
    when: FormattedTime


def rate_rows(rates: Sequence[DecisionRate], names: dict[str, str]) -> list[RateRow]:
    most = max((each.approved + each.denied + each.unanswered for each in rates), default=0)
    return [
        RateRow(
            names.get(each.name, each.name),
            make_bars(most, (each.approved, "good"), (each.denied, "bad"), (each.unanswered, "grey")),
            each,
            rate_words(each.approved, each.denied),
        )
        for each in rates
    ]


def share_rows(shares: Sequence[Share], names: dict[str, str], tone: str = "wait") -> list[ShareRow]:
    most = max((each.count for each in shares), default=0)
    return [
        ShareRow(names.get(each.name, each.name), make_bars(most, (each.count, tone)), each.count) for each in shares
    ]


def day_columns(days: Sequence[DayFigures], formatter: Formatter) -> list[DayColumn]:
    """Empty without requests."""
    most = busiest_day(days)
    return [
        DayColumn(
            formatter.day(datetime.combine(each.day, time())),
            formatter.text("insights.outcome", approved=each.approved, denied=each.denied, unanswered=each.unanswered),
            make_bars(most, (each.approved, "good"), (each.denied, "bad"), (each.unanswered, "grey")),
        )
        for each in days
        if most
    ]


def busiest_day(days: Sequence[DayFigures]) -> int:
    return max((each.approved + each.denied + each.unanswered for each in days), default=0)


def verdict_rows(tools: Sequence[ToolVerdicts], names: dict[str, str]) -> list[VerdictRow]:
    most = max((each.ask + each.run + each.deny + each.unknown for each in tools), default=0)
    return [
        VerdictRow(
            names.get(each.tool, each.tool),
            make_bars(most, (each.ask, "wait"), (each.run, "good"), (each.deny, "bad"), (each.unknown, "grey")),
            each,
        )
        for each in tools
    ]


def coverage_rows(coverage: Sequence[ApproverCoverage]) -> list[tuple[ApproverCoverage, list[int | None]]]:
    """Count each tool's people by every entry of the matrix. `None`: the tool does not ask it."""
    entries = dict.fromkeys(each.name for row in coverage for each in row.approvers)
    counts = [(row, {each.name: each.count for each in row.approvers}) for row in coverage]
    return [(row, [found.get(entry) for entry in entries]) for row, found in counts]


def make_bars(most: int, *parts: tuple[int, str]) -> tuple[Bar, ...]:
    """`most` is the number of the longest bar."""
    bars: list[Bar] = []
    seen = 0
    for number, tone in parts:
        start, seen = seen, seen + number
        if number:
            first, end = (value * WIDTH // most for value in (start, seen))
            bars.append(Bar(first, max(1, end - first), tone))
    return tuple(bars)


def channel_names(insights: Insights, language: str) -> dict[str, str]:
    return {each.name: where_words(each.name, language) for each in insights.by_channel}


def course_row(step: CourseStep, name: str, formatter: Formatter) -> CourseRow:
    where = where_words(step.channel, formatter.language) if step.channel else ""
    word = formatter.text(f"state.{step.word}") if has_text(f"state.{step.word}") else _code(step.word, formatter)
    words = formatter.text(f"course.{step.kind}", who=name, where=where, word=word, number=step.number)
    return CourseRow(step.kind, words, formatter.moment(step.at))


def _code(code: str, formatter: Formatter) -> str:
    return formatter.text(f"code.{code}") if has_text(f"code.{code}") else code.replace("_", " ")
