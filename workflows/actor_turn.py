"""One actor turn as a Temporal workflow: model, gates, people, tools, and again, until it answers."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from signoff.approvals import deadlines
    from signoff.approvals import desk as desks
    from signoff.contracts import names
    from signoff.contracts.approval import ApprovalRequest
    from signoff.contracts.call import CallOutcome, Permit, Pinned
    from signoff.contracts.content import text_of
    from signoff.contracts.decision import Decision
    from signoff.contracts.limits import HISTORY_BYTES, HISTORY_EVENTS, MAX_REVISIONS
    from signoff.contracts.message import CallPart, Message, TextPart
    from signoff.contracts.receipt import Receipt
    from signoff.contracts.steps import (
        Authority,
        GateReply,
        GateTask,
        ModelReply,
        ModelTask,
        OutcomeTask,
        Ruling,
        ToolReply,
        ToolTask,
    )
    from signoff.contracts.turn import ResponsePart, TurnError, TurnInput, TurnResult, TurnView
    from signoff.workflows import options, outcomes, shown, tasks
    from signoff.workflows.record import TurnRecord, correction, skipped


_TIMERS = {"remind": "Reminder", "escalate": "Escalation", "deadline": "Deadline"}


class _Stop(Exception):
    """The turn cannot go on; carries why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.error = TurnError(code=code, message=message)


