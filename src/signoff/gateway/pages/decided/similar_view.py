"""Writes the visitor's own similar approvals for a card. Differences come first."""

from dataclasses import dataclass
from typing import Final

from signoff.contracts.approval import ApprovalRequest, CardRow
from signoff.formats.replace import replace
from signoff.formats.visible_text import cut_visible
from signoff.gateway.history.similar import NumberRange, SimilarApprovals
from signoff.texts.formatter import Formatter

VALUE_CHARS: Final = 60
"""Characters of a value in the sentence. The card has the whole value."""


@dataclass(frozen=True)
class SimilarView:
    """The visitor's own approvals, in words."""

    differs: str
    """How the request is unlike all of them, or ""."""
    count: str
    """Their number, the last one, and the ranges of their numbers."""


def similar_view(similar: SimilarApprovals, request: ApprovalRequest, formatter: Formatter) -> SimilarView:
    rows = request.card.rows
    key, ago = "similar.most" if similar.more else "similar.count", formatter.ago(similar.last)
    ranges = "; ".join(_range_words(each, rows, formatter) for each in similar.ranges)
    ranges = f"{ranges}." if ranges else ""
    differing = "; ".join(_value_words(row, rows, formatter) for row in similar.differing)
    return SimilarView(
        differs=formatter.text("similar.differs", values=differing) if differing else "",
        count=" ".join(filter(None, (formatter.text(key, n=similar.count, ago=ago), ranges))),
    )


def _value_words(row: CardRow, rows: tuple[CardRow, ...], formatter: Formatter) -> str:
    value = cut_visible(formatter.value(row, rows), VALUE_CHARS)
    return formatter.text("similar.value", label=formatter.label(row.label), value=value)


def _range_words(numbers: NumberRange, rows: tuple[CardRow, ...], formatter: Formatter) -> str:
    row = numbers.row
    least, most = (formatter.value(replace(row, value=each), rows) for each in (numbers.least, numbers.most))
    label = formatter.label(row.label)
    if least == most:
        return formatter.text("similar.value", label=label, value=least)
    return formatter.text("similar.range", label=label, least=least, most=most)
