"""Converts a handler's or probe's return value to the call's outcome: checked, shortened, cut, fenced, stored."""

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from temporalio import activity

from signoff.activities.hooks.hook_caller import await_within, call_function
from signoff.activities.results.read_rest_tool import how_to_read_on
from signoff.activities.results.step_mover import Move, StepMover
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.redaction import HIDDEN, redact_secrets, redact_value, secret_values
from signoff.contracts.activity_messages import RunTask
from signoff.contracts.call import CallCode, CallOutcome
from signoff.contracts.canonical_json import json_bytes, nesting
from signoff.contracts.content import Content
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey, completion_of
from signoff.contracts.limits import MAX_NESTING, RESULT_BYTES
from signoff.contracts.updates import UPDATE, UPDATE_FAILED, UPDATE_LOST
from signoff.formats.replace import replace
from signoff.registry.results.destinations import AUDIT, LLM_SESSION, Delivery, DeliveryFailure, Destination
from signoff.registry.results.output_check import output_problem
from signoff.registry.results.reducers import reduce_result
from signoff.registry.results.untrusted_text import fence_text
from signoff.registry.results.update_check import AcceptedUpdates, accept_updates
from signoff.registry.tool import Tool
from signoff.registry.tool_result import (
    AnnotatedRecord,
    Filter,
    HandOff,
    RecordField,
    ReducerInput,
    Result,
    ToolFailure,
    ToolResult,
    copy_record,
    hand_off_result,
    jsonable,
    render_value,
    select_slots,
    trim,
)
from signoff.store.content_store import to_content
from signoff.store.truncated_results import TruncatedResults

DELIVERY_SECONDS: Final = 5.0
"""Time limit for one destination to build and accept its view. All destinations run in parallel."""
GATE: Final = "distribute"
"""The gate of a call that ran, but whose record has no view for the model."""
_OBSERVER_SECONDS: Final = 1.0
T = TypeVar("T")

STORE_PAUSE = 1.0
OUTPUT: Final = "output"
"""The gate of a call that ran, but whose result does not match its tool's output schema."""
_NAMES_CHARS: Final = 200


NO_VIEW: Final = (
    "`{}` ran and took effect, but no view of its result could be made for you. "
    "Do not call it again for that; tell the user."
)


class RecordViews(NamedTuple):
    """The views of a distributed record for Signoff itself, as plain data."""

    model: dict[str, Any] | None
    """`None` if the filter failed."""
    audit: dict[str, Any]


