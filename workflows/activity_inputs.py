"""Builds the inputs of activities from a turn's state."""

from signoff.contracts.activity_messages import GateDecision
from signoff.contracts.approval import AskedQuestion
from signoff.contracts.call import CallContext, Permit
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace


def permit(ctx: CallContext, call: CallPart, gate_decision: GateDecision, asked: AskedQuestion | None) -> Permit:
    """Return the permit of a call that may run, by rule or because `asked` was approved.

    The worker that runs the call reads the answers from the store.
    """
    by_rule = Permit(
        kind="auto",
        call=call.call,
        digest=gate_decision.digest,
        ctx=ctx,
        grant=gate_decision.grant,
        override=gate_decision.override,
    )
    return by_rule if asked is None else replace(by_rule, kind="approved", revision=asked.revision)
