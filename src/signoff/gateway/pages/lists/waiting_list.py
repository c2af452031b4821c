"""The rows of the list of waiting requests: filtered, and grouped for several decisions at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final
from urllib.parse import urlencode

from signoff.contracts.responses import WaitingCard
from signoff.texts.formatter import FormattedTime, Formatter

PAGE: Final = 15
"""Requests on a page. More open by a link, so that the first page is as quick with thousands of requests."""
LISTED: Final = 200
_AMOUNT_CHARS: Final = 30
_MONEY_PLACES: Final = 2


@dataclass(frozen=True)
class InboxRow:
    """One request of the list."""

    card: WaitingCard
    requester: str
    amount: str
    """The amount of money as read, or ""."""
    due: FormattedTime | None
    due_in: str
    soon: bool
    """Whether less than an hour is left."""
    together: bool
    """Whether it may be decided with others."""
    answered: bool
    """Whether the visitor's vote already counts. The request waits for others."""
    taken: str = ""
    """The words about the person who has taken it, or ""."""


@dataclass(frozen=True)
class WaitingFilter:
    """The active filters. An empty one matches all.

    `least` and `most` are amounts of any currency. `several` is true while the visitor selects several requests, `all`
    for the long list.
    """

    actor: str = ""
    tool: str = ""
    team: str = ""
    requester: str = ""
    least: str = ""
    most: str = ""
    several: bool = False
    all: bool = False

    @property
    def any(self) -> bool:
        return bool(self.actor or self.tool or self.team or self.requester or self.least or self.most)

    @property
    def limit(self) -> int:
        return LISTED if self.all or self.several or self.any else PAGE

    @property
    def query(self) -> Mapping[str, str]:
        """The filters as in the address."""
        return {name: value for name, value in vars(self).items() if isinstance(value, str) and value}

    def matches(self, card: WaitingCard) -> bool:
        """Return whether all filters match, without regard to amounts, which need the arguments."""
        return (
            self.actor in ("", card.actor)
            and self.tool in ("", card.tool)
            and self.requester in ("", card.requester)
            and (not self.team or f"role:{self.team}" in card.approvers)
        )

    def longer(self) -> str:
        """Return the address of the long list."""
        return f"/?{urlencode({**self.query, 'all': '1'})}"


@dataclass(frozen=True)
class RowGroup:
    """Requests of one tool for one requester."""

    tool: str
    requester: str
    count: int
    sums: str
    """The sum of the amounts, one for each currency, or "" if a request has none."""
    address: str
    """The page that shows and decides them."""


def filter_in(query: Mapping[str, str]) -> WaitingFilter:
    """Ignore an amount that is no number."""
    names = ("actor", "tool", "team", "requester")
    amounts = {name: query.get(name, "").strip() for name in ("least", "most")}
    return WaitingFilter(
        **{name: query.get(name, "") for name in names},
        **{name: value for name, value in amounts.items() if amount_in(value) is not None},
        several="choose" in query,
        all="all" in query,
    )


def passes(card: WaitingCard, choice: WaitingFilter) -> bool:
    amount, least, most = (amount_in(each) for each in (card.amount, choice.least, choice.most))
    bounded = least is not None or most is not None
    return (
        choice.matches(card)
        and not (bounded and amount is None)
        and not (amount is not None and least is not None and amount < least)
        and not (amount is not None and most is not None and amount > most)
    )


def amount_in(written: str) -> Decimal | None:
    """Return `None` for a text that is no finite number."""
    try:
        amount = Decimal(written[:_AMOUNT_CHARS]) if written else None
    except InvalidOperation:
        return None
    return amount if amount is not None and amount.is_finite() else None


def amount_words(card: WaitingCard, formatter: Formatter) -> str:
    amount = amount_in(card.amount)
    return "" if amount is None else f"{formatter.number(amount, _MONEY_PLACES)} {card.currency}".strip()


def sum_words(cards: Iterable[tuple[str, str]], formatter: Formatter) -> str:
    """Write the sums of amounts and currencies, such as `200.00 EUR, 35.00 USD`. "" if one has no amount."""
    sums: dict[str, Decimal] = {}
    for written, currency in cards:
        amount = amount_in(written)
        if amount is None:
            return ""
        sums[currency] = sums.get(currency, Decimal(0)) + amount
    return ", ".join(f"{formatter.number(total, _MONEY_PLACES)} {currency}".strip() for currency, total in sums.items())


def group_rows(
    rows: Sequence[InboxRow], titles: Mapping[str, str], formatter: Formatter, most: int
) -> tuple[RowGroup, ...]:
    """Group the rows that may be decided together, by tool and requester.

    Leaves out single ones, and counts at most the first `most` of a group.
    """
    found: dict[tuple[str, str], list[InboxRow]] = {}
    for row in rows:
        if row.together and not row.answered:
            found.setdefault((row.card.tool, row.card.requester), []).append(row)
    return tuple(
        RowGroup(
            tool=titles.get(tool) or tool,
            requester=some[0].requester,
            count=len(some),
            sums=sum_words(((row.card.amount, row.card.currency) for row in some), formatter),
            address=f"/batch?{urlencode([('pick', row.card.id) for row in some])}",
        )
        for (tool, _), every in found.items()
        if len(some := every[:most]) > 1
    )
