"""Asks approvers on behalf of one turn: opens questions, reads their answers, waits for reminders and deadlines.

The store decides about answers. A message that an answer was stored is a hint to read it there.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from temporalio import workflow

from signoff.approvals import audit_events, deadlines
from signoff.approvals.approval_book import read_decision, read_wake, read_withdrawal
from signoff.contracts import names
from signoff.contracts.activity_messages import AnswersReply, AnswersTask, GateDecision, ReplyTask, Wake
from signoff.contracts.approval import TurnQuestion
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content, text_of
from signoff.contracts.decision import Decision
from signoff.contracts.ids import show_code
from signoff.contracts.limits import MAX_REVISIONS
from signoff.contracts.message import CallPart
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.formats.replace import replace
from signoff.workflows import options, outcomes, temporal_metadata
from signoff.workflows.alarm import Alarm
from signoff.workflows.gate_call import judge_calls, judge_soon
from signoff.workflows.turn_state import TurnState

_TIMERS: Final = {"remind": "Reminder", "escalate": "Escalation", "deadline": "Deadline"}


class ApprovalFlow:
    """Opens the questions of one turn and reads their answers. With `alarm`, they share the turn's timer."""

    def __init__(self, state: TurnState, show: Callable[[], None], alarm: Alarm | None = None) -> None:
        self._state = state
        self._show = show
        self._alarm = alarm
        self._edits: dict[str, tuple[CallPart, GateDecision]] = {}
        self._edited: set[str] = set()
        self._hearing: dict[str, list[object]] = {}
        self._looks: set[str] = set()
        self._replying: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._looking = asyncio.Lock()

    def open_request(self, call: CallPart, gate_decision: GateDecision) -> GateDecision:
        """Open the request of a call that must wait. The result lacks the question, which the book keeps."""
        if gate_decision.question is None:
            return gate_decision
        if gate_decision.kind == "ask" and not self._state.stopped:
            self._state.book.open(self._state.question_of(call, gate_decision, gate_decision.question))
            self._state.actions[gate_decision.call] = gate_decision.action
            self._state.show_state(gate_decision.call, "waiting", gate_decision.rule)
        return replace(gate_decision, question=None)

    async def wait_for_answer(self, gate_decision: GateDecision) -> TurnQuestion:
        approval_id = self._state.approval_id(gate_decision.call)
        while True:
            question = self._state.book.get(approval_id)
            if question is None or question.expires_at is None:
                raise RuntimeError(f"call {gate_decision.call} waits for a request that was never opened")
            due_event = deadlines.next_event(question)
            if due_event is None:
                break
            # Name only the request's code: the turn's details show the call, and two events repeat a timer's summary.
            words = temporal_metadata.summary(f"{_TIMERS[due_event.what]} of {show_code(question.code)}")
            if not await self._wait(partial(self._moved_on, approval_id, due_event), due_event.at, words):
                if due_event.what == "deadline":
                    await self._those_before(approval_id)
                    if await self._is_edited_at(question) or self._moved_on(approval_id, due_event):
                        continue
                # This has no effect if an answer has settled the request.
                self._state.book.apply_due_event(approval_id, due_event, workflow.now())
                self._show()
        self._show()
        return question

    def apply_edit(self, call: CallPart, gate_decision: GateDecision) -> tuple[CallPart, GateDecision]:
        """Return the call and its gate decision, with any edit since the gates last judged the call."""
        edit = self._edits.pop(call.call, None)
        if edit is None:
            return call, gate_decision
        # The edited call keeps the character budget of the proposed call.
        return edit[0], replace(
            edit[1], options=replace(edit[1].options, budget_chars=gate_decision.options.budget_chars)
        )

    def is_edited(self, call: str) -> bool:
        return call in self._edited

    def editor(self, call: str) -> str:
        """Return the id of the last person who edited a call's arguments, or ""."""
        question = self._state.book.get(self._state.approval_id(call))
        return "" if question is None or not self.is_edited(call) else question.edited_by

    def revision(self, call: str) -> int:
        """0 without a request."""
        question = self._state.book.get(self._state.approval_id(call))
        return 0 if question is None else question.revision

    async def ask_about_doubt(
        self, call: CallPart, gate_decision: GateDecision, ticket: int
    ) -> TurnQuestion | CallOutcome | None:
        """Ask whether `call` took effect under `ticket`.

        Returns the settled question, `None` if no approver can be asked, or the outcome that a slow worker stored
        meanwhile.
        """
        doubt = {"doubt": ticket, "doubt_of": gate_decision.digest, "spent": self.revision(call.call)}
        task = self._state.gate_task(call, **doubt)
        async with self.hold_lock():
            question_decision = self.open_request(call, (await judge_calls(task)).gate_decisions[0])
        if question_decision.outcome is not None and question_decision.outcome.code not in ("in_doubt", "refused"):
            return question_decision.outcome
        if question_decision.kind != "ask" or self._state.stopped:
            return None
        self._show()
        return await self.wait_for_answer(question_decision)

    def stop(self, why: str) -> None:
        for question in self._state.book.pending():
            self._state.book.cancel(question.id, "", why, workflow.now())

    async def hear(self, envelopes: Sequence[Any]) -> Receipt:
        """Hear that an answer was stored, or take an answer that bypassed the gateway. Never raises."""
        wake = read_wake(envelopes)
        if wake is not None:
            return await self._wake_up(wake)
        decision = read_decision(envelopes)
        if isinstance(decision, Receipt):
            return self._unreadable(decision, envelopes)
        return await self._take_raw(decision)

    async def withdraw(self, envelopes: Sequence[Any]) -> Receipt:
        """Withdraw a request.

        Never raises. Every sender can also stop the turn, so no signature is needed. A name counts only with proof, and
        must be the requester, an approver or an administrator.
        """
        withdrawal = read_withdrawal(envelopes)
        if isinstance(withdrawal, Receipt):
            return self._unreadable(withdrawal, envelopes)
        await self._caught_up(withdrawal.approval_id, withdrawal.revision or 1)
        question, by = self._state.book.get(withdrawal.approval_id), withdrawal.subject
        if question is not None and question.state == "pending":
            async with self.hold_lock():
                reply = await _take(question, withdrawal)
            receipt, author = reply.receipt, reply.author
            if receipt is not None and receipt.status == "refused":
                return self._state.book.record_refusal(withdrawal, receipt, workflow.now(), author)
            if reply.seen:
                self._state.book.take(question, reply, workflow.now())
                return receipt or self._state.book.receipt(question.id)
            by = author.subject if author is not None and author.allowed else ""
        return self._state.book.cancel(withdrawal.approval_id, by, withdrawal.reason, workflow.now())

    async def _wake_up(self, wake: Wake) -> Receipt:
        await self._caught_up(wake.approval_id, wake.revision)
        book = self._state.book
        known, question = book.known_reply(wake), book.get(wake.approval_id)
        if known is not None or question is None:
            return known or book.receipt(wake.approval_id)
        with self._during_hearing(question.id):
            await self._look(question)
        return book.known_reply(wake, looked=True) or _refusal(
            question, "unavailable", "the answer was not found; try again"
        )

    async def _take_raw(self, decision: Decision) -> Receipt:
        await self._caught_up(decision.approval_id, decision.revision or 1)
        book = self._state.book
        with self._during_hearing(decision.approval_id):
            async with self.hold_lock():
                receipt, question = book.untakable(decision), book.get(decision.approval_id)
                if receipt is not None or question is None:
                    return book.record_refusal(decision, receipt or book.receipt(decision.approval_id), workflow.now())
                reply = await _take(question, decision)
                receipt = reply.receipt or book.receipt(question.id)
                if receipt.status == "refused":
                    return book.record_refusal(decision, receipt, workflow.now(), reply.author)
                book.keep_receipt(decision, receipt)
                if reply.seen:
                    refused = await self._take_reply(question, reply)
                    if decision.edited_args is not None:
                        receipt = refused or book.edited_receipt(question.id)
                return receipt

    async def _caught_up(self, approval_id: str, revision: int) -> None:
        """Wait until the turn knows of every question that the gates may have asked.

        The store has a question before its turn. Without this wait, the turn would refuse a quick answer as unknown,
        and the approver would get no second card.
        """
        if self._may_come(approval_id, revision):
            await workflow.wait_condition(lambda: not self._may_come(approval_id, revision))
        question = self._state.book.get(approval_id)
        if self._looking.locked() and (question is None or revision > question.revision):
            # The call may be in judgement again. The holder of the lock enters its question before this continues.
            async with self.hold_lock():
                pass

    def _may_come(self, approval_id: str, revision: int) -> bool:
        """Return whether the gates may have asked this revision without the turn's knowledge."""
        question = self._state.book.get(approval_id)
        if question is not None and revision <= question.revision:
            return False
        if self._state.may_be_asked(approval_id):
            return True
        # The gates judge a call or its fallback again only after a run, not while its request is pending.
        call = self._state.open_call(approval_id)
        waits = call and self._state.book.waits(self._state.approval_id(call))
        return bool(call) and not (waits or self._state.stopped or self._state.book.waits(approval_id))

    async def _look(self, question: TurnQuestion, deadline: datetime | None = None) -> AnswersReply | None:
        """Read the state of `question` from the store. Several callers at a time share one look."""
        self._looks.add(question.id)
        async with self.hold_lock():
            # A look that began after this call is enough, except at the deadline.
            if question.id not in self._looks and deadline is None:
                return None
            self._looks.discard(question.id)
            refused = self._state.book.refused_edits(question.id)
            task = AnswersTask(approval=question.id, revision=question.revision, refused=refused, deadline=deadline)
            reply = await _read(task)
            await self._take_reply(question, reply)
        return reply

    async def _is_edited_at(self, question: TurnQuestion) -> bool:
        """Look a last time before a deadline. Return whether an edit has kept the question from expiring."""
        is_final = deadlines.is_final(question)
        reply = await self._look(question, question.expires_at if is_final else None)
        return is_final and reply is not None and bool(reply.edits)

    async def _take_reply(self, question: TurnQuestion, reply: AnswersReply) -> Receipt | None:
        """Take the state from the store, and judge edits. Returns the receipt of the last refused edit."""
        self._state.book.take(question, reply, workflow.now())
        if reply.asked_at is not None:
            self._show()
        self._begin_reply(question, reply.message)
        receipt: Receipt | None = None
        for number in reply.edits:
            current = self._state.book.get(question.id)
            if current is None or (current.revision, current.state) != (question.revision, "pending"):
                break
            receipt = await self._edit(current, number)
        return receipt

    def _begin_reply(self, question: TurnQuestion, message: int) -> None:
        """Have the model answer an approver's question, while the request waits."""
        named = (question.id, message)
        if message and named not in self._replying and self._state.book.waits(question.id):
            self._replying[named] = asyncio.create_task(self._reply(named))

    async def _reply(self, named: tuple[str, int]) -> None:
        state, (approval, message) = self._state, named
        task = ReplyTask(ctx=state.ctx, messages=tuple(state.messages), approval=approval, message=message)
        try:
            await workflow.execute_activity(names.REPLY, task, summary="Answer an approver", **options.MODEL)
        except outcomes.LOST:
            # The gateway announces the question again.
            pass
        finally:
            self._replying.pop(named, None)

    async def _edit(self, question: TurnQuestion, number: int) -> Receipt | None:
        """Ask about the edited call instead. Returns the receipt if the gates refuse."""
        book = self._state.book
        if question.revision >= MAX_REVISIONS:
            receipt = _refusal(question, "not_allowed", "this was changed too often; approve or deny it")
            book.refuse_edit(question.id, number, receipt)
            return receipt
        call = CallPart(call=question.call, tool=question.tool, args=question.args or Content(inline={}))
        # Apply every gate: an edit must not create a call that a rule denies. The edit's own answer identifies its
        # revision, so the time of the question does not matter.
        reply = await judge_soon(self._state.gate_task(call, edit=number, asked_since=None))
        if reply is None:
            book.put_off_edit(question.id, number)
            return _refusal(question, "unavailable", "the arguments cannot be checked right now; try again")
        gate_decision = reply.gate_decisions[0]
        if gate_decision.question is None:
            outcome = gate_decision.outcome
            code: ReceiptCode = (
                "malformed" if outcome is not None and outcome.code == "input_invalid" else "not_allowed"
            )
            receipt = replace(_refusal(question, code, _why(outcome)), remarks=gate_decision.refusal)
            book.refuse_edit(question.id, number, receipt)
            return receipt
        changed = replace(call, args=gate_decision.question.args or call.args)
        asked = book.open(self._state.question_of(changed, gate_decision, gate_decision.question))
        self._edited.add(call.call)
        self._edits[call.call] = (changed, replace(gate_decision, question=None))
        self._state.actions[call.call] = gate_decision.action
        # The edit counts as its author's answer to the new question.
        reread = AnswersTask(approval=asked.id, revision=asked.revision)
        book.take(asked, await _read(reread), workflow.now())
        self._show()
        return None

    def _unreadable(self, receipt: Receipt, envelopes: Sequence[Any]) -> Receipt:
        now, ctx = workflow.now(), self._state.ctx
        seen = audit_events.rejected_entry(
            receipt, now, subject="", channel="", body=list(envelopes), tenant=ctx.tenant
        )
        self._state.book.unwritten.add(seen)
        return self._state.book.reject(receipt)

    @asynccontextmanager
    async def hold_lock(self) -> AsyncIterator[None]:
        """Serialise looks and judging in order of arrival.

        Parallel local activities finish in any order, but complete in start order during replay. Without the lock,
        replay could take an older state after a newer one.
        """
        async with self._looking:
            yield

    @contextmanager
    def _during_hearing(self, approval_id: str) -> Iterator[None]:
        heard, mark = self._hearing.setdefault(approval_id, []), object()
        heard.append(mark)
        try:
            yield
        finally:
            heard.remove(mark)

    async def _those_before(self, approval_id: str) -> None:
        """Wait for the messages that arrived before the deadline's timer was handled: they may be in time.

        After an outage of the workers, the timer and the messages arrive together.
        """
        before = tuple(self._hearing.get(approval_id, ()))
        await workflow.wait_condition(lambda: not any(each in self._hearing[approval_id] for each in before))

    async def _wait(self, is_there: Callable[[], bool], until: datetime, words: str) -> bool:
        if self._alarm is not None:
            return await self._alarm.wait(is_there, until, words)
        # With no time left, `wait_for` gives up at once, without a timer and without evaluating the condition.
        left = max((until - workflow.now()).total_seconds(), 0.001)
        try:
            await workflow.wait_condition(is_there, timeout=timedelta(seconds=left), timeout_summary=words)
        except TimeoutError:
            return False
        return True

    def _moved_on(self, approval_id: str, happening: deadlines.DueEvent) -> bool:
        question = self._state.book.get(approval_id)
        # Do not compare the state alone: a new revision or an extended deadline needs another timer.
        return question is None or deadlines.next_event(question) != happening


async def _take(question: TurnQuestion, raw: Decision) -> AnswersReply:
    """Store a raw answer and read the state after it. The receipt is `unavailable` if that fails."""
    task = AnswersTask(approval=question.id, revision=question.revision, raw=raw)
    try:
        reply: AnswersReply = await workflow.execute_local_activity(
            names.ANSWERS, task, result_type=AnswersReply, summary="Take an answer", **options.TAKE
        )
    except outcomes.LOST:
        # Do not raise: an exception in a Signal handler fails the whole turn.
        return AnswersReply(receipt=_refusal(question, "unavailable", ""))
    return reply


async def _read(task: AnswersTask) -> AnswersReply:
    reply: AnswersReply = await workflow.execute_local_activity(
        names.ANSWERS, task, result_type=AnswersReply, summary="Read the answers", **options.GATE
    )
    return reply


def _refusal(question: TurnQuestion, code: ReceiptCode, message: str) -> Receipt:
    return Receipt(status="refused", code=code, approval_id=question.id, state=question.state, message=message)


def _why(outcome: CallOutcome | None) -> str:
    if outcome is None:
        return "the call cannot be asked with these arguments"
    return outcome.denied.reason if outcome.denied is not None else text_of(outcome.value)
