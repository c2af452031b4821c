"""Seals the ids that enforcement points carry: of denials, tasks and approvals. Nothing of them is kept in between."""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from signoff.gateway.signed_state import seal, unseal
from signoff.plugins.authzen.asked_call import AskedCall

AUTHZEN_KEY: Final = "authzen-ids"
"""The store's key by which they are sealed."""
DENIAL_SECONDS: Final = 600.0
"""How long a denial can be followed by an access request."""
_DENIAL: Final = "authzen denial"
_TASK: Final = "authzen task"
_APPROVAL: Final = "authzen approval"


class SealedDenial(NamedTuple):
    """A denial whose id was opened: of which call, and until when it counts."""

    digest: str
    expires_at: datetime


def seal_denial(key: bytes, asked: AskedCall, now: datetime) -> tuple[str, datetime]:
    """Returns the id of a requestable denial, no two of which are alike, and until when it counts."""
    until = (now + timedelta(seconds=DENIAL_SECONDS)).replace(microsecond=0)
    return seal(key, _DENIAL, [asked.digest, int(until.timestamp()), secrets.token_hex(8)]), until


def open_denial(key: bytes, given: str) -> SealedDenial | None:
    """Opens the id of a denial; returns None for one that is not ours."""
    values = unseal(key, _DENIAL, given)
    return None if values is None else SealedDenial(values[0], datetime.fromtimestamp(values[1], UTC))


class SealedCall(NamedTuple):
    """A call whose task or approval was named: which, and of which agent."""

    call: str
    agent: str


def seal_task(key: bytes, of: SealedCall) -> str:
    """Returns the id of the task of a call: always the same, and nobody can guess it."""
    return seal(key, _TASK, list(of))


def open_task(key: bytes, given: str) -> SealedCall | None:
    """Returns the call of a task; None for an id that is not ours."""
    return _open(key, _TASK, given)


def seal_approval(key: bytes, of: SealedCall) -> str:
    """Returns the id of the approval of a call."""
    return seal(key, _APPROVAL, list(of))


def open_approval(key: bytes, given: str) -> SealedCall | None:
    """Returns the call that an approval is of; None for an id that is not ours."""
    return _open(key, _APPROVAL, given)


def _open(key: bytes, what: str, given: str) -> SealedCall | None:
    values = unseal(key, what, given)
    return None if values is None else SealedCall(*values)
