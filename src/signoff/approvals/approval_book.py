"""Keeps the questions of one turn, with their states by the store, and the refusals."""

import json
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from signoff.approvals import audit_events, deadlines
from signoff.approvals.audit_buffer import AuditBuffer
from signoff.approvals.machine import settlement_receipt
from signoff.contracts.activity_messages import AnswersReply, Authority, Wake
from signoff.contracts.approval import TurnQuestion
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import DECISION_BYTES, REASON_CHARS, REFUSALS_KEPT
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace

_FIELD_CHARS = 64
"""The number of characters of an unknown field's name that its author sees.

Names can have any length.
"""


def malformed_receipt(message: str, approval_id: str = "") -> Receipt:
    return Receipt(status="refused", code="malformed", approval_id=approval_id, message=message)


def envelope_problem(envelopes: Sequence[Any]) -> str:
    """Return why a message's arguments are not one JSON object of at most 64 KiB, or ""."""
    if len(envelopes) != 1 or not isinstance(envelopes[0], dict):
        return "a decision is one JSON object"
    try:
        # NaN, infinities and half surrogates raise here: no record or digest could contain them.
        size = len(json.dumps(envelopes[0], ensure_ascii=False, allow_nan=False).encode("utf-8"))
    except (TypeError, ValueError, RecursionError):
        return "a decision is one JSON object"
    return "" if size <= DECISION_BYTES else f"a decision is at most {DECISION_BYTES} bytes"


def read_decision(envelopes: Sequence[Any]) -> Decision | Receipt:
    """A `malformed` receipt names the first bad field."""
    problem = envelope_problem(envelopes)
    return malformed_receipt(problem) if problem else _read(envelopes[0])


def read_wake(envelopes: Sequence[Any]) -> Wake | None:
    """Return the hint that an answer was stored, or `None` for any other message."""
    body = envelopes[0] if len(envelopes) == 1 else None
    if not isinstance(body, dict) or body.keys() != Wake.model_fields.keys():
        return None
    try:
        return Wake.model_validate(body)
    except ValidationError:
        return None


def read_withdrawal(envelopes: Sequence[Any]) -> Decision | Receipt:
    """`approval_id` alone is enough. Other input returns a `malformed` receipt."""
    problem = envelope_problem(envelopes)
    if problem:
        return malformed_receipt(problem)
    # Keep an explicit verdict: an approval sent as a withdrawal is refused, not treated as a withdrawal.
    wish = _read({"verdict": "withdrawn"} | envelopes[0])
    if isinstance(wish, Decision) and wish.verdict != "withdrawn":
        return malformed_receipt("`verdict`: must be `withdrawn`", wish.approval_id)
    return wish


def _read(body: dict[str, Any]) -> Decision | Receipt:
    named = body.get("approval_id")
    approval_id = named if isinstance(named, str) else ""
    strange = _unknown_field(body)
    if strange:
        return malformed_receipt(f"{strange!r}: a decision has no such field", approval_id)
    try:
        decision = Decision.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        return malformed_receipt(f"`{field}`: {first['msg'].lower()}", approval_id)
    except RecursionError:
        return malformed_receipt("a decision is one JSON object", approval_id)
    if len(decision.reason) > REASON_CHARS:
        return malformed_receipt(f"`reason`: at most {REASON_CHARS} characters", approval_id)
    # Comparing it with our times would raise a TypeError, and Temporal retries a failing workflow task forever.
    if decision.received_at is not None and decision.received_at.tzinfo is None:
        return malformed_receipt("`received_at`: needs a time zone", approval_id)
    return decision


def _unknown_field(body: dict[str, Any]) -> str:
    # Pydantic ignores unknown fields. Reject them: with a misspelled `edited_args`, the call would be approved
    # unedited.
    remember = body.get("remember")
    inner = remember if isinstance(remember, dict) else {}
    fields = [(str(name), name in Decision.model_fields) for name in body]
    fields += [(f"remember.{name}", name in GrantRequest.model_fields) for name in inner]
    return next((name[:_FIELD_CHARS] or "(empty)" for name, known in fields if not known), "")


