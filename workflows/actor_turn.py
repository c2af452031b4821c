"""Runs one actor turn as a Temporal workflow: model, gates, approvers and tools, repeated until the model answers."""

import asyncio
import contextlib
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from signoff.approvals.approval_book import envelope_problem
    from signoff.approvals.approval_outcomes import outcome_message
    from signoff.approvals.audit_buffer import fold_facts
    from signoff.approvals.audit_events import facts_of_begin, session_entry, turn_end_entry, turn_entry
    from signoff.contracts import names
    from signoff.contracts.activity_messages import (
        CallPresence,
        CallRequest,
        ModelReply,
        ModelTask,
        RecordTask,
        Response,
        UseReply,
        UseRequest,
    )
    from signoff.contracts.approval import ApprovalRequest
    from signoff.contracts.audit import AuditEntry
    from signoff.contracts.limits import HISTORY_BYTES, HISTORY_EVENTS
    from signoff.contracts.message import CallPart, Message
    from signoff.contracts.receipt import Receipt
    from signoff.contracts.turn import FAILED_STATES, TurnError, TurnInput, TurnResult, TurnView
    from signoff.formats.replace import replace
    from signoff.workflows import options, outcomes, start_options
    from signoff.workflows.alarm import Alarm
    from signoff.workflows.approval_flow import ApprovalFlow
    from signoff.workflows.call_loop import CallLoop
    from signoff.workflows.envelope_reader import read_envelope
    from signoff.workflows.external_permit import use_refusal
    from signoff.workflows.external_runner import ExternalRunner
    from signoff.workflows.session_link import SessionLink
    from signoff.workflows.temporal_metadata import TemporalMetadata
    from signoff.workflows.tool_runner import ToolRunner
    from signoff.workflows.turn_state import TurnState, correction, skipped_outcome, untaken_answer


_ERROR_CODES = {"ConfigError": "config_error", "ModelRefused": "model_refused"}
_NOBODY_WAITS = "its agent stopped waiting for it"
_NO_ANSWER = "no worker returned an answer of the model"
_ASKED_LONG = "retries for ten minutes failed: try again later; earlier calls have run"


