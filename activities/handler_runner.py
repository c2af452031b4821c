"""Runs a tool's handler within its time limit, and handles the cancellation of its turn."""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Final, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from signoff.activities.capability_backends import grant_capabilities, handed_out_secrets
from signoff.activities.hooks.hook_caller import HandlerEnded
from signoff.activities.results.result_processor import ProcessedResult, ResultProcessor, plain_outcome
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import ToolTask
from signoff.contracts.call import IN_DOUBT_TEXT, Permit
from signoff.contracts.errors import InDoubt
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.people.no_person import asker
from signoff.registry.capabilities import NOTHING_GRANTED, GrantedCapabilities
from signoff.registry.cel_context import ContextFields, handler_context, handler_data
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext

T = TypeVar("T")

# Python's own names: tools need not import Signoff's, and the network capability raises them as well.
TRANSIENT = (ConnectionError, TimeoutError, InDoubt)

_NO_SETTINGS: Final[Mapping[str, Any]] = MappingProxyType({})


async def run_handler(tool: Tool, args: dict[str, Any], context: ToolContext) -> Any:
    """Raises `HandlerEnded` if the handler tries to end the process."""
    try:
        return await tool.handler(args, context)
    except (SystemExit, KeyboardInterrupt) as error:
        # Unconverted, this would stop the worker with all its work, and then the next worker that retries.
        raise HandlerEnded(f"the tool tried to end the process ({type(error).__name__})") from None


def tool_context_of(
    permit: Permit,
    key: str,
    budget_chars: int,
    *,
    people: Directory,
    fields: ContextFields,
    settings: Mapping[str, Any] = _NO_SETTINGS,
    capabilities: GrantedCapabilities = NOTHING_GRANTED,
) -> ToolContext:
    """Build the context of a call's handler or probe.

    `key` is the ticket's key. `permit` must be proved: its approvers are reported to the tool.
    """
    ctx = permit.ctx
    known = people.person_id(ctx.user.user, ctx.tenant)
    last = permit.decisions[-1] if permit.decisions else None
    return ToolContext(
        actor_name=ctx.actor,
        session_id=ctx.session,
        turn_id=ctx.turn,
        call_id=permit.call,
        tenant_id=ctx.tenant,
        user_id=ctx.user.user,
        # An account that has left the directory still belongs to that person.
        person_id="" if not ctx.user.is_person else ctx.user.human if known == ctx.user.user else known,
        user=asker(ctx.user),
        idempotency_key=key,
        approval_decision="approved" if permit.kind == "approved" else None,
        approval_reason=last.reason if last else "",
        decided_by=", ".join(dict.fromkeys(each.subject for each in permit.decisions)),
        attempt=activity.info().attempt,
        result_budget_chars=budget_chars,
        route=ctx.route,
        step=ctx.step,
        context=handler_context(ctx, fields),
        data=handler_data(ctx, fields),
        settings=settings,
        capabilities=capabilities,
    )


class HandlerExecution:
    """Runs the handler of one tool, and converts its result or exception to an outcome."""

    def __init__(self, deps: WorkerDeps, tool: Tool, results: ResultProcessor) -> None:
        self._deps = deps
        self._tool = tool
        self._results = results

    async def run(self, task: ToolTask, args: dict[str, Any], key: str) -> ProcessedResult:
        """`key` is the ticket's key, if the call has one."""
        began = time.monotonic()
        made = await self._guard(task, args, key)
        return made._replace(outcome=replace(made.outcome, duration_ms=int((time.monotonic() - began) * 1000)))

    def context(self, task: ToolTask, key: str) -> ToolContext:
        given = grant_capabilities(self._deps.backends, self._deps.secrets, self._tool, task.permit.ctx.tenant)
        return tool_context_of(
            task.permit,
            key,
            task.budget_chars,
            people=self._deps.people,
            fields=self._deps.catalog.fields,
            settings=self._tool.settings,
            capabilities=given,
        )

    async def _guard(self, task: ToolTask, args: dict[str, Any], key: str) -> ProcessedResult:
        tool, context = self._tool, self.context(task, key)
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
                return ProcessedResult(plain_outcome(task.permit.call, task.tool, "in_doubt", IN_DOUBT_TEXT))
            if isinstance(error, TRANSIENT) and repeatable and activity.info().attempt < tool.tries:
                # Use the class alone, without the cause: Temporal stores failure messages in plain text.
                raise ApplicationError(f"{tool.name}: {type(error).__name__}", type="Transient") from None
            text = f"no answer within {tool.timeout:g} s" if limit.expired() else _words(error)
            secrets = handed_out_secrets(context.capabilities, self._deps.secrets)
            return await self._results.fail(task.permit, args, text, task.budget_chars, secrets)
        secrets = handed_out_secrets(context.capabilities, self._deps.secrets)
        return await self._shield(self._results.of(task.permit, args, value, task.budget_chars, key, secrets))

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
