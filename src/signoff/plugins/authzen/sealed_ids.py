"""Seals the ids that enforcement points carry: of denials, tasks and approvals. Nothing of them is kept in between."""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from signoff.calls import Sealer
from signoff.plugins.authzen.asked_call import AskedCall

SEAL: Final = "authzen"
"""The name of the key by which they are sealed."""
DENIAL_SECONDS: Final = 600.0
"""How long a denial can be followed by an access request."""
_DENIAL: Final = "authzen denial"
_TASK: Final = "authzen task"
_APPROVAL: Final = "authzen approval"


class SealedDenial(NamedTuple):
    """A denial whose id was opened: of which call, and until when it counts."""

    digest: str
    expires_at: datetime


def seal_denial(sealer: Sealer, asked: AskedCall, now: datetime) -> tuple[str, datetime]:
    """Returns the id of a requestable denial, no two of which are alike, and until when it counts."""
    until = (now + timedelta(seconds=DENIAL_SECONDS)).replace(microsecond=0)
    return sealer.seal(_DENIAL, [asked.digest, int(until.timestamp()), secrets.token_hex(8)]), until


def open_denial(sealer: Sealer, given: str) -> SealedDenial | None:
    """Opens the id of a denial; returns None for one that is not ours."""
    values = sealer.unseal(_DENIAL, given)
    return None if values is None else SealedDenial(values[0], datetime.fromtimestamp(values[1], UTC))


class SealedCall(NamedTuple):
    """A call whose task or approval was named: which, and of which agent."""

    call: str
    agent: str


def seal_task(sealer: Sealer, of: SealedCall) -> str:
    """Returns the id of the task of a call: always the same, and nobody can guess it."""
    return sealer.seal(_TASK, list(of))


def open_task(sealer: Sealer, given: str) -> SealedCall | None:
    """Returns the call of a task; None for an id that is not ours."""
    return _open(sealer, _TASK, given)


def seal_approval(sealer: Sealer, of: SealedCall) -> str:
    """Returns the id of the approval of a call."""
    return sealer.seal(_APPROVAL, list(of))


def open_approval(sealer: Sealer, given: str) -> SealedCall | None:
    """Returns the call that an approval is of; None for an id that is not ours."""
    return _open(sealer, _APPROVAL, given)


def _open(sealer: Sealer, what: str, given: str) -> SealedCall | None:
    values = sealer.unseal(what, given)
    return None if values is None else SealedCall(*values)
