"""Hands stored answers to their turns."""

import asyncio
import logging
from typing import Final

from signoff.approvals.machine import receipt_after, refusal, settled_receipt
from signoff.approvals.request_state import is_held, request_of
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Remark
from signoff.contracts.decision import Decision
from signoff.contracts.errors import StoreUnavailable, Unavailable
from signoff.contracts.receipt import Receipt
from signoff.decisions.answer_taker import Taken, refuse
from signoff.engine.turn_client import TurnClient
from signoff.formats.replace import replace
from signoff.languages.remarks import english
from signoff.store.questions.answers import Answers, OwedAnswer
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.telemetry.json_log import bind_log_fields, fields_of_request

_OF_ARGUMENTS: Final = frozenset(("malformed", "not_allowed"))
"""Codes of the gates for an edit: the arguments do not fit, or a rule denies them."""
_TAKEN_OVER: Final = frozenset(("expired", "stale", "cancelled", "not_allowed", "self_approval", "assurance"))
"""Codes with which a turn may refuse an approval that the gateway took. Its message may name anyone and is dropped.

`already_decided` is not among them: the store knows every answer, and has none.
"""
WAKE_SECONDS: Final = 0.8
"""Seconds to wait for the turn's reply to a new answer. The author gets the receipt within a second."""
_log = logging.getLogger(__name__)


class AnswerHandover:
    """Wakes the turns of stored answers. An answer stays owed until its turn has read it."""

    def __init__(self, store: Store, turns: TurnClient) -> None:
        self._rows = Questions(store)
        self._answers = Answers(store)
        self._turns = turns

    async def give(self, taken: Taken) -> Receipt:
        """Return the receipt of an answer taken just now. It comes from the store's state, not from the turn's claim.

        Never raises: an error would mean that nothing was stored.
        """
        vote = taken.vote
        # The dispatcher hands over a denial after the time to undo it.
        if vote is None or is_held(vote.decision):
            return taken.receipt
        decision = vote.decision
        try:
            return await self._give(taken, OwedAnswer(decision.approval_id, taken.number, vote))
        except StoreUnavailable:
            # The answer is still owed, and the dispatcher hands it over.
            return _receipt_unheard(taken)

    async def give_owed(self, owed: OwedAnswer) -> bool:
        """Return whether it is done: `False` while the answer can be undone. Raises `StoreUnavailable`."""
        decision = owed.vote.decision
        with bind_log_fields(fields_of_request(decision.approval_id)):
            if is_held(decision):
                left = await self._answers.read_undo_seconds(decision.approval_id, decision.delivery_id)
                if left is None or left > 0:
                    return left is None
            return await self._wake(owed) is not None

    async def _give(self, taken: Taken, owed: OwedAnswer) -> Receipt:
        decision = owed.vote.decision
        if taken.change:
            # Without the edit, the turn does not know the question, and its refusal would void an approval of it.
            change = await self._answers.find_owed(decision.approval_id, taken.change)
            if change is not None and not await self.give_owed(change):
                return _receipt_unheard(taken)
        receipt = await self._wake_soon(owed)
        if receipt is None or receipt.status == "pending":
            return _receipt_unheard(taken)
        if _voids(receipt, decision) or decision.edited_args is not None:
            return await self._receipt(decision, receipt)
        return taken.receipt

    async def _wake_soon(self, owed: OwedAnswer) -> Receipt | None:
        """Return `None` without a reply in time: the dispatcher wakes the turn again. An edit waits for its gates."""
        if owed.vote.decision.edited_args is not None:
            return await self._wake(owed)
        try:
            return await asyncio.wait_for(self._wake(owed), WAKE_SECONDS)
        except TimeoutError:
            return None

    async def _wake(self, owed: OwedAnswer) -> Receipt | None:
        """Return `None` if the turn does not know of the answer.

        If the turn refuses an approval, for any reason, the approval becomes void. Otherwise it might run a call later
        that approvers saw refused. An approval whose call has begun was taken.
        """
        decision = owed.vote.decision
        try:
            receipt = await self._turns.wake(owed)
        except Unavailable:
            return None
        except Exception as error:
            # A forged turn can reply anything, which must not block other answers.
            _log.warning("turn of %r gave no receipt: %s", decision.approval_id, type(error).__name__)
            return None
        if receipt.code == "unavailable":
            return None
        was_taken = _voids(receipt, decision) and not await self._answers.void(
            decision.approval_id, decision.delivery_id
        )
        if was_taken and decision.edited_args is None:
            receipt = Receipt(status="accepted", approval_id=decision.approval_id)
        await self._answers.hand_over(decision.approval_id, decision.delivery_id)
        return receipt

    async def _receipt(self, decision: Decision, receipt: Receipt) -> Receipt:
        """For an edit, or an approval that its turn refused. `receipt` gives only the reason."""
        rows = await self._rows.read(decision.approval_id)
        if rows is None:
            return refuse("unknown", decision.approval_id, "there is no such request")
        request = rows.request(rows.latest)
        if decision.edited_args is not None and rows.latest.edit_delivery == decision.delivery_id:
            return receipt_after(request_of(rows.latest), request)
        if receipt.status == "refused":
            # Settled otherwise: the store names the author.
            settled = rows.latest.revision == (decision.revision or 1) and request.state != "pending"
            return settled_receipt(request) if settled else _untaken_receipt(request, decision, receipt)
        return _make_pending(Receipt(status="pending", approval_id=request.id, state=request.state), decision)


def _voids(receipt: Receipt, decision: Decision) -> bool:
    """Return whether a turn's receipt voids an approval.

    Never a denial, a `happened`, or an approval that may have approved its call: an ended turn refuses every repeat.
    """
    return receipt.status == "refused" and decision.verdict == "approved" and receipt.state != "approved"


def _untaken_receipt(request: ApprovalRequest, decision: Decision, receipt: Receipt) -> Receipt:
    if decision.edited_args is not None and receipt.code in _OF_ARGUMENTS and receipt.message:
        remark = Remark.of("not_taken", detail=receipt.remarks or receipt.message)
        return refusal(request, receipt.code, english(remark), remarks=(remark,))
    return refusal(request, receipt.code if receipt.code in _TAKEN_OVER else "unavailable")


def _receipt_unheard(taken: Taken) -> Receipt:
    """For a stored answer that its turn has not read. It counts, except an edit: the gates may refuse that."""
    vote = taken.vote
    if vote is None or vote.decision.edited_args is None:
        return taken.receipt
    return _make_pending(taken.receipt, vote.decision)


def _make_pending(receipt: Receipt, decision: Decision) -> Receipt:
    return replace(receipt, status="pending", code="", verdict=decision.verdict)
