"""Writes remembered answers as rows, with the answer that completes them, in its transaction."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from signoff.approvals.audit_events import admin_entry, fingerprint
from signoff.approvals.grant_rules import agreed_grant, grant_id, scope_of_call
from signoff.audit.log import entry_writer
from signoff.contracts.approval import ApprovalRequest
from signoff.store.grants import write_grant


def write_agreed_grant(connection: Connection, request: ApprovalRequest, args: Mapping[str, Any], at: datetime) -> None:
    """Writes what the answers to `request` want remembered, if they settle it and agree, and that it was written."""
    found = agreed_grant(request)
    if found is None:
        return
    like, name = scope_of_call(request, found.wish, args), grant_id(request.id, request.revision, found.verdict)
    new = write_grant(
        connection,
        name,
        found.verdict,
        like,
        found.wish,
        people=found.people,
        approval_id=request.id,
        requester=request.requester.user,
        reason=found.votes[-1].reason,
        since=found.since,
    )
    entry = admin_entry(
        like.tenant,
        "remember",
        found.people[-1],
        at,
        kind="grant",
        key=f"remember/{name}",
        grant=name,
        verdict=found.verdict,
        people=list(found.people),
        approval=request.id,
        tool=like.tool,
        session=like.session,
        like=fingerprint(like.model_dump()),
        uses=found.wish.uses,
        seconds=found.wish.seconds,
    )
    if new:
        entry_writer([entry])(connection)
