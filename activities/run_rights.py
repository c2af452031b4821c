"""Derives the right to run a call from the present catalog, policy and people, and the stored answers.

Checks every claim of a turn's permit again.
"""

import asyncio
from typing import Any, NamedTuple

from sqlalchemy import Connection

from signoff.activities.approval_reader import ApprovalReader, approval_id_of, doubts_of
from signoff.activities.gate_activity import digest_of
from signoff.activities.grant_use import GrantUse
from signoff.activities.hooks.policy_handlers import terms_at
from signoff.activities.hooks.tool_hooks import judge_call
from signoff.activities.permit_check import approval_of, ask_if_doubted, check_permit, is_given_up, undone_by
from signoff.activities.refused_calls import RefusedCalls, own_ticket
from signoff.activities.stored_permit import prove_permit, undone
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.earlier_questions import denial_of, is_barred
from signoff.approvals.tightening import tighten
from signoff.contracts.activity_messages import ToolReply, ToolTask
from signoff.contracts.approval import Question, TermValues
from signoff.contracts.call import PERMISSION_RULE, Permit
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.policy.terms import VerdictTerms
from signoff.registry.gates.local_decision import LocalGateDecision
from signoff.registry.hooks import override_hash
from signoff.registry.tool import Tool
from signoff.store.questions.approval_rows import ApprovalRows, lock_approval, read_rows, read_rows_anew

CHANGED = "the tool changed while the request was waiting"
_EARLIER_IN_DOUBT = (
    "Not run again: it is not known whether an earlier try of this call happened, and too few people have said that it "
    "did not; do not repeat it."
)


class RunRight(NamedTuple):
    """The derived right to run a call: its judgement, its permit without claims, and the rows of its approval."""

    decision: LocalGateDecision
    permit: Permit
    rows: ApprovalRows | None


