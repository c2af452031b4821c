"""Draws a request as it would be asked with other arguments, for the eye alone: the gates make their own of what is
sent.
"""

from collections.abc import Mapping
from typing import Any

from signoff.approvals.card import render_card
from signoff.approvals.redaction import hide
from signoff.contracts.approval import ApprovalRequest
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog


def edited_request(request: ApprovalRequest, args: Mapping[str, Any], catalog: Catalog | None) -> ApprovalRequest:
    """Returns `request` with the card of `args`, which shows of them what the policy that counts does, as the gates
    would.

    `args` are as whoever changed them has them, masks included. Nothing that they wrote is hidden for being a secret
    value, by which they would find out that it is one. `catalog` is None where none is known. Where it has another tool
    by now, the card shows no more than the one before.
    """
    tool = None if catalog is None else catalog.find_definition(request.tool, request.definition)
    show = _on_card(request)
    if catalog is not None and tool is not None and tool.definition == request.definition:
        show = (catalog.policy(tool.activity).policy or ApprovalPolicy()).show.only
    card = render_card(
        effect=tool.effect if tool is not None else "",
        title=tool.title if tool is not None else "",
        tool=request.tool,
        args=hide(args, request.secrets, lambda _: None),
        schema=tool.schema.schema if tool is not None else {},
        secrets=request.secrets,
        show=show,
    )
    # Of hidden values the old card's rows: a value that was left as it is would else look like a changed one.
    hidden = {row.name: row for row in request.card.rows if row.secret}
    rows = tuple(hidden.get(row.name, row) if row.secret else row for row in card.rows)
    return request.model_copy(update={"card": card.model_copy(update={"rows": rows})})


def _on_card(request: ApprovalRequest) -> tuple[str, ...] | None:
    """Returns what the card of `request` shows; None where that is everything, as it says of nothing that it is left
    out.
    """
    rows = request.card.rows
    return tuple(row.name for row in rows if row.name) if any(not row.name for row in rows) else None
