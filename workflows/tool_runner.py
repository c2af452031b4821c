"""Runs one call of a turn, and looks up the outcome if its activity is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import NamedTuple

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

from signoff.approvals.approval_outcomes import happened_outcome
from signoff.approvals.audit_buffer import fold_facts
from signoff.approvals.audit_events import facts_of_end
from signoff.contracts import names
from signoff.contracts.activity_messages import GateDecision, OutcomeTask, RunOptions, ToolReply, ToolTask
from signoff.contracts.call import CallOutcome, Permit
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.workflows import options, outcomes
from signoff.workflows.external_runner import ExternalRunner
from signoff.workflows.turn_state import TurnState

_LATE = "the approval ran out while the call waited for its turn to run"
_NO_STORE = "It could not be run: the store did not answer."


class _Run(NamedTuple):
    """One running activity. Stopping a `harmless` one loses nothing."""

    handle: workflow.ActivityHandle[ToolReply]
    harmless: bool


class ToolRunner:
    """Runs the tools of one turn. Each task carries the audit entries that are not recorded yet."""

    def __init__(self, state: TurnState, external: ExternalRunner) -> None:
        self._state = state
        self._external = external
        self._slots = ConcurrencySlots()
        self._runs: dict[str, _Run] = {}
        self._aborted: set[str] = set()
        self._stopping: set[asyncio.Task[None]] = set()

    def cancel(self) -> None:
        """Calls that have started an effect are still awaited."""
        self._stop(list(self._runs))

    def abort(self, calls: Collection[str]) -> None:
        """Prevent `calls`, whose sibling failed, from starting, and stop read-only ones.

        Approved calls, and calls that have started an effect, continue.
        """
        self._aborted.update(calls)
        self._stop([call for call in calls if call in self._runs and self._runs[call].harmless])

    def is_aborted(self, call: str) -> bool:
        return call in self._aborted

    def unbegun_outcome(self, call: CallPart) -> CallOutcome:
        unwanted = self._state.stopped or not self.is_aborted(call.call)
        return (outcomes.unwanted_outcome if unwanted else outcomes.aborted_outcome)(call.call, call.tool)

    async def run(self, call: CallPart, gate_decision: GateDecision, permit: Permit, ticket: int) -> ToolReply:
        """Run one call once a slot is free. Never raises because of the call's outcome."""
        ready = workflow.now()
        async with self._slots.acquire(gate_decision.options, partial(self._is_wanted, call.call, permit)) as begins:
            if not begins:
                return ToolReply(outcome=self.unbegun_outcome(call))
            left = _remaining_options(gate_decision.options, permit, ready)
            if left is None:
                return ToolReply(again="policy", note=_LATE)
            return await self._begin(call, replace(gate_decision, options=left), permit, ticket)

    async def keep(
        self, call: CallPart, gate_decision: GateDecision, permit: Permit, ticket: int, word: Decision
    ) -> CallOutcome:
        """Record in the ticket that the call happened, by `word`.

        The ticket outlives the turn's history: a restarted turn finds the outcome there and asks no one again.
        """
        happened = happened_outcome(call.call, call.tool, word)
        task = replace(self._question(call, gate_decision, permit, ticket), happened=word)
        try:
            reply = await _became(task, f"Write down that {call.tool} happened")
        except ActivityError:
            self._state.book.unwritten.give_back(task.audit)
            return happened
        # Prefer a slow worker's own report: it holds more than the person's decision.
        return self._count_lost(reply).outcome or happened

    def _stop(self, calls: Collection[str]) -> None:
        if calls:
            stopping = asyncio.create_task(self._stop_soon(calls))
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)

    async def _stop_soon(self, calls: Collection[str]) -> None:
        # First handle activities that ended in this workflow task: cancelling a finished handle loses its result.
        await workflow.wait_condition(lambda: True)
        for call in calls:
            if call in self._runs:
                self._runs[call].handle.cancel()

    def _is_wanted(self, call: str, permit: Permit) -> bool:
        return not self._state.stopped and (permit.kind == "approved" or not self.is_aborted(call))

    async def _begin(self, call: CallPart, gate_decision: GateDecision, permit: Permit, ticket: int) -> ToolReply:
        given = self._state.turn.external
        # Skip calls that a rule allows: their agent has only just proposed them.
        if given is not None and given.attended and permit.kind == "approved" and not gate_decision.options.external:
            ready = workflow.now()
            unwanted = await self._external.wait_for_agent(call, gate_decision)
            left = _remaining_options(gate_decision.options, permit, ready)
            if unwanted is not None or left is None:
                return unwanted or ToolReply(again="policy", note=_LATE)
            gate_decision = replace(gate_decision, options=left)
        self._state.show_state(call.call, "running", gate_decision.rule)
        unwritten = self._state.book.unwritten.take()
        task = ToolTask(
            permit=permit,
            tool=call.tool,
            args=call.args,
            ticket=ticket,
            budget_chars=gate_decision.options.budget_chars,
            audit=fold_facts(unwritten, facts_of_end(permit)),
        )
        if gate_decision.options.external:
            begun = partial(self._question, call, gate_decision, permit, ticket)
            reply = await self._external.run(call, task, gate_decision, begun)
            if not self._external.is_recorded:
                self._state.book.unwritten.give_back(unwritten)
            return reply
        try:
            reply = await (
                _local(call, task, gate_decision)
                if gate_decision.options.local
                else self._schedule(call, task, gate_decision)
            )
        except outcomes.LOST as error:
            # The activity may never have started, so its entries may be unrecorded.
            self._state.book.unwritten.give_back(unwritten)
            return self._count_lost(await self._after_failure(error, call, gate_decision, permit, ticket))
        if reply.outcome is not None:
            self._state.count_work(reply.outcome)
        return reply

    async def _schedule(self, call: CallPart, task: ToolTask, gate_decision: GateDecision) -> ToolReply:
        handle: workflow.ActivityHandle[ToolReply] = workflow.start_activity(
            gate_decision.options.activity or call.tool,
            task,
            # The tool's activity compares this id with its permit, so that no permit runs another call.
            activity_id=call.call,
            result_type=ToolReply,
            **options.tool(gate_decision.options),
        )
        # Let approved calls finish. Calls under a grant as well: their ticket has spent the grant.
        by_rule = task.permit.kind == "auto" and not task.permit.grant
        harmless = by_rule and gate_decision.options.read_only
        self._runs[call.call] = _Run(handle, harmless)
        try:
            return await handle
        finally:
            del self._runs[call.call]

    def _count_lost(self, reply: ToolReply) -> ToolReply:
        """Count the cost and time of a lost call.

        They are known if the worker was only slow, or if the outcome was looked up.
        """
        outcome = reply.outcome
        if outcome is not None and (outcome.cost or outcome.duration_ms):
            self._state.count_work(outcome)
        return reply

    async def _after_failure(
        self, error: FailureError, call: CallPart, gate_decision: GateDecision, permit: Permit, ticket: int
    ) -> ToolReply:
        kind = outcomes.error_type(error)
        # A read-only call has no effect, so its outcome cannot be unknown.
        if outcomes.was_cancelled(error) and gate_decision.options.read_only:
            return ToolReply(outcome=self.unbegun_outcome(call))
        if kind == "InDoubt":
            return ToolReply(outcome=outcomes.in_doubt_outcome(call.call, call.tool))
        if kind == "Refused":
            return ToolReply(
                outcome=outcomes.failed_outcome(call.call, call.tool, "refused", outcomes.error_text(error))
            )
        # Local tools only read and claim no ticket, so there is nothing to look up.
        if gate_decision.options.local:
            # Do not reveal the store's address to the model.
            text = _NO_STORE if kind == "StoreUnavailable" else outcomes.error_text(error)
            return ToolReply(outcome=outcomes.failed_outcome(call.call, call.tool, "execution_failed", text))
        # Only the ticket shows whether the effect had started. The server's error does not.
        return await _became(self._question(call, gate_decision, permit, ticket), f"Look up the outcome of {call.tool}")

    def _question(self, call: CallPart, gate_decision: GateDecision, permit: Permit, ticket: int) -> OutcomeTask:
        return OutcomeTask(
            permit=permit,
            tool=call.tool,
            ticket=ticket,
            idempotent=gate_decision.options.idempotent,
            args=call.args,
            budget_chars=gate_decision.options.budget_chars,
            audit=self._state.book.unwritten.take(),
        )


