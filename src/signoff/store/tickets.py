"""Tickets and replies to claims, as the store's callers see them, and their rows."""

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
    """The reply to a claim."""

    kind: ClaimKind
    """The result of the claim.

    - `fresh`: the caller has the ticket and may run.
    - `done`: it has run, with this `outcome`.
    - `open`: a claimer began and never reported an outcome.
    - `void`: it must not run under this key any longer.
    - `undone`: a claimer began, but without effect, so that the next ticket may be claimed.
    - `frozen`, `ungranted`, `used_up`: nothing was claimed, because the tenant is frozen, the grant has no use left, or
      the tool has none until `again`.
    - `other`: nothing was claimed, because this call has another action, begun or done, or the key is another call's.
    - `superseded`: nothing was claimed, because the question behind it was asked again or has ended.
    """
    outcome: CallOutcome | None = None
    """The outcome of a `done` ticket."""
    frozen: str = ""
    """The reason for the tenant's freeze, also with other kinds, or ""."""
    again: datetime | None = None
    """The time, in UTC, at which a used-up tool may be used again."""
    owner: str = ""
    """The attempt that held the ticket before this claim, or "" if there was no ticket."""


class Ticket(FrozenModel):
    """One ticket in the store. Times are by the store's clock, in UTC."""

    key: str
    """The ticket's key; see `ticket_key`."""
    workflow: str
    call: str
    tool: str
    owner: str = ""
    """For a call that its agent runs, the id of the attempt that used its permit."""
    nonce: str = ""
    """The nonce of the turn's principal."""
    state: TicketState
    """The progress of the ticket.

    A void ticket was never claimed, unless it has `finished_at`: then its action had no effect.
    """
    outcome: CallOutcome | None = None
    claimed_at: datetime
    finished_at: datetime | None = None
    """The time at which its outcome was recorded."""
    seen_at: datetime | None = None
    """The time of its claimer's last heartbeat."""
    late_report: LateReport | None = None
    """The first late report of its agent."""

    @property
    def claim(self) -> Claim:
        """Return the reply to a later claimer."""
        if self.state == "void" and self.finished_at is not None:
            return Claim(kind="undone")
        kind = "open" if self.state == "claimed" else self.state
        return Claim(kind=kind, outcome=self.outcome, owner=self.owner)


def ticket_key(digest: str, number: int) -> str:
    """The key is the digest, followed by `/2`, `/3` from the second ticket on.

    Raises `ValueError` for a number below 1.
    """
    if number < 1:
        raise ValueError("tickets are numbered from 1")
    return digest if number == 1 else f"{digest}/{number}"


def digest_of_key(key: str) -> str:
    return key.partition("/")[0]


def number_of_key(key: str) -> int:
    """Tickets count from 1."""
    number = key.partition("/")[2]
    return int(number) if number.isdecimal() else 1


def earlier_keys(key: str) -> list[str]:
    digest, _, number = key.rpartition("/")
    return [ticket_key(digest, each) for each in range(1, int(number))] if digest and number.isdecimal() else []


def read_ticket_row(connection: Connection, key: str) -> Ticket | None:
    row = connection.execute(_TICKET, {"ticket": key}).first()
    return None if row is None else _ticket(row)


def read_tickets(connection: Connection, workflow: str) -> list[Ticket]:
    """In the order of their claims."""
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
