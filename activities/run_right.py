"""Derives the right to run a call from the present catalog, policy and people, and the stored answers.

Trusts no claim of the turn. A call without the right gets its reply here.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection
from temporalio import activity
from temporalio.exceptions import ApplicationError

from signoff.activities.call_journal import Journal
from signoff.activities.grant_use import GrantUse
from signoff.activities.heartbeat import check_ended
from signoff.activities.hooks.policy_handlers import terms_at
from signoff.activities.hooks.previews import bound_parts
from signoff.activities.hooks.tool_hooks import judge_call
from signoff.activities.results.result_processor import plain_outcome
from signoff.activities.run_rules import (
    approval_of,
    ask_if_doubted,
    check_run,
    digest_of,
    doubts_of,
    is_given_up,
    is_of,
    overrides,
    right_of,
    undone,
    undone_by,
    voter_set,
)
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.earlier_questions import denial_of, is_barred
from signoff.approvals.previews.parts import PREVIEW_CHANGES, count_changes
from signoff.approvals.tightening import tighten
from signoff.contracts.activity_messages import RunTask, ToolReply
from signoff.contracts.approval import Question, Terms, TermValues, Vote
from signoff.contracts.call import IN_DOUBT_TEXT, CallContext, RunRight
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import CallPart
from signoff.decisions.typed_answer import answer_problem
from signoff.formats.replace import replace
from signoff.people.voter_set import VoterSet
from signoff.policy.terms import VerdictTerms
from signoff.registry.gates.judged_call import JudgedCall, settled_outcome
from signoff.registry.tool import Tool
from signoff.store.content_store import load_in
from signoff.store.questions.approval_rows import ApprovalRows, lock_approval, read_rows, read_rows_anew
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_lists import RequestLists, TurnRows
from signoff.store.store import Store
from signoff.store.tickets import Ticket, ticket_key

CHANGED = "the tool changed while the request was waiting"
_PREVIEW_CHANGED = "the state that the approvers saw has changed since"
_DENIED_THEN = "by the policy of now this would have been denied when it was asked"
_UNPASSED = "a person answered this instead, and the answer could not be passed on"
_CHANGES_ON = f"the state that approvers saw changed {PREVIEW_CHANGES} times before this could run"
_EARLIER_IN_DOUBT = (
    "Not run again: it is not known whether an earlier try of this call happened, and too few people have said that it "
    "did not; do not repeat it."
)


class PermittedCall(NamedTuple):
    """A call that may run."""

    right: RunRight
    args: dict[str, Any]
    """The arguments to run: the proposed ones, or their correction."""
    found: JudgedCall
    """The present judgement."""
    rows: ApprovalRows | None
    """The rows of the approval, if it has one."""
    answer: Decision | None = None
    """The decision that answers instead: nothing runs."""


class RunRights:
    """Derives the right to run calls of one tool, or ends and records the calls that do not run."""

    def __init__(self, deps: WorkerDeps, tool: Tool, journal: Journal) -> None:
        self._deps = deps
        self._tool = tool
        self._journal = journal
        self._remembered = GrantUse(deps)
        self._questions = Questions(deps.store)

    @property
    def needs_nobody(self) -> bool:
        return self._deps.catalog.needs_nobody(self._tool.activity)

    async def derive(self, task: RunTask) -> ToolReply | PermittedCall:
        """Returns the reply if the call does not run."""
        permitted = await self._judge(task, await load_in(self._deps.store, task.args, task.place))
        if isinstance(permitted, ToolReply):
            return await self._left_reply(task) or permitted
        if task.ticket <= 1:
            return permitted
        policy, rows = self._deps.catalog.policy(self._tool.activity), await self._questions.read(task.approval_id)
        doubts = undone(task.digest, rows, task.ticket, policy, self._deps.signature_policy)
        return permitted._replace(right=permitted.right._replace(doubts=doubts))

    async def earlier_reply(self, task: RunTask, call: PermittedCall) -> ToolReply | None:
        """Return the reply that earlier tickets of the call require.

        `None`: each ticket is void, or approvers said that the attempt did not happen.
        """
        # `ticket_key` raises for numbers below 1, and Temporal would retry an escaped error without end.
        not_given_up = "an earlier ticket of this call was not given up"
        if task.ticket < 1:
            return await self.refuse(task, not_given_up)
        if task.ticket == 1:
            return None
        rows, policy = await self._questions.read(task.approval_id), self._deps.catalog.policy(self._tool.activity)
        asked, doubts = () if rows is None else rows.questions, doubts_of(rows)
        quorum = tighten(TermValues(), *asked).quorum
        for number in range(1, task.ticket):
            earlier = await own_ticket(self._deps.store, task, number)
            if earlier is not None and earlier.state == "void":
                continue
            outcome = None if earlier is None else earlier.outcome
            if outcome is not None and outcome.code != "in_doubt":
                # Its worker was slow, not lost: despite the approvers' answers, this is the outcome.
                return ToolReply(outcome=outcome)
            if earlier is None:
                return await self._left_reply(task) or await self.refuse(task, not_given_up)
            words = undone_by(task.digest, rows, number)
            terms = await self._terms(task, call.args, call.found, doubts[-1] if doubts else None)
            # Approvers decide about an unknown outcome even if the policy denies the call.
            terms = terms or self._deps.catalog.terms(self._tool.activity, call.found.verdict)
            made = () if rows is None or not doubts else rows.request(doubts[-1]).assignments
            voters = await voters_of(self._deps, task.ctx, self._tool.activity, terms, words, doubts, made)
            if not is_given_up(words, quorum, policy, self._deps.signature_policy, voters):
                why = "an earlier ticket of this call is in doubt and was not given up"
                return await self._left_reply(task) or await self.refuse(task, why, _EARLIER_IN_DOUBT)
        return None

    def holds(self, task: RunTask, call: PermittedCall, connection: Connection) -> bool:
        """Return whether the basis of the right still holds. Called while claiming the call's ticket."""
        lock_approval(connection, task.approval_id)
        if call.right.revision is None:
            # No question may bar a call that a rule or a remembered answer permits.
            rows = read_rows(connection, task.approval_id)
            return rows is None or not is_barred([rows.request(each) for each in rows.questions], task.call)
        rows = read_rows_anew(connection, task.approval_id, call.rows)
        if rows is not None and rows is call.rows:
            return True
        approval = approval_of(call.right.revision, rows)
        if approval is None or approval.problem or approval.stale:
            return False
        # A voided answer is missing, and its author has read that it did not count.
        return all(each in approval.decisions for each in call.right.decisions)

    async def refuse(self, task: RunTask, why: str, message: str = "", *, vouched: bool = True) -> ToolReply:
        """If the call may have run before, `message` replaces "Not executed".

        `vouched`: the gateway signed the requester.
        """
        await self._journal.record_refusal(task, why, vouched=vouched)
        return refusal(task, self._tool, why, message)

    async def end(self, task: RunTask, found: JudgedCall) -> ToolReply:
        """End and record a call that the gates permitted before and not now. No other entry reports it."""
        outcome = settled_outcome(found)
        await self._journal.alone(await self._journal.end(task, outcome, ""))
        return ToolReply(outcome=outcome)

    async def _judge(self, task: RunTask, args: Any) -> ToolReply | PermittedCall:
        deps, tool, ctx = self._deps, self._tool, task.ctx
        # Check this first: all later checks depend on the requester, and a task can name any person.
        problem = await deps.requester_problem(ctx)
        if problem:
            return await self.refuse(task, problem, vouched=False)
        present_tool = deps.catalog.tool_view(ctx).tool(task.tool)
        if present_tool is not None and present_tool.activity != tool.activity:
            # At this turn's place, the name means another tool, which no approver has approved.
            return ToolReply(again="stale", note=CHANGED)
        call = call_of(task)
        # For an approved call, run the permission check again, even if the approval was quick.
        permissions = deps.permissions if task.revision is None else None
        judging = judge_call(deps.catalog, ctx, call, args, deps.kinds, at=deps.clock(), permissions=permissions)
        # In parallel, because each takes a while. The claim of the ticket detects later changes of the rows.
        found, rows = await asyncio.gather(judging, self._approval_rows(task))
        if found.kind not in ("run", "ask"):
            return await self._left_reply(task) or await self.end(task, found)
        args = found.args(args)
        # The directory may have changed since the gates: no rule runs a call for a tier that its requester has lost.
        if found.kind == "run":
            found = ask_if_doubted(found, await deps.doubt(ctx))
        if task.revision is None:
            found = await self._remembered.holds(task.grant, ctx, call, args, found)
            if found.kind not in ("run", "ask"):
                return await self._left_reply(task) or await self.end(task, found)
        try:
            digest = digest_of(ctx, task.call, tool, args)
        except NotCanonical:
            return await self.refuse(task, "the arguments cannot be bound to a decision")
        if await self._was_denied(task, args):
            return await self.refuse(task, "somebody denied this")
        approval = approval_of(task.revision, rows)
        asked, decisions = ((), ()) if approval is None else ((approval.question,), approval.decisions)
        made = () if approval is None else approval.assignments
        # No later approval of exactly an answered action counts: such a call is not asked again.
        answered = approval is not None and approval.verdict == "answered" and task.digest == digest
        terms = await self._terms(task, args, found, None if approval is None else approval.question)
        if terms is None and answered:
            return await self.refuse(task, f"{_UNPASSED}: {_DENIED_THEN}")
        if terms is None:
            return ToolReply(again="policy", note=_DENIED_THEN)
        check = check_run(
            task,
            digest,
            found,
            deps.catalog.policy(tool.activity),
            terms,
            signature_policy=deps.signature_policy,
            voters=await voters_of(deps, ctx, tool.activity, terms, decisions, asked, made),
            approval=approval,
            now=deps.clock() if rows is None else rows.now,
        )
        if check.kind != "run" and answered:
            return await self.refuse(task, f"{_UNPASSED}: {check.why}")
        if check.kind != "run":
            return replace(await self.refuse(task, check.why), again=check.again, note=check.why)
        if approval is not None and answered:
            word = approval.decisions[0]
            if tool.answer is None or answer_problem(tool.answer.schema, word.answer):
                return await self.refuse(task, f"{_UNPASSED}: the answer of a person does not fit its schema")
            return PermittedCall(right_of(found, approval), args, found, rows, word)
        if approval is not None and not overrides(approval.question, found):
            # The approvers agreed to the call, but were not asked to override the permission check's present denial.
            return ToolReply(again="policy", note="the permission check now objects: an approver has to override it")
        right = right_of(found, approval)
        if approval is None or not tool.binds:
            return PermittedCall(right, args, found, rows)
        bound = await bound_parts(deps.catalog, ctx, tool, args)
        preview = approval.question.preview
        if bound is None or preview is None or bound.sha256 != preview.bound:
            if rows is not None and count_changes(rows.questions) >= PREVIEW_CHANGES - 1:
                return await self.refuse(task, _CHANGES_ON)
            return ToolReply(again="policy", note=_PREVIEW_CHANGED)
        return PermittedCall(right._replace(previewed=bound.parts), args, found, rows)

    async def _approval_rows(self, task: RunTask) -> ApprovalRows | None:
        return None if task.revision is None else await self._questions.read(task.approval_id)

    async def _was_denied(self, task: RunTask, args: dict[str, Any]) -> bool:
        """Return whether this turn has a denial of a call that would now run without approval."""
        if task.revision is not None or (self._tool.read_only and self.needs_nobody):
            return False
        rows = await rows_of_turn(self._deps.store, task.ctx)
        return denial_of(rows.requests, task.ctx, self._tool.name, args) is not None

    async def _terms(
        self, task: RunTask, args: Any, found: JudgedCall, question: Question | None
    ) -> VerdictTerms | None:
        """Return the terms on which the present policy asks about the call, at the time of the question.

        A deploy may ask for more, the clock does not. `None` if the policy would have denied the call then.
        """
        at = found.at if question is None else question.judged_at
        return await terms_at(self._deps.catalog, task.ctx, args, found, self._tool, at)

    async def _left_reply(self, task: RunTask) -> ToolReply | None:
        """Return the reply of an earlier attempt of exactly this call, or `None` if none began.

        The present obstacle did not exist then, so the call must not end, or be asked, as if nothing had happened. A
        read leaves no trace, except one begun under another definition, which may have acted.
        """
        store = self._deps.store
        if self._tool.read_only and is_of(task, self._tool, await load_in(store, task.args, task.place)):
            return None
        return await left_reply(store, task)


