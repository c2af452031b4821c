"""Asks approvers on behalf of one turn: opens requests, accepts decisions, waits for reminders and deadlines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from temporalio import workflow

from signoff.approvals import audit_events, deadlines, machine
from signoff.approvals.approval_book import read_decision, read_withdrawal
from signoff.approvals.edit_diff import edit_note, remark_note
from signoff.approvals.question_reference import request_from_reference
from signoff.contracts import names
from signoff.contracts.activity_messages import AnswersTask, Authority, GateDecision, StoredAnswers
from signoff.contracts.approval import ApprovalRequest, CardRow
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content, Words, text_of
from signoff.contracts.decision import Decision
from signoff.contracts.ids import show_code
from signoff.contracts.limits import MAX_REVISIONS
from signoff.contracts.message import CallPart
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.workflows import activity_inputs, options, outcomes, temporal_metadata
from signoff.workflows.alarm import Alarm
from signoff.workflows.gate_call import judge_calls, judge_soon
from signoff.workflows.turn_state import TurnState

_TIMERS: Final = {"remind": "Reminder", "escalate": "Escalation", "deadline": "Deadline"}


class ApprovalFlow:
    """Opens the requests of one turn and accepts the decisions. With `alarm`, the requests share the turn's timer."""

    def __init__(self, state: TurnState, show: Callable[[], None], alarm: Alarm | None = None) -> None:
        self._state = state
        self._show = show
        self._alarm = alarm
        self._edits: dict[str, tuple[CallPart, GateDecision]] = {}
        self._proposed: dict[str, tuple[CardRow, ...]] = {}
        self._editors: dict[str, str] = {}
        self._examined: dict[str, list[Decision]] = {}
        self._examining = asyncio.Lock()

    def open_request(self, call: CallPart, gate_decision: GateDecision) -> GateDecision:
        """Open the request of a call that must wait. The result lacks the question, which the book keeps."""
        if gate_decision.question is None:
            return gate_decision
        if gate_decision.kind == "ask" and not self._state.stopped:
            ctx = self._state.ctx_of(call.call)
            request = request_from_reference(gate_decision.question, gate_decision, call, ctx)
            self._state.book.open(request, workflow.now())
            self._state.actions[gate_decision.call] = gate_decision.action
            self._state.show_state(gate_decision.call, "waiting", gate_decision.rule)
        return replace(gate_decision, question=None)

    async def wait_for_answer(self, gate_decision: GateDecision) -> ApprovalRequest:
        approval_id = self._state.approval_id(gate_decision.call)
        while True:
            request = self._state.book.get(approval_id)
            if request is None or request.expires_at is None:
                raise RuntimeError(f"call {gate_decision.call} waits for a request that was never opened")
            due_event = deadlines.next_event(request)
            if due_event is None:
                break
            # Name only the request's code: the turn's details show the call, and two events repeat a timer's summary.
            words = temporal_metadata.summary(f"{_TIMERS[due_event.what]} of {show_code(request.code)}")
            if not await self._wait(partial(self._moved_on, approval_id, due_event), due_event.at, words):
                if due_event.what == "deadline":
                    await self._those_before(approval_id)
                    await self._take_stored(request)
                # This has no effect if one of those decisions has settled the request.
                self._state.book.apply_due_event(approval_id, due_event, workflow.now())
                self._show()
        self._show()
        return request

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
        return call in self._proposed

    def editor(self, call: str) -> str:
        """Return the id of the last person who edited a call's arguments, or ""."""
        return self._editors.get(call, "")

    def revision(self, call: str) -> int:
        """0 without a request."""
        request = self._state.book.get(self._state.approval_id(call))
        return 0 if request is None else request.revision

    def note(self, request: ApprovalRequest) -> str:
        """Return the note for the model about the approvers' edits and remarks, or ""."""
        proposed = self._proposed.get(request.call)
        changes = "" if proposed is None else edit_note(proposed, request.card.rows)
        return "\n".join(filter(None, (changes, remark_note(request))))

    async def ask_about_doubt(
        self, call: CallPart, gate_decision: GateDecision, ticket: int
    ) -> ApprovalRequest | CallOutcome | None:
        """Ask whether `call` took effect under `ticket`.

        Returns the settled request, `None` if no approver can be asked, or the outcome that a slow worker stored
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
        for request in self._state.book.pending():
            self._state.book.cancel(request.id, "", why, workflow.now())

    async def apply_decision(self, envelopes: Sequence[Any]) -> Receipt:
        """Never raises."""
        decision = read_decision(envelopes)
        if isinstance(decision, Receipt):
            return self._unreadable(decision, envelopes)
        await self._caught_up(decision)
        # Check before identifying the author: duplicate or late decisions cost no activity and do not wait.
        receipt = self._state.book.precheck(decision, workflow.now())
        request = self._state.book.get(decision.approval_id)
        if receipt is not None or request is None:
            return receipt or self._state.book.receipt(decision.approval_id)
        with self._under_examination(decision):
            async with self.hold_lock():
                request = self._state.book.get(decision.approval_id) or request
                receipt = self._state.book.precheck(decision, workflow.now())
                if receipt is not None:
                    return receipt
                authority = await _identify(decision)
                if authority.receipt is not None:
                    return self._untaken(decision, authority, authority.receipt)
                decision = authority.taken or decision
                # `settle` checks again: during identification, another decision may have settled the request.
                if decision.edited_args is None:
                    return self._state.book.settle(decision, authority, workflow.now())
                return await self._edit(decision, authority)

    async def withdraw(self, envelopes: Sequence[Any]) -> Receipt:
        """Withdraw a request.

        Never raises. Every sender can also stop the turn, so no signature is needed. A name counts only with proof, and
        must be the requester, an approver or an administrator.
        """
        withdrawal = read_withdrawal(envelopes)
        if isinstance(withdrawal, Receipt):
            return self._unreadable(withdrawal, envelopes)
        await self._caught_up(withdrawal)
        request = self._state.book.get(withdrawal.approval_id)
        by = withdrawal.subject
        if request is not None and request.state == "pending":
            async with self.hold_lock():
                authority = await _identify(withdrawal)
            if withdrawal.signature and not authority.allowed:
                refused = machine.refusal(request, authority.code or "not_allowed", "you may not withdraw this")
                return self._state.book.record_reply(withdrawal, refused, workflow.now(), authority)
            by = authority.subject if authority.allowed else ""
        return self._state.book.cancel(withdrawal.approval_id, by, withdrawal.reason, workflow.now())

    async def _caught_up(self, decision: Decision) -> None:
        """Wait until the turn knows of every question that the gates may have asked.

        The store has a question before its turn. Without this wait, the turn would refuse a quick answer as unknown,
        and the approver would get no second card.
        """
        approval_id, revision = decision.approval_id, decision.revision or 1
        if self._may_come(approval_id, revision):
            await workflow.wait_condition(lambda: not self._may_come(approval_id, revision))
        request = self._state.book.get(approval_id)
        if self._examining.locked() and (request is None or revision > request.revision):
            # The call may be in judgement again. The holder of the lock enters its question before this continues.
            async with self.hold_lock():
                pass

    def _may_come(self, approval_id: str, revision: int) -> bool:
        """Return whether the gates may have asked this revision without the turn's knowledge."""
        request = self._state.book.get(approval_id)
        if request is not None and revision <= request.revision:
            return False
        if self._state.may_be_asked(approval_id):
            return True
        # The gates judge a call or its fallback again only after a run, not while its request is pending.
        call = self._state.open_call(approval_id)
        waits = call and self._state.book.waits(self._state.approval_id(call))
        return bool(call) and not (waits or self._state.stopped or self._state.book.waits(approval_id))

    async def _edit(self, decision: Decision, authority: Authority) -> Receipt:
        receipt = self._state.book.examine(decision, authority, workflow.now())
        request = self._state.book.get(decision.approval_id)
        if receipt is not None or request is None:
            return receipt or self._state.book.receipt(decision.approval_id)
        if request.revision >= MAX_REVISIONS:
            return self._refuse(
                decision, authority, request, "not_allowed", "this was changed too often; approve or deny it"
            )
        call = CallPart(call=request.call, tool=request.tool, args=Content(inline=decision.edited_args))
        # Apply every gate: an edit must not create a call that a rule denies.
        reply = await judge_soon(self._state.gate_task(call, **activity_inputs.edit(decision, authority)))
        if reply is None:
            return self._refuse(
                decision, authority, request, "unavailable", "the arguments cannot be checked right now; try again"
            )
        gate_decision = reply.gate_decisions[0]
        if gate_decision.question is None:
            code = (
                "malformed"
                if gate_decision.outcome and gate_decision.outcome.code == "input_invalid"
                else "not_allowed"
            )
            why = _why(gate_decision.outcome)
            return self._refuse(decision, authority, request, code, why, gate_decision.refusal)
        ctx = self._state.ctx_of(call.call)
        question_decision = request_from_reference(gate_decision.question, gate_decision, call, ctx)
        receipt = self._state.book.settle(decision, authority, workflow.now(), question_decision)
        if receipt.status != "refused" and receipt.code != "duplicate":
            # Keep the first rows over all edits: the note shows the model how the call differs from its proposal.
            self._proposed.setdefault(call.call, request.card.rows)
            self._editors[call.call] = authority.subject
            changed = replace(call, args=question_decision.args)
            self._edits[call.call] = (changed, replace(gate_decision, question=None))
            self._state.actions[call.call] = gate_decision.action
            self._show()
        return receipt

    def _untaken(self, decision: Decision, authority: Authority, receipt: Receipt) -> Receipt:
        """Return the receipt of a raw decision that was not stored. The gateway records pending decisions."""
        if receipt.status == "pending":
            return receipt
        return self._state.book.record_reply(decision, receipt, workflow.now(), authority)

    def _refuse(
        self,
        decision: Decision,
        authority: Authority,
        request: ApprovalRequest,
        code: Any,
        message: str,
        remarks: tuple[Words, ...] = (),
    ) -> Receipt:
        receipt = machine.refusal(request, code, message, remarks=remarks)
        return self._state.book.record_reply(decision, receipt, workflow.now(), authority)

    def _unreadable(self, receipt: Receipt, envelopes: Sequence[Any]) -> Receipt:
        now, ctx = workflow.now(), self._state.ctx
        seen = audit_events.rejected_entry(
            receipt, now, subject="", channel="", body=list(envelopes), tenant=ctx.tenant
        )
        self._state.book.unwritten.add(seen)
        return self._state.book.reject(receipt)

    @asynccontextmanager
    async def hold_lock(self) -> AsyncIterator[None]:
        """Serialise identification and judging in order of arrival.

        Parallel local activities finish in any order, but complete in start order during replay. Without the lock,
        replay could pick a different winner.
        """
        async with self._examining:
            yield

    @contextmanager
    def _under_examination(self, decision: Decision) -> Iterator[None]:
        examined = self._examined.setdefault(decision.approval_id, [])
        examined.append(decision)
        try:
            yield
        finally:
            # Compare by identity: two deliveries may have equal content.
            examined[:] = [each for each in examined if each is not decision]

    async def _those_before(self, approval_id: str) -> None:
        """Wait for the decisions that arrived before the deadline's timer was handled: they may be in time.

        After an outage of the workers, the timer and the decisions arrive together.
        """
        before = tuple(self._examined.get(approval_id, ()))
        await workflow.wait_condition(
            lambda: not any(one is each for each in before for one in self._examined[approval_id])
        )

    async def _take_stored(self, request: ApprovalRequest) -> None:
        """Accept decisions that the store received in time but the turn did not, for example during a server outage."""
        task = AnswersTask(approval=request.id, revision=request.revision)
        async with self.hold_lock():
            stored: StoredAnswers = await workflow.execute_local_activity(
                names.ANSWERS, task, result_type=StoredAnswers, summary="What was answered in time?", **options.GATE
            )
        for decision in stored.decisions:
            body = decision.model_dump(mode="json", exclude_none=True)
            await (self.withdraw if decision.verdict == "withdrawn" else self.apply_decision)((body,))

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
        request = self._state.book.get(approval_id)
        # Do not compare the state alone: a new revision or an extended deadline needs another timer.
        return request is None or deadlines.next_event(request) != happening


async def _identify(decision: Decision) -> Authority:
    try:
        authority: Authority = await workflow.execute_local_activity(
            names.IDENTIFY, decision, result_type=Authority, **options.IDENTIFY
        )
    except outcomes.LOST:
        # An unidentified author decides nothing. Do not raise: an exception in a Signal handler fails the whole turn.
        return Authority(allowed=False, code="unavailable")
    return authority


def _why(outcome: CallOutcome | None) -> str:
    if outcome is None:
        return "the call cannot be asked with these arguments"
    return outcome.denied.reason if outcome.denied is not None else text_of(outcome.value)
