"""Writes grants in the transaction of the answer that completes them."""

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
    """Does nothing unless the answers settle `request` and agree on a grant."""
    agreed = agreed_grant(request)
    if agreed is None:
        return
    like, name = scope_of_call(request, agreed.wish, args), grant_id(request.id, request.revision, agreed.verdict)
    new = write_grant(
        connection,
        name,
        agreed.verdict,
        like,
        agreed.wish,
        people=agreed.people,
        approval_id=request.id,
        requester=request.requester.user,
        reason=agreed.votes[-1].reason,
        since=agreed.since,
    )
    entry = admin_entry(
        like.tenant,
        "remember",
        agreed.people[-1],
        at,
        kind="grant",
        key=f"remember/{name}",
        grant=name,
        verdict=agreed.verdict,
        people=list(agreed.people),
        approval=request.id,
        tool=like.tool,
        session=like.session,
        like=fingerprint(like.model_dump()),
        uses=agreed.wish.uses,
        seconds=agreed.wish.seconds,
    )
    if new:
        entry_writer([entry])(connection)