async def rows_of_turn(store: Store, ctx: CallContext) -> TurnRows:
    """Read a turn's requests and tickets, and its tenant's freeze.

    Raises `StoreUnavailable`. Waits while a denial can be undone: the turn would act on an answer that may be
    retracted.
    """
    while True:
        rows = await RequestLists(store).of_turn(TurnKey(ctx.tenant, ctx.session, ctx.turn))
        if rows.undo_seconds <= 0:
            return rows
        await asyncio.sleep(rows.undo_seconds)


async def voters_of(
    deps: WorkerDeps,
    ctx: CallContext,
    tool: str,
    terms: Terms,
    decisions: Sequence[Decision],
    questions: Sequence[Question] = (),
    assignments: Sequence[Vote] = (),
) -> VoterSet:
    """Raises `StoreUnavailable`."""
    # Without answers, skip the lookup. Else include the requester: one of their accounts may be an approver's.
    made = (*decisions, *(each.decision for each in assignments)) if decisions else ()
    user_ids = [ctx.user.user, *(each.subject for each in made), *(each.to for each in made)] if made else []
    people = await deps.directory_for(ctx.tenant, *user_ids)
    return voter_set(deps.catalog, people, ctx, tool, terms, deps.clock(), questions, assignments)


def refusal(task: RunTask, tool: Tool, why: str, message: str = "") -> ToolReply:
    activity.logger.warning("refused to run %s: %s", tool.name, why)
    return ToolReply(outcome=plain_outcome(task.call, task.tool, "refused", message or f"Not executed: {why}."))


