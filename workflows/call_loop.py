"""Settles the calls of one completion: one outcome each, in proposed order."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio import workflow

from signoff.approvals.approval_outcomes import denied_outcome, waiting_outcome
from signoff.contracts.activity_messages import GateDecision, GateReply, ModelReply, RunOptions, RunTask, ToolReply
from signoff.contracts.approval import TurnQuestion
from signoff.contracts.call import CallOutcome
from signoff.contracts.ids import stand_in_id
from signoff.contracts.limits import MAX_REVISIONS
from signoff.contracts.message import CallPart, words_of
from signoff.formats.replace import replace
from signoff.workflows import outcomes
from signoff.workflows.approval_flow import ApprovalFlow
from signoff.workflows.gate_call import judge_calls
from signoff.workflows.tool_runner import ToolRunner
from signoff.workflows.turn_state import TurnState

_SIBLING_FAILED = "Another call of the same completion failed."
_CANCELLED = "The turn was cancelled."
_ENDED = "The turn has ended."
_KNOWN = "People were asked about the same call before."


@dataclass
class _Tries:
    """The attempts of one call, by ticket and digest, because a changed tool has another key."""

    tickets: dict[str, int] = field(default_factory=dict)

    def ticket(self, digest: str) -> int:
        return self.tickets.get(digest, 1)

    def give_up(self, digest: str) -> None:
        self.tickets[digest] = self.ticket(digest) + 1


class CallLoop:
    """Settles the calls of one turn."""

    def __init__(self, state: TurnState, approvals: ApprovalFlow, tools: ToolRunner, show: Callable[[], None]) -> None:
        self._state = state
        self._approvals = approvals
        self._tools = tools
        self._show = show
        self._ran_with: dict[str, RunOptions] = {}
        self._waiting: dict[str, asyncio.Task[CallOutcome]] = {}

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def is_outcome_there(self) -> bool:
        return any(task.done() for task in self._waiting.values())

    def take_outcomes(self) -> list[CallOutcome]:
        """Return the outcomes of calls that waited, each once, in proposed order."""
        done = [call for call, task in self._waiting.items() if task.done()]
        # Never the turn's answer: the model has continued without it.
        return [replace(self._waiting.pop(call).result(), direct=False) for call in done]

    async def break_off(self, *, cancelled: bool) -> None:
        """Withdraw waiting requests and return once no call runs: the turn ends without another completion."""
        if not self._waiting:
            return
        if cancelled and not self._state.stopped:
            self._stop()
        elif not cancelled:
            # The running calls were approved, and the end of the turn is no reason to stop them.
            self._state.stopped = True
            self._approvals.stop(_ENDED)
        while not all(task.done() for task in self._waiting.values()):
            # A cancellation during this wait must not leave a call without its outcome.
            with contextlib.suppress(asyncio.CancelledError):
                await workflow.wait(list(self._waiting.values()))

    async def batch(self, calls: tuple[CallPart, ...], reply: ModelReply) -> list[CallOutcome]:
        """Settle every call of one completion.

        Calls that need no approval do not wait for the others. If the turn may continue without a call, the model reads
        that it waits, unless it settles with the others. No tool withheld from the model runs, not even as a fallback.
        """
        if not calls:
            return []
        self._state.begin_batch(reply)
        says = words_of(reply.message)
        try:
            gate_reply = reply.gates or await self._judge(calls, says)
        except asyncio.CancelledError:
            self._stop()
            # Give each call its one result: models reject a conversation with calls that have none.
            return [outcomes.unwanted_outcome(call.call, call.tool) for call in calls]
        self._state.count_batch(gate_reply.tally)
        gate_decisions = [
            self._open(call, gate_decision)
            for call, gate_decision in zip(calls, gate_reply.gate_decisions, strict=True)
        ]
        going_on = [each.kind == "ask" and each.options.while_waiting == "continue" for each in gate_decisions]
        if self._waiting or any(going_on):
            # Decisions may arrive in parallel, so the history must hold the ends of these calls in their real order.
            gate_decisions = [_without_local(each) for each in gate_decisions]
        self._state.entered = self._state.completions
        # Its gate decisions hold a second copy of every question, and the turn may wait for months.
        del gate_reply, reply
        self._show()
        running = self._begin(calls, gate_decisions, says)
        held = [task for task, goes_on in zip(running, going_on, strict=True) if not goes_on]
        try:
            if held:
                # Not asyncio's own `wait`: it uses a set, so the order would differ on replay.
                await workflow.wait(held)
        except asyncio.CancelledError:
            self._stop()
            await workflow.wait(running)
        return [self._take(call, task) for call, task in zip(calls, running, strict=True)]

    def _begin(
        self, calls: Sequence[CallPart], gate_decisions: Sequence[GateDecision], says: str
    ) -> list[asyncio.Task[CallOutcome]]:
        running: list[asyncio.Task[CallOutcome]] = []
        for call, gate_decision in zip(calls, gate_decisions, strict=True):
            conclusion = self._conclude(call, gate_decision, says)
            try:
                running.append(asyncio.create_task(conclusion))
            except BaseException:
                # The SDK interrupts a replay that takes too long, at any point. Python warns of a coroutine that no
                # task
                # runs unless it is closed.
                conclusion.close()
                raise
        return running

    async def _judge(self, calls: tuple[CallPart, ...], says: str) -> GateReply:
        # Parallel local activities may end in another order on replay.
        async with self._approvals.hold_lock():
            asked = {
                "tally": self._state.judge_from(),
                "agent_says": says,
                "denied": self._state.session_denials(),
                "waiting": self._state.waiting_calls(),
            }
            return await judge_calls(self._state.gate_task(*calls, **asked))

    def _open(self, call: CallPart, gate_decision: GateDecision) -> GateDecision:
        """Open the request, unless the same call already waits or was denied."""
        known = self._state.settled_meanwhile(gate_decision)
        gate_decision = self._approvals.open_request(call, gate_decision)
        if known is None:
            return gate_decision
        if self._state.book.waits(approval_id := self._state.approval_id(call.call)):
            # The request is already in the store. Withdraw it, so that approvers are not left with it.
            self._state.book.cancel(approval_id, "", _KNOWN, workflow.now())
        return replace(gate_decision, kind="settled", outcome=known)

    def _take(self, call: CallPart, task: asyncio.Task[CallOutcome]) -> CallOutcome:
        """Return the call's outcome, or a `waiting` outcome if it continues to wait without its turn."""
        if task.done():
            return task.result()
        self._waiting[call.call] = task
        return waiting_outcome(call.call, call.tool, self._state.let_wait(call.call))

    def _stop(self) -> None:
        """Stop the calls of a cancelled turn: the rest never starts, and running calls are awaited."""
        self._state.stopped = True
        self._tools.cancel()
        self._approvals.stop(_CANCELLED)

    async def _conclude(self, call: CallPart, gate_decision: GateDecision, says: str) -> CallOutcome:
        primary = outcome = await self._settle(call, gate_decision)
        # If the tool changed while the request was pending, it may have run with other options.
        ran_with = self._ran_with.pop(call.call, gate_decision.options)
        if ran_with.fallbacks:
            ran = replace(gate_decision, options=ran_with)
            outcome = outcomes.fallback_outcome(primary, await self._fallbacks(call, ran, primary, says))
        self._state.conclude(outcome)
        if gate_decision.options.aborts and outcomes.stops_siblings(primary, outcome):
            self._abort(self._state.siblings(call.call))
        return outcome

    def _abort(self, calls: tuple[str, ...]) -> None:
        self._tools.abort(calls)
        for request in self._state.book.pending():
            # Questions about an unknown outcome remain open.
            if request.call in calls and request.kind == "approval":
                self._state.book.cancel(request.id, "", _SIBLING_FAILED, workflow.now())

    async def _fallbacks(
        self, call: CallPart, gate_decision: GateDecision, primary: CallOutcome, says: str
    ) -> list[CallOutcome]:
        """Run the fallbacks of a failed tool in order until one succeeds."""
        tried: list[CallOutcome] = []
        latest, ran_with = primary, gate_decision.options
        # An approver's edit applies only to the tool on the card.
        names = () if self._approvals.is_edited(call.call) else gate_decision.options.fallbacks
        for number, name in enumerate(names, 1):
            if not outcomes.may_fall_back(latest, ran_with) or self._state.stopped or self._tools.is_aborted(call.call):
                break
            # The fallback has its own id, and so its own digest and ticket. Decisions about the first call do not apply
            # to it.
            second = CallPart(call=stand_in_id(call.call, number), tool=name, args=call.args)
            self._state.show_stand_in(second, call.call)
            fallback_decision = await self._judge_fallback(second, gate_decision, says)
            latest = await self._settle(second, fallback_decision)
            ran_with = self._ran_with.pop(second.call, fallback_decision.options)
            self._state.conclude(latest)
            tried.append(latest)
            if self._approvals.is_edited(second.call):
                break
        return tried

    async def _judge_fallback(self, call: CallPart, primary: GateDecision, says: str) -> GateDecision:
        """Judge a fallback with every gate like any other call, and count it."""
        # Read and write the tally under the lock: two parallel fallbacks would otherwise count as one.
        async with self._approvals.hold_lock():
            before = self._state.tally
            asked = {"tally": before, "agent_says": says, "denied": self._state.session_denials()}
            gate_reply = await judge_calls(self._state.gate_task(call, **asked))
            self._state.count_fallback(before, gate_reply.tally)
        # The end of this fallback may start the next one, so the history must hold it in its real order.
        shared = _share_budget(gate_reply.gate_decisions[0], primary, local=False)
        gate_decision = self._approvals.open_request(call, shared)
        self._show()
        return gate_decision

    async def _settle(self, call: CallPart, gate_decision: GateDecision) -> CallOutcome:
        """Settle one call. Judges it again each time its approval becomes stale, up to `MAX_REVISIONS`."""
        tries, revision = _Tries(), 1
        request: TurnQuestion | None = None
        while revision <= MAX_REVISIONS:
            if gate_decision.kind == "settled" and gate_decision.outcome is not None:
                return gate_decision.outcome
            if gate_decision.kind == "ask":
                # A request that was open when the turn stopped is cancelled already, and ends below with its own
                # outcome.
                if self._state.stopped and not self._approvals.revision(call.call):
                    return outcomes.unwanted_outcome(call.call, call.tool)
                if self._tools.is_aborted(call.call):
                    # The request was opened after a sibling had failed. Withdraw it, so that approvers are not left
                    # with it.
                    self._abort((call.call,))
                request = await self._approvals.wait_for_answer(gate_decision)
                if request.state == "cancelled" and self._tools.is_aborted(call.call):
                    return self._tools.unbegun_outcome(call.call, call.tool)
                if request.state not in ("approved", "answered"):
                    return denied_outcome(request)
                revision = request.revision
                call, gate_decision = self._approvals.apply_edit(call, gate_decision)
            if self._state.stopped:
                return outcomes.unwanted_outcome(call.call, call.tool)
            self._ran_with[call.call] = gate_decision.options
            task = self._run_task(call, gate_decision, request, tries)
            if request is not None and request.state == "answered":
                reply = await self._tools.take_answer(task, gate_decision)
            else:
                reply = await self._tools.run(task, gate_decision)
            revision += 1
            unknown = self._unknown(reply, gate_decision)
            if unknown is not None:
                doubt = await self._approvals.ask_about_doubt(call, gate_decision, tries.ticket(gate_decision.digest))
                if isinstance(doubt, CallOutcome):
                    return self._credit(_direct(doubt, gate_decision), gate_decision, request)
                if doubt is not None and doubt.word is not None:
                    return self._credit(await self._tools.keep(task, doubt.word), gate_decision, request)
                if doubt is None or doubt.state != "approved":
                    return self._credit(outcomes.given_up_outcome(unknown, doubt), gate_decision, request)
                # The call did not take effect: the same right to run continues under the next ticket.
                gate_decision = replace(gate_decision, kind="run")
                # The claimed ticket stays claimed: the next attempt needs its own.
                tries.give_up(gate_decision.digest)
                continue
            if reply.again == "undone":
                gate_decision = replace(gate_decision, kind="run")
                tries.give_up(gate_decision.digest)
                continue
            if not reply.again and reply.outcome is not None:
                return self._credit(_direct(reply.outcome, gate_decision), gate_decision, request)
            if reply.again == "lapsed":
                # The ticket is void, so that a late worker cannot run it. The next attempt needs the next ticket.
                tries.give_up(gate_decision.digest)
            if request is not None:
                self._state.book.lapse(request.id, workflow.now())
            if not self._state.stopped:
                request, gate_decision = None, await self._judge_again(call, gate_decision)
            if self._state.stopped:
                return outcomes.unwanted_outcome(call.call, call.tool)
        # The last round opened another request, and nothing waits for its decision.
        if request is None and self._state.book.waits(approval_id := self._state.approval_id(call.call)):
            self._state.book.cancel(approval_id, "", "Asked too often.", workflow.now())
        return outcomes.failed_outcome(call.call, call.tool, "refused", "Asked too often; give up on this call.")

    async def _judge_again(self, call: CallPart, before: GateDecision) -> GateDecision:
        async with self._approvals.hold_lock():
            again = {
                "spent": self._approvals.revision(call.call),
                "changed_by": self._approvals.editor(call.call),
                "denied": self._state.session_denials(),
            }
            gate_reply = await judge_calls(self._state.gate_task(call, **again))
        gate_decision = self._approvals.open_request(call, _share_budget(gate_reply.gate_decisions[0], before))
        self._show()
        return gate_decision

    def _run_task(
        self, call: CallPart, gate_decision: GateDecision, request: TurnQuestion | None, tries: _Tries
    ) -> RunTask:
        return RunTask(
            ctx=self._state.ctx_of(call.call),
            tool=call.tool,
            call=call.call,
            args=call.args,
            digest=gate_decision.digest,
            revision=None if request is None else request.revision,
            ticket=tries.ticket(gate_decision.digest),
            grant=gate_decision.grant,
            budget_chars=gate_decision.options.budget_chars,
        )

    def _unknown(self, reply: ToolReply, gate_decision: GateDecision) -> CallOutcome | None:
        """Return the outcome if approvers must be asked about it, or `None`."""
        if gate_decision.options.external and not gate_decision.options.ask_unreported:
            return None
        unknown = reply.outcome is not None and reply.outcome.code == "in_doubt"
        # A stopped turn asks no further questions: the call's outcome stays `in_doubt`.
        return reply.outcome if unknown and not self._state.stopped else None

    def _credit(self, outcome: CallOutcome, gate_decision: GateDecision, request: TurnQuestion | None) -> CallOutcome:
        credit: dict[str, Any] = {"rule": gate_decision.rule}
        if request is not None:
            note = " ".join(filter(None, (request.remarks, outcome.note)))
            decided_by = outcome.decided_by or request.decided_by
            credit |= {
                "approval_id": request.id,
                "decided_by": decided_by,
                "edited_by": request.edited_by,
                "note": note,
            }
        return replace(outcome, **credit)


def _direct(outcome: CallOutcome, gate_decision: GateDecision) -> CallOutcome:
    """Mark `outcome` if it may be the turn's answer.

    A decision that the call took effect is no value to answer with, nor is handed-off work.
    """
    answers = outcome.code == "ok" and not (outcome.decided_by or outcome.handed)
    direct = gate_decision.options.return_direct and answers
    return replace(outcome, direct=True) if direct else outcome


def _without_local(gate_decision: GateDecision) -> GateDecision:
    return replace(gate_decision, options=replace(gate_decision.options, local=False))


def _share_budget(gate_decision: GateDecision, before: GateDecision, **options: Any) -> GateDecision:
    """Limit the call to its own share of the batch's characters."""
    options["budget_chars"] = min(gate_decision.options.budget_chars, before.options.budget_chars)
    return replace(gate_decision, options=replace(gate_decision.options, **options))
