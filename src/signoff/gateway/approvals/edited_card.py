"""Draws the card of edited arguments."""

from collections.abc import Mapping
from typing import Any

from signoff.approvals.card import render_card
from signoff.approvals.redaction import hide
from signoff.contracts.approval import ApprovalRequest
from signoff.formats.replace import replace
from signoff.registry.catalog import Catalog


def edited_request(request: ApprovalRequest, args: Mapping[str, Any], catalog: Catalog | None) -> ApprovalRequest:
    """The card of `args` shows the same arguments as the current policy, like the gates.

    `args` are the editor's view, with masks. The editor's own values are never hidden: that would reveal that one is a
    secret. `catalog` is `None` if unknown. If the catalog has a changed tool, the card shows no more than the earlier
    one.
    """
    tool = None if catalog is None else catalog.find_definition(request.tool, request.definition)
    show = _on_card(request)
    if catalog is not None and tool is not None and tool.definition == request.definition:
        show = catalog.policy(tool.activity).rules.show.only
    card = render_card(
        effect=tool.effect if tool is not None else "",
        title=tool.title if tool is not None else "",
        tool=request.tool,
        args=hide(args, request.secrets, lambda _: None),
        schema=tool.schema.schema if tool is not None else {},
        secrets=request.secrets,
        show=show,
    )
    # Keep the old rows of hidden values: otherwise an unchanged value would look changed.
    hidden = {row.name: row for row in request.card.rows if row.secret}
    rows = tuple(hidden.get(row.name, row) if row.secret else row for row in card.rows)
    return replace(request, card=replace(card, rows=rows))


def _on_card(request: ApprovalRequest) -> tuple[str, ...] | None:
    rows = request.card.rows
    return tuple(row.name for row in rows if row.name) if any(not row.name for row in rows) else None