class RunRights:
    """Derives the right to run calls of one tool."""

    def __init__(self, deps: WorkerDeps, tool: Tool, refused: RefusedCalls) -> None:
        self._deps = deps
        self._tool = tool
        self._refused = refused
        self._remembered = GrantUse(deps)
        self._approvals = ApprovalReader(deps)

    async def derive(self, task: ToolTask, args: Any) -> ToolReply | RunRight:
        """Returns the reply if the call does not run."""
        found = await self._judge(task, args)
        if isinstance(found, ToolReply):
            return await self._refused.earlier_reply(task) or found
        return found._replace(permit=replace(found.permit, doubts=await self._undone(task)))

    async def earlier_reply(self, task: ToolTask, args: Any, found: LocalGateDecision) -> ToolReply | None:
        """Return the reply that earlier tickets of the call require.

        `None`: each ticket is void, or approvers said that the attempt did not happen.
        """
        permit, policy, signature_policy = (
            task.permit,
            self._deps.catalog.policy(self._tool.activity),
            self._deps.signature_policy,
        )
        # `ticket_key` raises for numbers below 1, and Temporal would retry an escaped error without end.
        not_given_up = "an earlier ticket of this call was not given up"
        if task.ticket < 1:
            return await self._refused.refuse(task, not_given_up)
        if task.ticket == 1:
            return None
        rows = await self._approvals.of(permit)
        asked = () if rows is None else rows.questions
        quorum = tighten(TermValues(), *asked).quorum
        for number in range(1, task.ticket):
            earlier = await own_ticket(self._deps, task, number)
            if earlier is not None and earlier.state == "void":
                continue
            outcome = None if earlier is None else earlier.outcome
            if outcome is not None and outcome.code != "in_doubt":
                # Its worker was slow, not lost: despite the approvers' answers, this is the outcome.
                return ToolReply(outcome=outcome)
            if earlier is None:
                return await self._refused.earlier_reply(task) or await self._refused.refuse(task, not_given_up)
            words = undone_by(permit, rows, number)
            doubts = doubts_of(rows)
            terms = await self._terms(permit, args, found, doubts[-1] if doubts else None)
            # Approvers decide about an unknown outcome even if the policy denies the call.
            terms = terms or self._deps.catalog.terms(self._tool.activity, found.verdict)
            voters = await self._approvals.voters(permit, self._tool.activity, terms, words, doubts)
            if not is_given_up(words, quorum, policy, signature_policy, voters):
                why = "an earlier ticket of this call is in doubt and was not given up"
                left = await self._refused.earlier_reply(task)
                return left or await self._refused.refuse(task, why, _EARLIER_IN_DOUBT)
        return None

    def holds(self, right: RunRight, connection: Connection) -> bool:
        """Return whether the basis of `right` still holds. Called while claiming the call's ticket."""
        check = self._still_holds if right.permit.kind == "approved" else self._is_unbarred
        return check(right, connection)

    @property
    def needs_nobody(self) -> bool:
        return self._deps.catalog.needs_nobody(self._tool.activity)

    async def _judge(self, task: ToolTask, args: Any) -> ToolReply | RunRight:
        permit, signature_policy = task.permit, self._deps.signature_policy
        # Check this first: all later checks depend on the requester, and a permit can name any person.
        problem = await self._deps.requester_problem(permit.ctx)
        if problem:
            return await self._refused.refuse(task, problem, vouched=False)
        present_tool = self._deps.catalog.tool_view(permit.ctx).tool(task.tool)
        if present_tool is not None and present_tool.activity != self._tool.activity:
            # At this turn's place, the name means another tool, which no approver has approved.
            return ToolReply(again="stale", note=CHANGED)
        call = call_of(task)
        # In parallel, because each takes a while. The claim of the ticket detects later changes of the rows.
        found, rows = await asyncio.gather(
            judge_call(
                self._deps.catalog,
                permit.ctx,
                call,
                args,
                self._deps.kinds,
                at=self._deps.clock(),
                # For an approved call, run the permission check again, even if the approval was quick.
                permissions=None if permit.kind == "approved" else self._deps.permissions,
            ),
            self._rows(permit),
        )
        if found.kind not in ("run", "ask"):
            return await self._refused.earlier_reply(task) or await self._refused.end(task, found)
        args = found.args(args)
        # The directory may have changed since the gates: no rule runs a call for a tier that its requester has lost.
        if found.kind == "run":
            found = ask_if_doubted(found, await self._deps.doubt(permit.ctx))
        if permit.kind == "auto":
            found = await self._remembered.holds(permit.grant, permit.ctx, call, args, found)
            if found.kind not in ("run", "ask"):
                return await self._refused.earlier_reply(task) or await self._refused.end(task, found)
        try:
            digest = digest_of(permit.ctx, permit.call, self._tool, args)
        except NotCanonical:
            return await self._refused.refuse(task, "the arguments cannot be bound to a decision")
        if await self._was_denied(permit, args):
            return await self._refused.refuse(task, "somebody denied this")
        policy = self._deps.catalog.policy(self._tool.activity)
        approval = approval_of(permit, rows)
        decisions = () if approval is None else approval.decisions
        asked = () if approval is None else (approval.question,)
        terms = await self._terms(permit, args, found, None if approval is None else approval.question)
        if terms is None:
            return ToolReply(again="policy", note="by the policy of now this would have been denied when it was asked")
        check = check_permit(
            permit,
            digest,
            found,
            policy,
            terms,
            signature_policy=signature_policy,
            voters=await self._approvals.voters(permit, self._tool.activity, terms, decisions, asked),
            approval=approval,
            now=self._deps.clock() if rows is None else rows.now,
        )
        if check.kind == "run" and approval is not None and not _overrides(approval.question, found):
            # The approvers agreed to the call, but were not asked to override the permission check's present denial.
            return ToolReply(again="policy", note="the permission check now objects: an approver has to override it")
        if check.kind == "run":
            return RunRight(found, prove_permit(permit, found, approval), rows)
        refused = await self._refused.refuse(task, check.why)
        return replace(refused, again=check.again, note=check.why)

    async def _undone(self, task: ToolTask) -> tuple[Decision, ...]:
        if task.ticket <= 1:
            return ()
        policy = self._deps.catalog.policy(self._tool.activity)
        return undone(
            task.permit, await self._approvals.of(task.permit), task.ticket, policy, self._deps.signature_policy
        )

    async def _rows(self, permit: Permit) -> ApprovalRows | None:
        return await self._approvals.of(permit) if permit.kind == "approved" else None

    def _still_holds(self, right: RunRight, connection: Connection) -> bool:
        """Check the question and answers again in the transaction that claims the ticket."""
        permit, approval_id = right.permit, approval_id_of(right.permit)
        lock_approval(connection, approval_id)
        rows = read_rows_anew(connection, approval_id, right.rows)
        if rows is not None and rows is right.rows:
            return True
        approval = approval_of(permit, rows)
        if approval is None or approval.problem or approval.stale:
            return False
        # A voided answer is missing, and its author has read that it did not count.
        return all(each in approval.decisions for each in permit.decisions)

    def _is_unbarred(self, right: RunRight, connection: Connection) -> bool:
        """Return whether no question bars a call that a rule or a remembered answer permits."""
        permit, approval_id = right.permit, approval_id_of(right.permit)
        lock_approval(connection, approval_id)
        rows = read_rows(connection, approval_id)
        return rows is None or not is_barred([rows.request(each) for each in rows.questions], permit.call)

    async def _was_denied(self, permit: Permit, args: dict[str, Any]) -> bool:
        """Return whether this turn has a denial of a call that would now run without approval."""
        if permit.kind == "approved" or (self._tool.read_only and self.needs_nobody):
            return False
        return denial_of(await self._approvals.of_turn(permit.ctx), permit.ctx, self._tool.name, args) is not None

    async def _terms(
        self, permit: Permit, args: Any, found: LocalGateDecision, question: Question | None
    ) -> VerdictTerms | None:
        """Return the terms on which the present policy asks about the call, at the time of the question.

        A deploy may ask for more, the clock does not. `None` if the policy would have denied the call then.
        """
        at = found.at if question is None else question.judged_at
        return await terms_at(self._deps.catalog, permit.ctx, args, found, self._tool, at)


def call_of(task: ToolTask) -> CallPart:
    return CallPart(call=task.permit.call, tool=task.tool, args=task.args)


def _overrides(question: Question, found: LocalGateDecision) -> bool:
    """True if the card showed the permission check's present objection, or if there is none."""
    shown = question.override == override_hash(found.objection)
    return not found.objection or (question.rule == PERMISSION_RULE and shown)