class RecordDistributor:
    """Each destination of a record gets its own view, all in parallel."""

    def __init__(self, deps: WorkerDeps, tool: Tool) -> None:
        self._distribution = deps.catalog.distribution
        self._tool = tool

    async def views(self, task: RunTask, record: AnnotatedRecord) -> RecordViews:
        """Build the views, and deliver the record to no other destination."""
        model, audit = await asyncio.gather(self._ours(LLM_SESSION, task, record), self._ours(AUDIT, task, record))
        return RecordViews(model, _names(record) if audit is None else audit)

    async def distribute(self, task: RunTask, record: AnnotatedRecord, key: str) -> RecordViews:
        """Build the same views, and pass every sink its own, within its time limit.

        A worker lost before this returns has not recorded the call: the next run of the call delivers again.
        """
        sinks = [self._deliver_guarded(each, task, record, key) for each in self._distribution.sinks(self._tool)]
        views: RecordViews
        views, _ = await asyncio.gather(self.views(task, record), asyncio.gather(*sinks))
        return views

    async def _ours(self, name: str, task: RunTask, record: AnnotatedRecord) -> dict[str, Any] | None:
        view = self._distribution.view(self._tool, name)
        if view is None:
            return None
        found = await self._guard(name, task, _apply_filter(view, record))
        return None if found is None else found.values

    async def _deliver_guarded(self, to: Destination, task: RunTask, record: AnnotatedRecord, key: str) -> None:
        await self._guard(to.name, task, self._deliver(to, task, record, key))

    async def _deliver(self, to: Destination, task: RunTask, record: AnnotatedRecord, key: str) -> None:
        view, ctx = self._distribution.view(self._tool, to.name), task.ctx
        if view is None or to.sink is None:
            return
        await to.sink(
            Delivery(
                destination=to.name,
                record=select_slots(await _apply_filter(view, record), to.reads),
                tool=self._tool.name,
                call_id=task.call,
                actor_name=ctx.actor,
                tenant_id=ctx.tenant,
                session_id=ctx.session,
                turn_id=ctx.turn,
                idempotency_key=key,
            )
        )

    async def _guard(self, name: str, task: RunTask, work: Awaitable[Any]) -> Any:
        """Await `work` within the time limit. Logs a failure and returns `None`."""
        try:
            return await await_within(work, DELIVERY_SECONDS)
        except Exception as error:
            # Name the class alone: the message may hold data that the destination or the log must not get.
            late = f"no answer within {DELIVERY_SECONDS:g} s"
            await self._tell(name, task, late if isinstance(error, TimeoutError) else type(error).__name__)
            return None

    async def _tell(self, name: str, task: RunTask, why: str) -> None:
        observer = self._distribution.observer
        activity.logger.warning("the record of %s did not reach %s: %s", self._tool.name, name, why)
        if observer is None:
            return
        failure = DeliveryFailure(name, self._tool.name, task.call, task.ctx.tenant, task.ctx.turn, why)
        try:
            await await_within(call_function(observer, failure), _OBSERVER_SECONDS)
        except Exception as error:
            activity.logger.warning("the observer of deliveries failed: %s", type(error).__name__)


async def _apply_filter(view: Filter, record: AnnotatedRecord) -> AnnotatedRecord:
    """Apply a filter to a copy of the record, so that it cannot change other views. Raises any error."""
    found: object = await call_function(view, copy_record(record))
    if not isinstance(found, AnnotatedRecord):
        raise TypeError("a filter gives a record")
    # A filter may keep its result and change it later.
    return copy_record(found)


def _names(record: AnnotatedRecord) -> dict[str, Any]:
    """Return the field names of the record, the only content for the audit log if its filter failed."""
    fields: object = record.fields
    names = [name for name in fields if isinstance(name, str)] if isinstance(fields, Mapping) else []
    return AnnotatedRecord({name: RecordField(HIDDEN) for name in names}).values


class ProcessedResult(NamedTuple):
    """An outcome with its text for the audit log."""

    outcome: CallOutcome
    kept: str | None = None
    """`None` if the audit log holds no text."""


