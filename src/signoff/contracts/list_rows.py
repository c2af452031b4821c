"""Rows of lists, filled from visibility and the store without a workflow."""

from datetime import datetime
from typing import Literal

from signoff.contracts.frozen_model import FrozenModel


class WaitingCard(FrozenModel):
    """One waiting request, in short."""

    id: str
    """The approval id."""
    code: str
    """The short code."""
    revision: int = 1
    """The waiting revision."""
    tool: str = ""
    actor: str = ""
    """The actor of the call."""
    effect: str = ""
    """The sentence that describes the effect."""
    requester: str = ""
    """The requester's id."""
    approvers: tuple[str, ...] = ()
    """The approver entries of the request."""
    opened_at: datetime | None = None
    """When it was asked, in UTC."""
    expires_at: datetime | None = None
    """Its deadline, in UTC."""
    kind: Literal["approval", "in_doubt"] = "approval"
    """As in `ApprovalRequest`."""
    reminded: int = 0
    """Number of reminders."""
    escalated: bool = False
    """True after an escalation."""
    edited_by: str = ""
    """The name of the arguments' editor, or ""."""
    answered_by: tuple[str, ...] = ()
    """Ids of the people with counted answers to this revision."""
    tenant: str = ""
    session: str = ""
    turn: str = ""


class TurnRow(FrozenModel):
    """One turn of a list."""

    id: str
    """`<tenant>.<session>.<turn>`, as in the answer to the start."""
    tenant: str
    session: str
    turn: str
    workflow_id: str
    """The turn's workflow id."""
    run_id: str
    state: str
    actor: str = ""
    title: str = ""
    """The start of the turn's message."""
    requester: str = ""
    """The requester's id."""
    codes: tuple[str, ...] = ()
    """The short codes of its waiting requests."""
    approvers: tuple[str, ...] = ()
    """The approver entries of its present and past requests."""
    due_at: datetime | None = None
    """The earliest deadline of its waiting requests, in UTC."""
    started_at: datetime | None = None
    """When it started, in UTC."""
    closed_at: datetime | None = None
    """When it ended, in UTC."""


class SessionRow(FrozenModel):
    """One session of a list."""

    tenant: str
    session: str
    title: str = ""
    """The start of its first message."""
    requester: str = ""
    """The id of the session's owner."""
    approvers: tuple[str, ...] = ()
    """The approver entries of its turns' requests."""
    codes: tuple[str, ...] = ()
    """The short codes of its turns' waiting requests."""
    started_at: datetime | None = None
    """When it began, or continued in a new run, in UTC."""
