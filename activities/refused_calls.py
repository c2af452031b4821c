"""Answers for calls that do not run: refused, ended by their gates, or told of an earlier attempt."""

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
    """Ends the calls of one tool that do not run, and records that."""

    def __init__(self, deps: WorkerDeps, tool: Tool, journal: Journal) -> None:
        self._deps = deps
        self._tool = tool
        self._journal = journal

    async def refuse(self, task: ToolTask, why: str, message: str = "", *, vouched: bool = True) -> ToolReply:
        """Refuses to run the call; where it may have run before, `message` says so instead of that nothing did.

        `vouched`: who asked is whom the gateway signed for.
        """
        await self._journal.record_refusal(task.permit, why, vouched=vouched)
        return refusal(task, self._tool, why, message)

    async def end(self, task: ToolTask, found: LocalGateDecision) -> ToolReply:
        """Ends and records a call that the gates let through before and do not now; nothing else would tell of it."""
        outcome = settled_outcome(found)
        await self._journal.alone(await self._journal.end(task.permit, outcome, ""))
        return ToolReply(outcome=outcome)

    async def earlier_reply(self, task: ToolTask) -> ToolReply | None:
        """Returns the reply that an earlier attempt of this very call left, where it was begun; None where it was not.

        What is in the way now was not there then, so it must not be told, or asked, as if nothing had happened. Of a
        tool that only reads nothing is left, unless it was begun under another definition: then it may have acted.
        """
        if self._tool.read_only and is_of(
            task.permit, self._tool, await load_in(self._deps.store, task.args, place_of(task))
        ):
            return None
        return await left_reply(self._deps, task)


def refusal(task: ToolTask, tool: Tool, why: str, message: str = "") -> ToolReply:
    """Builds the reply of a call that is refused, and logs why."""
    activity.logger.warning("refused to run %s: %s", tool.name, why)
    words = message or f"Not executed: {why}."
    return ToolReply(outcome=plain_outcome(task.permit.call, task.tool, "refused", words))


async def left_reply(deps: WorkerDeps, task: ToolTask) -> ToolReply | None:
    """Returns the reply that earlier attempts of the call left in its tickets; None for none. Raises `InDoubt`.

    An earlier ticket of which nobody knows says nothing here: people said that it did not happen.
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
            # Its worker was not lost, only slow.
            return ToolReply(outcome=earlier.outcome)
    return None


async def own_ticket(deps: WorkerDeps, task: ToolTask, number: int) -> Ticket | None:
    """Returns the ticket of this number, if it is this call's."""
    found = await deps.store.read_ticket(ticket_key(task.permit.digest, number))
    # The digest is the permit's word. A ticket of another call must not be told as the outcome of this one.
    here = (activity.info().workflow_id, task.permit.call, task.tool)
    return None if found is None or (found.workflow, found.call, found.tool) != here else found


def place_of(task: ToolTask) -> SessionKey:
    """Returns the session in whose name the content of a call is kept."""
    return SessionKey(task.permit.ctx.tenant, task.permit.ctx.session)
