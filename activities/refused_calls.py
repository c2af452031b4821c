"""Replies for calls that do not run: refused, ended by gates, or answered by an earlier attempt."""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from signoff.activities.call_journal import Journal
from signoff.activities.gate_activity import is_of, settled_outcome
from signoff.activities.heartbeat import check_ended
from signoff.activities.results.result_processor import plain_outcome
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import ToolReply, ToolTask
from signoff.contracts.call import IN_DOUBT_TEXT
from signoff.contracts.ids import SessionKey
from signoff.registry.gates.local_decision import LocalGateDecision
from signoff.registry.tool import Tool
from signoff.store.content_store import load_in
from signoff.store.tickets import Ticket, ticket_key


class RefusedCalls:
    """Ends and records the calls of one tool that do not run."""

    def __init__(self, deps: WorkerDeps, tool: Tool, journal: Journal) -> None:
        self._deps = deps
        self._tool = tool
        self._journal = journal

    async def refuse(self, task: ToolTask, why: str, message: str = "", *, vouched: bool = True) -> ToolReply:
        """If the call may have run before, `message` replaces "Not executed".

        `vouched`: the gateway signed the requester.
        """
        await self._journal.record_refusal(task.permit, why, vouched=vouched)
        return refusal(task, self._tool, why, message)

    async def end(self, task: ToolTask, found: LocalGateDecision) -> ToolReply:
        """End and record a call that the gates permitted before and not now. No other entry reports it."""
        outcome = settled_outcome(found)
        await self._journal.alone(await self._journal.end(task.permit, outcome, ""))
        return ToolReply(outcome=outcome)

    async def earlier_reply(self, task: ToolTask) -> ToolReply | None:
        """Return the reply of an earlier attempt of exactly this call, or `None` if none began.

        The present obstacle did not exist then, so the call must not end, or be asked, as if nothing had happened. A
        read leaves no trace, except one begun under another definition, which may have acted.
        """
        if self._tool.read_only and is_of(
            task.permit, self._tool, await load_in(self._deps.store, task.args, place_of(task))
        ):
            return None
        return await left_reply(self._deps, task)


def refusal(task: ToolTask, tool: Tool, why: str, message: str = "") -> ToolReply:
    activity.logger.warning("refused to run %s: %s", tool.name, why)
    words = message or f"Not executed: {why}."
    return ToolReply(outcome=plain_outcome(task.permit.call, task.tool, "refused", words))


async def left_reply(deps: WorkerDeps, task: ToolTask) -> ToolReply | None:
    """Return the reply that the call's tickets hold from earlier attempts, or `None`.

    Raises `InDoubt`. An earlier ticket without an outcome does not count here: approvers said that it did not happen.
    """
    if task.ticket < 1:
        return None
    own = await own_ticket(deps, task, task.ticket)
    if own is not None and own.state == "claimed":
        await check_ended(deps.store, own.key)
        raise ApplicationError(IN_DOUBT_TEXT, type="InDoubt", non_retryable=True)
    if own is not None and own.outcome is not None:
        return ToolReply(outcome=own.outcome)
    for number in range(1, task.ticket):
        earlier = await own_ticket(deps, task, number)
        if earlier is None:
            break
        if earlier.outcome is not None and earlier.outcome.code != "in_doubt":
            # Its worker was slow, not lost.
            return ToolReply(outcome=earlier.outcome)
    return None


async def own_ticket(deps: WorkerDeps, task: ToolTask, number: int) -> Ticket | None:
    """`None` if the ticket belongs to another call."""
    found = await deps.store.read_ticket(ticket_key(task.permit.digest, number))
    # The digest is the permit's claim. Another call's ticket must not become the outcome of this one.
    here = (activity.info().workflow_id, task.permit.call, task.tool)
    return None if found is None or (found.workflow, found.call, found.tool) != here else found


def place_of(task: ToolTask) -> SessionKey:
    return SessionKey(task.permit.ctx.tenant, task.permit.ctx.session)
