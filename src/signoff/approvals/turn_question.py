"""Shortens a request to the question that its turn keeps."""

from signoff.contracts.approval import ApprovalRequest, TurnQuestion
from signoff.contracts.canonical_json import same_arguments
from signoff.contracts.message import CallPart


def turn_question(request: ApprovalRequest, call: CallPart | None) -> TurnQuestion:
    """Leaves out the fields that the turn knows from `call`, and the times, which it computes."""
    is_proposed = call is not None and same_arguments(request.args.model_dump(), call.args.model_dump())
    return TurnQuestion(
        **request.by_name(),
        kind=request.kind,
        code=request.code,
        revision=request.revision,
        question_hash=request.question_hash,
        effect=request.card.effect,
        note=request.card.note,
        level=request.level,
        opened_at=request.opened_at,
        args=None if is_proposed else request.args,
    )
