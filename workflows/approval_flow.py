"""Asks people on behalf of one turn: opens requests, takes answers in, and waits for reminders and deadlines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from temporalio import workflow

from signoff.approvals import audit_events, deadlines, identity, machine
from signoff.approvals.approval_book import read_decision, read_withdrawal
from signoff.approvals.edit_diff import edit_note, remark_note
from signoff.approvals.question_reference import request_from_reference
from signoff.contracts import names
from signoff.contracts.activity_messages import AnswersTask, Authority, GateDecision, IdentifyTask, StoredAnswers
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
    """Asks people for one turn, and takes their answers in. `show` publishes what changed.

    With `alarm` the timers of its requests are those of the turn, which others wait for as well.
    """

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
        """Opens the request of a call that must wait; returns the gate decision without it, as the book keeps it."""
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
        """Returns the request of `gate_decision` once people, or time, have settled it."""
        approval_id = self._state.approval_id(gate_decision.call)
        while True:
            request = self._state.book.get(approval_id)
            if request is None or request.expires_at is None:
                raise RuntimeError(f"call {gate_decision.call} waits for a request that was never opened")
            happening = deadlines.next_event(request)
            if happening is None:
                break
            # Its code alone: what it is about stands in the turn's details, and a timer's words lie in two events.
            words = temporal_metadata.summary(f"{_TIMERS[happening.what]} of {show_code(request.code)}")
            if not await self._wait(partial(self._moved_on, approval_id, happening), happening.at, words):
                if happening.what == "deadline":
                    await self._those_before(approval_id)
                    await self._take_stored(request)
                # It changes nothing where one of those answers has settled the request.
                self._state.book.apply_due_event(approval_id, happening, workflow.now())
                self._show()
        self._show()
        return request

    def apply_edit(self, call: CallPart, gate_decision: GateDecision) -> tuple[CallPart, GateDecision]:
        """Returns the call and its gate decision as people changed them, if they did since the call was last judged."""
        edit = self._edits.pop(call.call, None)
        if edit is None:
            return call, gate_decision
        # Its share of the batch's characters is what it was proposed with.
        return edit[0], replace(
            edit[1], options=replace(edit[1].options, budget_chars=gate_decision.options.budget_chars)
        )

    def is_edited(self, call: str) -> bool:
        """Returns whether people have changed the arguments of a call, whenever that was."""
        return call in self._proposed

    def editor(self, call: str) -> str:
        """Returns the id of the last person to change the arguments of a call; "" where nobody did."""
        return self._editors.get(call, "")

    def revision(self, call: str) -> int:
        """Returns the revision under which people were last asked about a call; 0 where they never were."""
        request = self._state.book.get(self._state.approval_id(call))
        return 0 if request is None else request.revision

    def note(self, request: ApprovalRequest) -> str:
        """Writes the note for the model about the changes and remarks of the approvers; "" when they made none."""
        proposed = self._proposed.get(request.call)
        changes = "" if proposed is None else edit_note(proposed, request.card.rows)
        return "\n".join(filter(None, (changes, remark_note(request))))

    async def ask_about_doubt(
        self, call: CallPart, gate_decision: GateDecision, ticket: int
    ) -> ApprovalRequest | CallOutcome | None:
        """Asks people whether `call` happened under `ticket`; returns the request once it is settled.

        None where nobody can be asked. An outcome where it is known by now: whoever ran it was only slow.
        """
        doubt = {"doubt": ticket, "doubt_of": gate_decision.digest, "spent": self.revision(call.call)}
        task = self._state.gate_task(call, **doubt)
        async with self.hold_lock():
            asked = self.open_request(call, (await judge_calls(task)).gate_decisions[0])
        if asked.outcome is not None and asked.outcome.code not in ("in_doubt", "refused"):
            return asked.outcome
        if asked.kind != "ask" or self._state.stopped:
            return None
        self._show()
        return await self.wait_for_answer(asked)

    def stop(self, why: str) -> None:
        """Withdraws all that waits, as the turn ends before it was answered."""
        for request in self._state.book.pending():
            self._state.book.cancel(request.id, "", why, workflow.now())

    async def apply_decision(self, envelopes: Sequence[Any]) -> Receipt:
        """Takes an answer, by Update or Signal, and returns its receipt. Never raises."""
        decision = read_decision(envelopes)
        if isinstance(decision, Receipt):
            return self._unreadable(decision, envelopes)
        await self._caught_up(decision)
        # Before its author is looked up: a second delivery, or one too late, costs no activity and waits for nobody.
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
                authority = await _identify(identity.identify_task(decision, request))
                if authority.receipt is not None:
                    return self._untaken(decision, authority, authority.receipt)
                decision = authority.taken or decision
                # What follows looks again: while the author was identified, someone else may have been first.
                if decision.edited_args is None:
                    return self._state.book.settle(decision, authority, workflow.now())
                return await self._edit(decision, authority)

    async def withdraw(self, envelopes: Sequence[Any]) -> Receipt:
        """Withdraws a request, if its author may, and returns the receipt. Never raises.

        Whoever can send it could as well stop the turn altogether, so it needs no signature. But a name counts only
        where it is proved, and one that is signed for must be the asker's, an approver's or an administrator's.
        """
        wish = read_withdrawal(envelopes)
        if isinstance(wish, Receipt):
            return self._unreadable(wish, envelopes)
        await self._caught_up(wish)
        request = self._state.book.get(wish.approval_id)
        by = wish.subject
        if request is not None and request.state == "pending":
            async with self.hold_lock():
                authority = await _identify(identity.withdrawal_task(wish, request))
            if wish.signature and not authority.allowed:
                refused = machine.refusal(request, authority.code or "not_allowed", "you may not withdraw this")
                return self._state.book.record_reply(wish, refused, workflow.now(), authority)
            by = authority.subject if authority.allowed else ""
        return self._state.book.cancel(wish.approval_id, by, wish.reason, workflow.now())

    async def _caught_up(self, decision: Decision) -> None:
        """Returns once the turn has heard of what the gates may have asked.

        A question lies in the store before its turn knows of it, and somebody may be quick: an answer that was refused
        as one to no request would count for nothing, and nobody would be asked again.
        """
        named, revision = decision.approval_id, decision.revision or 1
        if self._may_come(named, revision):
            await workflow.wait_condition(lambda: not self._may_come(named, revision))
        request = self._state.book.get(named)
        if self._examining.locked() and (request is None or revision > request.revision):
            # It is judged again just now, perhaps: whoever does that enters what is asked before this goes on.
            async with self.hold_lock():
                pass

    def _may_come(self, approval_id: str, revision: int) -> bool:
        """Returns whether the gates may have asked this already, in that revision, and the turn is still to hear of
        it.
        """
        request = self._state.book.get(approval_id)
        if request is not None and revision <= request.revision:
            return False
        if self._state.may_be_asked(approval_id):
            return True
        # A call is judged again, or another one in its place, once it has run: not while people are asked about it.
        call = self._state.open_call(approval_id)
        waits = call and self._state.book.waits(self._state.approval_id(call))
        return bool(call) and not (waits or self._state.stopped or self._state.book.waits(approval_id))

    async def _edit(self, decision: Decision, authority: Authority) -> Receipt:
        """Puts other arguments in the place of those that were asked: judged anew, and asked as the next revision."""
        receipt = self._state.book.examine(decision, authority, workflow.now())
        request = self._state.book.get(decision.approval_id)
        if receipt is not None or request is None:
            return receipt or self._state.book.receipt(decision.approval_id)
        if request.revision >= MAX_REVISIONS:
            return self._refuse(
                decision, authority, request, "not_allowed", "this was changed too often; approve or deny it"
            )
        call = CallPart(call=request.call, tool=request.tool, args=Content(inline=decision.edited_args))
        # As any other proposal: what a rule denies cannot be written into a call by people either.
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
        asked = request_from_reference(gate_decision.question, gate_decision, call, ctx)
        receipt = self._state.book.settle(decision, authority, workflow.now(), asked)
        if receipt.status != "refused" and receipt.code != "duplicate":
            # The first stays, over any number of edits: the model is told how the call differs from what it proposed.
            self._proposed.setdefault(call.call, request.card.rows)
            self._editors[call.call] = authority.subject
            changed = replace(call, args=asked.args)
            self._edits[call.call] = (changed, replace(gate_decision, question=None))
            self._state.actions[call.call] = gate_decision.action
            self._show()
        return receipt

    def _untaken(self, decision: Decision, authority: Authority, receipt: Receipt) -> Receipt:
        """Returns the receipt of a raw answer that was not stored; one that waits for a gateway is recorded there."""
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
        """Holds the lock under which one author is identified, or one call judged, at a time, in the order of arrival.

        Several local activities end in any order, but a history that is read anew ends them in the order in which they
        began: whoever was first then must have been first before. And who was waiting need not be identified any more.
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
            # By identity: two deliveries may say the very same.
            examined[:] = [each for each in examined if each is not decision]

    async def _those_before(self, approval_id: str) -> None:
        """Waits until the answers are settled that lay there when the deadline came: they may have come in time.

        After an outage of the workers the timer and the answers are found together. Later ones are not waited for.
        """
        before = tuple(self._examined.get(approval_id, ()))
        await workflow.wait_condition(
            lambda: not any(one is each for each in before for one in self._examined[approval_id])
        )

    async def _take_stored(self, request: ApprovalRequest) -> None:
        """Takes in what was answered in time and never came here, as when no server was there to send it by."""
        task = AnswersTask(approval=request.id, revision=request.revision)
        async with self.hold_lock():
            stored: StoredAnswers = await workflow.execute_local_activity(
                names.ANSWERS, task, result_type=StoredAnswers, summary="What was answered in time?", **options.GATE
            )
        for decision in stored.decisions:
            body = decision.model_dump(mode="json", exclude_none=True)
            await (self.withdraw if decision.verdict == "withdrawn" else self.apply_decision)((body,))

    async def _wait(self, is_there: Callable[[], bool], until: datetime, words: str) -> bool:
        """Returns whether `is_there`, once it is or at `until`."""
        if self._alarm is not None:
            return await self._alarm.wait(is_there, until, words)
        # With nothing left `wait_for` gives up at once, without a timer and without a look at the condition.
        left = max((until - workflow.now()).total_seconds(), 0.001)
        try:
            await workflow.wait_condition(is_there, timeout=timedelta(seconds=left), timeout_summary=words)
        except TimeoutError:
            return False
        return True

    def _moved_on(self, approval_id: str, happening: deadlines.DueEvent) -> bool:
        request = self._state.book.get(approval_id)
        # Not the state alone: a new revision, or a deadline put off, waits on with another timer.
        return request is None or deadlines.next_event(request) != happening


async def _identify(task: IdentifyTask) -> Authority:
    try:
        authority: Authority = await workflow.execute_local_activity(
            names.IDENTIFY, task, result_type=Authority, **options.IDENTIFY
        )
    except outcomes.LOST:
        # Who cannot be looked up decides nothing. And no handler may raise: in a Signal's it would fail the whole turn.
        return Authority(allowed=False, code="unavailable")
    return authority


def _why(outcome: CallOutcome | None) -> str:
    if outcome is None:
        return "the call cannot be asked with these arguments"
    return outcome.denied.reason if outcome.denied is not None else text_of(outcome.value)