class _Stop(Exception):
    """The turn cannot continue. Carries the error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.error = TurnError(code=code, message=message)


@workflow.defn(name=names.ACTOR_TURN, sandboxed=False)
class ActorTurn:
    """The workflow of one turn, from the first message to the answer.

    While a turn waits for approvers, only its history exists, in the server.
    """

    # Not in `run`: Temporal handles a message that arrives with the first task before the first step of `run`.
    @workflow.init
    def __init__(self, turn: TurnInput) -> None:
        self._state = TurnState(turn)
        self._metadata = TemporalMetadata(self._state)
        self._session = SessionLink(turn)
        alarm = Alarm()
        self._approvals = ApprovalFlow(self._state, self._show, alarm if turn.external is not None else None)
        self._external = ExternalRunner(self._state, self._approvals.hold_lock, alarm)
        tools = ToolRunner(self._state, self._external)
        self._calls = CallLoop(self._state, self._approvals, tools, self._show)
        self._end_reported = False

    # Handlers for approvers and viewers. They must not raise: an exception fails the workflow task repeatedly.

    # Keep `*envelopes: Any`. If a typed argument cannot be decoded, Temporal drops the Signal or fails the caller's
    # Update.
    @workflow.update(name=names.DECIDE, description="Approve or deny one waiting call")
    async def decide(self, *envelopes: Any) -> Receipt:
        return await self._approvals.hear(envelopes)

    @decide.validator
    # An Update rejected here leaves no event, so junk cannot fill a history. Every readable decision gets a receipt.
    def _check_decide(self, *envelopes: Any) -> None:
        problem = envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    @workflow.signal(name=names.APPROVAL_RESPONSE, description="Approve or deny one waiting call, without a reply")
    async def approval_response(self, *envelopes: Any) -> None:
        """Like `decide`, for callers that cannot wait for a receipt."""
        await self._approvals.hear(envelopes)

    @workflow.update(name=names.CANCEL, description="Withdraw one waiting request")
    async def cancel(self, *envelopes: Any) -> Receipt:
        """Withdraw the request `approval_id`. `reason` is optional, `subject` counts only with proof."""
        return await self._approvals.withdraw(envelopes)

    @cancel.validator
    def _check_cancel(self, *envelopes: Any) -> None:
        problem = envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    # Handlers for turns of external agents. Only the gateway sends these messages, and it checks the replies.

    @workflow.update(name=names.CALL_STATE, description="Report the state of the proposed call, as a refusal")
    async def call_state(self, *envelopes: Any) -> None:
        """Report the state of the proposed call in the validator's error. The handler itself never runs."""

    @call_state.validator
    # A rejected Update leaves no event. Unlike a query, it does not have to wait for the end of the first task.
    def _tell_state(self, *envelopes: Any) -> None:
        self._check_external(*envelopes)
        raise ValueError(self._call_state())

    @workflow.update(name=names.AWAIT_CALL, description="Use the permit of the proposed call once it is judged")
    async def await_call(self, *envelopes: Any) -> UseReply:
        """Wait for the gates, then use the permit of the proposed call. Returns the reason if it waits or has ended."""
        use_request = read_envelope(envelopes[0] if envelopes else None, CallRequest)
        if isinstance(use_request, str) or use_request.input != workflow.memo_value(names.MEMO_INPUT_DIGEST, ""):
            return use_refusal("conflict")
        await workflow.wait_condition(self._is_judged)
        reply = await self._external.use(use_request.use)
        view = next(iter(self._state.calls.values()), None)
        return replace(
            reply,
            nonce=self._state.turn.principal.nonce,
            outcome=None if view is None else view.outcome,
            state=self._call_state(),
        )

    @workflow.update(name=names.USE_CALL, description="Use the permit of the proposed call, once")
    async def use_call(self, *envelopes: Any) -> UseReply:
        """Give the permit of the proposed call to one use request alone."""
        use_request = read_envelope(envelopes[0] if envelopes else None, UseRequest)
        if isinstance(use_request, str) or not use_request.use:
            return use_refusal("unavailable")
        return await self._external.use(use_request.use)

    @workflow.signal(name=names.REPORT_CALL, description="Announce that the store has the report of the used call")
    def report_call(self, *envelopes: Any) -> None:
        """Look up the agent's report in the store."""
        self._external.hear_report()

    @workflow.signal(name=names.ATTEND_CALL, description="Report whether the agent still waits for the proposed call")
    async def attend_call(self, *envelopes: Any) -> None:
        """Withdraw the pending requests about the call if its agent does not return in time."""
        presence = read_envelope(envelopes[0] if envelopes else None, CallPresence)
        if isinstance(presence, str) or self._state.turn.external is None:
            return
        if await self._external.is_left(presence.within):
            for request in self._state.book.pending():
                await self._approvals.withdraw(({"approval_id": request.id, "reason": _NOBODY_WAITS},))

    @await_call.validator
    def _check_external(self, *envelopes: Any) -> None:
        problem = envelope_problem(envelopes)
        if problem or self._state.turn.external is None:
            raise ValueError(problem or "this turn has no call of an agent that thinks elsewhere")

    @use_call.validator
    # An Update rejected here leaves no event: an agent may poll many times while approvers decide.
    def _check_use(self, *envelopes: Any) -> None:
        self._check_external(*envelopes)
        use_request = read_envelope(envelopes[0], UseRequest)
        if not isinstance(use_request, str) and (code := self._external.use_problem(use_request.use)):
            raise ValueError(code)

    @workflow.signal(name=names.INJECT, description="From the session: a late result for this turn")
    def inject(self, *envelopes: Any) -> None:
        """The model gets the late result with the next completion."""
        self._session.receive(envelopes)

    @workflow.query(name=names.PENDING_APPROVALS)
    def pending_approvals(self) -> list[ApprovalRequest]:
        """Oldest first."""
        return [self._state.request_view(each) for each in self._state.book.pending()]

    @workflow.query(name=names.RECEIPT)
    def receipt(self, approval_id: str) -> Receipt:
        """Also after the end of the turn."""
        return self._state.book.receipt(approval_id)

    @workflow.query(name=names.TRANSCRIPT)
    def transcript(self) -> list[Message]:
        return list(self._state.messages)

    @workflow.query(name=names.STATE)
    def state(self) -> TurnView:
        return self._state.view(workflow.info().start_time)

    @workflow.run
    async def run(self, turn: TurnInput) -> TurnResult:
        """Run the turn. Returns a result in every end state and fails only for an unknown actor at the start."""
        if turn.engine > names.ENGINE:
            # Raise an ordinary exception: Temporal retries the task until a worker that supports this engine number
            # takes it.
            raise RuntimeError(f"this turn needs engine {turn.engine}, this worker has {names.ENGINE}")
        start_options.require_own_id(self._state.key)
        self._state.book.unwritten.add(self._begin_entry())
        for event in turn.session_events:
            self._state.book.unwritten.add(session_entry(*self._state.key, event))
        try:
            result = await self._converse()
        except asyncio.CancelledError:
            await self._break_off(cancelled=True)
            result = self._state.final_result("cancelled")
        except _Stop as stop:
            await self._break_off(cancelled=False)
            result = self._state.final_result("error", error=stop.error)
        except ApplicationError as error:
            # The server reports a failed turn only to the run that started it. Report it here to a session that has
            # continued as
            # a new run.
            await self._session.report_failed_start(TurnError(code="config_error", message=error.message))
            # The gates judge no further calls: answer every decision with "unknown request".
            self._state.entered = self._state.completions
            await self._let_handlers_finish()
            raise
        elapsed = (workflow.now() - workflow.info().start_time).total_seconds()
        result = replace(result, elapsed_seconds=round(elapsed, 3))
        self._state.result = result
        self._state.live = result.state
        self._metadata.publish()
        left_open = len(self._state.waiting)
        state = self._state
        await self._session.report_end(result, state.denials(), state.updates.changed, state.moved_to, left_open)
        if left_open:
            result = await self._follow_open_calls(result)
        await self._let_handlers_finish()
        # Repeat: while this activity records the rest, another decision may arrive.
        while await self._wrote_rest(result):
            await self._let_handlers_finish()
        return result

    async def _let_handlers_finish(self) -> None:
        while not self._is_settled():
            # A cancellation after the end must not undo the result. An eviction raises another exception here.
            with contextlib.suppress(asyncio.CancelledError):
                await workflow.wait_condition(self._is_settled)

    def _is_settled(self) -> bool:
        # When a run completes, Temporal aborts its unfinished handlers, and their Updates get no receipt.
        return workflow.all_handlers_finished()

    async def _converse(self) -> TurnResult:
        state = self._state
        while True:
            for message in self._session.take_messages():
                state.append_message(message)
            self._tell_outcomes()
            self._check_caps()
            reply = await self._complete()
            calls = state.add_completion(reply)
            if state.turn.external is not None:
                return await self._settle_proposed(calls, reply)
            # Return an invalid `respond` to the model once. Then take its text, or the turn might never end.
            answer = reply.answer
            if answer is not None and (not reply.respond_error or state.bad_responds):
                if self._calls.waits and not self._may_leave():
                    await self._wait_at_end(reply, calls)
                    continue
                for call in calls:
                    state.conclude(skipped_outcome(call))
                return state.answer_result(answer)
            if reply.respond_error:
                state.bad_responds += 1
                state.settle(calls, [skipped_outcome(call) for call in calls], (correction(reply),))
                continue
            batch = self._calls.batch(calls, reply)
            # A turn may wait for months: release data that it does not need.
            del reply
            settled = state.change_context(await batch, workflow.now())
            state.settle(calls, settled, ())
            if state.stopped:
                raise asyncio.CancelledError
            # Take the first in the model's order. The order of completion would differ between runs.
            direct = next((outcome for outcome in settled if outcome.direct), None)
            if direct is not None and (not self._calls.waits or self._may_leave()):
                return state.answer_result(Response(text=direct.value))

    async def _settle_proposed(self, calls: tuple[CallPart, ...], reply: ModelReply) -> TurnResult:
        settled = await self._calls.batch(calls, reply)
        self._state.settle(calls, settled, ())
        if self._state.stopped:
            raise asyncio.CancelledError
        return self._state.answer_result(Response(text=settled[0].value))

    def _call_state(self) -> str:
        view = next(iter(self._state.calls.values()), None)
        return "proposed" if view is None else view.state

    def _is_judged(self) -> bool:
        book, external = self._state.book, self._external
        return bool(self._state.result is not None or book.pending() or external.is_open or external.is_used)

    async def _wait_at_end(self, reply: ModelReply, calls: tuple[CallPart, ...]) -> None:
        untaken = untaken_answer(reply, self._state.waiting.values())
        if calls or untaken:
            self._state.settle(calls, [skipped_outcome(call) for call in calls], untaken)
        # The turn does not use this answer, so report outcomes that arrived during the completion at once.
        await workflow.wait_condition(lambda: self._calls.is_outcome_there() or self._session.has_messages)

    def _may_leave(self) -> bool:
        """Return whether the turn may end before its waiting calls. Their outcomes then go to the session."""
        state = self._state
        # The turn's own model still gets each outcome that is already known.
        return state.leave_open and len(state.waiting) <= state.turn.may_leave and not self._calls.is_outcome_there()

    async def _follow_open_calls(self, result: TurnResult) -> TurnResult:
        """Report each outcome of the calls left open to the session.

        The turn has answered and continues only to receive decisions about them.
        """
        while self._calls.waits:
            try:
                await workflow.wait_condition(self._calls.is_outcome_there)
            except asyncio.CancelledError:
                await self._calls.break_off(cancelled=True)
            for outcome in self._calls.take_outcomes():
                # Drop the context updates: no completion of this turn follows.
                outcome = replace(outcome, updates=None, place=None)
                code = self._state.waiting[outcome.call]
                self._state.tell([outcome])
                await self._session.report_outcome(outcome.call, outcome_message(outcome, code))
            now = self._state.final_result(result.state, result.parts)
            self._state.result = result = replace(
                result, calls=now.calls, cost=now.cost, active_seconds=now.active_seconds
            )
        return result

    def _tell_outcomes(self) -> None:
        outcomes = self._state.change_context(self._calls.take_outcomes(), workflow.now())
        self._state.tell(outcomes)

    async def _break_off(self, *, cancelled: bool) -> None:
        """Settle all waiting calls of a turn that ends early: each call needs an outcome."""
        await self._calls.break_off(cancelled=cancelled)
        self._tell_outcomes()

    def _show(self) -> None:
        self._metadata.publish()
        if self._state.live == "suspended":
            self._session.report_waiting()

    def _check_caps(self) -> None:
        info = workflow.info()
        # End before the server's own limits. At those it terminates the workflow, which leaves no result.
        if info.get_current_history_length() > HISTORY_EVENTS or info.get_current_history_size() > HISTORY_BYTES:
            raise _Stop("history_limit", "the turn's history has reached its limit")
        over = self._state.reached_cap()
        if over is not None:
            raise _Stop(over.code, over.message)

    async def _complete(self) -> ModelReply:
        state = self._state
        state.completions += 1
        unwritten = state.book.unwritten.take()
        task = ModelTask(
            ctx=state.ctx,
            completion=state.completions,
            messages=tuple(state.messages),
            tally=state.judge_from(),
            dry_run=state.turn.dry_run,
            audit=fold_facts(unwritten, facts_of_begin(state.ctx)),
            denied=state.session_denials(),
            waiting=state.waiting_calls(),
            external=state.turn.external,
        )
        began = workflow.now()
        try:
            reply = await (self._ask_model(task) if task.external is None else self._propose(task))
        except outcomes.LOST as error:
            # The lost activity may have recorded the entries. The audit log accepts each key once.
            state.book.unwritten.give_back(unwritten)
            raise self._model_failure(error) from error
        state.active_seconds += (workflow.now() - began).total_seconds()
        return reply

    async def _ask_model(self, task: ModelTask) -> ModelReply:
        reply: ModelReply = await workflow.execute_activity(
            names.MODEL, task, result_type=ModelReply, summary=f"Completion {task.completion}", **options.MODEL
        )
        return reply

    async def _propose(self, task: ModelTask) -> ModelReply:
        """Store and judge the call of an external agent. No model runs, so a local activity is enough."""
        # No request is open yet, so no decision can arrive at the same time.
        async with self._approvals.hold_lock():
            reply: ModelReply = await workflow.execute_local_activity(
                names.MODEL, task, result_type=ModelReply, summary="Judge the proposed call", **options.PROPOSE
            )
        return reply

    def _unwritten(self) -> tuple[AuditEntry, ...]:
        return self._state.book.unwritten.take()

    def _begin_entry(self) -> AuditEntry:
        turn = self._state.turn
        return turn_entry(
            turn.tenant_id,
            turn.session_id,
            turn.turn_id,
            workflow.now(),
            subject=turn.principal.user,
            person_id=turn.principal.person_id,
            actor=turn.actor,
            channel=turn.channel,
            route=turn.route,
            step=turn.step,
            unsigned=not turn.principal.signature,
            key_id=turn.principal.key_id,
            in_session=turn.in_session or None,
            dry_run=turn.dry_run or None,
        )

    async def _wrote_rest(self, result: TurnResult) -> bool:
        """Record late answers and a failed end, which no later activity records.

        An ordinary end without late answers skips this activity, which would only lengthen the turn.
        """
        rest = self._unwritten()
        broke_off = result.state in FAILED_STATES and not self._end_reported
        if not (rest or broke_off):
            return False
        self._end_reported = True
        error = "" if result.error is None else result.error.code
        ended = turn_end_entry(*self._state.key, workflow.now(), state=result.state, error=error)
        with contextlib.suppress(ActivityError, asyncio.CancelledError):
            # Not a local activity: the workflow ends afterwards, and decisions may arrive in the task in which it ends.
            await workflow.execute_activity(
                names.RECORD,
                RecordTask(audit=(*rest, ended)),
                summary="Record the last entries",
                **options.RECORD,
            )
        return True

    def _model_failure(self, error: FailureError) -> BaseException:
        kind = outcomes.error_type(error)
        text = outcomes.error_text(error)
        if outcomes.was_cancelled(error):
            return asyncio.CancelledError()
        # Later the turn has results, which a failed workflow would lose. It then ends with an error result.
        if kind == "ConfigError" and self._state.completions == 1:
            return ApplicationError(text, type="ConfigError", non_retryable=True)
        if kind in _ERROR_CODES:
            return _Stop(_ERROR_CODES[kind], text)
        return _Stop("model_unavailable", f"{outcomes.first_error_text(error) or _NO_ANSWER}; {_ASKED_LONG}")
