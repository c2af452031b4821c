"""Keeps the requests of one turn, the decisions already counted, and the refusals."""

import json
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from signoff.approvals import audit_events, deadlines, machine
from signoff.approvals.audit_buffer import AuditBuffer
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
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
    """Holds the requests of one turn. Pure: the time is a parameter."""

    def __init__(self, turn: TurnKey | None = None) -> None:
        self._requests: dict[str, ApprovalRequest] = {}
        self._seen: dict[str, Receipt] = {}
        self.refusals: deque[Receipt] = deque(maxlen=REFUSALS_KEPT)
        self.refused = 0
        self.unwritten = AuditBuffer(turn)

    def open(self, request: ApprovalRequest, now: datetime) -> ApprovalRequest:
        """Replaces the request's earlier revision."""
        return self._put(request, now)

    def get(self, approval_id: str) -> ApprovalRequest | None:
        """Return the latest revision."""
        return self._requests.get(approval_id)

    def all(self) -> tuple[ApprovalRequest, ...]:
        """Oldest first."""
        return tuple(self._requests.values())

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Oldest first."""
        return tuple(request for request in self._requests.values() if request.state == "pending")

    def waits(self, approval_id: str) -> bool:
        request = self._requests.get(approval_id)
        return request is not None and request.state == "pending"

    def precheck(self, decision: Decision, now: datetime) -> Receipt | None:
        """Return the receipt for a decision that can be refused without its author, or `None`."""
        repeated = self._find_repeated(decision)
        if repeated is not None:
            return self.record_reply(decision, repeated, now)
        request = self._requests.get(decision.approval_id)
        if request is None:
            return self.record_reply(decision, _unknown(decision.approval_id), now)
        receipt = machine.objection(request, decision, now)
        return None if receipt is None else self.record_reply(decision, receipt, now)

    def examine(self, decision: Decision, authority: Authority, now: datetime) -> Receipt | None:
        """Return the receipt for a decision of an identified author that cannot count, or `None`."""
        request = self._requests.get(decision.approval_id)
        receipt = self._find_repeated(decision)
        if receipt is not None or request is None:
            return self.record_reply(decision, receipt or _unknown(decision.approval_id), now, authority)
        receipt = machine.examine(request, decision, authority, now)
        return None if receipt is None else self.record_reply(decision, receipt, now, authority)

    def settle(
        self, decision: Decision, authority: Authority, now: datetime, asked: ApprovalRequest | None = None
    ) -> Receipt:
        """The first decision wins, and the others learn its author. `asked` is the gates' next revision for an edit."""
        # Check again: the same delivery may have arrived by Signal or Update while the author was identified.
        repeated = self._find_repeated(decision)
        if repeated is not None:
            return self.record_reply(decision, repeated, now, authority)
        request = self._requests.get(decision.approval_id)
        if request is None:
            return self.record_reply(decision, _unknown(decision.approval_id), now, authority)
        if asked is None:
            changed, receipt = machine.decide(request, decision, authority, now)
        else:
            changed, receipt = machine.apply_edit(request, decision, authority, asked, now)
        self.record_reply(decision, receipt, now, authority)
        self._put(changed, now)
        # Do not cache refusals: the same decision must succeed if it is resent once the directory is back.
        if receipt.status != "refused" and decision.delivery_id:
            self._seen[_key(decision)] = receipt
        return receipt

    def apply_due_event(self, approval_id: str, happening: deadlines.DueEvent, now: datetime) -> ApprovalRequest:
        changed = deadlines.apply_event(self._requests[approval_id], happening, now)
        if changed.state == "pending":
            self.unwritten.add(audit_events.deadline_entry(changed, happening.what, now))
        return self._put(changed, now)

    def cancel(self, approval_id: str, by: str, reason: str, now: datetime) -> Receipt:
        """The receipt is `accepted` if this call withdrew the request."""
        request = self._requests.get(approval_id)
        if request is None:
            return self.reject(_unknown(approval_id))
        if request.state != "pending":
            return self.reject(machine.settled_receipt(request))
        withdrawn = self._put(machine.cancel(request, by, reason, now), now)
        return replace(machine.settled_receipt(withdrawn), status="accepted", code="")

    def lapse(self, approval_id: str, now: datetime) -> ApprovalRequest:
        """Mark an approval as unused. Its call is asked or judged again."""
        return self._put(machine.lapse(self._requests[approval_id]), now)

    def receipt(self, approval_id: str) -> Receipt:
        """Return the receipt of a request for a late decision."""
        request = self._requests.get(approval_id)
        return _unknown(approval_id) if request is None else machine.settled_receipt(request)

    def reject(self, receipt: Receipt) -> Receipt:
        """Keeps the last 50 refusals and counts all."""
        self.refusals.append(receipt)
        self.refused += 1
        return receipt

    def record_reply(
        self, decision: Decision, receipt: Receipt, now: datetime, authority: Authority | None = None
    ) -> Receipt:
        """Record a receipt for the audit log, and a refusal also here."""
        # For a decision accepted by the gateway, the turn's entry proves nothing: do not repeat the proof in the
        # history.
        stored = authority is not None and authority.received_at is not None
        self.unwritten.add(audit_events.attempt_entry(decision, receipt, now, authority, stored=stored))
        return self.reject(receipt) if receipt.status == "refused" else receipt

    def _put(self, request: ApprovalRequest, now: datetime) -> ApprovalRequest:
        before = self._requests.get(request.id)
        if request.state != "pending" and before is not None and before.state != request.state:
            self.unwritten.add(audit_events.ended_entry(request, now))
        self._requests[request.id] = request
        return request

    def _find_repeated(self, decision: Decision) -> Receipt | None:
        first = self._seen.get(_key(decision))
        return None if first is None else replace(first, code="duplicate")


def _unknown(approval_id: str) -> Receipt:
    return Receipt(status="refused", code="unknown", approval_id=approval_id, message="no such request in this turn")


def _key(decision: Decision) -> str:
    return f"{decision.delivery_id}:{decision.approval_id}:{decision.revision or 1}"
