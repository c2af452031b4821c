"""Runs a tool's handler within its time limit despite a cancelled turn, and its `probe` after an unknown outcome."""

import asyncio
import time
from collections.abc import Coroutine
from copy import deepcopy
from typing import Any, Final, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from signoff.activities.call_journal import CallContent, Journal, attribute
from signoff.activities.capability_backends import grant_capabilities, handed_out_secrets
from signoff.activities.hooks.hook_caller import HandlerEnded, NoAnswer, ask
from signoff.activities.results.result_processor import ProcessedResult, ResultProcessor, plain_outcome
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals import call_events
from signoff.contracts.activity_messages import RunTask, ToolReply
from signoff.contracts.call import IN_DOUBT_TEXT, RunRight
from signoff.contracts.errors import InDoubt
from signoff.formats.replace import replace
from signoff.people.no_person import asker
from signoff.registry.cel_context import handler_context, handler_data
from signoff.registry.hooks import PROBE, CannotTell, DidNotHappen, Happened, ProbeAnswer
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure
from signoff.store.tickets import Claim

T = TypeVar("T")

# Python's own names: tools need not import Signoff's, and the network capability raises them as well.
TRANSIENT = (ConnectionError, TimeoutError, InDoubt)

HAPPENED_NOTE: Final = "The tool did not answer; it was looked up, and this happened."
UNDONE_NOTE: Final = "it was looked up, and did not happen"


async def run_handler(tool: Tool, args: dict[str, Any], context: ToolContext) -> Any:
    """Raises `HandlerEnded` if the handler tries to end the process."""
    try:
        return await tool.handler(args, context)
    except (SystemExit, KeyboardInterrupt) as error:
        # Unconverted, this would stop the worker with all its work, and then the next worker that retries.
        raise HandlerEnded(f"the tool tried to end the process ({type(error).__name__})") from None


def tool_context_of(deps: WorkerDeps, tool: Tool, task: RunTask, right: RunRight, key: str) -> ToolContext:
    """Build the context of a call's handler or probe, with the approvers in `right`. `key` is the ticket's key."""
    ctx = task.ctx
    known = deps.people.person_id(ctx.user.user, ctx.tenant)
    return ToolContext(
        actor_name=ctx.actor,
        session_id=ctx.session,
        turn_id=ctx.turn,
        call_id=task.call,
        tenant_id=ctx.tenant,
        user_id=ctx.user.user,
        # An account that has left the directory still belongs to that person.
        person_id="" if not ctx.user.is_person else ctx.user.human if known == ctx.user.user else known,
        user=asker(ctx.user),
        idempotency_key=key,
        approval_decision=None if right.revision is None else "approved",
        approval_reason=right.decisions[-1].reason if right.decisions else "",
        decided_by=", ".join(dict.fromkeys(each.subject for each in right.decisions)),
        attempt=activity.info().attempt,
        result_budget_chars=task.budget_chars,
        route=ctx.route,
        step=ctx.step,
        context=handler_context(ctx, deps.catalog.fields),
        data=handler_data(ctx, deps.catalog.fields),
        settings=tool.settings,
        previewed=dict(right.previewed),
        capabilities=grant_capabilities(deps.backends, deps.secrets, tool, ctx.tenant),
    )


class HandlerExecution:
    """Runs the handler of one tool, and converts its result or exception to an outcome."""

    def __init__(self, deps: WorkerDeps, tool: Tool, results: ResultProcessor) -> None:
        self._deps = deps
        self._tool = tool
        self._results = results

    async def run(self, task: RunTask, right: RunRight, args: dict[str, Any], key: str) -> ProcessedResult:
        """`key` is the ticket's key, if the call has one."""
        began = time.monotonic()
        made = await self._guard(task, args, self.context(task, right, key))
        return made._replace(outcome=replace(made.outcome, duration_ms=int((time.monotonic() - began) * 1000)))

    def context(self, task: RunTask, right: RunRight, key: str) -> ToolContext:
        return tool_context_of(self._deps, self._tool, task, right, key)

    async def _guard(self, task: RunTask, args: dict[str, Any], context: ToolContext) -> ProcessedResult:
        tool = self._tool
        given = deepcopy(args) if self._reads_args_after() else args
        limit = asyncio.timeout(tool.timeout)
        try:
            async with limit:
                value = await self._shield(run_handler(tool, given, context), limit)
        except Exception as error:
            # An escaped exception would fail the activity, and the server would run the tool again without end.
            repeatable = tool.read_only or tool.idempotent
            if (limit.expired() or isinstance(error, InDoubt)) and not repeatable:
                # The handler was stopped in the middle, or reported that itself: its effect may have happened.
                return ProcessedResult(plain_outcome(task.call, task.tool, "in_doubt", IN_DOUBT_TEXT))
            if isinstance(error, TRANSIENT) and repeatable and activity.info().attempt < tool.tries:
                # Use the class alone, without the cause: Temporal stores failure messages in plain text.
                raise ApplicationError(f"{tool.name}: {type(error).__name__}", type="Transient") from None
            text = f"no answer within {tool.timeout:g} s" if limit.expired() else _words(error)
            secrets = handed_out_secrets(context.capabilities, self._deps.secrets)
            return await self._results.of(task, args, ToolFailure(text), secrets=secrets)
        secrets = handed_out_secrets(context.capabilities, self._deps.secrets)
        return await self._shield(self._results.of(task, args, value, context.idempotency_key, secrets))

    async def _shield(self, work: Coroutine[Any, Any, T], limit: asyncio.Timeout | None = None) -> T:
        """Await a handler, or the processing of its result, to the end: a cancelled turn must not lose an effect."""
        running = asyncio.ensure_future(work)
        while True:
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                if running.cancelled() and not _is_cancelled():
                    # Reported as a cancelled activity, it would be retried without end.
                    raise HandlerEnded("the tool cancelled itself") from None
                # Stop a read at once: there is no effect to lose.
                asked = is_unwanted() and not self._tool.read_only
                if not asked or running.cancelled() or (limit is not None and limit.expired()):
                    running.cancel()
                    raise
                _put_off_cancel()

    def _reads_args_after(self) -> bool:
        """Return whether the arguments are read after the handler, which may change them."""
        # Probe, reducer, redaction and audit log need the original arguments. A plain read avoids the copy.
        tool = self._tool
        seen = tool.probe is not None or tool.name in self._deps.catalog.reducers
        return seen or not tool.read_only or tool.scope == "specialist" or bool(tool.masked_arguments)


