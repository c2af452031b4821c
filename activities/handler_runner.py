"""Runs a tool's handler to its end, within its time and what a cancelled turn may stop."""

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
from signoff.registry.capabilities import NOTHING_GRANTED, GrantedCapabilities
from signoff.registry.cel_context import ContextFields, handler_context, handler_data
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext

T = TypeVar("T")

# Python's own names for it: tools need not import ours, and the network capability raises them as well.
TRANSIENT = (ConnectionError, TimeoutError, InDoubt)

_NO_SETTINGS: Final[Mapping[str, Any]] = MappingProxyType({})


async def run_handler(tool: Tool, args: dict[str, Any], context: ToolContext) -> Any:
    """Runs the handler and returns its result; an attempt to end the process is raised as `HandlerEnded`."""
    try:
        return await tool.handler(args, context)
    except (SystemExit, KeyboardInterrupt) as error:
        # Let through, it would stop the worker with everything it runs, and then the next one that tries.
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
    """Makes the context of the handler, or the probe, of a call; `key` is that of its ticket, `fields` are the context
    fields of the catalog.

    `permit` is one that was proved: whom it names is told to the tool as who decided.
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
        # An account that has left the directory since is still that human's.
        person_id=ctx.user.human if known == ctx.user.user else known,
        user=ctx.user,
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
    """Runs the handler of one tool, and makes an outcome of whatever it returns or raises."""

    def __init__(self, deps: WorkerDeps, tool: Tool, results: ResultProcessor) -> None:
        self._deps = deps
        self._tool = tool
        self._results = results

    async def run(self, task: ToolTask, args: dict[str, Any], key: str) -> ProcessedResult:
        """Runs the handler and measures how long it took; `key` is that of the ticket, if the call has one."""
        began = time.monotonic()
        made = await self._guard(task, args, key)
        return made._replace(outcome=replace(made.outcome, duration_ms=int((time.monotonic() - began) * 1000)))

    def context(self, task: ToolTask, key: str) -> ToolContext:
        """Makes the context of the handler, or the probe, with the capabilities of the tool."""
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
            # Whatever escaped would fail the activity, and the server would run the tool again, without end.
            repeatable = tool.read_only or tool.idempotent
            if (limit.expired() or isinstance(error, InDoubt)) and not repeatable:
                # The handler was stopped in the middle of its work, or says so itself: its effect may have happened.
                return ProcessedResult(plain_outcome(task.permit.call, task.tool, "in_doubt", IN_DOUBT_TEXT))
            if isinstance(error, TRANSIENT) and repeatable and activity.info().attempt < tool.tries:
                # By its class alone, without its cause: Temporal keeps the words of failures in plain text.
                raise ApplicationError(f"{tool.name}: {type(error).__name__}", type="Transient") from None
            text = f"no answer within {tool.timeout:g} s" if limit.expired() else _words(error)
            secrets = handed_out_secrets(context.capabilities, self._deps.secrets)
            return await self._results.fail(task.permit, args, text, task.budget_chars, secrets)
        secrets = handed_out_secrets(context.capabilities, self._deps.secrets)
        return await self._shield(self._results.of(task.permit, args, value, task.budget_chars, key, secrets))

    async def _shield(self, work: Coroutine[Any, Any, T], limit: asyncio.Timeout | None = None) -> T:
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
                asked = is_unwanted() and not self._tool.read_only
                if not asked or running.cancelled() or (limit is not None and limit.expired()):
                    running.cancel()
                    raise
                _put_off_cancel()

    def _reads_args_after(self) -> bool:
        """Returns whether anything reads the arguments after the handler, which may do to them what it likes."""
        # They are looked up, shortened by, hidden and recorded as what they were; a plain read is spared the copy.
        tool = self._tool
        seen = tool.probe is not None or tool.name in self._deps.catalog.reducers
        return seen or not tool.read_only or tool.scope == "specialist" or bool(tool.masked_arguments)


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Awaits what lies between a claim and the handler to its end: else nobody would know what was claimed."""
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
