"""Tickets as their callers see them."""

from datetime import datetime
from typing import Literal

from signoff.contracts.call import CallOutcome
from signoff.contracts.frozen_model import Shape

ClaimKind = Literal["fresh", "done", "open", "void", "undone", "frozen", "ungranted", "used_up", "superseded", "other"]
TicketState = Literal["claimed", "done", "void"]


class Claim(Shape):
    """The answer to a claim.

    `fresh`: it is the caller's, run; `done`: it ran, here is `outcome`; `open`: somebody began and never told what
    became of it; `void`: it must not run under this key any more; `undone`: somebody began, and it is known to have
    come to nothing, so that the next ticket may be claimed. `frozen`, `ungranted` and `used_up`: nothing was
    claimed, as the tenant is frozen, the grant has no use left, or the tool none until `again`. `other`: nothing was
    claimed, as another action was begun or done under this call, or the key is another call's. `superseded`: nothing
    was claimed, as the question behind it was asked anew or has ended meanwhile. `frozen` is why the
    tenant is, also beside another kind.
    """

    kind: ClaimKind
    outcome: CallOutcome | None = None
    frozen: str = ""
    again: datetime | None = None


class Ticket(Shape):
    """One ticket as it lies in the store. Times by the store's own clock, in UTC.

    A void one was never claimed, unless it is `finished_at`: then what was begun came to nothing.
    """

    key: str
    workflow: str
    call: str
    tool: str
    owner: str = ""
    nonce: str = ""
    state: TicketState
    outcome: CallOutcome | None = None
    claimed_at: datetime
    finished_at: datetime | None = None
    seen_at: datetime | None = None

    @property
    def claim(self) -> Claim:
        """What a later claimer is told."""
        if self.state == "void" and self.finished_at is not None:
            return Claim(kind="undone")
        return Claim(kind="open" if self.state == "claimed" else self.state, outcome=self.outcome)


def ticket_key(digest: str, number: int) -> str:
    """The key of a call's ticket: the digest, from the second ticket on with `/2`, `/3`.

    Raises ValueError for a number below 1.
    """
    if number < 1:
        raise ValueError("tickets are numbered from 1")
    return digest if number == 1 else f"{digest}/{number}"


def digest_of_key(key: str) -> str:
    """The digest of the call whose ticket this is the key of."""
    return key.partition("/")[0]


def number_of_key(key: str) -> int:
    """Which of the tickets of its call this is the key of, counted from 1."""
    number = key.partition("/")[2]
    return int(number) if number.isdecimal() else 1


def earlier_keys(key: str) -> list[str]:
    """The keys of the tickets that the same call had before this one."""
    digest, _, number = key.rpartition("/")
    return [ticket_key(digest, each) for each in range(1, int(number))] if digest and number.isdecimal() else []
