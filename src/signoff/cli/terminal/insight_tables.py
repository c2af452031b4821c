"""Renders figures about requests as lines for a terminal."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time
from typing import Final

from rich.console import RenderableType
from rich.table import Table

from signoff.cli.terminal.tables import clean
from signoff.contracts.limits import FIGURES_BY_DAY, FIGURES_PAST
from signoff.contracts.responses import DayFigures, DecisionRate, Insights, Share
from signoff.languages.catalogue import ENGLISH
from signoff.texts.formatter import Formatter
from signoff.texts.insight_words import decided_change, rate_words, time_change, warning_words

_SIGNS: Final = "█▒·"
_ENDS: Final = ("Approved", "Denied", "Expired")
_BAR_CHARS: Final = 24


def insight_lines(found: Insights, now: datetime) -> list[RenderableType]:
    formatter = Formatter(ENGLISH, UTC, now)
    text, span = formatter.text, formatter.span
    whose = text("insights.every" if found.every else "insights.own")
    waiting = found.waiting
    facts = [f"{formatter.count(waiting.count)}{'+' if waiting.more else ''}"]
    facts += [text("insights.oldest", age=span(waiting.oldest))] if waiting.oldest is not None else []
    facts.append(text("insights.expiring", count=waiting.expiring))
    lines: list[RenderableType] = [f"{whose}, {text('insights.span', days=found.days).lower()}", ""]
    lines.append(f"{text('insights.waiting')}: {', '.join(facts)}")
    outcome = text("insights.outcome", approved=found.approved, denied=found.denied, unanswered=found.unanswered)
    change, slower = decided_change(found, formatter), time_change(found, formatter)
    lines.append(f"{text('insights.decided')}: {outcome}{f' ({change})' if change else ''}")
    if found.p50 is not None and found.p95 is not None:
        lines.append(
            f"{text('insights.time')}: {span(found.p50)} / {span(found.p95)}{f' ({slower})' if slower else ''}"
        )
    lines += [text("insights.cut", count=FIGURES_BY_DAY)] if found.cut else []
    lines += [text("insights.counted", count=FIGURES_PAST)] if found.more else []
    lines += [f"! {warning_words(each, each.tool or each.person, formatter)}" for each in found.warnings]
    lines += _days(found.by_day, formatter)
    ages = [Share(name=text(f"insights.age.{each.name}"), count=each.count) for each in waiting.by_age]
    for title, shares in (("by_age", ages), ("by_approver", waiting.by_approver), ("by_channel", found.by_channel)):
        if any(each.count for each in shares):
            lines += ["", _shares(text(f"insights.{title}"), shares)]
    for title, rates in (("by_tool", found.by_tool), ("by_rule", found.by_rule), ("by_person", found.by_person)):
        if rates:
            lines += ["", _rates(text(f"insights.{title}"), rates)]
    lines += _holes(found)
    return lines


def _days(days: Sequence[DayFigures], formatter: Formatter) -> Iterator[RenderableType]:
    counts = {each.day: (each.approved, each.denied, each.unanswered) for each in days}
    most = max(map(sum, counts.values()), default=0)
    if not most:
        return
    ends = (f"{sign} {name}" for sign, name in zip(_SIGNS, _ENDS, strict=True))
    table = _table(f"{formatter.text('insights.by_day')} (UTC)", "", *ends)
    table.columns[1].justify = "left"
    for day, numbers in counts.items():
        if any(numbers):
            bar = "".join(sign * -(-number * _BAR_CHARS // most) for sign, number in zip(_SIGNS, numbers, strict=True))
            table.add_row(formatter.day(datetime.combine(day, time())), bar, *map(str, numbers))
    yield from ("", table)


def _shares(title: str, shares: Sequence[Share]) -> Table:
    table = _table(title, "Requests")
    for each in shares:
        table.add_row(clean(each.name), str(each.count))
    return table


def _rates(title: str, rates: Sequence[DecisionRate]) -> Table:
    table = _table(title, *_ENDS, "Approval rate")
    for each in rates:
        numbers = (str(each.approved), str(each.denied), str(each.unanswered))
        table.add_row(clean(each.name), *numbers, rate_words(each.approved, each.denied))
    return table


def _table(title: str, *numbers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(title, overflow="fold")
    for each in numbers:
        table.add_column(each, justify="right")
    return table


def _holes(found: Insights) -> Iterator[RenderableType]:
    for row in found.coverage:
        yield from (f"! {clean(row.tool)} {clean(hole)}" for hole in row.holes)
