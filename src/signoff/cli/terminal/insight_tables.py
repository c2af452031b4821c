"""Renders figures about requests as lines for a terminal."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.table import Table

from signoff.cli.terminal.tables import clean
from signoff.contracts.responses import DecisionRate, Insights, Share
from signoff.languages.catalogue import ENGLISH
from signoff.texts.formatter import Formatter
from signoff.texts.insight_words import rate_words, warning_words


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
    lines.append(f"{text('insights.decided')}: {outcome}")
    if found.p50 is not None and found.p95 is not None:
        lines.append(f"{text('insights.time')}: {span(found.p50)} / {span(found.p95)}")
    if found.more:
        lines.append(text("insights.counted", count=found.approved + found.denied + found.unanswered))
    lines += [f"! {warning_words(each, each.tool or each.person, formatter)}" for each in found.warnings]
    ages = [Share(name=text(f"insights.age.{each.name}"), count=each.count) for each in waiting.by_age]
    for title, shares in (("by_age", ages), ("by_approver", waiting.by_approver), ("by_channel", found.by_channel)):
        if any(each.count for each in shares):
            lines += ["", _shares(text(f"insights.{title}"), shares)]
    for title, rates in (("by_tool", found.by_tool), ("by_rule", found.by_rule), ("by_person", found.by_person)):
        if rates:
            lines += ["", _rates(text(f"insights.{title}"), rates)]
    lines += _holes(found)
    return lines


def _shares(title: str, shares: Sequence[Share]) -> Table:
    table = _table(title, "Requests")
    for each in shares:
        table.add_row(clean(each.name), str(each.count))
    return table


def _rates(title: str, rates: Sequence[DecisionRate]) -> Table:
    table = _table(title, "Approved", "Denied", "Expired", "Approval rate")
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
