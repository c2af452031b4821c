"""Tickets and answers to their claims, as callers of the store get them, and their rows."""

from datetime import datetime
from typing import Any, Final, Literal

from sqlalchemy import Connection, Row, bindparam, select

from signoff.contracts.call import CallOutcome, LateReport
from signoff.contracts.frozen_model import FrozenModel
from signoff.store.tables import TICKETS, time_from_millis

ClaimKind = Literal["fresh", "done", "open", "void", "undone", "frozen", "ungranted", "used_up", "superseded", "other"]
TicketState = Literal["claimed", "done", "void"]
_OF_TURN: Final = select(TICKETS).where(TICKETS.c.workflow == bindparam("of")).order_by(TICKETS.c.claimed_at)
_TICKET: Final = select(TICKETS).where(TICKETS.c.key == bindparam("ticket"))


class Claim(FrozenModel):
    """The answer to a claim."""

    kind: ClaimKind
    """What the claimer may do.

    - `fresh`: the ticket is the caller's: run.
    - `done`: it ran; here is `outcome`.
    - `open`: somebody began, and never reported an outcome.
    - `void`: it must not run under this key any more.
    - `undone`: somebody began, and it is known to have come to nothing, so that the next ticket may be claimed.
    - `frozen`, `ungranted`, `used_up`: nothing was claimed, as the tenant is frozen, the grant has no use left, or the
      tool none until `again`.
    - `other`: nothing was claimed, as another action was begun or done under this call, or the key is another call's.
    - `superseded`: nothing was claimed, as the question behind it was asked anew or has ended meanwhile.
    """
    outcome: CallOutcome | None = None
    """The outcome of a `done` ticket."""
    frozen: str = ""
    """Why the tenant is frozen, also beside another kind; "" when it is not."""
    again: datetime | None = None
    """When a used-up tool may be used again, in UTC."""
    owner: str = ""
    """The use that held the ticket before this claim; "" where there was no ticket."""


class Ticket(FrozenModel):
    """One ticket as it lies in the store. Times by the store's own clock, in UTC."""

    key: str
    """The ticket's key; see `ticket_key`."""
    workflow: str
    """The workflow id of its turn."""
    call: str
    """The id of its call."""
    tool: str
    """The tool's name."""
    owner: str = ""
    """Of a call that its agent runs: the id of the try that used its permit."""
    nonce: str = ""
    """The nonce of the turn's principal."""
    state: TicketState
    """How far the ticket has come.

    A void one was never claimed, unless it has `finished_at`: then what was begun came to nothing.
    """
    outcome: CallOutcome | None = None
    """The recorded outcome."""
    claimed_at: datetime
    """When it was claimed."""
    finished_at: datetime | None = None
    """When its outcome was recorded."""
    seen_at: datetime | None = None
    """When its claimer last reported that it runs."""
    late_report: LateReport | None = None
    """The first report that its agent made too late."""

    @property
    def claim(self) -> Claim:
        """Returns the answer to a later claimer."""
        if self.state == "void" and self.finished_at is not None:
            return Claim(kind="undone")
        kind = "open" if self.state == "claimed" else self.state
        return Claim(kind=kind, outcome=self.outcome, owner=self.owner)


def ticket_key(digest: str, number: int) -> str:
    """Computes the key of a call's ticket: the digest, from the second ticket on with `/2`, `/3`.

    Raises ValueError for a number below 1.
    """
    if number < 1:
        raise ValueError("tickets are numbered from 1")
    return digest if number == 1 else f"{digest}/{number}"


def digest_of_key(key: str) -> str:
    """Returns the digest of the call that a ticket key belongs to."""
    return key.partition("/")[0]


def number_of_key(key: str) -> int:
    """Returns the number of a ticket within its call, counted from 1."""
    number = key.partition("/")[2]
    return int(number) if number.isdecimal() else 1


def earlier_keys(key: str) -> list[str]:
    """Returns the keys of the earlier tickets of the same call."""
    digest, _, number = key.rpartition("/")
    return [ticket_key(digest, each) for each in range(1, int(number))] if digest and number.isdecimal() else []


def read_ticket_row(connection: Connection, key: str) -> Ticket | None:
    """Returns the ticket `key` or None, in the caller's transaction."""
    row = connection.execute(_TICKET, {"ticket": key}).first()
    return None if row is None else _ticket(row)


def read_tickets(connection: Connection, workflow: str) -> list[Ticket]:
    """Returns every ticket of a turn, the first claimed first, in the caller's transaction."""
    return [_ticket(row) for row in connection.execute(_OF_TURN, {"of": workflow})]


def _ticket(row: Row[Any]) -> Ticket:
    fields = dict(row._mapping)
    outcome, finished, seen = fields.pop("outcome"), fields.pop("finished_at"), fields.pop("seen_at")
    late = fields.pop("late_report")
    return Ticket(
        **{**fields, "claimed_at": time_from_millis(fields["claimed_at"])},
        outcome=None if outcome is None else CallOutcome.model_validate_json(outcome),
        finished_at=None if finished is None else time_from_millis(finished),
        seen_at=None if seen is None else time_from_millis(seen),
        late_report=None if late is None else LateReport.model_validate_json(late),
    )
