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
    """The revision that waits."""
    tool: str = ""
    """The tool's name."""
    actor: str = ""
    """The actor that made the call."""
    effect: str = ""
    """The sentence that says what the call does."""
    requester: str = ""
    """The id of whoever asks."""
    approvers: tuple[str, ...] = ()
    """The approver entries that are asked."""
    opened_at: datetime | None = None
    """When it was asked, in UTC."""
    expires_at: datetime | None = None
    """Its deadline, in UTC."""
    kind: Literal["approval", "in_doubt"] = "approval"
    """As in `ApprovalRequest`."""
    reminded: int = 0
    """How many reminders there were."""
    escalated: bool = False
    """Whether it was escalated."""
    edited_by: str = ""
    """The name of the person who changed the arguments, or ""."""
    answered_by: tuple[str, ...] = ()
    """Ids of the people whose answers already count for this revision."""
    tenant: str = ""
    """The tenant."""
    session: str = ""
    """The session."""
    turn: str = ""
    """The turn."""


class TurnRow(FrozenModel):
    """One turn of a list."""

    id: str
    """`<tenant>.<session>.<turn>`, as the answer to the start has it."""
    tenant: str
    """The tenant."""
    session: str
    """The session."""
    turn: str
    """The turn."""
    workflow_id: str
    """The turn's workflow id."""
    run_id: str
    """The run."""
    state: str
    """The turn's state."""
    actor: str = ""
    """The turn's actor."""
    title: str = ""
    """The first words of the turn's message."""
    requester: str = ""
    """The id of whoever asked for the turn."""
    codes: tuple[str, ...] = ()
    """The short codes of its waiting requests."""
    approvers: tuple[str, ...] = ()
    """The approver entries that are or were asked by it."""
    due_at: datetime | None = None
    """The soonest deadline of its waiting requests, in UTC."""
    started_at: datetime | None = None
    """When it started, in UTC."""
    closed_at: datetime | None = None
    """When it ended, in UTC."""


class SessionRow(FrozenModel):
    """One session of a list."""

    tenant: str
    """The tenant."""
    session: str
    """The session."""
    title: str = ""
    """The first words said in it."""
    requester: str = ""
    """The id of the session's owner."""
    approvers: tuple[str, ...] = ()
    """The approver entries that its turns ask."""
    codes: tuple[str, ...] = ()
    """The short codes of its turns' waiting requests."""
    started_at: datetime | None = None
    """When it began, or was last carried over into a new run, in UTC."""
