"""Orders terms: of several values the strictest counts. Pure."""

from collections.abc import Mapping
from functools import reduce
from typing import Final, TypeVar

from signoff.contracts.approval import Stricter, Terms, TermValues
from signoff.formats.replace import replace

_Values = TypeVar("_Values", bound=TermValues)
ORDERS: Final[Mapping[str, Stricter]] = {
    name: order
    for name, field in TermValues.model_fields.items()
    for order in field.metadata
    if isinstance(order, Stricter)
}
_UNCOMPARED: Final = ("groups", "escalate_after", "escalate_to")


def tighten(terms: _Values, *others: TermValues) -> _Values:
    """Return `terms` with values as strict as those of all, and all else unchanged."""
    given = (terms, *others)
    return replace(
        terms, **{name: reduce(order, (getattr(each, name) for each in given)) for name, order in ORDERS.items()}
    )


def are_stricter(terms: Terms, question: Terms) -> bool:
    """Return whether `terms` ask for more than `question`, or for other groups. The escalation does not matter."""
    tightened = tighten(question, terms)
    asked = {(frozenset(group.of), group.quorum) for group in question.groups}
    others = any((frozenset(group.of), group.quorum) not in asked for group in terms.groups)
    compared = ORDERS.keys() - _UNCOMPARED
    return others or any(getattr(tightened, name) != getattr(question, name) for name in compared)
