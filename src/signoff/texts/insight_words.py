"""Writes warnings about figures in sentences."""

from signoff.approvals.argument_rows import NAME_CHARS
from signoff.contracts.responses import InsightWarning
from signoff.formats.visible_text import one_line
from signoff.texts.formatter import Formatter


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
