"""Takes answers into the store, in their order, and hands them to the turns they are for.

Who was first is decided here, by the rows of one approval under their lock: not by clocks, and not by a workflow.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection

from signoff.approvals.identity import identify_task, withdrawal_task
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
from signoff.people.authority import SignatureEvidence, check_authority
from signoff.people.directory import Directory
from signoff.store.questions.answers import Answers, OwedAnswer
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.questions.raw_answers import RawAnswer
from signoff.store.store import Store
from signoff.telemetry.json_log import bind_log_fields, fields_of_request

_log = logging.getLogger(__name__)


class DecisionWriter:
    """Takes answers for the people of `people`, signed by `signer`, which only the development profile may lack."""

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
        """Takes an answer to `request`, or the wish to withdraw it, and hands it to its turn.

        `args` are the request's arguments that later calls are compared with; without them nothing is remembered.
        `arrived` is when a channel's answer arrived by the store's clock; None for one that arrives now. What the turn
        cannot be given now it is given later. Raises `StoreUnavailable`: then nothing was taken.
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
            # 503 would say that nothing was taken. The answer is still owed, so the dispatcher hands it over.
            return taken.receipt if taken.decision is None else _make_pending(taken.receipt, taken.decision)

    async def undo(self, approval: str, person: str, browser: str) -> Receipt:
        """Undoes the denial that a person has just made in this browser session. Raises `StoreUnavailable`."""
        with bind_log_fields(fields_of_request(approval)):
            return await self._taker.undo(approval, person, browser, self._sign)

    async def take_raw(self, raw: RawAnswer) -> Receipt:
        """Takes an answer that came past the gateway, unsigned, and hands it to its turn. Raises `StoreUnavailable`."""
        with bind_log_fields(fields_of_request(raw.decision.approval_id)):
            return await self._hand_over(await self._raw.take(raw, self._people))

    async def hand_over(self, owed: OwedAnswer) -> bool:
        """Hands a stored answer to its turn; returns whether nothing is left to hand over.

        False while the answer can be undone. Raises `StoreUnavailable`.
        """
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
        """Inserts an answer, signed, where its question is the latest, waits, and the answers before leave it room."""
        received = decision.received_at or self._clock()
        new = NewAnswer(
            # Nothing lies in the store without the time at which it came: a turn looks there only for what has one.
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
        """Returns the receipt of an answer once its turn was given it, by what the store has then: never by the turn's
        word.
        """
        decision = taken.decision
        # The dispatcher hands over a denial after the time to undo it.
        if decision is None or is_held(decision):
            return taken.receipt
        if taken.change:
            # Without it the turn knows of no such question, and its refusal would void a yes to what people were shown.
            change = await self._answers.find_owed(decision.approval_id, taken.change)
            if change is not None and not await self.hand_over(change):
                return _make_pending(taken.receipt, decision)
        receipt = await self._give_to_turn(decision)
        if receipt is None or receipt.status == "pending":
            # It is in the store and counts; that a server or a worker is away changes nothing of it.
            return _make_pending(taken.receipt, decision)
        if _voids(receipt, decision) or decision.edited_args is not None:
            return await self._receipt(decision, receipt)
        return taken.receipt

    async def _give_to_turn(self, decision: Decision) -> Receipt | None:
        """Gives the turn an answer that is in the store, and returns the turn's receipt; None where it does not have
        it.

        A yes that it refuses counts for nothing from now on, whatever its reason: else it might run a call later of
        which people were told that it was refused. One whose call has begun it has taken.
        """
        try:
            receipt = await self._send(decision)
        except Unavailable:
            return None
        except Exception as error:
            # Whoever can answer in a turn's name can answer anything; it must hold up nobody else's answers.
            _log.warning("turn of %r gave no receipt: %s", decision.approval_id, type(error).__name__)
            return None
        if receipt.code == "unavailable":
            return None
        stands = _voids(receipt, decision) and not await self._answers.void(decision.approval_id, decision.delivery_id)
        if stands and decision.edited_args is None:
            receipt = Receipt(status="accepted", approval_id=decision.approval_id)
        await self._answers.hand_over(decision.approval_id, decision.delivery_id)
        return receipt

    async def _receipt(self, decision: Decision, receipt: Receipt) -> Receipt:
        """Returns the receipt of a changed call, or of a yes that its turn refused. Of `receipt` only why counts."""
        rows = await self._rows.read(decision.approval_id)
        if rows is None:
            return refuse("unknown", decision.approval_id, "there is no such request")
        request = rows.request(rows.latest)
        if decision.edited_args is not None and rows.latest.edit_delivery == decision.delivery_id:
            return _after_change(rows, request, decision)
        if receipt.status == "refused":
            # Settled otherwise: then by whom, as the store has it.
            settled = rows.latest.revision == (decision.revision or 1) and request.state != "pending"
            return settled_receipt(request) if settled else _untaken_receipt(request, decision, receipt)
        return _make_pending(Receipt(status="pending", approval_id=request.id, state=request.state), decision)

    async def _send(self, decision: Decision) -> Receipt:
        return await (self._turns.withdraw if decision.verdict == "withdrawn" else self._turns.decide)(decision)

    def _author(self, received: datetime, request: ApprovalRequest, decision: Decision) -> Authority:
        evidence = SignatureEvidence("unsigned" if self._signer is None else "signed", received, received)
        ask = withdrawal_task if decision.verdict == "withdrawn" else identify_task
        return check_authority(ask(decision, request), evidence, self._people, development=self._development)

    def _sign(self, decision: Decision) -> Decision | Receipt:
        """Returns `decision` with the gateway's signature, or why there is none."""
        if self._signer is None:
            message = "this gateway has no keys"
            return decision if self._development else refuse("unavailable", decision.approval_id, message)
        try:
            return self._signer.sign_decision(decision)
        except NotCanonical:
            return refuse("malformed", decision.approval_id, UNSAFE_ANSWER)


def _voids(receipt: Receipt, decision: Decision) -> bool:
    """Returns whether a turn's receipt takes a yes away. It never takes a no, nor the word that something happened.

    Nor one that may be what approved its call: a turn that is over answers so to whatever is brought a second time.
    """
    return receipt.status == "refused" and decision.verdict == "approved" and receipt.state != "approved"


def _after_change(rows: ApprovalRows, request: ApprovalRequest, decision: Decision) -> Receipt:
    """Returns the receipt of a change of arguments that is asked now as `request`."""
    return receipt_after(request_of(rows.latest), request)


def _untaken_receipt(request: ApprovalRequest, decision: Decision, receipt: Receipt) -> Receipt:
    """Returns the receipt of a yes that its turn refused. Its words are the gates' where it changed arguments."""
    if decision.edited_args is not None and receipt.code in _OF_ARGUMENTS and receipt.message:
        remark = Remark.of("not_taken", what=receipt.remarks or receipt.message)
        return refusal(request, receipt.code, english(remark), remarks=(remark,))
    return refusal(request, receipt.code if receipt.code in _TAKEN_OVER else "unavailable")


_OF_ARGUMENTS: Final = frozenset(("malformed", "not_allowed"))
"""The codes by which the gates refuse changed arguments: they do not fit, or a rule denies them."""
_TAKEN_OVER: Final = frozenset(("expired", "stale", "cancelled", "not_allowed", "self_approval", "assurance"))
"""The codes by which a turn may refuse a yes that the gateway took; its words may name anybody, and are left out.

That it was decided already is not one of them: the store, which knows of every answer, says that nobody has.
"""


def _make_pending(receipt: Receipt, decision: Decision) -> Receipt:
    return replace(receipt, status="pending", code="", verdict=decision.verdict)
