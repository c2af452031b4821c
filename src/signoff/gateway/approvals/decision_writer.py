"""Stores decisions in order, and hands them to their turns.

The rows of one approval, under their lock, decide the order. Neither clocks nor workflows do.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection

from signoff.approvals.machine import receipt_after, refusal, settled_receipt
from signoff.approvals.request_state import is_held, request_of
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.clock import Clock
from signoff.contracts.content import Remark
from signoff.contracts.decision import Decision
from signoff.contracts.errors import StoreUnavailable, Unavailable
from signoff.contracts.receipt import Receipt
from signoff.decisions.answer_taker import UNSAFE_ANSWER, AnswerTaker, NewAnswer, Taken, refuse
from signoff.decisions.raw_answer_taker import RawAnswerTaker
from signoff.engine.turn_client import TurnClient
from signoff.formats.replace import replace
from signoff.gateway.act_spans import ActSpans
from signoff.gateway.grant_rows import write_agreed_grant
from signoff.keys.signatures import Signer
from signoff.languages.remarks import english
from signoff.people.authority import check_authority
from signoff.people.directory import Directory
from signoff.store.questions.answers import Answers, OwedAnswer
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.questions.raw_answers import RawAnswer
from signoff.store.store import Store
from signoff.telemetry.json_log import bind_log_fields, fields_of_request

_log = logging.getLogger(__name__)


class DecisionWriter:
    """Takes decisions of `people`, signed by `signer`. Only the development profile may lack a signer."""

    def __init__(
        self,
        store: Store,
        turns: TurnClient,
        people: Directory,
        signer: Signer | None,
        clock: Clock,
        *,
        development: bool,
        raw: RawAnswerTaker,
        acts: ActSpans | None = None,
    ) -> None:
        self._raw = raw
        self._taker = AnswerTaker(store, clock)
        self._acts = acts or ActSpans(store)
        self._counts = store.counts
        self._rows = Questions(store)
        self._answers = Answers(store)
        self._turns = turns
        self._people = people
        self._signer = signer
        self._clock = clock
        self._development = development

    async def write(
        self,
        request: ApprovalRequest,
        decision: Decision,
        args: Mapping[str, Any] | None = None,
        *,
        arrived: datetime | None = None,
    ) -> Receipt:
        """Store a decision or a withdrawal, and hand it to its turn.

        `args` are the request's arguments for the comparison with later calls; without them, no grant is written.
        `arrived` is the arrival time of a channel's message by the store's clock, or `None` for now. If the turn cannot
        take the decision now, it gets it later. Raises `StoreUnavailable`: then nothing was stored.
        """
        with bind_log_fields(fields_of_request(request.id)):
            async with self._acts.decision(request, decision):
                return await self._write(request, decision, args, arrived)

    async def _write(
        self, request: ApprovalRequest, decision: Decision, args: Mapping[str, Any] | None, arrived: datetime | None
    ) -> Receipt:
        taken = await self._take(request, decision, args, arrived)
        if taken.decision is not None and taken.receipt.status == "accepted" and request.opened_at is not None:
            waited = (taken.decision.received_at or self._clock()) - request.opened_at
            self._counts.observe("signoff_decision_wait_seconds", waited.total_seconds(), decision.verdict)
        try:
            return await self._hand_over(taken)
        except StoreUnavailable:
            # 503 would mean that nothing was stored. The answer is still owed, and the dispatcher hands it over.
            return taken.receipt if taken.decision is None else _make_pending(taken.receipt, taken.decision)

    async def undo(self, approval: str, person: str, browser: str) -> Receipt:
        """Undo the denial that a person has just made in this browser session. Raises `StoreUnavailable`."""
        with bind_log_fields(fields_of_request(approval)):
            return await self._taker.undo(approval, person, browser, self._sign)

    async def take_raw(self, raw: RawAnswer) -> Receipt:
        """Store an unsigned answer that bypassed the gateway. Raises `StoreUnavailable`."""
        with bind_log_fields(fields_of_request(raw.decision.approval_id)):
            return await self._hand_over(await self._raw.take(raw, self._people))

    async def hand_over(self, owed: OwedAnswer) -> bool:
        """Return whether it is done: `False` while the answer can be undone. Raises `StoreUnavailable`."""
        decision = owed.vote.decision
        with bind_log_fields(fields_of_request(decision.approval_id)):
            if is_held(decision):
                left = await self._answers.read_undo_seconds(decision.approval_id, decision.delivery_id)
                if left is None or left > 0:
                    return left is None
            return await self._give_to_turn(decision) is not None

    async def _take(
        self, request: ApprovalRequest, decision: Decision, args: Mapping[str, Any] | None, arrived: datetime | None
    ) -> Taken:
        """Inserts the answer if its question is the latest and pending, and earlier answers leave room."""
        received = decision.received_at or self._clock()
        new = NewAnswer(
            # Turns look only at answers with a time: store none without one.
            replace(decision, received_at=received),
            request.question_hash,
            partial(self._author, received),
            self._sign,
            None if args is None else partial(self._remember, args),
            arrived=arrived,
        )
        return await self._taker.take(new)

    def _remember(self, args: Mapping[str, Any], connection: Connection, after: ApprovalRequest) -> None:
        write_agreed_grant(connection, after, args, self._clock())

    async def _hand_over(self, taken: Taken) -> Receipt:
        """The receipt comes from the store's state and not from the turn's claim."""
        decision = taken.decision
        # The dispatcher hands over a denial after the time to undo it.
        if decision is None or is_held(decision):
            return taken.receipt
        if taken.change:
            # Without the edit, the turn does not know the question, and its refusal would void an approval of it.
            change = await self._answers.find_owed(decision.approval_id, taken.change)
            if change is not None and not await self.hand_over(change):
                return _make_pending(taken.receipt, decision)
        receipt = await self._give_to_turn(decision)
        if receipt is None or receipt.status == "pending":
            # The answer is stored and counts, even if the server or a worker is down.
            return _make_pending(taken.receipt, decision)
        if _voids(receipt, decision) or decision.edited_args is not None:
            return await self._receipt(decision, receipt)
        return taken.receipt

    async def _give_to_turn(self, decision: Decision) -> Receipt | None:
        """Return `None` if the turn does not have the answer.

        If the turn refuses an approval, for any reason, the approval becomes void. Otherwise it might run a call later
        that approvers saw refused. An approval whose call has begun was taken.
        """
        try:
            receipt = await self._send(decision)
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
            return _after_change(rows, request, decision)
        if receipt.status == "refused":
            # Settled otherwise: the store names the author.
            settled = rows.latest.revision == (decision.revision or 1) and request.state != "pending"
            return settled_receipt(request) if settled else _untaken_receipt(request, decision, receipt)
        return _make_pending(Receipt(status="pending", approval_id=request.id, state=request.state), decision)

    async def _send(self, decision: Decision) -> Receipt:
        return await (self._turns.withdraw if decision.verdict == "withdrawn" else self._turns.decide)(decision)

    def _author(self, received: datetime, request: ApprovalRequest, decision: Decision) -> Authority:
        unsigned = self._signer is None
        return check_authority(
            request, decision, received, self._people, unsigned=unsigned, development=self._development
        )

    def _sign(self, decision: Decision) -> Decision | Receipt:
        if self._signer is None:
            message = "this gateway has no keys"
            return decision if self._development else refuse("unavailable", decision.approval_id, message)
        try:
            return self._signer.sign_decision(decision)
        except NotCanonical:
            return refuse("malformed", decision.approval_id, UNSAFE_ANSWER)


def _voids(receipt: Receipt, decision: Decision) -> bool:
    """Return whether a turn's receipt voids an approval.

    Never a denial, a `happened`, or an approval that may have approved its call: an ended turn refuses every repeat.
    """
    return receipt.status == "refused" and decision.verdict == "approved" and receipt.state != "approved"


def _after_change(rows: ApprovalRows, request: ApprovalRequest, decision: Decision) -> Receipt:
    return receipt_after(request_of(rows.latest), request)


def _untaken_receipt(request: ApprovalRequest, decision: Decision, receipt: Receipt) -> Receipt:
    """For an edit, the message comes from the gates."""
    if decision.edited_args is not None and receipt.code in _OF_ARGUMENTS and receipt.message:
        remark = Remark.of("not_taken", detail=receipt.remarks or receipt.message)
        return refusal(request, receipt.code, english(remark), remarks=(remark,))
    return refusal(request, receipt.code if receipt.code in _TAKEN_OVER else "unavailable")


_OF_ARGUMENTS: Final = frozenset(("malformed", "not_allowed"))
"""Codes of the gates for an edit: the arguments do not fit, or a rule denies them."""
_TAKEN_OVER: Final = frozenset(("expired", "stale", "cancelled", "not_allowed", "self_approval", "assurance"))
"""Codes with which a turn may refuse an approval that the gateway took. Its message may name anyone and is dropped.

`already_decided` is not among them: the store knows every answer, and has none.
"""


def _make_pending(receipt: Receipt, decision: Decision) -> Receipt:
    return replace(receipt, status="pending", code="", verdict=decision.verdict)
