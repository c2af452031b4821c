"""Builds the permit to run and record a call: only facts that the gates and the store confirm."""

from signoff.activities.permit_check import SignaturePolicy, StoredApproval, words_on
from signoff.contracts.call import Permit
from signoff.contracts.decision import Decision
from signoff.formats.replace import replace
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.registry.gates.local_decision import LocalGateDecision
from signoff.store.questions.approval_rows import ApprovalRows


def prove_permit(permit: Permit, found: LocalGateDecision, approval: StoredApproval | None) -> Permit:
    """Return `permit` with the present rule and answers that let its call run.

    Its own claims about approvers and rule are arbitrary input of the caller.
    """
    if permit.kind == "approved":
        return _add_answers(permit, approval)
    verdict = found.verdict
    by_rule = {"rule": verdict.rule, "policy_hash": verdict.policy_hash} if verdict is not None else {}
    return replace(_bare(permit), **by_rule, grant=found.grant)


def prove_for_probe(
    permit: Permit, approval: StoredApproval | None, policy: CompiledPolicy, signature_policy: SignaturePolicy
) -> Permit:
    """Return `permit` with the vouched answers to its call, without deriving its right to run."""
    if approval is None:
        return replace(_bare(permit), kind="auto")
    vouched = tuple(each for each in approval.decisions if _is_vouched(each, policy, signature_policy))
    return replace(_add_answers(permit, approval), decisions=vouched)


def undone(
    permit: Permit, rows: ApprovalRows | None, ticket: int, policy: CompiledPolicy, signature_policy: SignaturePolicy
) -> tuple[Decision, ...]:
    """Return the vouched answers that attempts before the one with number `ticket` did not happen."""
    asked = () if rows is None else rows.questions
    numbers = sorted({each.doubt_of for each in asked if each.kind == "in_doubt" and each.doubt_of < ticket})
    words = (word for number in numbers for word in words_on(permit, rows, number))
    return tuple(each for each in words if each.verdict == "approved" and _is_vouched(each, policy, signature_policy))


def _add_answers(permit: Permit, approval: StoredApproval | None) -> Permit:
    bare = _bare(permit)
    if approval is None:
        return bare
    question = approval.question
    return replace(
        bare,
        approval_id=question.id,
        revision=question.revision,
        rule=question.rule,
        policy_hash=question.policy_hash,
        override=question.override,
        decisions=approval.decisions,
    )


def _bare(permit: Permit) -> Permit:
    """Drop the claims. `_is_vouched` and the permit check test the signatures."""
    return Permit(kind=permit.kind, call=permit.call, digest=permit.digest, ctx=permit.ctx)


def _is_vouched(decision: Decision, policy: CompiledPolicy, signature_policy: SignaturePolicy) -> bool:
    accepts = policy.rules.accept_unsigned
    return decision.subject != "" and not signature_policy.decision_problem(decision, accept_unsigned=accepts)
