"""Runs tools as activities: derives the right to run, claims a ticket, calls the handler once, records the outcome.

It trusts no caller: whatever a permit claims is checked here again by the present catalog, people and store.
"""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from copy import deepcopy
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection
from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from signoff.activities.approval_reader import ApprovalReader, doubts_of
from signoff.activities.call_journal import CallContent, Journal, hand_over
from signoff.activities.caller_check import current_caller
from signoff.activities.capability_backends import grant_capabilities, handed_out_secrets
from signoff.activities.gate_activity import digest_of, is_of, settled_outcome
from signoff.activities.grant_use import GrantUse, frozen_decision
from signoff.activities.handler_runner import HandlerEnded, run_handler, tool_context_of
from signoff.activities.heartbeat import send_heartbeats
from signoff.activities.hooks.policy_handlers import terms_at
from signoff.activities.hooks.probes import ProbeRunner, recorded_reply
from signoff.activities.hooks.tool_hooks import judge_call
from signoff.activities.permit_check import (
    approval_of,
    caller_problem,
    check_permit,
    is_given_up,
    judge_doubt,
    undone_by,
)
from signoff.activities.results.read_rest_tool import bind_to_store
from signoff.activities.results.result_processor import STORE_PAUSE, ProcessedResult, ResultProcessor, plain_outcome
from signoff.activities.run_state import check_ended, report_running
from signoff.activities.stored_permit import prove_permit, undone
from signoff.activities.usage_check import use_of
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.earlier_questions import denial_of, is_barred
from signoff.contracts.activity_messages import ToolReply, ToolTask
from signoff.contracts.approval import Question
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome, Permit
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Decision
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey
from signoff.contracts.message import CallPart
from signoff.contracts.usage import exhausted_message
from signoff.policy.terms import Terms
from signoff.registry.gates.local_decision import LocalGateDecision, settled_decision
from signoff.registry.hooks import PERMISSION_RULE, override_hash
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.content_store import load_in
from signoff.store.freezes import Freezes
from signoff.store.questions.approval_rows import ApprovalRows, lock_approval, read_rows, read_rows_anew
from signoff.store.tickets import Ticket, ticket_key

T = TypeVar("T")

# Python's own names for it: tools need not import ours, and the network capability raises them as well.
TRANSIENT = (ConnectionError, TimeoutError)
WORKERS_TRIED = 60
"""Tries, a second apart, before a tool is taken for removed: a rolling deploy must get past its old workers."""
_ELSEWHERE = timedelta(seconds=1)
_STOPPED = "Not executed: it was stopped before it began."
_EARLIER_IN_DOUBT = (
    "Not run again: it is not known whether an earlier try of this call happened, and too few people have said that it "
    "did not; do not repeat it."
)
_OTHER_ACTION = "another action was begun under this call already; if this one is still wanted, call the tool once more"
_SUPERSEDED = "this was asked again, or is not asked any more"
_CHANGED = "the tool changed while you were asked"


class _Right(NamedTuple):
    """The right to run that was derived for a call: how it was judged, its permit without the claims of the turn, and
    the rows of its approval that it was derived from."""

    decision: LocalGateDecision
    permit: Permit
    rows: ApprovalRows | None


