"""Runs one actor turn as a Temporal workflow: model, gates, people, tools, and again, until it answers."""

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
    from signoff.contracts.turn import TurnError, TurnInput, TurnResult, TurnView
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


_BROKEN_OFF = ("error", "cancelled")
_ERROR_CODES = {"ConfigError": "config_error", "ModelRefused": "model_refused"}
_NOBODY_WAITS = "its agent does not wait for it any more"
_NO_ANSWER = "no worker brought an answer of the model"
_ASKED_LONG = "it was asked again for ten minutes: ask anew later; what ran before that has run"


class _Stop(Exception):
    """Raised where the turn cannot go on; carries why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.error = TurnError(code=code, message=message)


@workflow.defn(name=names.ACTOR_TURN, sandboxed=False)
class ActorTurn:
    """The workflow of one turn, durable from the first message to the answer; while people are asked it holds only
    history.
    """

    # Not in `run`: a message that comes with the first task is handled before `run` takes its first step.
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

    # What people and onlookers can send. Nothing here may raise: that would fail the task, again and again.

    # `*envelopes: Any`, as what does not decode as a typed argument would be dropped (a Signal) or fail the caller.
    @workflow.update(name=names.DECIDE, description="Approve or deny one waiting call")
    async def decide(self, *envelopes: Any) -> Receipt:
        """Takes an answer to a request, and returns its receipt."""
        return await self._approvals.apply_decision(envelopes)

    @decide.validator
    # Refused here, an Update leaves no event: junk must not fill a history. All that can be read gets a receipt.
    def _check_decide(self, *envelopes: Any) -> None:
        problem = envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    @workflow.signal(name=names.APPROVAL_RESPONSE, description="Approve or deny one waiting call, without a reply")
    async def approval_response(self, *envelopes: Any) -> None:
        """Takes an answer like `decide`, for callers that cannot wait for a receipt."""
        await self._approvals.apply_decision(envelopes)

    @workflow.update(name=names.CANCEL, description="Withdraw one waiting request")
    async def cancel(self, *envelopes: Any) -> Receipt:
        """Withdraws the request named by `approval_id`; `reason` may be given, `subject` where it can be proved."""
        return await self._approvals.withdraw(envelopes)

    @cancel.validator
    def _check_cancel(self, *envelopes: Any) -> None:
        problem = envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    # Of a turn whose agent thinks elsewhere: the gateway alone sends these, and checks what it is answered.

    @workflow.update(name=names.CALL_STATE, description="Tell how far the proposed call has come, by a refusal")
    async def call_state(self, *envelopes: Any) -> None:
        """Tells the state of the proposed call by its validator's refusal, and so never runs itself."""

    @call_state.validator
    # Refused, an Update leaves no event, and unlike a query it need not wait for the end of the first task.
    def _tell_state(self, *envelopes: Any) -> None:
        self._check_external(*envelopes)
        raise ValueError(self._call_state())

    @workflow.update(name=names.AWAIT_CALL, description="Use the permit of the proposed call once it is judged")
    async def await_call(self, *envelopes: Any) -> UseReply:
        """Uses the permit of the proposed call at once; returns why not where it waits or has ended."""
        wish = read_envelope(envelopes[0] if envelopes else None, CallRequest)
        if isinstance(wish, str) or wish.input != workflow.memo_value(names.MEMO_INPUT_DIGEST, ""):
            return use_refusal("conflict")
        await workflow.wait_condition(self._is_judged)
        reply = await self._external.use(wish.use)
        view = next(iter(self._state.calls.values()), None)
        return replace(
            reply,
            nonce=self._state.turn.principal.nonce,
            outcome=None if view is None else view.outcome,
            state=self._call_state(),
        )

    @workflow.update(name=names.USE_CALL, description="Use the permit of the proposed call, once")
    async def use_call(self, *envelopes: Any) -> UseReply:
        """Hands out the permit of the proposed call to one try alone."""
        wish = read_envelope(envelopes[0] if envelopes else None, UseRequest)
        if isinstance(wish, str) or not wish.use:
            return use_refusal("unavailable")
        return await self._external.use(wish.use)

    @workflow.signal(name=names.REPORT_CALL, description="Tell that the store has the report of the used call")
    def report_call(self, *envelopes: Any) -> None:
        """Has the store looked at for the report of the agent that ran the call."""
        self._external.hear_report()

    @workflow.signal(name=names.ATTEND_CALL, description="Tell whether the agent still waits for the proposed call")
    async def attend_call(self, *envelopes: Any) -> None:
        """Withdraws what people are asked about the call where nobody waits for it again in time."""
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
    # Refused here, an Update leaves no event: an agent may ask again and again while people are asked.
    def _check_use(self, *envelopes: Any) -> None:
        self._check_external(*envelopes)
        wish = read_envelope(envelopes[0], UseRequest)
        if not isinstance(wish, str) and (code := self._external.use_problem(wish.use)):
            raise ValueError(code)

    @workflow.signal(name=names.INJECT, description="From the session: a late result for this turn")
    def inject(self, *envelopes: Any) -> None:
        """Takes a late result, which the model gets with the next completion."""
        self._session.receive(envelopes)

    @workflow.query(name=names.PENDING_APPROVALS)
    def pending_approvals(self) -> list[ApprovalRequest]:
        """Returns the requests that wait, oldest first."""
        return list(self._state.book.pending())

    @workflow.query(name=names.RECEIPT)
    def receipt(self, approval_id: str) -> Receipt:
        """Returns the receipt of a request, also after the turn has ended."""
        return self._state.book.receipt(approval_id)

    @workflow.query(name=names.TRANSCRIPT)
    def transcript(self) -> list[Message]:
        """Returns the conversation so far."""
        return list(self._state.messages)

    @workflow.query(name=names.STATE)
    def state(self) -> TurnView:
        """Returns the whole turn as an onlooker may see it."""
        return self._state.view(workflow.info().start_time)

    @workflow.run
    async def run(self, turn: TurnInput) -> TurnResult:
        """Runs the turn. Completes with its result whatever the state; fails only for an unknown actor at the start."""
        if turn.engine > names.ENGINE:
            # An ordinary exception: the task is retried until a worker that knows this number takes it.
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
            # The server tells of a failed turn only the run that began it: a session gone on since hears it here.
            await self._session.report_failed_start(TurnError(code="config_error", message=error.message))
            # Nothing is judged any more: whoever answers is told that there is no such request.
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
        # Again and again: while the rest is written another answer may come, which is to be written too.
        while await self._wrote_rest(result):
            await self._let_handlers_finish()
        return result

    async def _let_handlers_finish(self) -> None:
        while not self._is_settled():
            # A cancel that comes after the end must not undo it; an eviction raises something else here.
            with contextlib.suppress(asyncio.CancelledError):
                await workflow.wait_condition(self._is_settled)

    def _is_settled(self) -> bool:
        # A run that completes breaks off the handlers that go on, and their Updates get no receipt.
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
            # A `respond` that cannot be read goes back once; then its text is taken, or this might never end.
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
            # A turn may wait for months: what it does not need meanwhile it does not keep.
            del reply
            settled = state.change_context(await batch, workflow.now())
            state.settle(calls, settled, ())
            if state.stopped:
                raise asyncio.CancelledError
            # The first in the model's order, not the first to end: that would be another one from one run to the next.
            direct = next((outcome for outcome in settled if outcome.direct), None)
            if direct is not None and (not self._calls.waits or self._may_leave()):
                return state.answer_result(Response(text=direct.value))

    async def _settle_proposed(self, calls: tuple[CallPart, ...], reply: ModelReply) -> TurnResult:
        """Returns the result of a turn that has one call and no model: what became of that call."""
        settled = await self._calls.batch(calls, reply)
        self._state.settle(calls, settled, ())
        if self._state.stopped:
            raise asyncio.CancelledError
        return self._state.answer_result(Response(text=settled[0].value))

    def _call_state(self) -> str:
        """Returns the state of the proposed call, as an onlooker sees it."""
        view = next(iter(self._state.calls.values()), None)
        return "proposed" if view is None else view.state

    def _is_judged(self) -> bool:
        book, external = self._state.book, self._external
        return bool(self._state.result is not None or book.pending() or external.is_open or external.is_used)

    async def _wait_at_end(self, reply: ModelReply, calls: tuple[CallPart, ...]) -> None:
        """Returns once there is something to tell the model, which has answered while calls wait."""
        untaken = untaken_answer(reply, self._state.waiting.values())
        if calls or untaken:
            self._state.settle(calls, [skipped_outcome(call) for call in calls], untaken)
        # Its answer was in vain: what came while it was asked is told at once.
        await workflow.wait_condition(lambda: self._calls.is_outcome_there() or self._session.has_messages)

    def _may_leave(self) -> bool:
        """Returns whether the turn may end over the calls that wait: their outcomes come to its session."""
        state = self._state
        # What is there already its own model is told.
        return state.leave_open and len(state.waiting) <= state.turn.may_leave and not self._calls.is_outcome_there()

    async def _follow_open_calls(self, result: TurnResult) -> TurnResult:
        """Tells the session the outcome of each call over which the turn ended; returns the result with them.

        The turn has answered and runs on only for this: people's answers come to it.
        """
        while self._calls.waits:
            try:
                await workflow.wait_condition(self._calls.is_outcome_there)
            except asyncio.CancelledError:
                await self._calls.break_off(cancelled=True)
            for outcome in self._calls.take_outcomes():
                # Nothing takes what it changes of the context: no completion of this turn follows.
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
        """Ends what waits while the turn goes on, as it goes on no more; each call has its outcome then."""
        await self._calls.break_off(cancelled=cancelled)
        self._tell_outcomes()

    def _show(self) -> None:
        self._metadata.publish()
        if self._state.live == "suspended":
            self._session.report_waiting()

    def _check_caps(self) -> None:
        info = workflow.info()
        # Before the server's own limits, at which it terminates a workflow: then nobody would get a result.
        if info.get_current_history_length() > HISTORY_EVENTS or info.get_current_history_size() > HISTORY_BYTES:
            raise _Stop("history_limit", "the turn has grown too long to go on safely")
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
            # Perhaps they were written before it was lost: the record takes an entry once, by its key.
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
        """Has the call of the turn's agent kept and judged: no model is asked, so it need not be an activity."""
        # Nobody is asked yet whose answer could come in beside it.
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
        """Records what no later activity would, late answers or that the turn broke off; returns whether there was any.

        A turn that comes to its end in the ordinary way is not made longer to say so.
        """
        rest = self._unwritten()
        broke_off = result.state in _BROKEN_OFF and not self._end_reported
        if not (rest or broke_off):
            return False
        self._end_reported = True
        error = "" if result.error is None else result.error.code
        ended = turn_end_entry(*self._state.key, workflow.now(), state=result.state, error=error)
        with contextlib.suppress(ActivityError, asyncio.CancelledError):
            # No local activity: what it leads to is the end, and answers may come in the task in which it ends.
            await workflow.execute_activity(
                names.RECORD,
                RecordTask(audit=(*rest, ended)),
                summary="Write down what was seen last",
                **options.RECORD,
            )
        return True

    def _model_failure(self, error: FailureError) -> BaseException:
        kind = outcomes.error_type(error)
        text = outcomes.error_text(error)
        if outcomes.was_cancelled(error):
            return asyncio.CancelledError()
        # Later the turn has done work, which a failed workflow would not tell: then it ends with a result, as an error.
        if kind == "ConfigError" and self._state.completions == 1:
            return ApplicationError(text, type="ConfigError", non_retryable=True)
        if kind in _ERROR_CODES:
            return _Stop(_ERROR_CODES[kind], text)
        return _Stop("model_unavailable", f"{outcomes.first_error_text(error) or _NO_ANSWER}; {_ASKED_LONG}")
