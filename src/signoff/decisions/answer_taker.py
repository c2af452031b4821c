"""Accepts decisions into the store in order. Gateways and workers use the same rules under the same lock.

The rows of an approval decide which one was first, not clocks or workflows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection

from signoff.approvals import audit_events
from signoff.approvals.machine import (
    arrived_late,
    count_vote,
    examine,
    receipt_after,
    refusal,
    settled_receipt,
    stale_receipt,
    vote_of,
)
from signoff.approvals.request_state import (
    INBOX,
    as_answerable,
    assigned_hash,
    browser_of,
    editors_of,
    find_denial,
    request_at,
    request_of,
    undo_seconds,
    with_browser,
)
from signoff.approvals.request_thread import thread_problem
from signoff.audit.log import entry_writer
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, Vote
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.clock import Clock
from signoff.contracts.decision import ASSURANCES, Decision
from signoff.contracts.limits import ANSWERS_KEPT, ANSWERS_OF_ONE
from signoff.contracts.receipt import Receipt, ReceiptCode, ReceiptReason
from signoff.decisions.typed_answer import answer_objection
from signoff.formats.replace import replace
from signoff.store.questions.answers import add_answer, void_answer
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import has_begun
from signoff.store.questions.request_messages import read_messages

_DELIVERY_CHARS: Final = 32
UNSAFE_ANSWER: Final = "the answer holds a number or text that JSON cannot carry safely; send it as a string"


@dataclass(frozen=True)
class Taken:
    """The effect of one decision on the store."""

    receipt: Receipt
    vote: Vote | None = None
    number: int = 0
    """The number of the answer."""
    author: Authority | None = None
    """`None` if not looked up."""
    change: str = ""
    """The delivery id of the edit that created the question."""

    @property
    def decision(self) -> Decision | None:
        return None if self.vote is None else self.vote.decision


class AnswerTaker:
    """Accepts decisions within `Questions.run_locked`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def take_locked(
        self,
        connection: Connection,
        rows: ApprovalRows | None,
        decision: Decision,
        *,
        question_hash: str,
        author: Callable[[ApprovalRequest, Decision, datetime], Authority],
        sign: Callable[[Decision], Decision | Receipt],
        beside: Callable[[Connection, ApprovalRequest], object] | None = None,
        arrived: datetime | None = None,
        handed: bool = False,
    ) -> Taken:
        """Insert a decision on the latest question of its approval, if that waits and has room.

        - `question_hash`: the hash of the question shown to its author, or "" for a raw decision that names none.
        - `author`: finds its author and their permission to decide at its time of receipt.
        - `sign`: signs it, or returns the receipt of a refusal.
        - `beside`: writes further rows in the transaction of a counted decision.
        - `arrived`: the time of arrival by a channel or as a raw decision, by the store's clock. `None` for now.
        - `handed`: whether its turn reads this call's result, so that the dispatcher need not deliver it.
        """
        if rows is None:
            return Taken(refuse("unknown", decision.approval_id))
        # Turns look only at answers with a time: store none without one.
        received = decision.received_at or self._clock()
        decision = _with_own_delivery(rows, replace(decision, received_at=received))
        repeated = find_repeated(rows, decision)
        if repeated is not None:
            return Taken(repeated)
        asked = rows.request(rows.latest, received)
        if question_hash not in ("", asked.question_hash):
            return Taken(stale_receipt(asked))
        is_answer = decision.verdict == "answered"
        found = author(
            as_answerable(asked, editors_of(rows.questions, rows.answers)) if is_answer else asked, decision, received
        )
        objection = _objection(asked, decision, found, received) or too_many(rows, decision, found)
        if objection is None and arrived_late(asked, arrived or rows.now):
            objection = refusal(asked, "expired")
        if objection is None and _takes_back(decision) and has_begun(connection, rows.latest):
            objection = refusal(asked, "already_decided", why="begun")
        if objection is None and is_answer:
            objection = answer_objection(connection, asked, decision.answer)
        if objection is None and (is_answer or decision.verdict == "approved"):
            objection = thread_problem(asked, decision.thread, read_messages(connection, asked.id))
        if not question_hash:
            # A raw decision may name no question: it means the present one.
            decision = replace(decision, revision=asked.revision, question_hash=asked.question_hash)
        signed = objection or sign(replace(decision, assigned=assigned_hash(rows.answers), on_call=found.on_call))
        if isinstance(signed, Receipt):
            return Taken(signed, author=found)
        vote = vote_of(signed, found, received)
        if decision.edited_args is not None:
            # The gates judge the edited call, so the edit settles nothing yet.
            number = add_answer(connection, rows, vote, settles=False, arrived=arrived, handed=handed)
            receipt = Receipt(status="pending", approval_id=asked.id, state=asked.state, verdict=decision.verdict)
            return self._added(connection, rows, vote, number, receipt, found)
        after = count_vote(asked, vote)
        if after is asked:
            return Taken(receipt_after(asked, after), author=found)
        if is_answer and after.state != "answered":
            # Groups can ask for more than this person.
            return Taken(refusal(asked, "not_allowed", why="several"), author=found)
        settles = after.state != "pending"
        number = add_answer(connection, rows, vote, settles=settles, arrived=arrived, handed=handed)
        if beside is not None:
            beside(connection, after)
        return self._added(connection, rows, vote, number, receipt_after(asked, after), found)

    def undo_locked(
        self,
        approval: str,
        person: str,
        browser: str,
        sign: Callable[[Decision], Decision | Receipt],
        connection: Connection,
        rows: ApprovalRows | None,
    ) -> Receipt:
        """Void the person's latest denial in this browser session, and store the signed undo."""
        if rows is None:
            return refuse("unknown", approval)
        denial = find_denial(rows.answers, person, browser)
        asked = rows.request(rows.latest)
        if denial is None:
            return refusal(asked, "not_allowed", why="undo_other")
        delivery = f"{INBOX}:{denial.vote.subject}:{sha256_hex(denial.vote.decision.delivery_id)[:_DELIVERY_CHARS]}"
        if any(each.vote.decision.delivery_id == delivery for each in rows.answers):
            return receipt_after(asked, asked)
        without = request_at(rows.latest, [each for each in rows.answers if each is not denial], rows.now)
        stands = denial.revision == rows.latest.revision and rows.latest.ended_at is None
        if not stands or undo_seconds((denial,), rows.now) <= 0 or not (denial.settles or asked.state == "pending"):
            return refusal(asked, "already_decided", why="undo_late")
        if without.state != "pending":
            return refusal(asked, "expired" if without.state == "timed_out" else "already_decided", why="undo_late")
        vote = denial.vote
        author = replace(authority_of(vote), received_at=None)
        undo = Decision(
            approval_id=asked.id,
            revision=denial.revision,
            question_hash=vote.decision.question_hash,
            verdict="retracted",
            subject=vote.decision.subject,
            channel=vote.decision.channel,
            # A passkey confirmed the denial, not its undo.
            assurance=min(vote.decision.assurance, "mfa", key=ASSURANCES.index),
            delivery_id=delivery,
            received_at=self._clock(),
        )
        signed = too_many(rows, undo, author) or sign(undo)
        if isinstance(signed, Receipt):
            return signed
        void_answer(connection, asked.id, vote.decision.delivery_id, (denial.revision,))
        # Void as well: the undo is no vote, and its turn does not know of the denial.
        undo_vote = vote_of(signed, author, self._clock())
        number = add_answer(connection, rows, undo_vote, settles=False, handed=True, void=True)
        receipt = receipt_after(asked, without)
        return self._added(connection, rows, undo_vote, number, receipt, author).receipt

    def _added(
        self, connection: Connection, rows: ApprovalRows, vote: Vote, number: int, receipt: Receipt, author: Authority
    ) -> Taken:
        """Record the decision together with its row. The turn may hold back its own entry with the same key."""
        entry_writer([audit_events.attempt_entry(vote.decision, receipt, self._clock(), author)])(connection)
        return Taken(receipt, vote, number, author, rows.latest.edit_delivery)


