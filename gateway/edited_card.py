"""A request as it would be asked with other arguments, for the eye alone: the gates make their own of what is sent."""

from collections.abc import Mapping
from typing import Any

from signoff.approvals.card import render_card
from signoff.contracts.approval import ApprovalRequest
from signoff.policy.model import ApprovalPolicy
from signoff.registry.tool import Tool


def as_edited(request: ApprovalRequest, args: Mapping[str, Any], tool: Tool | None) -> ApprovalRequest:
    """`request` with the card of `args`; `tool` is None where it is not known here."""
    policy = tool.requires_approval if tool is not None else None
    card = render_card(
        effect=tool.effect if tool is not None else "",
        title=tool.title if tool is not None else "",
        tool=request.tool,
        args=args,
        schema=tool.schema.schema if tool is not None else {},
        secrets=request.secrets,
        show=policy.show.only if isinstance(policy, ApprovalPolicy) else None,
    )
    return request.model_copy(update={"card": card})