def _remaining_options(options: RunOptions, permit: Permit, ready: datetime) -> RunOptions | None:
    """Return `options` with the approval's remaining lifetime after the wait for a slot, or `None` if it expired."""
    if permit.kind == "auto":
        return options
    left = options.grant_ttl - (workflow.now() - ready).total_seconds()
    return replace(options, grant_ttl=left) if left > 0 else None


async def _became(task: OutcomeTask, summary: str) -> ToolReply:
    reply: ToolReply = await workflow.execute_activity(
        names.OUTCOME, task, result_type=ToolReply, summary=summary, **options.OUTCOME
    )
    return reply


async def _local(call: CallPart, task: ToolTask, gate_decision: GateDecision) -> ToolReply:
    reply: ToolReply = await workflow.execute_local_activity(
        gate_decision.options.activity or call.tool,
        task,
        activity_id=call.call,
        result_type=ToolReply,
        **options.local_tool(gate_decision.options),
    )
    return reply


class _Place:
    """One call that waits or runs. Compares by identity, because two calls may have equal options."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options


class ConcurrencySlots:
    """The running calls and the queue of ready ones.

    A call that waits for approval takes no slot. No call overtakes another, so an exclusive call gets its turn. No
    asyncio locks: the queue's conditions are checked after each history event, which makes replay deterministic.
    """

    def __init__(self) -> None:
        self._line: list[_Place] = []
        self._inside: list[_Place] = []

    @asynccontextmanager
    async def acquire(self, options: RunOptions, wanted: Callable[[], bool]) -> AsyncIterator[bool]:
        """Yield true once the call has a slot, or false without a slot once it is no longer `wanted`."""
        place = _Place(options)
        self._line.append(place)
        try:
            if wanted() and not self._may(place):
                await workflow.wait_condition(lambda: not wanted() or self._may(place))
        finally:
            # Also after cancellation: a call left in the queue would block all behind it.
            self._line.remove(place)
        if not wanted():
            yield False
            return
        self._inside.append(place)
        try:
            yield True
        finally:
            self._inside.remove(place)

    def _may(self, place: _Place) -> bool:
        if self._line[0] is not place:
            return False
        if not self._inside:
            return True
        alone = place.options.exclusive or any(each.options.exclusive for each in self._inside)
        return not alone and len(self._inside) < place.options.at_once
