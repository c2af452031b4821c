"""The kill switch: the row first, from then on nothing starts; then what waits is withdrawn until nothing does."""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from signoff.client import Signoff
from signoff.contracts.decision import Decision
from signoff.contracts.errors import NotFound, Refused, ServerUnavailable
from signoff.contracts.grant import Swept
from signoff.contracts.listing import WaitingCard
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.listing import waiting
from signoff.registry.seats import rights

OPERATOR: Final = "admin"
"""The role that may freeze, thaw, stop others' turns, and take back what others had remembered."""
AUDITOR: Final = "auditor"
"""The role that may read all of a tenant: every conversation and its record. `OPERATOR` may, too."""
CLEAN_PASSES: Final = 2
"""How many passes in a row must find nothing: lists are a moment behind the turns."""
_AT_ONCE: Final = 10
_PAGE: Final = 1_000
_OVER: Final = ("already_decided", "cancelled", "expired", "unknown")
_NOT_OURS: Final = ("not_allowed", "assurance", "self_approval")

Sign = Callable[[Decision], Decision]


def is_operator(person: Person, approvers: Sequence[str], *, development: bool) -> bool:
    """Whether somebody may use the kill switch: it takes the role `admin`.

    In the development profile, where nobody proves who they are, any of the default `approvers` may.
    """
    listed = development and not set(rights(person)).isdisjoint(approvers)
    return person.active and (OPERATOR in person.roles or listed)


def check_operator(person: Person, approvers: Sequence[str], *, development: bool) -> None:
    """Raises `Refused` (`not_allowed`) for who is no operator, see `is_operator`."""
    if not is_operator(person, approvers, development=development):
        raise Refused(f"this takes the role `{OPERATOR}`, which `{person.id}` does not have", code="not_allowed")


async def sweep(
    signoff: Signoff,
    tenant: str,
    *,
    by: Person,
    reason: str,
    sign: Sign = lambda wish: wish,
    patience: float = 30.0,
    pause: float = 0.5,
) -> Swept:
    """Withdraw everything that waits in a tenant; passes are repeated until they find nothing, or `patience` is over.

    `sign` puts the gateway's signature on what `by` withdraws. Raises `ServerUnavailable`.
    """
    end = time.monotonic() + patience
    over: set[str] = set()
    kept: dict[str, None] = {}
    withdrawn = clean = 0
    while True:
        # Asked anew each pass: a call that was being judged when the row was written may still come to wait.
        cards = await waiting(signoff.temporal, tenant=tenant, limit=_PAGE)
        # By revision, as what an edit or a lapse asked again waits once more; what `by` may not end, by its id alone.
        found = [card for card in cards if _name(card) not in over and card.id not in kept]
        clean = 0 if found else clean + 1
        for start in range(0, len(found), _AT_ONCE):
            # They may all be of one turn, and a server takes ten Updates of a workflow at a time.
            page = found[start : start + _AT_ONCE]
            for card, receipt in zip(
                page, await asyncio.gather(*(_withdraw(signoff, card, by, reason, sign) for card in page)), strict=True
            ):
                withdrawn += receipt.status == "accepted"
                if receipt.status == "accepted" or receipt.code in _OVER:
                    over.add(_name(card))
                elif receipt.code in _NOT_OURS:
                    kept[card.id] = None
        left = [card.id for card in found if _name(card) not in over and card.id not in kept]
        # Asked after the pass, so that one is made however short the patience.
        if clean >= CLEAN_PASSES or time.monotonic() > end:
            return Swept(withdrawn=withdrawn, waiting=(*kept, *left))
        await asyncio.sleep(pause)


async def _withdraw(signoff: Signoff, card: WaitingCard, by: Person, reason: str, sign: Sign) -> Receipt:
    try:
        # The turn is asked, not the list: what is signed names the digest, which lists lack, and the latest revision.
        request = await signoff.request(card.id)
    except NotFound:
        return Receipt(status="refused", code="unknown", approval_id=card.id)
    except ServerUnavailable:
        # Neither over nor kept: the next pass tries again, and one turn that cannot be read stops no sweep.
        return Receipt(status="refused", code="unavailable", approval_id=card.id)
    wish = Decision(
        approval_id=card.id,
        revision=request.revision,
        digest=request.digest,
        verdict="withdrawn",
        reason=f"frozen: {reason}",
        subject=by.id,
        delivery_id=uuid.uuid4().hex,
        received_at=datetime.now(UTC),
    )
    return await signoff.withdraw(sign(wish))


def _name(card: WaitingCard) -> str:
    return f"{card.id}:{card.revision}"