class ApprovalBook:
    """Holds the questions of one turn. Pure: the time is a parameter."""

    def __init__(self, turn: TurnKey | None = None) -> None:
        self._questions: dict[str, TurnQuestion] = {}
        self._seen: dict[tuple[str, int], int] = {}
        self._refused_edits: dict[tuple[str, int], Receipt] = {}
        self._put_off: set[tuple[str, int]] = set()
        self._taken: dict[str, Receipt] = {}
        self.refusals: deque[Receipt] = deque(maxlen=REFUSALS_KEPT)
        self.refused = 0
        self.unwritten = AuditBuffer(turn)

    def open(self, question: TurnQuestion) -> TurnQuestion:
        """Replaces the question's earlier revision."""
        opened = question if question.opened_at is None else deadlines.open_request(question, question.opened_at)
        self._questions[question.id] = opened
        return opened

    def get(self, approval_id: str) -> TurnQuestion | None:
        """Return the latest revision."""
        return self._questions.get(approval_id)

    def all(self) -> tuple[TurnQuestion, ...]:
        """Oldest first."""
        return tuple(self._questions.values())

    def pending(self) -> tuple[TurnQuestion, ...]:
        """Oldest first."""
        return tuple(each for each in self._questions.values() if each.state == "pending")

    def waits(self, approval_id: str) -> bool:
        question = self._questions.get(approval_id)
        return question is not None and question.state == "pending"

    def known_reply(self, wake: Wake, *, looked: bool = False) -> Receipt | None:
        """Return the reply to a wake, or `None` if it needs a look into the store first.

        A restored store gives numbers again. While a question is pending, only a look shows that an answer was seen.
        """
        question = self._questions.get(wake.approval_id)
        if question is None:
            return self.reject(_unknown(wake.approval_id))
        refused = self._refused_edits.get((wake.approval_id, wake.number))
        if refused is not None:
            return refused
        if not looked and wake.revision == question.revision and question.state == "pending":
            return None
        is_judged = wake.revision != question.revision or (wake.approval_id, wake.number) not in self._put_off
        if is_judged and wake.number <= self._seen.get((wake.approval_id, wake.revision), 0):
            return Receipt(status="accepted", approval_id=question.id, state=question.state)
        if wake.revision != question.revision:
            return self.reject(Receipt(status="refused", code="stale", approval_id=question.id, state=question.state))
        return None if question.state == "pending" else self.reject(settlement_receipt(question.id, question))

    def refused_edits(self, approval_id: str) -> tuple[int, ...]:
        """Return the numbers of the answers whose edits the gates have refused."""
        return tuple(number for named, number in self._refused_edits if named == approval_id)

    def refuse_edit(self, approval_id: str, number: int, receipt: Receipt) -> None:
        self._refused_edits[approval_id, number] = self.reject(receipt)

    def put_off_edit(self, approval_id: str, number: int) -> None:
        """Judge the edit again at the next look: the gates did not answer."""
        self._put_off.add((approval_id, number))

    def edited_receipt(self, approval_id: str) -> Receipt:
        """Return the receipt for the author of an accepted edit."""
        question = self._questions[approval_id]
        status = "counted" if question.state == "pending" else "accepted"
        return replace(settlement_receipt(approval_id, question), status=status, code="")

    def untakable(self, decision: Decision) -> Receipt | None:
        """Return the receipt of a raw answer that cannot count, as far as the turn knows, or `None`."""
        taken = self._taken.get(_key(decision))
        if taken is not None:
            return replace(taken, code="duplicate")
        if decision.verdict == "withdrawn":
            return malformed_receipt("`verdict`: a withdrawal is not a decision; use `cancel`", decision.approval_id)
        question = self._questions.get(decision.approval_id)
        if question is None:
            return _unknown(decision.approval_id)
        names_this = decision.question_hash in ("", question.question_hash)
        if not names_this or (decision.revision or 1) != question.revision:
            return Receipt(status="refused", code="stale", approval_id=question.id, state=question.state)
        return None if question.state == "pending" else settlement_receipt(question.id, question)

    def keep_receipt(self, decision: Decision, receipt: Receipt) -> None:
        """Keep the receipt of a raw answer for its repetitions. A refused one is not kept: it may count later."""
        if decision.delivery_id:
            self._taken[_key(decision)] = receipt

    def take(self, question: TurnQuestion, reply: AnswersReply, now: datetime) -> None:
        """Take the state of `question` from the store. A question that the turn has settled keeps its state."""
        current = self._questions.get(question.id)
        if current is None or (current.revision, current.state) != (question.revision, "pending"):
            return
        self._seen[question.id, question.revision] = reply.seen
        about = {"edited_by": reply.edited_by, "remarks": reply.remarks, "word": reply.word}
        taken = replace(current, **about, **dict(reply.settlement))
        self._put(deadlines.put_off(taken, reply.asked_at), now)

    def apply_due_event(self, approval_id: str, happening: deadlines.DueEvent, now: datetime) -> TurnQuestion:
        changed = deadlines.apply_event(self._questions[approval_id], happening, now)
        if changed.state == "pending":
            self.unwritten.add(audit_events.deadline_entry(changed, happening.what, now))
        return self._put(changed, now)

    def cancel(self, approval_id: str, by: str, reason: str, now: datetime) -> Receipt:
        """The receipt is `accepted` if this call withdrew the request."""
        question = self._questions.get(approval_id)
        if question is None:
            return self.reject(_unknown(approval_id))
        if question.state != "pending":
            return self.reject(settlement_receipt(question.id, question))
        ended = replace(question, state="cancelled", decided_by=by, decided_at=now, reason=reason)
        return replace(settlement_receipt(approval_id, self._put(ended, now)), status="accepted", code="")

    def lapse(self, approval_id: str, now: datetime) -> None:
        """Mark an approval or an answer as unused. Its call is asked or judged again."""
        question = self._questions[approval_id]
        if question.state in ("approved", "answered"):
            self._put(replace(question, state="lapsed"), now)

    def receipt(self, approval_id: str) -> Receipt:
        """Return the receipt of a request for a late decision."""
        question = self._questions.get(approval_id)
        return _unknown(approval_id) if question is None else settlement_receipt(question.id, question)

    def reject(self, receipt: Receipt) -> Receipt:
        """Keeps the last 50 refusals and counts all."""
        self.refusals.append(receipt)
        self.refused += 1
        return receipt

    def record_refusal(
        self, decision: Decision, receipt: Receipt, now: datetime, author: Authority | None = None
    ) -> Receipt:
        """Record the refusal of an answer that is not in the store."""
        self.unwritten.add(audit_events.attempt_entry(decision, receipt, now, author))
        return self.reject(receipt)

    def _put(self, question: TurnQuestion, now: datetime) -> TurnQuestion:
        before = self._questions.get(question.id)
        if question.state != "pending" and before is not None and before.state != question.state:
            self.unwritten.add(audit_events.ended_entry(question, now))
        self._questions[question.id] = question
        return question


def _unknown(approval_id: str) -> Receipt:
    return Receipt(status="refused", code="unknown", approval_id=approval_id, message="no such request in this turn")


def _key(decision: Decision) -> str:
    return f"{decision.delivery_id}:{decision.approval_id}:{decision.revision or 1}"
