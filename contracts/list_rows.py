"""Rows of lists: what visibility and the store can tell, without asking any workflow."""

from datetime import datetime
from typing import Literal

from signoff.contracts.frozen_model import Shape


class WaitingCard(Shape):
    """One request that waits, in short. `kind` as in `ApprovalRequest`; `edited_by` is the name of who changed it."""

    id: str
    code: str
    revision: int = 1
    tool: str = ""
    actor: str = ""
    effect: str = ""
    requester: str = ""
    approvers: tuple[str, ...] = ()
    opened_at: datetime | None = None
    expires_at: datetime | None = None
    kind: Literal["approval", "in_doubt"] = "approval"
    reminded: int = 0
    escalated: bool = False
    edited_by: str = ""
    tenant: str = ""
    session: str = ""
    turn: str = ""


class TurnRow(Shape):
    """One turn of a list. `codes` are the short codes of what waits in it, `approvers` who is or was asked by it."""

    tenant: str
    session: str
    turn: str
    workflow_id: str
    run_id: str
    state: str
    actor: str = ""
    title: str = ""
    requester: str = ""
    codes: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()
    due_at: datetime | None = None
    started_at: datetime | None = None
    closed_at: datetime | None = None


class SessionRow(Shape):
    """One session of a list. `requester` is whose it is; `codes` of what waits in its turns, for `approvers`.

    `started_at` is when it began, or was last carried over into a new run.
    """

    tenant: str
    session: str
    title: str = ""
    requester: str = ""
    approvers: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    started_at: datetime | None = None