def authority_of(vote: Vote) -> Authority:
    return Authority(
        allowed=True,
        subject=vote.subject,
        person_id=vote.person_id,
        name=vote.name,
        assurance=vote.assurance,
        unsigned=vote.unsigned,
        on_behalf=vote.on_behalf,
        entries=vote.entries,
        received_at=vote.at,
    )


def refuse(code: ReceiptCode, approval_id: str, message: str = "", *, why: ReceiptReason = "") -> Receipt:
    return Receipt(status="refused", code=code, approval_id=approval_id, message=message, why=why)


def _takes_back(decision: Decision) -> bool:
    """Return whether a decision stops its call. Such a decision is too late once the call has begun."""
    return decision.verdict in ("denied", "answered", "withdrawn") or decision.edited_args is not None


def _objection(request: ApprovalRequest, decision: Decision, author: Authority, received: datetime) -> Receipt | None:
    if decision.verdict != "withdrawn":
        return examine(request, decision, author, received)
    if request.state != "pending":
        return settled_receipt(request)
    return None if author.allowed else refusal(request, "not_allowed", why="withdraw")


def too_many(rows: ApprovalRows, decision: Decision, author: Authority) -> Receipt | None:
    """Return the refusal of a decision above the limits of one person or of all, or `None`.

    Denials are never refused. The limits bound refused edits: each stays in the store and in the turn's history.
    """
    if decision.verdict in ("denied", "withdrawn"):
        return None
    human = author.person_id or author.subject
    own = sum((each.vote.person_id or each.vote.subject) == human for each in rows.answers)
    if own < ANSWERS_OF_ONE and len(rows.answers) < ANSWERS_KEPT:
        return None
    return refuse("not_allowed", decision.approval_id, why="enough")


def _with_own_delivery(rows: ApprovalRows, decision: Decision) -> Decision:
    """Return `decision`, with a new delivery id if another decision has the same id.

    A person may return to a page and deny after approving. Treated as a repetition of the approval, the denial would be
    lost. A void decision counts as another one, since a link has only one delivery id.
    """
    for answer in rows.answers:
        stored = answer.vote.decision
        if stored.delivery_id == decision.delivery_id and (answer.void or _content_of(stored) != _content_of(decision)):
            other = sha256_hex([decision.delivery_id, *_content_of(decision)])[:_DELIVERY_CHARS]
            renamed = replace(decision, delivery_id=other)
            decision = with_browser(renamed, browser_of(decision))
    return decision


def _content_of(decision: Decision) -> list[Any]:
    return [decision.verdict, decision.edited_args, decision.result, decision.answer]


def find_repeated(rows: ApprovalRows, decision: Decision) -> Receipt | None:
    """Return the receipt of a stored answer with the same delivery id, or `None`."""
    for answer in rows.answers:
        if answer.vote.decision.delivery_id != decision.delivery_id:
            continue
        question = rows.revision(answer.revision) or rows.latest
        until = [each for each in rows.answers if each.number <= answer.number]
        after = request_at(question, until, answer.vote.at)
        if after.state == "pending":
            return replace(receipt_after(request_of(question), after), code="duplicate")
        return replace(settled_receipt(after), status="accepted", code="duplicate")
    return None
