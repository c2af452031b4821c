"""Freezes a tenant, so that nothing new starts, and then withdraws all pending requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from signoff.contracts.content import Remark
from signoff.contracts.errors import NotFound, Refused, ServerUnavailable
from signoff.contracts.grant import SweepResult
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.responses import WaitingCard
from signoff.languages.remarks import worded
from signoff.people.eligibility import rights

OPERATOR: Final = "admin"
"""The role that may freeze and unfreeze, stop other people's turns, and revoke their remembered answers."""
AUDITOR: Final = "auditor"
"""The role that may read all of a tenant: every conversation and its audit log. `OPERATOR` may as well."""
CLEAN_PASSES: Final = 2
"""Number of successive empty passes required, because lists lag behind the turns."""
_AT_ONCE: Final = 10
_DONE: Final = ("accepted", "pending")
_OVER: Final = ("already_decided", "cancelled", "expired", "unknown")
_NOT_OURS: Final = ("not_allowed", "assurance", "self_approval")


def is_operator(person: Person, approvers: Sequence[str], *, development: bool) -> bool:
    """Return whether a person may freeze a tenant: it takes the role `admin`.

    The development profile, without proof of identity, also permits the default `approvers`.
    """
    listed = development and not set(rights(person)).isdisjoint(approvers)
    return person.active and (OPERATOR in person.roles or listed)


def check_operator(person: Person, approvers: Sequence[str], *, development: bool) -> None:
    """Raise `Refused` (`not_allowed`) unless the person is an operator."""
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
    """Withdraw requests in passes until none is found or `patience` seconds are over. The result names the rest.

    The first ten are always tried. `withdraw` takes an approval id and the reason. Raises the errors of both functions,
    except `NotFound` and `ServerUnavailable` of one request.
    """
    end = time.monotonic() + patience
    over: set[str] = set()
    kept: dict[str, None] = {}
    withdrawn = clean = 0
    while True:
        # List again for each pass: a call in judgement during the freeze may still open a request.
        cards = await waiting()
        # Compare by revision, because an edit or a lapse asks again. Requests that cannot be withdrawn compare by id
        # alone.
        found = [card for card in cards if _name(card) not in over and card.id not in kept]
        clean = 0 if found else clean + 1
        for start in range(0, len(found), _AT_ONCE):
            # With thousands of requests, return in time with the rest, so that the operator can freeze again.
            if start and time.monotonic() > end:
                break
            # All may belong to one turn, and a server accepts ten Updates of a workflow at a time.
            page = found[start : start + _AT_ONCE]
            receipts = await asyncio.gather(*(_withdrawn(withdraw, card, reason) for card in page))
            for card, receipt in zip(page, receipts, strict=True):
                withdrawn += receipt.status in _DONE
                if receipt.status in _DONE or receipt.code in _OVER:
                    over.add(_name(card))
                elif receipt.code in _NOT_OURS:
                    kept[card.id] = None
        left = [card.id for card in found if _name(card) not in over and card.id not in kept]
        # Check after the pass, so that at least one runs.
        if clean >= CLEAN_PASSES or time.monotonic() > end:
            return SweepResult(withdrawn=withdrawn, waiting=(*kept, *left))
        await asyncio.sleep(pause)


async def _withdrawn(withdraw: Callable[[str, str], Awaitable[Receipt]], card: WaitingCard, reason: str) -> Receipt:
    try:
        return await withdraw(card.id, f"frozen: {reason}")
    except NotFound:
        return Receipt(status="refused", code="unknown", approval_id=card.id)
    except ServerUnavailable:
        # Retry in the next pass: one unreadable turn must not stop the sweep.
        return Receipt(status="refused", code="unavailable", approval_id=card.id)


def _name(card: WaitingCard) -> str:
    return f"{card.id}:{card.revision}"
