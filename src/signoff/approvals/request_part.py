"""Builds the part that represents an open request in a response envelope. Pure."""

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Content
from signoff.contracts.message import APPROVAL_REQUEST
from signoff.contracts.responses import AnswerLinks, ApprovalRequestPart
from signoff.contracts.turn import ResponsePart


def part_from_request(request: ApprovalRequest, where: AnswerLinks) -> ResponsePart:
    """Includes only the arguments on the card."""
    content = ApprovalRequestPart(
        approval_id=request.id,
        code=request.code,
        kind=request.kind,
        revision=request.revision,
        question_hash=request.question_hash,
        actor=request.actor,
        call=request.call,
        tool=request.tool,
        effect=request.card.effect,
        arguments=request.card.rows,
        whole=request.card.whole,
        expires_at=request.expires_at,
        **request.by_name(),
        where=where,
    )
    return ResponsePart(type=APPROVAL_REQUEST, content=Content(inline=content.model_dump(mode="json")))
