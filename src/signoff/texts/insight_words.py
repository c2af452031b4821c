"""Writes warnings about figures in sentences."""

from typing import Final

from signoff.approvals.argument_rows import NAME_CHARS
from signoff.contracts.responses import EarlierFigures, Insights, InsightWarning
from signoff.formats.visible_text import one_line
from signoff.texts.formatter import Formatter

FEW: Final = 10
"""Fewer decisions make no percentage."""


def warning_words(warning: InsightWarning, name: str, formatter: Formatter) -> str:
    kind = f"fast_{'person' if warning.person else 'tool'}" if warning.kind == "fast" else warning.kind
    return formatter.text(
        f"insights.warn.{kind}",
        name=one_line(name, NAME_CHARS).text,
        percent=warning.percent,
        count=warning.count,
        seconds=warning.seconds,
    )


def rate_words(approved: int, denied: int) -> str:
    """Write the share of approvals among the decisions: `87 %`. "" without decisions."""
    return f"{approved * 100 // (approved + denied)} %" if approved + denied else ""


def decided_change(found: Insights, formatter: Formatter) -> str:
    """Compare the decisions with the time before. "" if unknown or without any."""
    if found.before is None:
        return ""
    now, before = found.approved + found.denied, _decided(found.before)
    if not now and not before:
        return ""
    if before < FEW:
        return formatter.text("insights.before.few" if before else "insights.before.none", n=before, days=found.days)
    return _change("more", "fewer", "as_many", now / before, found.days, formatter)


def time_change(found: Insights, formatter: Formatter) -> str:
    """Compare the median time to decide with the time before. "" if unknown or with few decisions."""
    before = found.before
    if before is None or found.more or not found.p50 or not before.p50:
        return ""
    if min(found.approved + found.denied, _decided(before)) < FEW:
        return ""
    return _change("longer", "shorter", "as_long", found.p50 / before.p50, found.days, formatter)


def _decided(before: EarlierFigures) -> int:
    return before.approved + before.denied


def _change(more: str, less: str, same: str, ratio: float, days: int, formatter: Formatter) -> str:
    percent = round(ratio * 100) - 100
    if not percent:
        return formatter.text(f"insights.before.{same}", days=days)
    return formatter.text(f"insights.before.{more if percent > 0 else less}", percent=abs(percent), days=days)