class ToolActivity:
    """One tool as an activity; `run` is registered under its `activity`.

    `pause` is how many seconds it waits before it asks a store again that did not answer.
    """

    def __init__(self, deps: WorkerDeps, tool: Tool, *, pause: float = STORE_PAUSE) -> None:
        self._deps = deps
        self._freezes = Freezes(deps.store)
        self._remembered = GrantUse(deps)
        self._approvals = ApprovalReader(deps)
        self._journal = Journal(deps, tool)
        self._tool = tool
        self._results = ResultProcessor(deps, tool, pause)
        self._probing = ProbeRunner(deps, tool, self._results)

    async def run(self, task: ToolTask) -> ToolReply:
        """Derives the right to run, then runs the tool at most once. Refusals are outcomes, not errors."""
        async with send_heartbeats():
            another = "" if task.tool == self._tool.name else "the permit names another tool"
            problem = another or caller_problem(current_caller(), task.permit, self._tool.activity)
            if problem:
                # Not written down: whose stream it would be is the word of somebody who is not that turn.
                self._deps.store.count_refusal("unproved")
                return _not_executed(task, self._tool, problem)
            await self._journal.receive(task.audit, _approval(task.permit))
            reply = await self._permitted(task)
            await self._journal.settle()
            return reply

    async def _permitted(self, task: ToolTask) -> ToolReply:
        args = await load_in(self._deps.store, task.args, _place(task))
        found = await self._judged(task, args)
        if isinstance(found, ToolReply):
            return await self._begun_before(task) or found
        permit = found.permit.model_copy(update={"doubts": await self._undone(task)})
        right = found._replace(permit=permit)
        return await self._once(task.model_copy(update={"permit": permit}), found.decision.args(args), right)

    async def _undone(self, task: ToolTask) -> tuple[Decision, ...]:
        """Returns the answers that earlier tries of the call did not happen."""
        if task.ticket <= 1:
            return ()
        policy = self._deps.catalog.policy(self._tool.activity)
        return undone(
            task.permit, await self._approvals.of(task.permit), task.ticket, policy, self._deps.signature_policy
        )

    async def _judged(self, task: ToolTask, args: Any) -> "ToolReply | _Right":
        """Judges the call again by the present catalog and policy, its digest and the stored answers.

        Returns the right to run it, or the reply where it does not run.
        """
        permit, signature_policy = task.permit, self._deps.signature_policy
        # First of all: everything below judges by who asks, and a permit can name anybody.
        problem = signature_policy.requester_problem(permit.ctx)
        if problem:
            return await self._refused(task, problem, vouched=False)
        meant = self._deps.catalog.tool_view(permit.ctx).tool(task.tool)
        if meant is not None and meant.activity != self._tool.activity:
            # Where this turn stands its name means another tool, of which nobody has approved anything.
            return ToolReply(again="stale", note=_CHANGED)
        call = _call(task)
        # Together, as each takes a while; what changes in the rows meanwhile is seen where the ticket is claimed.
        found, rows = await asyncio.gather(
            judge_call(self._deps.catalog, permit.ctx, call, args, self._deps.kinds, at=self._deps.clock()),
            self._rows(permit),
        )
        if found.kind not in ("run", "ask"):
            return await self._begun_before(task) or await self._ended(task, found)
        args = found.args(args)
        # The directory may have changed since the gates: no rule runs a call for a tier that its requester has lost.
        if found.kind == "run":
            found = judge_doubt(found, await self._deps.doubt(permit.ctx))
        if permit.kind == "auto":
            found = await self._remembered.holds(permit.grant, permit.ctx, call, args, found)
            if found.kind not in ("run", "ask"):
                return await self._begun_before(task) or await self._ended(task, found)
        try:
            digest = digest_of(permit.ctx, permit.call, self._tool, args)
        except NotCanonical:
            return await self._refused(task, "the arguments cannot be bound to a decision")
        if await self._was_denied(permit, args):
            return await self._refused(task, "somebody denied this")
        policy = self._deps.catalog.policy(self._tool.activity)
        approval = approval_of(permit, rows, accept_unsigned=self._approvals.takes_unsigned(policy))
        decisions = () if approval is None else approval.decisions
        asked = () if approval is None else (approval.question,)
        terms = await self._terms(permit, args, found, None if approval is None else approval.question)
        if terms is None:
            return ToolReply(again="policy", note="by the policy of now this would have been denied when it was asked")
        worth = check_permit(
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
        if worth.kind == "run" and approval is not None and not _overrides(approval.question, found):
            # People agreed to the call, but nobody was asked to let pass what its permission check denies by now.
            return ToolReply(again="policy", note="this is not permitted by now, unless somebody overrides it")
        if worth.kind == "run":
            return _Right(found, prove_permit(permit, found, approval), rows)
        refused = await self._refused(task, worth.why)
        return refused.model_copy(update={"again": worth.again, "note": worth.why})

    async def _rows(self, permit: Permit) -> ApprovalRows | None:
        return await self._approvals.of(permit) if permit.kind == "approved" else None

    async def _begun_before(self, task: ToolTask) -> ToolReply | None:
        """Returns the reply that an earlier attempt of this very call left, where it was begun; None where it was not.

        What is in the way now was not there then, so it must not be told, or asked, as if nothing had happened. Of a
        tool that only reads nothing is left, unless it was begun under another definition: then it may have acted.
        """
        if self._tool.read_only and is_of(
            task.permit, self._tool, await load_in(self._deps.store, task.args, _place(task))
        ):
            return None
        return await _left(self._deps, task)

    async def _refused(self, task: ToolTask, why: str, message: str = "", *, vouched: bool = True) -> ToolReply:
        """Refuses to run the call; where it may have run before, `message` says so instead of that nothing did.

        `vouched`: who asked is whom the gateway signed for.
        """
        await self._journal.refused(task.permit, why, vouched=vouched)
        return _not_executed(task, self._tool, why, message)

    async def _ended(self, task: ToolTask, found: LocalGateDecision) -> ToolReply:
        """Ends and records a call that the gates let through before and do not now; nothing else would tell of it."""
        outcome = settled_outcome(found)
        await self._journal.alone(await self._journal.end(task.permit, outcome, ""))
        return ToolReply(outcome=outcome)

    async def _once(self, task: ToolTask, args: dict[str, Any], right: _Right) -> ToolReply:
        tool, store, found = self._tool, self._deps.store, right.decision
        holds = partial(self._still_holds if task.permit.kind == "approved" else self._unbarred, right)
        # What people, a grant or a limit let run takes a ticket even if it only reads: they are spent with a ticket.
        if tool.read_only and found.kind == "run" and not found.grant and tool.usage_limit is None:
            if not (self._needs_nobody or await store.run(holds)):
                return ToolReply(again="stale", note=_SUPERSEDED)
            # A claim looks for a freeze in its own transaction; what takes no ticket has to look by itself.
            freeze = await self._freezes.read(task.permit.ctx.tenant)
            if freeze is not None:
                return await self._ended(task, frozen_decision(found, freeze.reason, _call(task)))
            return ToolReply(outcome=await self._read(task, args, found))
        earlier = await self._earlier(task, args, found)
        if earlier is not None:
            return earlier
        key = ticket_key(task.permit.digest, task.ticket)
        workflow = activity.info().workflow_id or ""
        begins = self._journal.beginning(task.permit, found, key)
        claiming = store.claim(
            key,
            workflow=workflow,
            call=task.permit.call,
            tool=tool.name,
            nonce=task.permit.ctx.user.nonce,
            grant=found.grant,
            use=use_of(self._deps.catalog, tool, task.permit.ctx, task.permit.call),
            holds=holds,
            also=self._journal.together(begins, right.rows),
            runs=True,
        )
        claim = await self._whole(claiming)
        # `also` is written with a fresh ticket alone: beside any other claim, what was received is still owed.
        if claim.kind == "fresh":
            self._journal.settled()
        else:
            await self._journal.settle()
        reply = recorded_reply(claim)
        if reply is not None:
            return reply
        if claim.kind == "frozen":
            return await self._ended(task, frozen_decision(found, claim.frozen, _call(task)))
        if claim.kind == "other":
            return await self._refused(task, _OTHER_ACTION)
        if claim.kind == "superseded":
            return ToolReply(again="stale", note=_SUPERSEDED)
        if claim.kind == "ungranted":
            return ToolReply(again="policy", note="what was approved in advance is used up, over or taken back")
        if claim.again is not None and tool.usage_limit is not None:
            why = exhausted_message(tool.name, tool.usage_limit, claim.again)
            return await self._ended(task, settled_decision(_call(task), "usage", "not_available", why, tool))
        # An idempotent tool is begun again under its key, but in a frozen tenant nothing is begun.
        if claim.kind == "open" and (claim.frozen or not (tool.idempotent or tool.read_only)):
            await check_ended(store, key)
            looked_up = await self._probing.reply(task.permit, args, self._context(task, key))
            if looked_up is not None:
                return looked_up
            # Not tried again: each try would find the same ticket, and only people can say what became of it.
            raise ApplicationError(IN_DOUBT_TEXT, type="InDoubt", non_retryable=True)
        await self._whole(self._journal.apart(begins))
        if _unwanted():
            # An `open` ticket is of an earlier try, which may have acted; only what was claimed here is surely unused.
            if claim.kind == "fresh":
                await self._never_began(task, key)
            raise asyncio.CancelledError
        async with report_running(store, key):
            made = await self._execute(task, args, key)
            outcome = _noted(made.outcome, found)
            if outcome.code == "in_doubt":
                looked_up = await self._probing.reply(task.permit, args, self._context(task, key))
                if looked_up is not None:
                    return looked_up
            # Before the transaction that records the outcome: a specialist's large arguments go to the store for it.
            ends = await self._ends(task, outcome, key, CallContent(args, made.kept))
            await self._results.retry_store(lambda: store.record(key, outcome, also=self._journal.together(ends)))
        await self._journal.apart(ends)
        return ToolReply(outcome=outcome)

    def _still_holds(self, right: _Right, connection: Connection) -> bool:
        """Returns whether question and answers of an approved call stand as they did.

        Asked where its ticket is claimed.
        """
        permit, approval_id = right.permit, _approval(right.permit)
        lock_approval(connection, approval_id)
        rows = read_rows_anew(connection, approval_id, right.rows)
        if rows is not None and rows is right.rows:
            return True
        policy = self._deps.catalog.policy(self._tool.activity)
        takes = self._approvals.takes_unsigned(policy)
        approval = approval_of(permit, rows, accept_unsigned=takes)
        if approval is None or approval.problem or approval.stale:
            return False
        # An answer that was voided since is missing, and its author was told that it was not taken.
        return all(each in approval.decisions for each in permit.decisions)

    def _unbarred(self, right: _Right, connection: Connection) -> bool:
        """Returns whether no question of a call that a rule or a remembered answer lets run stands or has ended against
        it.
        """
        permit, approval_id = right.permit, _approval(right.permit)
        lock_approval(connection, approval_id)
        rows = read_rows(connection, approval_id)
        return rows is None or not is_barred([rows.request(each) for each in rows.questions], permit.call)

    @property
    def _needs_nobody(self) -> bool:
        return self._deps.catalog.needs_nobody(self._tool.activity)

    async def _was_denied(self, permit: Permit, args: dict[str, Any]) -> bool:
        """Returns whether somebody denied, in this turn, what now would run without asking anybody."""
        if permit.kind == "approved" or (self._tool.read_only and self._needs_nobody):
            return False
        return denial_of(await self._approvals.of_turn(permit.ctx), permit.ctx, self._tool.name, args) is not None

    async def _never_began(self, task: ToolTask, key: str) -> None:
        """Gives back the ticket, and the use that it took, of a call that was stopped before its handler was called."""
        outcome = plain_outcome(task.permit.call, task.tool, "skipped", _STOPPED)
        ends = await self._ends(task, outcome, key, None)
        await self._results.retry_store(lambda: self._deps.store.void_claimed(key, also=self._journal.together(ends)))
        await self._journal.apart(ends)

    async def _read(self, task: ToolTask, args: dict[str, Any], found: LocalGateDecision) -> CallOutcome:
        """Runs what needs no ticket."""
        await self._journal.alone(self._journal.beginning(task.permit, found, ""))
        made = await self._execute(task, args, "")
        outcome = _noted(made.outcome, found)
        ends = await self._ends(task, outcome, "", CallContent(args, made.kept))
        await self._results.retry_store(lambda: self._journal.alone(ends))
        return outcome

    async def _ends(self, task: ToolTask, outcome: CallOutcome, key: str, ran: CallContent | None) -> list[AuditEntry]:
        return await self._results.retry_store(lambda: self._journal.end(task.permit, outcome, key, ran))

    async def _terms(
        self, permit: Permit, args: Any, found: LocalGateDecision, question: Question | None
    ) -> Terms | None:
        """Returns the terms on which the present policy asks about the call, at the instant when people were asked.

        A deploy asks for more, the clock does not. None where it would have been denied then.
        """
        at = found.at if question is None else question.judged_at
        return await terms_at(self._deps.catalog, permit.ctx, args, found, self._tool, at)

    async def _earlier(self, task: ToolTask, args: Any, found: LocalGateDecision) -> ToolReply | None:
        """Returns the reply that earlier tickets of the call demand; None when each is void, or people denied that it
        happened.
        """
        permit, policy, signature_policy = (
            task.permit,
            self._deps.catalog.policy(self._tool.activity),
            self._deps.signature_policy,
        )
        # `ticket_key` raises for numbers below 1, and what escapes from here is tried again without end.
        not_given_up = "an earlier ticket of this call was not given up"
        if task.ticket < 1:
            return await self._refused(task, not_given_up)
        if task.ticket == 1:
            return None
        rows = await self._approvals.of(permit)
        asked = () if rows is None else rows.questions
        quorum = max((each.quorum for each in asked), default=1)
        for number in range(1, task.ticket):
            earlier = await _ticket(self._deps, task, number)
            if earlier is not None and earlier.state == "void":
                continue
            outcome = None if earlier is None else earlier.outcome
            if outcome is not None and outcome.code != "in_doubt":
                # Its worker was not lost, only slow: whatever people thought, this is what happened.
                return ToolReply(outcome=outcome)
            if earlier is None:
                return await self._begun_before(task) or await self._refused(task, not_given_up)
            words = undone_by(permit, rows, number)
            doubts = doubts_of(rows)
            terms = await self._terms(permit, args, found, doubts[-1] if doubts else None)
            # People are asked what became of a call also when the policy denies it.
            terms = terms or self._deps.catalog.terms(self._tool.activity, found.verdict)
            voters = await self._approvals.voters(permit, self._tool.activity, terms, words, doubts)
            if not is_given_up(words, quorum, policy, signature_policy, voters):
                doubt = "an earlier ticket of this call is in doubt and was not given up"
                return await self._begun_before(task) or await self._refused(task, doubt, _EARLIER_IN_DOUBT)
        return None

    async def _execute(self, task: ToolTask, args: dict[str, Any], key: str) -> ProcessedResult:
        began = time.monotonic()
        made = await self._guarded(task, args, key)
        took = {"duration_ms": int((time.monotonic() - began) * 1000)}
        return made._replace(outcome=made.outcome.model_copy(update=took))

    async def _guarded(self, task: ToolTask, args: dict[str, Any], key: str) -> ProcessedResult:
        tool, context = self._tool, self._context(task, key)
        given = deepcopy(args) if self._reads_args_after() else args
        limit = asyncio.timeout(tool.timeout)
        try:
            async with limit:
                value = await self._shielded(run_handler(tool, given, context), limit)
        except Exception as error:
            # Whatever escaped would fail the activity, and the server would run the tool again, without end.
            repeatable = tool.read_only or tool.idempotent
            if limit.expired() and not repeatable:
                # The handler was stopped in the middle of its work: its effect may have happened.
                return ProcessedResult(plain_outcome(task.permit.call, task.tool, "in_doubt", IN_DOUBT_TEXT))
            if isinstance(error, TRANSIENT) and repeatable and activity.info().attempt < tool.tries:
                # By its class alone, without its cause: Temporal keeps the words of failures in plain text.
                raise ApplicationError(f"{tool.name}: {type(error).__name__}", type="Transient") from None
            text = f"no answer within {tool.timeout:g} s" if limit.expired() else _words(error)
            secrets = handed_out_secrets(context.capabilities, self._deps.secrets)
            return await self._results.failed(task.permit, args, text, task.budget_chars, secrets)
        secrets = handed_out_secrets(context.capabilities, self._deps.secrets)
        return await self._shielded(self._results.of(task.permit, args, value, task.budget_chars, key, secrets))

    async def _shielded(self, work: Coroutine[Any, Any, T], limit: asyncio.Timeout | None = None) -> T:
        """Awaits a handler, or what is made of its result, to its end: a cancelled turn must not lose an effect."""
        running = asyncio.ensure_future(work)
        while True:
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                if running.cancelled() and not _is_cancelled():
                    # Reported as a cancelled activity, it would be tried again without end.
                    raise HandlerEnded("the tool cancelled itself") from None
                # What only reads is stopped at once: there is no effect to lose sight of.
                asked = _unwanted() and not self._tool.read_only
                if not asked or running.cancelled() or (limit is not None and limit.expired()):
                    running.cancel()
                    raise
                _put_off_cancel()

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits what lies between a claim and the handler to its end: else nobody would know what was claimed."""
        running = asyncio.ensure_future(work)
        while True:
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                if running.cancelled() or not _unwanted():
                    running.cancel()
                    raise
                _put_off_cancel()

    def _reads_args_after(self) -> bool:
        """Returns whether anything reads the arguments after the handler, which may do to them what it likes."""
        # They are looked up, shortened by, hidden and recorded as what they were; a plain read is spared the copy.
        tool = self._tool
        seen = tool.probe is not None or tool.name in self._deps.catalog.reducers
        return seen or not tool.read_only or tool.scope == "specialist" or bool(tool.masked_arguments)

    def _context(self, task: ToolTask, key: str) -> ToolContext:
        given = grant_capabilities(self._deps.backends, self._deps.secrets, self._tool, task.permit.ctx.tenant)
        return tool_context_of(task.permit, key, task.budget_chars, people=self._deps.people, capabilities=given)


def _not_executed(task: ToolTask, tool: Tool, why: str, message: str = "") -> ToolReply:
    activity.logger.warning("refused to run %s: %s", tool.name, why)
    words = message or f"Not executed: {why}."
    return ToolReply(outcome=plain_outcome(task.permit.call, task.tool, "refused", words))


def tool_activities(deps: WorkerDeps) -> list[Any]:
    """Returns one activity a tool of the catalog, each registered under its `activity`, and one for tools it lacks."""
    return [*(_named(deps, bind_to_store(tool, deps.store)) for tool in deps.catalog.every_tool), _absent(deps)]


def _absent(deps: WorkerDeps) -> Any:
    @activity.defn(dynamic=True)
    async def absent_tool(args: Sequence[RawValue]) -> ToolReply:
        """Answers for a tool that this worker lacks: it is tried on another worker first, then judged anew.

        Where a worker that had it began the call, that is told instead, as nobody can run it again.
        """
        info = activity.info()
        if info.attempt < WORKERS_TRIED:
            text = f"this worker has no tool `{info.activity_type}`"
            raise ApplicationError(text, type="NotDeployed", next_retry_delay=_ELSEWHERE)
        changed = ToolReply(again="stale", note=_CHANGED)
        task: ToolTask = activity.payload_converter().from_payload(args[0].payload, ToolTask)
        # Checked here as well: whoever names a digest would else be told the outcome of somebody's call.
        if caller_problem(current_caller(), task.permit, info.activity_type):
            return changed
        await hand_over(deps, task.audit)
        return await _left(deps, task) or changed

    return absent_tool


async def _left(deps: WorkerDeps, task: ToolTask) -> ToolReply | None:
    """Returns the reply that earlier attempts of the call left in its tickets; None for none. Raises `InDoubt`.

    An earlier ticket of which nobody knows says nothing here: people said that it did not happen.
    """
    if task.ticket < 1:
        return None
    own = await _ticket(deps, task, task.ticket)
    if own is not None and own.state == "claimed":
        await check_ended(deps.store, own.key)
        raise ApplicationError(IN_DOUBT_TEXT, type="InDoubt", non_retryable=True)
    if own is not None and own.outcome is not None:
        return ToolReply(outcome=own.outcome)
    for number in range(1, task.ticket):
        earlier = await _ticket(deps, task, number)
        if earlier is None:
            break
        if earlier.outcome is not None and earlier.outcome.code != "in_doubt":
            # Its worker was not lost, only slow.
            return ToolReply(outcome=earlier.outcome)
    return None


async def _ticket(deps: WorkerDeps, task: ToolTask, number: int) -> Ticket | None:
    """Returns the ticket of this number, if it is this call's."""
    found = await deps.store.read_ticket(ticket_key(task.permit.digest, number))
    # The digest is the permit's word. A ticket of another call must not be told as the outcome of this one.
    here = (activity.info().workflow_id, task.permit.call, task.tool)
    return None if found is None or (found.workflow, found.call, found.tool) != here else found


def _named(deps: WorkerDeps, tool: Tool) -> Any:
    async def run(task: ToolTask) -> ToolReply:
        return await ToolActivity(deps, tool).run(task)

    return activity.defn(name=tool.activity)(run)


def _approval(permit: Permit) -> str:
    """Returns the approval id of a call, whether it was ever asked about or not."""
    return ApprovalKey(TurnKey(permit.ctx.tenant, permit.ctx.session, permit.ctx.turn), permit.call).id


def _call(task: ToolTask) -> CallPart:
    return CallPart(call=task.permit.call, tool=task.tool, args=task.args)


def _overrides(question: Question, found: LocalGateDecision) -> bool:
    """Returns whether people were shown what the permission check objects to now, if it does."""
    shown = question.override == override_hash(found.objection)
    return not found.objection or (question.rule == PERMISSION_RULE and shown)


def _noted(outcome: CallOutcome, found: LocalGateDecision) -> CallOutcome:
    """Returns `outcome` with what is told of the arguments it came of."""
    note = " ".join(filter(None, (found.note, outcome.note)))
    return outcome.model_copy(update={"note": note}) if found.note else outcome


def _unwanted() -> bool:
    """Returns whether the turn has asked to stop this call, or is gone; a worker that stops leaves it to another
    one.
    """
    details = activity.cancellation_details()
    # Whoever ends or resets the turn, or had the call scheduled for a second, must not tear it from what it has begun:
    # nobody would know what became of it.
    return details is not None and not details.worker_shutdown


def _is_cancelled() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def _put_off_cancel() -> None:
    # A cancel that still counts would keep the tool's own timeout from being told apart from it.
    current = asyncio.current_task()
    if current is not None:
        current.uncancel()


def _words(error: Exception) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _place(task: ToolTask) -> SessionKey:
    return SessionKey(task.permit.ctx.tenant, task.permit.ctx.session)
