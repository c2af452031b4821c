"""Converts a question between its stored form and the short form that its turn keeps."""

from signoff.approvals import deadlines
from signoff.contracts.activity_messages import GateDecision, QuestionReference
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import same_arguments
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.message import CallPart


def reference_from_request(request: ApprovalRequest, call: CallPart) -> QuestionReference:
    same = {name: getattr(request, name) for name in QuestionReference.model_fields if name not in _MADE}
    is_editable = request.edit != "off"
    return QuestionReference(
        **same,
        effect=request.card.effect,
        note=request.card.note,
        rows=request.card.rows if is_editable else (),
        args=None if same_arguments(request.args.model_dump(), call.args.model_dump()) else request.args,
        definition=request.definition if request.edit_of else "",
    )


def request_from_reference(
    reference: QuestionReference, gate_decision: GateDecision, call: CallPart, ctx: CallContext
) -> ApprovalRequest:
    """Leaves out the data that only the store has. `gate_decision` is the gates' decision on `call`."""
    same = {name: getattr(reference, name) for name in QuestionReference.model_fields if name not in _MADE}
    turn = TurnKey(ctx.tenant, ctx.session, ctx.turn)
    request = ApprovalRequest(
        **same,
        id=ApprovalKey(turn, call.call).id,
        tenant=ctx.tenant,
        session=ctx.session,
        turn=ctx.turn,
        actor=ctx.actor,
        call=call.call,
        requester=ctx.user,
        channel=ctx.channel,
        tool=call.tool,
        digest=gate_decision.digest,
        rule=gate_decision.rule,
        definition=reference.definition,
        args=reference.args or call.args,
        card=Card(effect=reference.effect, rows=reference.rows, note=reference.note),
    )
    return request if request.opened_at is None else deadlines.open_request(request, request.opened_at)


_MADE = ("effect", "note", "rows", "args", "definition")
"""Fields of a reference that are not simply copied from the request."""