class ResultProcessor:
    """Builds the outcomes of one tool. Waits `pause` seconds before it retries a store that did not answer."""

    def __init__(self, deps: WorkerDeps, tool: Tool, pause: float = STORE_PAUSE) -> None:
        self._deps = deps
        self._store = deps.store
        self._rests = TruncatedResults(deps.store)
        self._tool = tool
        self._distributing = RecordDistributor(deps, tool)
        self._steps = StepMover(deps)
        self._pause = pause

    async def of(
        self,
        task: RunTask,
        args: Mapping[str, Any],
        value: Any,
        key: str = "",
        secrets: Collection[str] = (),
    ) -> ProcessedResult:
        """Build the outcome of the call, which returned `value`.

        `key` is its ticket's key, if any. `secrets` are the handler's secrets from a provider. The outcome contains
        neither these nor secret arguments.
        """
        all_secrets = secret_values(args, self._tool.masked_arguments).union(secrets)
        result = value if isinstance(value, ToolResult | ToolFailure) else ToolResult(value)
        if isinstance(value, HandOff):
            # The output schema describes a later result, not the handover.
            result = hand_off_result(value, self._tool.name)
            outcome = await self._make_outcome(task, args, result, "")
            return ProcessedResult(replace(outcome, handed=True), self._find_record(result.value))
        if isinstance(result, ToolFailure):
            failure = _quiet_failure(self._without_record(result), all_secrets)
            outcome = await self._make_text_outcome(task, args, failure)
            outcome = await self._add_changes(task, args, failure, outcome)
            structured = await self._keep_structured(failure.value, task.place)
            outcome = replace(outcome, structured=structured)
            return ProcessedResult(await self._add_meta(task, failure, outcome), self._find_record(failure.message))
        if isinstance(result.value, AnnotatedRecord):
            return await self._of_record(task, args, result, key or task.digest, all_secrets)
        # Check the schema against the returned value: `[hidden]` may not match it.
        problem = redact_secrets(output_problem(self._tool, result), all_secrets)
        result = _quiet(result, all_secrets)
        whole = result.value if problem and result.structured is None else result.structured
        outcome = await self._make_outcome(task, args, dataclasses.replace(result, structured=whole), problem)
        return ProcessedResult(outcome, self._find_record(result.value))

    async def _of_record(
        self,
        task: RunTask,
        args: Mapping[str, Any],
        result: ToolResult,
        key: str,
        hushed: Collection[str],
    ) -> ProcessedResult:
        """Uses the model's view alone, after all sinks' views."""
        problem, views = await self._distribute(task, result, result.value, key)
        problem, model = redact_secrets(problem, hushed), _hide(views.model, hushed)
        kept = render_value(_hide(views.audit, hushed))
        result = _quiet(dataclasses.replace(result, value=None), hushed)
        if model is None and not problem:
            failure = await self._make_text_outcome(task, args, ToolFailure(NO_VIEW.format(self._tool.name)))
            failure = await self._add_meta(task, result, failure)
            return ProcessedResult(replace(failure, gate=GATE, cost=_usd(result.cost)), kept)
        structured = model if result.structured is None else result.structured
        shown = dataclasses.replace(result, value=model, structured=structured)
        return ProcessedResult(await self._make_outcome(task, args, shown, problem), kept)

    async def _distribute(
        self, task: RunTask, result: ToolResult, record: AnnotatedRecord, key: str
    ) -> tuple[str, RecordViews]:
        """Return the record's schema problem, and the views. Sinks get theirs only without a problem."""
        try:
            record = copy_record(record)
        except Exception as error:
            activity.logger.warning("%s returned no right record: %s", self._tool.name, type(error).__name__)
            return "", RecordViews(None, {})
        problem = output_problem(self._tool, dataclasses.replace(result, value=record))
        if problem:
            return problem, await self._distributing.views(task, record)
        return "", await self._distributing.distribute(task, record, key)

    def _without_record(self, failure: ToolFailure) -> ToolFailure:
        # No destination's filter sees a failure, and a record may have fields that the model must not read.
        if not isinstance(failure.value, AnnotatedRecord):
            return failure
        activity.logger.warning("the record with the failure of %s is left out", self._tool.name)
        return dataclasses.replace(failure, value=None)

    def _find_record(self, value: Any) -> str | None:
        """Return the audit log's text of a result that is not an annotated record: only for specialists."""
        return render_value(value) if self._tool.scope == "specialist" else None

    async def _make_outcome(
        self, task: RunTask, args: Mapping[str, Any], result: ToolResult, problem: str
    ) -> CallOutcome:
        if problem:
            outcome = await self._make_text_outcome(task, args, ToolFailure(problem))
            outcome = replace(outcome, gate=OUTPUT)
        else:
            outcome = await self._make_text_outcome(task, args, result)
            outcome = await self._add_changes(task, args, result, outcome)
        structured = await self._keep_structured(result.structured, task.place)
        outcome = await self._add_meta(task, result, outcome)
        return replace(outcome, structured=structured, cost=_usd(result.cost))

    async def _add_meta(self, task: RunTask, result: Result, outcome: CallOutcome) -> CallOutcome:
        meta = await self._wish(self._object("meta", result.meta), task.place)
        return outcome if meta is None else replace(outcome, meta=meta)

    async def _add_changes(
        self, task: RunTask, args: Mapping[str, Any], result: Result, outcome: CallOutcome
    ) -> CallOutcome:
        """Add the tool's requested changes and its next step's place to `outcome`.

        Invalid changes, or an unknown step, make the call a failure: its effect has happened, and the model must not
        repeat it. A call that failed anyway keeps its own message, after a note that its changes are lost.
        """
        data = self._object("data update", result.data_update)
        context = self._object("context update", result.context_update)
        changes: dict[str, Any] = {
            "data_update": await self._wish(data, task.place),
            "context_update": await self._wish(context, task.place),
        }
        found, move = self._accept(task, data, context), Move()
        if result.next and not found.problem:
            move = await self.retry_store(lambda: self._steps.follow(task.ctx, result.next, found.updates))
        problem = found.problem or move.problem
        if problem and isinstance(result, ToolFailure):
            lost = UPDATE_LOST.format(self._tool.name, problem)
            return replace(outcome, note=f"{outcome.note} {lost}".strip())
        if problem:
            failure = ToolFailure(UPDATE_FAILED.format(self._tool.name, problem))
            failed = await self._make_text_outcome(task, args, failure)
            return replace(failed, gate=UPDATE)
        changes |= {"updates": found.updates if found.updates.names else None, "place": move.place}
        return replace(outcome, **changes, note=f"{outcome.note} {move.note}".strip())

    def _accept(self, task: RunTask, data: dict[str, Any] | None, context: dict[str, Any] | None) -> AcceptedUpdates:
        catalog = self._deps.catalog
        scopes = catalog.scopes.get(task.ctx.actor)
        if not self._tool.updates or scopes is None or (data is None and context is None):
            return AcceptedUpdates()
        found = accept_updates(self._tool, scopes, catalog.fields, task.ctx, data or {}, context or {})
        if found.ignored:
            names = ", ".join(found.ignored)[:_NAMES_CHARS]
            activity.logger.warning("an update of %s is left out, nothing declares it: %s", self._tool.name, names)
        return found

    async def retry_store(self, keep: Callable[[], Awaitable[T]]) -> T:
        # The effect has happened. Giving up here would leave the outcome unknown, so wait for the store.
        while True:
            try:
                return await keep()
            except StoreUnavailable:
                activity.logger.warning("the outcome of %s waits for the store", self._tool.name)
                await asyncio.sleep(self._pause)

    async def _make_text_outcome(self, task: RunTask, args: Mapping[str, Any], result: Result) -> CallOutcome:
        tool = self._tool
        text = self._short(task, args, result)
        cut = trim(text, task.budget_chars)
        # Fence last: a fence truncated by the cut would stay open, and later text would read as the tool's output.
        shown_text = fence_text(cut.text, tool.name) if tool.untrusted_output else cut.text
        rest, note = await self._rest(task, text) if cut.truncated else ("", "")
        return CallOutcome(
            call=task.call,
            tool=tool.name,
            code=result.code if isinstance(result, ToolFailure) else "ok",
            gate="execute",
            value=await self._content(shown_text, task.place),
            truncated=cut.truncated,
            original_chars=cut.original_chars,
            rest=rest,
            note=note,
        )

    def _short(self, task: RunTask, args: Mapping[str, Any], result: Result) -> str:
        """The secrets are removed already."""
        plain: Result
        if isinstance(result, ToolFailure):
            plain = ToolFailure(render_value(result.message), result.code)
        else:
            plain = ToolResult(render_value(result.value), result.structured, result.cost)
        reducer = self._deps.catalog.reducers.get(self._tool.name)
        short = reduce_result(reducer, plain, ReducerInput(args, completion_of(task.call)))
        return render_value(short.message if isinstance(short, ToolFailure) else short.value)

    async def _rest(self, task: RunTask, text: str) -> tuple[str, str]:
        """Store the whole of `text`. Returns its handle, and the instruction for an actor that can use it."""
        # Wait for the store: otherwise the model would get an invalid handle.
        handle = await self.retry_store(lambda: self._rests.keep(task.turn, self._tool.name, text))
        actor = self._deps.catalog.actors.get(task.ctx.actor)
        return handle, how_to_read_on(handle, task.budget_chars) if actor is not None and actor.read_rest else ""

    async def _content(self, value: Any, place: SessionKey) -> Content:
        return await self.retry_store(lambda: to_content(self._store, value, place))

    async def _wish(self, value: dict[str, Any] | None, place: SessionKey) -> Content | None:
        return None if value is None else await self._content(value, place)

    def _object(self, what: str, value: Any) -> dict[str, Any] | None:
        """Return the plain JSON object of a result's additional data, or `None` with a warning."""
        if value is None:
            return None
        plain = _plain(value)
        # JSON would change some values, such as a date, so that they return in a form that the tool never wrote.
        if isinstance(value, Mapping) and _same(plain, value) and len(json_bytes(plain)) <= RESULT_BYTES:
            return dict(plain)
        activity.logger.warning("the %s of %s is no plain JSON object: left out", what, self._tool.name)
        return None

    async def _keep_structured(self, value: Any, place: SessionKey) -> Content | None:
        if value is None:
            return None
        plain = _plain(value)
        if len(json_bytes(plain)) <= RESULT_BYTES:
            return await self._content(plain, place)
        activity.logger.warning("the structured result of %s exceeds %d bytes: left out", self._tool.name, RESULT_BYTES)
        return None


