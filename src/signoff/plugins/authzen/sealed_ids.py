"""Seals the ids of denials, tasks and approvals for enforcement points, so that nothing is stored in between."""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from signoff.calls import Sealer
from signoff.plugins.authzen.asked_call import AskedCall

SEAL: Final = "authzen"
"""The name of the sealing key."""
DENIAL_SECONDS: Final = 600.0
"""How long a denial can be followed by an access request."""
_DENIAL: Final = "authzen denial"
_TASK: Final = "authzen task"
_APPROVAL: Final = "authzen approval"


class SealedDenial(NamedTuple):
    """An opened denial: the digest of its call and its end."""

    digest: str
    expires_at: datetime


def seal_denial(sealer: Sealer, asked: AskedCall, now: datetime) -> tuple[str, datetime]:
    """The id is unique. Return its end, too."""
    until = (now + timedelta(seconds=DENIAL_SECONDS)).replace(microsecond=0)
    return sealer.seal(_DENIAL, [asked.digest, int(until.timestamp()), secrets.token_hex(8)]), until


def open_denial(sealer: Sealer, given: str) -> SealedDenial | None:
    """Return `None` if the id is not ours."""
    values = sealer.unseal(_DENIAL, given)
    return None if values is None else SealedDenial(values[0], datetime.fromtimestamp(values[1], UTC))


class SealedCall(NamedTuple):
    """The call of a task or approval, and its agent."""

    call: str
    agent: str


def seal_task(sealer: Sealer, of: SealedCall) -> str:
    """The id is always the same, and impossible to guess."""
    return sealer.seal(_TASK, list(of))


def open_task(sealer: Sealer, given: str) -> SealedCall | None:
    """Return `None` if the id is not ours."""
    return _open(sealer, _TASK, given)


def seal_approval(sealer: Sealer, of: SealedCall) -> str:
    return sealer.seal(_APPROVAL, list(of))


def open_approval(sealer: Sealer, given: str) -> SealedCall | None:
    """Return `None` if the id is not ours."""
    return _open(sealer, _APPROVAL, given)


def _open(sealer: Sealer, what: str, given: str) -> SealedCall | None:
    values = sealer.unseal(what, given)
    return None if values is None else SealedCall(*values)