class ProbeRunner:
    """Runs the probe of one tool."""

    def __init__(self, deps: WorkerDeps, tool: Tool, results: ResultProcessor, seconds: float | None = None) -> None:
        self._deps = deps
        self._store = deps.store
        self._secrets = deps.secrets
        self._clock = deps.clock
        self._tool = tool
        self._results = results
        self._journal = Journal(deps, tool)
        self._seconds = seconds

    async def reply(self, task: RunTask, args: dict[str, Any], context: ToolContext) -> ToolReply | None:
        """Probe the call with the claimed ticket `context.idempotency_key`.

        Returns `None` if approvers must be asked. The finding is recorded on the ticket: the call is never probed
        again, even if the workflow is lost.
        """
        if self._tool.probe is None:
            return None
        answer = await self._answer(args, context)
        key = context.idempotency_key
        entry = call_events.probe_entry(task, key, _word(answer), self._clock())
        [entry] = await attribute(self._deps, task.ctx, [entry])
        if isinstance(answer, Happened):
            secrets = handed_out_secrets(context.capabilities, self._secrets)
            made = await self._results.of(task, args, answer.result, key, secrets)
            note = " ".join(filter(None, (HAPPENED_NOTE, made.outcome.note)))
            outcome = replace(made.outcome, note=note)
            seen = [entry, *await self._journal.end(task, outcome, key, CallContent(args, made.kept))]
            recorded = await self._store.record(key, outcome, also=self._journal.together(seen))
            await self._journal.apart(seen)
            return ToolReply(outcome=recorded)
        if isinstance(answer, DidNotHappen):
            found = await self._store.void_claimed(key, also=self._journal.together([entry]))
            await self._journal.apart([entry])
            # Not necessarily `undone`: a slow worker may have recorded its outcome in between, and that one counts.
            return recorded_reply(found)
        await self._journal.alone([entry])
        return None

    async def _answer(self, args: dict[str, Any], context: ToolContext) -> ProbeAnswer:
        if self._tool.probe is None:
            return CannotTell()
        try:
            return await ask(PROBE, self._tool.probe, args, context, seconds=self._seconds)
        except NoAnswer as none:
            # A failed probe knows nothing: treated as `DidNotHappen`, it would let the tool act twice.
            activity.logger.warning("the probe of %s %s", self._tool.name, none)
            return CannotTell()


def recorded_reply(found: Claim) -> ToolReply | None:
    """Return a ticket's outcome, or that the next ticket may be claimed, or `None`."""
    if found.kind == "done" and found.outcome is not None:
        return ToolReply(outcome=found.outcome)
    if found.kind == "void":
        return ToolReply(again="lapsed", note="the approval was not used in time")
    return ToolReply(again="undone", note=UNDONE_NOTE) if found.kind == "undone" else None


def _word(answer: ProbeAnswer) -> str:
    if isinstance(answer, CannotTell):
        return "unknown"
    return "happened" if isinstance(answer, Happened) else "did_not_happen"


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await the work between a claim and the handler to its end: otherwise the claim would be unknown."""
    running = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if running.cancelled() or not is_unwanted():
                running.cancel()
                raise
            _put_off_cancel()


def is_unwanted() -> bool:
    """Return whether the turn has cancelled this call or has ended.

    A stopping worker leaves the call to another one.
    """
    details = activity.cancellation_details()
    # Ending or resetting the turn, or scheduling the call twice, must not interrupt a begun call: its outcome would be
    # unknown.
    return details is not None and not details.worker_shutdown


def _is_cancelled() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def _put_off_cancel() -> None:
    # A counted cancellation would hide the tool's own timeout.
    current = asyncio.current_task()
    if current is not None:
        current.uncancel()


def _words(error: Exception) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__