async def left_reply(store: Store, task: RunTask) -> ToolReply | None:
    """Return the reply that the call's tickets hold from earlier attempts, or `None`.

    Raises `InDoubt`. An earlier ticket without an outcome does not count here: approvers said that it did not happen.
    """
    if task.ticket < 1:
        return None
    own = await own_ticket(store, task, task.ticket)
    if own is not None and own.state == "claimed":
        await check_ended(store, own.key)
        raise ApplicationError(IN_DOUBT_TEXT, type="InDoubt", non_retryable=True)
    if own is not None and own.outcome is not None:
        return ToolReply(outcome=own.outcome)
    for number in range(1, task.ticket):
        earlier = await own_ticket(store, task, number)
        if earlier is None:
            break
        if earlier.outcome is not None and earlier.outcome.code != "in_doubt":
            # Its worker was slow, not lost.
            return ToolReply(outcome=earlier.outcome)
    return None


async def own_ticket(store: Store, task: RunTask, number: int) -> Ticket | None:
    """`None` if the ticket belongs to another call."""
    found = await store.read_ticket(ticket_key(task.digest, number))
    # The digest is the task's claim. Another call's ticket must not become the outcome of this one.
    here = (activity.info().workflow_id, task.call, task.tool)
    return None if found is None or (found.workflow, found.call, found.tool) != here else found


def call_of(task: RunTask) -> CallPart:
    return CallPart(call=task.call, tool=task.tool, args=task.args)
