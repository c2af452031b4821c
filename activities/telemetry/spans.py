"""Records spans of activities in the segments of their turns.

Workflows record none, because replay runs their code again. Attributes are ids, names and codes, never arguments or
results.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import GateReply, GateTask, ModelReply, ModelTask, RunTask, ToolReply
from signoff.contracts.call import CallContext
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey
from signoff.store.questions.turn_waits import TurnWaits
from signoff.telemetry.segments import TurnSegment, segment_at

if TYPE_CHECKING:
    from signoff.telemetry.span_sender import SpanSender

_FAILED: Final = ("execution_failed", "in_doubt")
_log = logging.getLogger(__name__)


class SpanInterceptor(Interceptor):
    """Records a span of each activity of a turn."""

    def __init__(self, deps: WorkerDeps, spans: "SpanSender") -> None:
        self._deps = deps
        self._spans = spans

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Spanned(next, self._deps, self._spans)


class _Spanned(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, deps: WorkerDeps, spans: "SpanSender") -> None:
        super().__init__(next)
        self._deps = deps
        self._spans = spans
        self._waits = TurnWaits(deps.store)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        task = input.args[0] if input.args else None
        ctx = _context_of(task)
        segment = None if ctx is None else await self._segment(ctx)
        if ctx is None or segment is None:
            return await super().execute_activity(input)
        reply: Any = None
        error = ""
        try:
            with self._child(segment, ctx, task) as span:
                reply = await super().execute_activity(input)
                if span is not None:
                    self._describe(span, reply)
                return reply
        except ApplicationError as failure:
            error = (failure.type or type(failure).__name__) if failure.non_retryable else ""
            raise
        finally:
            if self._ends_segment(ctx, reply) or (error and isinstance(task, ModelTask)):
                self._write(segment, ctx, reply, error)

    async def _segment(self, ctx: CallContext) -> TurnSegment | None:
        turn = TurnKey(ctx.tenant, ctx.session, ctx.turn)
        try:
            found = await self._waits.read(turn)
        except StoreUnavailable as away:
            # A span must never fail a turn. The activity handles an unavailable store itself.
            _log.warning("a span is not written: %s", away.message)
            return None
        return segment_at(turn.workflow_id, ctx.user.nonce, found.waits, found.now)

    def _child(self, segment: TurnSegment, ctx: CallContext, task: Any) -> AbstractContextManager[Any]:
        attributes = {**_turn_attributes(ctx), "signoff.attempt": activity.info().attempt}
        if isinstance(task, ModelTask):
            if task.external is not None:
                # Its model runs elsewhere: this activity judges the call.
                return self._spans.child(segment, "signoff.gate", {**attributes, "signoff.calls": 1})
            actor = self._deps.catalog.actors.get(ctx.actor)
            model = "" if actor is None else actor.model
            provider, _, name = model.rpartition(":")
            attributes |= {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider or name,
                "gen_ai.request.model": name,
                "signoff.completion": task.completion,
            }
            return self._spans.child(segment, f"chat {name}", attributes, client=True)
        if isinstance(task, RunTask):
            attributes |= {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": task.tool,
                "gen_ai.tool.call.id": task.call,
                "signoff.permit": "auto" if task.revision is None else "approved",
                "signoff.approval.request": task.approval_id,
            }
            return self._spans.child(segment, f"execute_tool {task.tool}", attributes)
        if isinstance(task, GateTask):
            return self._spans.child(segment, "signoff.gate", {**attributes, "signoff.calls": len(task.calls)})
        return nullcontext()

    def _describe(self, span: Any, reply: Any) -> None:
        if isinstance(reply, ModelReply):
            span.set_attribute("gen_ai.usage.input_tokens", reply.usage.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", reply.usage.output_tokens)
            span.set_attribute("signoff.calls", len(reply.calls))
        elif isinstance(reply, ToolReply):
            code = f"again: {reply.again}" if reply.outcome is None else reply.outcome.code
            span.set_attribute("signoff.outcome", code)
            if code in _FAILED:
                self._spans.mark_failed(span, code)

    def _write(self, segment: TurnSegment, ctx: CallContext, reply: Any, error: str) -> None:
        now = self._deps.clock()
        begun = ctx.user.issued_at if segment.cause is None else segment.cause.over_at
        attributes: dict[str, str | int | float | bool] = {
            **_turn_attributes(ctx),
            "gen_ai.operation.name": "invoke_agent",
            "signoff.segment.ended": "error" if error else "waits" if _waits_after(reply) else "ended",
        }
        if segment.cause is not None:
            attributes["signoff.approval.request"] = segment.cause.request
            attributes["signoff.approval.revision"] = segment.cause.revision
        self._spans.write_segment(segment, f"invoke_agent {ctx.actor}", attributes, begun or now, now, error)

    def _ends_segment(self, ctx: CallContext, reply: Any) -> bool:
        """Return whether a turn waits or ends after a reply, as far as an activity can see."""
        if _waits_after(reply):
            return True
        actor = self._deps.catalog.actors.get(ctx.actor)
        if actor is not None and actor.external is not None:
            return _ends_external(reply)
        if isinstance(reply, ModelReply):
            return reply.answer is not None and not reply.respond_error
        return isinstance(reply, ToolReply) and reply.outcome is not None and reply.outcome.direct


def _context_of(task: Any) -> CallContext | None:
    return task.ctx if isinstance(task, ModelTask | GateTask | RunTask) else None


def _turn_attributes(ctx: CallContext) -> dict[str, str | int | float | bool]:
    return {
        "gen_ai.agent.name": ctx.actor,
        "gen_ai.conversation.id": ctx.session,
        "signoff.tenant": ctx.tenant,
        "signoff.turn": ctx.turn,
    }


def _waits_after(reply: Any) -> bool:
    gates = reply.gates if isinstance(reply, ModelReply) else reply if isinstance(reply, GateReply) else None
    asked = () if gates is None else (each for each in gates.gate_decisions if each.kind == "ask")
    return any(each.options.while_waiting == "wait" for each in asked)


def _ends_external(reply: Any) -> bool:
    """Return whether an external call needs no further work here: refused, run, or its permit used."""
    if isinstance(reply, ToolReply):
        return reply.outcome is not None or reply.used is not None
    gates = reply.gates if isinstance(reply, ModelReply) else reply if isinstance(reply, GateReply) else None
    return gates is not None and all(each.kind == "settled" for each in gates.gate_decisions)
