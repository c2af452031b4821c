"""Runs one call of a turn: schedules its activity, and finds out what became of it when that was lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import NamedTuple

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

from signoff.approvals.audit_buffer import fold_facts
from signoff.approvals.audit_events import facts_of_end
from signoff.approvals.doubt_report import happened_outcome
from signoff.contracts import names
from signoff.contracts.activity_messages import GateDecision, OutcomeTask, RunOptions, ToolReply, ToolTask
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome, Permit
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.workflows import options, outcomes
from signoff.workflows.external_runner import ExternalRunner
from signoff.workflows.turn_state import TurnState

_LATE = "the approval ran out while the call waited for its turn to run"
_NO_STORE = "It could not be run: the store did not answer."


class _Run(NamedTuple):
    """Follows one activity that runs; nothing is lost when a `harmless` one is stopped."""

    handle: workflow.ActivityHandle[ToolReply]
    harmless: bool


class ToolRunner:
    """Runs the tools of one turn. Each task takes along what the turn has seen and nobody has recorded yet."""

    def __init__(self, state: TurnState, external: ExternalRunner) -> None:
        self._state = state
        self._external = external
        self._slots = ConcurrencySlots()
        self._runs: dict[str, _Run] = {}
        self._aborted: set[str] = set()
        self._stopping: set[asyncio.Task[None]] = set()

    def cancel(self) -> None:
        """Asks all that runs to stop, as the turn is cancelled; what has begun an effect is awaited all the same."""
        self._stop(list(self._runs))

    def abort(self, calls: Collection[str]) -> None:
        """Keeps `calls`, a sibling of which failed, from beginning, and stops those of them that only read.

        What a person approved, and what has begun an effect, goes on.
        """
        self._aborted.update(calls)
        self._stop([call for call in calls if call in self._runs and self._runs[call].harmless])

    def is_aborted(self, call: str) -> bool:
        """Returns whether a sibling of `call` failed and took it along."""
        return call in self._aborted

    def unbegun_outcome(self, call: CallPart) -> CallOutcome:
        """Returns the outcome of a call that nobody wants to run any more."""
        unwanted = self._state.stopped or not self.is_aborted(call.call)
        return (outcomes.unwanted_outcome if unwanted else outcomes.aborted_outcome)(call.call, call.tool)

    async def run(self, call: CallPart, gate_decision: GateDecision, permit: Permit, ticket: int) -> ToolReply:
        """Runs one call, in its turn. Never raises for what became of it."""
        ready = workflow.now()
        async with self._slots.acquire(gate_decision.options, partial(self._is_wanted, call.call, permit)) as begins:
            if not begins:
                return ToolReply(outcome=self.unbegun_outcome(call))
            left = _remaining_options(gate_decision.options, permit, ready)
            if left is None:
                return ToolReply(again="policy", note=_LATE)
            return await self._begin(call, replace(gate_decision, options=left), permit, ticket)

    async def keep(
        self, call: CallPart, gate_decision: GateDecision, permit: Permit, ticket: int, request: ApprovalRequest
    ) -> CallOutcome:
        """Records in its ticket that a call happened, as a person says in `request`, and returns its outcome.

        There it outlives the turn's history: a turn that is begun anew finds it, and asks nobody again.
        """
        word = request.votes[-1].decision
        happened = happened_outcome(call.call, call.tool, word)
        task = replace(self._question(call, gate_decision, permit, ticket), happened=word)
        try:
            reply = await _became(task, f"Write down that {call.tool} happened")
        except ActivityError:
            self._state.book.unwritten.give_back(task.audit)
            return happened
        # A worker that was only slow has told more than anybody who looked later.
        return self._count_lost(reply).outcome or happened

    def _stop(self, calls: Collection[str]) -> None:
        if calls:
            stopping = asyncio.create_task(self._stop_soon(calls))
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)

    async def _stop_soon(self, calls: Collection[str]) -> None:
        # What ended in this very workflow task is heard first: cancelled after its end, a handle forgets its result.
        await workflow.wait_condition(lambda: True)
        for call in calls:
            if call in self._runs:
                self._runs[call].handle.cancel()

    def _is_wanted(self, call: str, permit: Permit) -> bool:
        return not self._state.stopped and (permit.kind == "approved" or not self.is_aborted(call))

    async def _begin(self, call: CallPart, gate_decision: GateDecision, permit: Permit, ticket: int) -> ToolReply:
        given = self._state.turn.external
        # Where a rule lets it run its agent has just proposed it.
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
            # It may not have begun at all.
            self._state.book.unwritten.give_back(unwritten)
            return self._count_lost(await self._after_failure(error, call, gate_decision, permit, ticket))
        if reply.outcome is not None:
            self._state.count_work(reply.outcome)
        return reply

    async def _schedule(self, call: CallPart, task: ToolTask, gate_decision: GateDecision) -> ToolReply:
        handle: workflow.ActivityHandle[ToolReply] = workflow.start_activity(
            gate_decision.options.activity or call.tool,
            task,
            # The tool's activity compares it with its permit, so that no permit runs another call.
            activity_id=call.call,
            result_type=ToolReply,
            **options.tool(gate_decision.options),
        )
        # What a person let run is theirs to see through, and a remembered answer is spent with the call's ticket.
        by_rule = task.permit.kind == "auto" and not task.permit.grant
        harmless = by_rule and gate_decision.options.read_only
        self._runs[call.call] = _Run(handle, harmless)
        try:
            return await handle
        finally:
            del self._runs[call.call]

    def _count_lost(self, reply: ToolReply) -> ToolReply:
        """Counts the cost and time that `reply` tells of a lost call, and returns it: its worker was only slow, or it
        was looked up.
        """
        found = reply.outcome
        if found is not None and (found.cost or found.duration_ms):
            self._state.count_work(found)
        return reply

    async def _after_failure(
        self, error: FailureError, call: CallPart, gate_decision: GateDecision, permit: Permit, ticket: int
    ) -> ToolReply:
        kind = outcomes.error_type(error)
        # It had no effect that could be in doubt.
        if outcomes.was_cancelled(error) and gate_decision.options.read_only:
            return ToolReply(outcome=self.unbegun_outcome(call))
        if kind == "InDoubt":
            return ToolReply(outcome=outcomes.in_doubt_outcome(call.call, call.tool))
        if kind == "Refused":
            return ToolReply(
                outcome=outcomes.failed_outcome(call.call, call.tool, "refused", outcomes.error_text(error))
            )
        # Local tools only read, and take no ticket: there is nothing to look up.
        if gate_decision.options.local:
            # Where a store stands is nothing that a model needs to know.
            text = _NO_STORE if kind == "StoreUnavailable" else outcomes.error_text(error)
            return ToolReply(outcome=outcomes.failed_outcome(call.call, call.tool, "execution_failed", text))
        # Whatever the server calls the failure, only the ticket knows whether the effect had begun.
        return await _became(
            self._question(call, gate_decision, permit, ticket), f"Find out what became of {call.tool}"
        )

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
    """Returns `options` with what is left of an approval after the wait for a place; None where nothing is."""
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
    """Marks one call in the line, or among those that run. Equal to itself only: options of two calls may be equal."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options


class ConcurrencySlots:
    """Keeps the calls that run, and the line of those that are ready to. Waiting for people takes no place.

    Nobody overtakes, so an exclusive call gets its turn. No lock of asyncio's: what the line depends on is looked at
    after each event of the history, and comes out the same whenever that is read.
    """

    def __init__(self) -> None:
        self._line: list[_Place] = []
        self._inside: list[_Place] = []

    @asynccontextmanager
    async def acquire(self, options: RunOptions, wanted: Callable[[], bool]) -> AsyncIterator[bool]:
        """Gives a call a place as soon as there is one; yields False, and gives none, once it is not `wanted`."""
        place = _Place(options)
        self._line.append(place)
        try:
            if wanted() and not self._may(place):
                await workflow.wait_condition(lambda: not wanted() or self._may(place))
        finally:
            # Cancelled as well: whoever stays in the line without coming in keeps out all behind them.
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
