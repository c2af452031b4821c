"""One actor turn as a Temporal workflow: model, gates, people, tools, and again, until it answers."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from signoff.approvals import desk as desks
    from signoff.approvals.entries import begun, heard, over, turn_stream
    from signoff.approvals.machine import approving
    from signoff.contracts import names
    from signoff.contracts.approval import ApprovalRequest
    from signoff.contracts.audit import AuditEntry
    from signoff.contracts.call import CallOutcome, Pinned
    from signoff.contracts.content import text_of
    from signoff.contracts.decision import Decision
    from signoff.contracts.limits import HISTORY_BYTES, HISTORY_EVENTS, MAX_REVISIONS
    from signoff.contracts.message import CallPart, Message, TextPart
    from signoff.contracts.receipt import Receipt
    from signoff.contracts.steps import GateTask, ModelReply, ModelTask, RecordTask, Ruling, ToolReply
    from signoff.contracts.turn import TurnError, TurnInput, TurnResult, TurnView
    from signoff.workflows import options, outcomes, tasks
    from signoff.workflows.asking import Asking
    from signoff.workflows.board import Board
    from signoff.workflows.in_session import InSession
    from signoff.workflows.judging import judged
    from signoff.workflows.record import TurnRecord, correction, skipped
    from signoff.workflows.running import Running


_BROKEN_OFF = ("error", "cancelled")


@dataclass
class _Tries:
    """How often one call was tried. Tickets are counted for each digest, because a changed tool makes another key."""

    tickets: dict[str, int] = field(default_factory=dict)
    doubts: tuple[Decision, ...] = ()

    def ticket(self, digest: str) -> int:
        return self.tickets.get(digest, 1)

    def give_up(self, digest: str) -> None:
        self.tickets[digest] = self.ticket(digest) + 1


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
        self._gates = GateTask(ctx=self._ctx, calls=(), dry_run=turn.dry_run)
        self._board = Board(self._record, self._desk)
        self._session = InSession(turn)
        self._asking = Asking(self._record, self._desk, self._gates, self._show)
        self._running = Running(self._record, self._ctx, self._desk.unwritten)
        self._told_end = False

    # What people and onlookers can send. Nothing here may raise: see contracts.md, handlers that cannot wedge.

    @workflow.update(name=names.DECIDE, description="Approve or deny one waiting call")
    async def decide(self, *envelopes: Any) -> Receipt:
        """Answer a request; the receipt says what became of the answer."""
        return await self._asking.answer(envelopes)

    @decide.validator
    def _check_decide(self, *envelopes: Any) -> None:
        problem = desks.envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    @workflow.signal(name=names.APPROVAL_RESPONSE, description="Approve or deny one waiting call, without a reply")
    async def approval_response(self, *envelopes: Any) -> None:
        """The same as `decide`, for those who cannot wait for a receipt."""
        await self._asking.answer(envelopes)

    @workflow.update(name=names.CANCEL, description="Withdraw one waiting request")
    async def cancel(self, *envelopes: Any) -> Receipt:
        """Withdraw the request named by `approval_id`; `reason` may be given, `subject` where it can be proved."""
        return await self._asking.withdraw(envelopes)

    @cancel.validator
    def _check_cancel(self, *envelopes: Any) -> None:
        problem = desks.envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    @workflow.signal(name=names.INJECT, description="From the session: a late result for this turn")
    def inject(self, *envelopes: Any) -> None:
        """Take in what the model is told with the next completion."""
        self._session.take(envelopes)

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
        self._desk.unwritten.add(self._begun())
        for event in turn.heard:
            self._desk.unwritten.add(heard(*self._record.key, event))
        try:
            result = await self._converse()
        except asyncio.CancelledError:
            result = self._record.finished("cancelled")
        except _Stop as stop:
            result = self._record.finished("error", error=stop.error)
        except ApplicationError as error:
            await self._session.failed(TurnError(code="config_error", message=error.message))
            raise
        self._record.result = result
        self._record.state = result.state
        self._board.publish()
        await self._session.ended(result, self._asking.denials())
        await self._let_handlers_finish()
        while await self._wrote_rest(result):
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
            for message in self._session.opened():
                record.say(message)
            self._check_caps()
            reply = await self._complete()
            calls = record.hear(reply)
            if reply.response is not None and (not reply.respond_error or record.bad_responds):
                for call in calls:
                    record.conclude(skipped(call))
                return record.answered(reply.response)
            if reply.respond_error:
                record.bad_responds += 1
                record.settle(calls, [skipped(call) for call in calls], (correction(reply),))
                continue
            says = _words(reply)
            # A turn may wait for months: what it does not need meanwhile it does not keep.
            del reply
            record.settle(calls, await self._batch(calls, says), ())
            if self._asking.stopped:
                return record.finished("cancelled")

    def _show(self) -> None:
        self._board.publish()
        if self._record.state == "suspended":
            self._session.waits()

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
            audit=self._unwritten(),
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
            self._desk.unwritten.give_back(task.audit)
            raise self._model_failure(error) from error
        record.active_seconds += (workflow.now() - began).total_seconds()
        return reply

    def _unwritten(self) -> tuple[AuditEntry, ...]:
        return self._desk.unwritten.take(turn_stream(self._ctx), self._ctx.tenant)

    def _begun(self) -> AuditEntry:
        turn = self._record.turn
        return begun(
            turn.tenant_id,
            turn.session_id,
            turn.turn_id,
            workflow.now(),
            subject=turn.principal.user,
            actor=turn.actor,
            channel=turn.channel,
            unsigned=not turn.principal.signature,
            key_id=turn.principal.key_id,
            in_session=turn.in_session or None,
            dry_run=turn.dry_run or None,
        )

    async def _wrote_rest(self, result: TurnResult) -> bool:
        """Whether there was something that no later activity would write: late answers, or that the turn broke off.

        A turn that comes to its end in the ordinary way is not made longer to say so.
        """
        rest = self._unwritten()
        broke_off = result.state in _BROKEN_OFF and not self._told_end
        if not (rest or broke_off) or self._record.turn.engine < 2:
            return False
        self._told_end = True
        error = "" if result.error is None else result.error.code
        ended = over(*self._record.key, workflow.now(), state=result.state, error=error)
        with contextlib.suppress(ActivityError, asyncio.CancelledError):
            # No local activity: what it leads to is the end, and answers may come in the task in which it ends.
            await workflow.execute_activity(
                names.RECORD,
                RecordTask(audit=(*rest, ended)),
                summary="Write down what was seen last",
                **options.RECORD,
            )
        return True

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
        asked = {"calls": calls, "tally": self._record.tally, "agent_says": says}
        gated = await judged(self._gates.model_copy(update=asked))
        self._record.tally = gated.tally
        rulings = [self._asking.enter(ruling) for ruling in gated.rulings]
        del gated
        self._show()
        tasks = [asyncio.create_task(self._conclude(call, ruling)) for call, ruling in zip(calls, rulings, strict=True)]
        try:
            await workflow.wait(tasks)
        except asyncio.CancelledError:
            # What has not started never will, what runs is awaited.
            self._running.cancel()
            self._asking.stop()
            await workflow.wait(tasks)
        return [task.result() for task in tasks]

    async def _conclude(self, call: CallPart, ruling: Ruling) -> CallOutcome:
        outcome = await self._settle(call, ruling)
        self._record.conclude(outcome)
        return outcome

    async def _settle(self, call: CallPart, ruling: Ruling) -> CallOutcome:
        """Bring one call to its one outcome: judged anew as often as its approval goes stale, within bounds."""
        tries, revision = _Tries(), 1
        request: ApprovalRequest | None = None
        while revision <= MAX_REVISIONS:
            if ruling.verdict == "settled" and ruling.outcome is not None:
                return ruling.outcome
            if ruling.verdict == "ask":
                request = await self._asking.answered(ruling)
                if request.state != "approved":
                    return outcomes.denied(request)
                revision = request.revision
                call, ruling = self._asking.take_edit(call, ruling)
            if self._asking.stopped:
                return outcomes.unwanted(call.call, call.tool)
            reply = await self._run_tool(call, ruling, request, tries)
            revision += 1
            unknown = self._unknown(reply)
            if unknown is not None:
                doubt = await self._asking.doubted(call, ruling, tries.ticket(ruling.digest), revision)
                if doubt is not None and doubt.state == "happened":
                    told = await self._tell(call, ruling, request, tries, doubt)
                    return self._credited(told, ruling, request)
                if doubt is None or doubt.state != "approved":
                    return self._credited(outcomes.given_up(unknown, doubt), ruling, request)
                # It did not happen: the same right to run it, under the next ticket.
                ruling = ruling.model_copy(update={"verdict": "run"})
                tries.give_up(ruling.digest)
                tries.doubts += approving(doubt)
                continue
            if reply.again == "undone":
                ruling = ruling.model_copy(update={"verdict": "run"})
                tries.give_up(ruling.digest)
                continue
            if not reply.again and reply.outcome is not None:
                return self._credited(reply.outcome, ruling, request)
            if reply.again == "lapsed":
                tries.give_up(ruling.digest)
            if request is not None:
                self._desk.lapse(request.id, workflow.now())
            if not self._asking.stopped:
                request, ruling = None, await self._judge_again(call, revision, reply.note)
            if self._asking.stopped:
                return outcomes.unwanted(call.call, call.tool)
        if request is None and self._desk.waits(approval_id := self._record.approval_id(call.call)):
            self._desk.cancel(approval_id, "", "Asked too often.", workflow.now())
        return outcomes.failed(call.call, call.tool, "refused", "Asked too often; give up on this call.")

    async def _judge_again(self, call: CallPart, revision: int, note: str) -> Ruling:
        again = {"calls": (call,), "revision": revision, "note": note}
        ruling = self._asking.enter((await judged(self._gates.model_copy(update=again))).rulings[0])
        self._show()
        return ruling

    async def _run_tool(
        self, call: CallPart, ruling: Ruling, request: ApprovalRequest | None, tries: _Tries
    ) -> ToolReply:
        permit = tasks.permit(self._ctx, call, ruling, request, tries.doubts)
        self._record.mark(call.call, "running", ruling.rule)
        return await self._running.run(call, ruling, permit, tries.ticket(ruling.digest))

    async def _tell(
        self, call: CallPart, ruling: Ruling, request: ApprovalRequest | None, tries: _Tries, doubt: ApprovalRequest
    ) -> CallOutcome:
        permit = tasks.permit(self._ctx, call, ruling, request, tries.doubts)
        return await self._running.keep(call, ruling, permit, tries.ticket(ruling.digest), doubt)

    def _unknown(self, reply: ToolReply) -> CallOutcome | None:
        """The outcome of a call that people are to be asked about; the first engine told the model only."""
        unknown = reply.outcome is not None and reply.outcome.code == "in_doubt"
        return reply.outcome if unknown and self._record.turn.engine >= 2 and not self._asking.stopped else None

    def _credited(self, outcome: CallOutcome, ruling: Ruling, request: ApprovalRequest | None) -> CallOutcome:
        credit: dict[str, Any] = {"rule": ruling.rule}
        if request is not None:
            note = " ".join(filter(None, (self._asking.note(request), outcome.note)))
            decided_by = outcome.decided_by or request.decided_by
            credit |= {
                "approval_id": request.id,
                "decided_by": decided_by,
                "edited_by": request.edited_by,
                "note": note,
            }
        return outcome.model_copy(update=credit)


def _words(reply: ModelReply) -> str:
    return " ".join(text_of(part.text) for part in reply.message.parts if isinstance(part, TextPart))
