"""Runs the kill switch: writes the freeze, after which nothing starts; then withdraws waiting requests until none is
left.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from signoff.contracts.content import Remark
from signoff.contracts.errors import NotFound, Refused, ServerUnavailable
from signoff.contracts.grant import SweepResult
from signoff.contracts.list_rows import WaitingCard
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.languages.remarks import worded
from signoff.people.eligibility import rights

OPERATOR: Final = "admin"
"""The role that may freeze, thaw, stop others' turns, and take back what others had remembered."""
AUDITOR: Final = "auditor"
"""The role that may read all of a tenant: every conversation and its record. `OPERATOR` may, too."""
CLEAN_PASSES: Final = 2
"""How many passes in a row must find nothing: lists are a moment behind the turns."""
_AT_ONCE: Final = 10
_DONE: Final = ("accepted", "pending")
_OVER: Final = ("already_decided", "cancelled", "expired", "unknown")
_NOT_OURS: Final = ("not_allowed", "assurance", "self_approval")


def is_operator(person: Person, approvers: Sequence[str], *, development: bool) -> bool:
    """Returns whether somebody may use the kill switch: it takes the role `admin`.

    In the development profile, where nobody proves who they are, any of the default `approvers` may.
    """
    listed = development and not set(rights(person)).isdisjoint(approvers)
    return person.active and (OPERATOR in person.roles or listed)


def check_operator(person: Person, approvers: Sequence[str], *, development: bool) -> None:
    """Raises `Refused` (`not_allowed`) for anybody who is no operator, see `is_operator`."""
    if not is_operator(person, approvers, development=development):
        raise worded(Refused, Remark.of("role", role=OPERATOR, who=person.id), code="not_allowed")


async def sweep(
    waiting: Callable[[], Awaitable[Sequence[WaitingCard]]],
    withdraw: Callable[[str, str], Awaitable[Receipt]],
    reason: str,
    *,
    patience: float = 30.0,
    pause: float = 0.5,
) -> SweepResult:
    """Withdraws everything that waits in a tenant, in passes until one finds nothing or `patience` (seconds) is over.

    Requests that are left are named; the first ten of them were tried however short the patience. `waiting` lists the
    requests; `withdraw` takes an approval id and the reason. Raises what they raise, but for `NotFound` and
    `ServerUnavailable` of one request.
    """
    end = time.monotonic() + patience
    over: set[str] = set()
    kept: dict[str, None] = {}
    withdrawn = clean = 0
    while True:
        # Asked anew each pass: a call that was being judged when the row was written may still come to wait.
        cards = await waiting()
        # By revision, as what an edit or a lapse asked again waits once more; what nobody may end, by its id alone.
        found = [card for card in cards if _name(card) not in over and card.id not in kept]
        clean = 0 if found else clean + 1
        for start in range(0, len(found), _AT_ONCE):
            # Thousands may wait: whoever freezes is told in time what is left, and freezes again.
            if start and time.monotonic() > end:
                break
            # They may all be of one turn, and a server takes ten Updates of a workflow at a time.
            page = found[start : start + _AT_ONCE]
            receipts = await asyncio.gather(*(_withdrawn(withdraw, card, reason) for card in page))
            for card, receipt in zip(page, receipts, strict=True):
                withdrawn += receipt.status in _DONE
                if receipt.status in _DONE or receipt.code in _OVER:
                    over.add(_name(card))
                elif receipt.code in _NOT_OURS:
                    kept[card.id] = None
        left = [card.id for card in found if _name(card) not in over and card.id not in kept]
        # Asked after the pass, so that one is made however short the patience.
        if clean >= CLEAN_PASSES or time.monotonic() > end:
            return SweepResult(withdrawn=withdrawn, waiting=(*kept, *left))
        await asyncio.sleep(pause)


async def _withdrawn(withdraw: Callable[[str, str], Awaitable[Receipt]], card: WaitingCard, reason: str) -> Receipt:
    try:
        return await withdraw(card.id, f"frozen: {reason}")
    except NotFound:
        return Receipt(status="refused", code="unknown", approval_id=card.id)
    except ServerUnavailable:
        # Neither over nor kept: the next pass tries again, and one turn that cannot be read stops no sweep.
        return Receipt(status="refused", code="unavailable", approval_id=card.id)


def _name(card: WaitingCard) -> str:
    return f"{card.id}:{card.revision}"
