"""Compares a waiting request with the reader's own approvals of the same tool."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from signoff.contracts.approval import ApprovalRequest, CardRow
from signoff.contracts.person import Person
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.history.past_reader import PastReader

COMPARED: Final = 100
"""The newest own approvals that are compared."""
_NUMBERS: Final = ("number", "integer")


@dataclass(frozen=True)
class NumberRange:
    """An argument's smallest and largest number among the compared approvals."""

    row: CardRow
    least: str
    most: str


@dataclass(frozen=True)
class SimilarApprovals:
    """The reader's own approvals of the same tool. Others' decisions never count."""

    count: int
    more: bool
    """True if older ones were not compared."""
    last: datetime
    """When the newest one was decided, in UTC."""
    differing: tuple[CardRow, ...]
    """The request's arguments unlike all of theirs: a number out of their range, or another value never seen there."""
    ranges: tuple[NumberRange, ...]


async def find_similar(deps: GatewayDeps, request: ApprovalRequest, person: Person) -> SimilarApprovals | None:
    """Return `None` without an own approval of the tool. Raises `StoreUnavailable`."""
    page = await PastReader(deps, request.tenant, person).find_own(request.tool, "approved", COMPARED)
    past = [each for each in page.decisions if each.id != request.id and each.kind == request.kind]
    if not past:
        return None
    return compare(request.card.rows, [each.rows for each in past], last=past[0].over_at, more=bool(page.next))


def compare(
    rows: Sequence[CardRow], past: Sequence[Sequence[CardRow]], *, last: datetime, more: bool
) -> SimilarApprovals:
    """`past` are the rows of each approval, which is at least one. Secrets are never compared."""
    seen: dict[str, list[CardRow]] = {}
    for row in (row for each in past for row in each if _is_compared(row)):
        seen.setdefault(row.name, []).append(row)
    compared = [row for row in rows if _is_compared(row)]
    return SimilarApprovals(
        count=len(past),
        more=more,
        last=last,
        differing=tuple(row for row in compared if _differs(row, seen.get(row.name, ()))),
        ranges=tuple(_ranges(compared, seen)),
    )


def _ranges(rows: Sequence[CardRow], seen: dict[str, list[CardRow]]) -> Iterator[NumberRange]:
    for row in rows:
        numbers = [found for each in seen.get(row.name, ()) if (found := _number(each)) is not None]
        if _number(row) is not None and numbers:
            yield NumberRange(row, str(min(numbers)), str(max(numbers)))


def _differs(row: CardRow, seen: Sequence[CardRow]) -> bool:
    number = _number(row)
    numbers = [found for each in seen if (found := _number(each)) is not None]
    if number is not None and numbers:
        return not min(numbers) <= number <= max(numbers)
    # The same beginning of a truncated value may hide another end.
    return row.cut or all(each.cut or each.value != row.value for each in seen)


def _is_compared(row: CardRow) -> bool:
    return row.name != "" and not row.secret


def _number(row: CardRow) -> Decimal | None:
    if row.format not in _NUMBERS or row.cut:
        return None
    try:
        number = Decimal(row.value)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