def _quiet(result: ToolResult, secrets: Collection[str]) -> ToolResult:
    """Remove the secrets from `result` before the reducer or the cut splits one and hides its rest from the search."""
    if not secrets:
        return result
    return dataclasses.replace(
        result,
        value=_hide(result.value, secrets),
        structured=_hide(result.structured, secrets),
        data_update=_hide(result.data_update, secrets),
        context_update=_hide(result.context_update, secrets),
        meta=_hide(result.meta, secrets),
    )


def _quiet_failure(failure: ToolFailure, secrets: Collection[str]) -> ToolFailure:
    message, value = redact_secrets(render_value(failure.message), secrets), _hide(failure.value, secrets)
    return dataclasses.replace(
        failure,
        message=message if value is None else f"{message}\n{render_value(value)}",
        value=value,
        data_update=_hide(failure.data_update, secrets),
        context_update=_hide(failure.context_update, secrets),
        meta=_hide(failure.meta, secrets),
    )


def _hide(value: Any, secrets: Collection[str]) -> Any:
    return value if value is None or not secrets else redact_value(_plain(value), secrets)


def plain_outcome(call: str, tool: str, code: CallCode, text: str) -> CallOutcome:
    return CallOutcome(call=call, tool=tool, code=code, gate="execute", value=Content(inline=text))


def _plain(value: Any) -> Any:
    """Convert `value` to JSON data. Deeply nested data is replaced by its type name."""
    plain = jsonable(value)
    return f"<{type(value).__name__}>" if nesting(plain) > MAX_NESTING else plain


def _same(plain: Any, value: Any) -> bool:
    try:
        return bool(plain == value)
    except Exception:
        # A tool's return value may contain objects that cannot be compared.
        return False


def _usd(cost: Any) -> float:
    # The effect has happened: an invalid cost must not turn its result into an error.
    try:
        usd = float(cost) if isinstance(cost, int | float) else 0.0
    except Exception:
        # This includes a cost that is too large.
        return 0.0
    # A negative cost must not increase a budget.
    return max(0.0, usd) if math.isfinite(usd) else 0.0