@workflow.defn(name=names.ACTOR_TURN)
class ActorTurn:
    """Durable from the first message to the answer; waits for people without holding anything but history."""

    @workflow.init
    def __init__(self, turn: TurnInput) -> None:
        self._record = TurnRecord(turn)
        self._desk = desks.Desk()
        self._published: shown.Attributes | None = None
        self._listed: set[str] = set()
        self._cancelled = False
        self._running: dict[str, workflow.ActivityHandle[ToolReply]] = {}
        self._ctx = Pinned(
            actor=turn.actor,
            session=turn.session_id,
            turn=turn.turn_id,
            tenant=turn.tenant_id,
            channel=turn.channel,
            route=turn.route,
            step=turn.step,
            user=turn.principal,
            extra=turn.context,
        )

    # What people and onlookers can send. Nothing here may raise: see contracts.md, handlers that cannot wedge.

    @workflow.update(name=names.DECIDE, description="Approve or deny one waiting call")
    async def decide(self, *envelopes: Any) -> Receipt:
        """Answer a request; the receipt says what became of the answer."""
        return await self._answer(envelopes)

    @decide.validator
    def _check_decide(self, *envelopes: Any) -> None:
        problem = desks.envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    @workflow.signal(name=names.APPROVAL_RESPONSE, description="Approve or deny one waiting call, without a reply")
    async def approval_response(self, *envelopes: Any) -> None:
        """The same as `decide`, for those who cannot wait for a receipt."""
        await self._answer(envelopes)

    @workflow.update(name=names.CANCEL, description="Withdraw one waiting request")
    def cancel(self, *envelopes: Any) -> Receipt:
        """Withdraw the request named by `approval_id`; `reason` and `subject` may be given."""
        body = envelopes[0]
        fields = {key: value for key in ("approval_id", "subject", "reason") if isinstance(value := body.get(key), str)}
        return self._desk.cancel(
            fields.get("approval_id", ""), fields.get("subject", ""), fields.get("reason", ""), workflow.now()
        )

    @cancel.validator
    def _check_cancel(self, *envelopes: Any) -> None:
        problem = desks.envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    @workflow.query(name=names.PENDING_APPROVALS)
    def pending_approvals(self) -> list[ApprovalRequest]:
        """The requests that wait, oldest first."""
        return list(self._desk.pending())

    @workflow.query(name=names.RECEIPT)
    def receipt(self, approval_id: str) -> Receipt:
        """What became of a request, also after the turn has ended."""
        return self._desk.receipt(approval_id)

    @workflow.query(name=names.TRANSCRIPT)
    def transcript(self) -> list[Message]:
        """The conversation so far."""
        return list(self._record.messages)

    @workflow.query(name=names.STATE)
    def state(self) -> TurnView:
        """The whole turn as an onlooker may see it."""
        return self._record.view(self._desk, workflow.info().start_time)

    @workflow.run
    async def run(self, turn: TurnInput) -> TurnResult:
        """Run the turn. Completes with its result whatever the state; fails only for an unknown actor at the start."""
        if turn.engine > names.ENGINE:
            # An ordinary exception: the task is retried until a worker that knows this number takes it.
            raise RuntimeError(f"this turn needs engine {turn.engine}, this worker has {names.ENGINE}")
        try:
            result = await self._converse()
        except asyncio.CancelledError:
            result = self._record.finished("cancelled")
        except _Stop as stop:
            result = self._record.finished("error", error=stop.error)
        self._record.result = result
        self._record.state = result.state
        self._publish()
        await self._let_handlers_finish()
        return result

    async def _let_handlers_finish(self) -> None:
        while not workflow.all_handlers_finished():
            # A cancel that comes after the end must not undo it; an eviction raises something else here.
            with contextlib.suppress(asyncio.CancelledError):
                await workflow.wait_condition(workflow.all_handlers_finished)

    async def _converse(self) -> TurnResult:
        record = self._record
        while True:
            self._check_caps()
            reply = await self._complete()
            calls = record.hear(reply)
            if reply.response is not None and (not reply.respond_error or record.bad_responds):
                for call in calls:
                    record.conclude(skipped(call))
                return record.finished(reply.response.state, (ResponsePart(content=reply.response.text),))
            if reply.respond_error:
                record.bad_responds += 1
                record.settle(calls, [skipped(call) for call in calls], (correction(reply),))
                continue
            says = _words(reply)
            # A turn may wait for months: what it does not need meanwhile it does not keep.
            del reply
            record.settle(calls, await self._batch(calls, says), ())
            if self._cancelled:
                return record.finished("cancelled")

    def _check_caps(self) -> None:
        info = workflow.info()
        if info.get_current_history_length() > HISTORY_EVENTS or info.get_current_history_size() > HISTORY_BYTES:
            raise _Stop("history_limit", "the turn has grown too long to go on safely")
        over = self._record.over()
        if over is not None:
            raise _Stop(over.code, over.message)

    async def _complete(self) -> ModelReply:
        record = self._record
        record.completions += 1
        task = ModelTask(
            ctx=self._ctx,
            completion=record.completions,
            messages=tuple(record.messages),
            dry_run=record.turn.dry_run,
        )
        began = workflow.now()
        try:
            reply: ModelReply = await workflow.execute_activity(
                names.MODEL,
                task,
                result_type=ModelReply,
                summary=f"Ask the model, completion {record.completions}",
                **options.MODEL,
            )
        except ActivityError as error:
            raise self._model_failure(error) from error
        record.active_seconds += (workflow.now() - began).total_seconds()
        return reply

    def _model_failure(self, error: ActivityError) -> BaseException:
        kind = outcomes.error_type(error)
        text = outcomes.error_text(error)
        if outcomes.was_cancelled(error):
            return asyncio.CancelledError()
        if kind == "ConfigError" and self._record.completions == 1:
            return ApplicationError(text, type="ConfigError", non_retryable=True)
        code = {"ConfigError": "config_error", "ModelRefused": "model_refused"}.get(kind, "model_unavailable")
        return _Stop(code, text)

    async def _batch(self, calls: tuple[CallPart, ...], says: str) -> list[CallOutcome]:
        """Settle every call of one completion; those that need nobody do not wait for those that do."""
        if not calls:
            return []
        gated = await self._gate(GateTask(ctx=self._ctx, calls=calls, tally=self._record.tally, agent_says=says))
        self._record.tally = gated.tally
        rulings = [self._enter(ruling) for ruling in gated.rulings]
        del gated
        self._publish()
        tasks = [asyncio.create_task(self._conclude(call, ruling)) for call, ruling in zip(calls, rulings, strict=True)]
        try:
            await workflow.wait(tasks)
        except asyncio.CancelledError:
            self._withdraw_all()
            await workflow.wait(tasks)
        return [task.result() for task in tasks]

    async def _gate(self, task: GateTask) -> GateReply:
        task = task.model_copy(update={"dry_run": self._record.turn.dry_run})
        try:
            reply: GateReply = await workflow.execute_local_activity(
                names.GATE,
                task,
                result_type=GateReply,
                summary=f"Judge {len(task.calls)} call(s)",
                **options.GATE,
            )
        except ActivityError as error:
            if outcomes.was_cancelled(error):
                raise asyncio.CancelledError from error
            raise
        return reply

    def _enter(self, ruling: Ruling) -> Ruling:
        """Open the request of a call that must wait; returns the ruling without it, as the desk keeps it from now."""
        if ruling.request is None:
            return ruling
        if ruling.verdict == "ask" and not self._cancelled:
            self._desk.open(ruling.request, workflow.now())
            self._record.mark(ruling.call, "waiting", ruling.rule)
        return ruling.model_copy(update={"request": None})

    async def _conclude(self, call: CallPart, ruling: Ruling) -> CallOutcome:
        outcome = await self._settle(call, ruling)
        self._record.conclude(outcome)
        return outcome

    async def _settle(self, call: CallPart, ruling: Ruling) -> CallOutcome:
        """Bring one call to its one outcome: judged anew as often as its approval goes stale, within bounds."""
        tickets: dict[str, int] = {}
        for revision in range(1, MAX_REVISIONS + 1):
            if ruling.verdict == "settled" and ruling.outcome is not None:
                return ruling.outcome
            request = await self._await_people(ruling) if ruling.verdict == "ask" else None
            if request is not None and request.state != "approved":
                return outcomes.denied(request)
            if self._cancelled:
                return outcomes.unwanted(call.call, call.tool)
            reply = await self._run_tool(call, ruling, request, tickets.get(ruling.digest, 1))
            if not reply.again and reply.outcome is not None:
                return self._credited(reply.outcome, ruling, request)
            # Tickets are counted for each digest, because a changed tool makes another key.
            tickets[ruling.digest] = tickets.get(ruling.digest, 1) + (reply.again == "lapsed")
            if request is not None:
                self._desk.lapse(request.id)
            if not self._cancelled:
                ruling = await self._judge_again(call, revision + 1, reply.note)
            if self._cancelled:
                return outcomes.unwanted(call.call, call.tool)
        return outcomes.failed(call.call, call.tool, "refused", "Asked too often; give up on this call.")

    async def _judge_again(self, call: CallPart, revision: int, note: str) -> Ruling:
        task = GateTask(ctx=self._ctx, calls=(call,), revision=revision, note=note)
        ruling = self._enter((await self._gate(task)).rulings[0])
        self._publish()
        return ruling

    async def _await_people(self, ruling: Ruling) -> ApprovalRequest:
        approval_id = self._record.approval_id(ruling.call)
        while True:
            request = self._desk.get(approval_id)
            if request is None or request.expires_at is None:
                raise RuntimeError(f"call {ruling.call} waits for a request that was never opened")
            happening = deadlines.due(request)
            if happening is None:
                break
            left = max((happening.at - workflow.now()).total_seconds(), 0.001)
            try:
                await workflow.wait_condition(
                    partial(self._moved_on, approval_id, happening),
                    timeout=timedelta(seconds=left),
                    timeout_summary=shown.summary(
                        f"{_TIMERS[happening.what]} of {request.code}: {request.card.effect}"
                    ),
                )
            except TimeoutError:
                self._desk.reach(approval_id, happening, workflow.now())
                self._publish()
        self._publish()
        return request

    def _moved_on(self, approval_id: str, happening: deadlines.Due) -> bool:
        request = self._desk.get(approval_id)
        return request is None or deadlines.due(request) != happening

    async def _run_tool(
        self, call: CallPart, ruling: Ruling, request: ApprovalRequest | None, ticket: int
    ) -> ToolReply:
        permit = tasks.permit(self._ctx, call, ruling, request)
        task = ToolTask(
            permit=permit, tool=call.tool, args=call.args, ticket=ticket, budget_chars=ruling.options.budget_chars
        )
        self._record.mark(call.call, "running", ruling.rule)
        try:
            if ruling.options.local:
                return await _local(call, task, ruling)
            reply = await self._scheduled(call, task, ruling)
        except ActivityError as error:
            return await self._after_failure(error, call, ruling, permit, ticket)
        if reply.outcome is not None:
            self._record.active_seconds += reply.outcome.duration_ms / 1000
        return reply

    async def _scheduled(self, call: CallPart, task: ToolTask, ruling: Ruling) -> ToolReply:
        handle: workflow.ActivityHandle[ToolReply] = workflow.start_activity(
            call.tool, task, activity_id=call.call, result_type=ToolReply, **options.tool(ruling.options)
        )
        self._running[call.call] = handle
        try:
            return await handle
        finally:
            del self._running[call.call]

    async def _after_failure(
        self, error: ActivityError, call: CallPart, ruling: Ruling, permit: Permit, ticket: int
    ) -> ToolReply:
        kind = outcomes.error_type(error)
        if outcomes.was_cancelled(error) and ruling.options.read_only:
            return ToolReply(outcome=outcomes.unwanted(call.call, call.tool))
        if kind == "InDoubt":
            return ToolReply(outcome=outcomes.in_doubt(call.call, call.tool))
        if kind == "Refused":
            text = outcomes.error_text(error)
            return ToolReply(outcome=outcomes.failed(call.call, call.tool, "refused", text))
        if ruling.options.local:
            text = outcomes.error_text(error)
            return ToolReply(outcome=outcomes.failed(call.call, call.tool, "execution_failed", text))
        task = OutcomeTask(permit=permit, tool=call.tool, ticket=ticket, idempotent=ruling.options.idempotent)
        reply: ToolReply = await workflow.execute_activity(
            names.OUTCOME,
            task,
            result_type=ToolReply,
            summary=f"Find out what became of {call.tool}",
            **options.OUTCOME,
        )
        return reply

    def _credited(self, outcome: CallOutcome, ruling: Ruling, request: ApprovalRequest | None) -> CallOutcome:
        credit: dict[str, Any] = {"rule": ruling.rule}
        if request is not None:
            credit |= {"approval_id": request.id, "decided_by": request.decided_by}
        return outcome.model_copy(update=credit)

    async def _answer(self, envelopes: Sequence[Any]) -> Receipt:
        decision = desks.read_decision(envelopes)
        if isinstance(decision, Receipt):
            return self._desk.turn_away(decision)
        receipt = self._desk.glance(decision, workflow.now())
        if receipt is not None:
            return receipt
        authority = await self._identify(decision)
        # `glance` is repeated inside: while the author was identified, someone else may have been first.
        return self._desk.settle(decision, authority, workflow.now())

    async def _identify(self, decision: Decision) -> Authority:
        request = self._desk.get(decision.approval_id)
        if request is None:
            return Authority(allowed=False, code="unknown")
        task = tasks.identify(decision, request)
        try:
            authority: Authority = await workflow.execute_local_activity(
                names.IDENTIFY, task, result_type=Authority, summary="Who answered, and may they?", **options.IDENTIFY
            )
        except ActivityError:
            return Authority(allowed=False, code="unavailable")
        return authority

    def _withdraw_all(self) -> None:
        """Stop the turn: nobody is asked any more, what has not started never will, what runs is awaited."""
        self._cancelled = True
        for handle in self._running.values():
            handle.cancel()
        for request in self._desk.pending():
            self._desk.cancel(request.id, "", "The turn was cancelled.", workflow.now())

    def _publish(self) -> None:
        """Show the present state in Temporal; costs an event only where something changed."""
        requests = self._desk.all()
        if self._record.result is None:
            self._record.state = "suspended" if self._desk.pending() else "running"
        before = self._published or shown.attributes("running", ())
        after = shown.attributes(self._record.state, requests)
        changed = shown.updates(before, after)
        if changed:
            workflow.upsert_search_attributes(changed)
        if self._asked(before, after) or shown.unlisted(requests, self._listed):
            cards = shown.memo(requests)
            self._listed = {card["id"] for card in cards}
            workflow.upsert_memo({names.MEMO_CARDS: cards})
        self._published = after
        settled = [view.outcome for view in self._record.calls.values() if view.outcome is not None]
        workflow.set_current_details(shown.details(requests, settled))

    def _asked(self, before: shown.Attributes, after: shown.Attributes) -> bool:
        return len(after[1]) > len(before[1]) or any(
            code not in before[1] for code in after[1] if not code.endswith("!")
        )


def _words(reply: ModelReply) -> str:
    return " ".join(text_of(part.text) for part in reply.message.parts if isinstance(part, TextPart))


async def _local(call: CallPart, task: ToolTask, ruling: Ruling) -> ToolReply:
    reply: ToolReply = await workflow.execute_local_activity(
        call.tool, task, activity_id=call.call, result_type=ToolReply, **options.local_tool(ruling.options)
    )
    return reply
