"""Keeps the requests of one turn, the answers already seen, and the answers that were refused."""

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
"""Characters of an unknown field's name that its author is told: names can be of any length."""


def malformed_receipt(message: str, approval_id: str = "") -> Receipt:
    """Returns the receipt for what is no decision at all."""
    return Receipt(status="refused", code="malformed", approval_id=approval_id, message=message)


def envelope_problem(envelopes: Sequence[Any]) -> str:
    """Returns why the arguments of a message are not one JSON object of at most 64 KiB; "" when they are."""
    if len(envelopes) != 1 or not isinstance(envelopes[0], dict):
        return "a decision is one JSON object"
    try:
        # Not a number, infinities and half characters raise here: no record or digest could hold them.
        size = len(json.dumps(envelopes[0], ensure_ascii=False, allow_nan=False).encode("utf-8"))
    except (TypeError, ValueError, RecursionError):
        return "a decision is one JSON object"
    return "" if size <= DECISION_BYTES else f"a decision is at most {DECISION_BYTES} bytes"


def read_decision(envelopes: Sequence[Any]) -> Decision | Receipt:
    """Returns the decision in a message's arguments, or the receipt `malformed` naming the first bad field."""
    problem = envelope_problem(envelopes)
    return malformed_receipt(problem) if problem else _read(envelopes[0])


def read_withdrawal(envelopes: Sequence[Any]) -> Decision | Receipt:
    """Returns the wish to withdraw a request in a message's arguments, as a decision whose verdict is `withdrawn`.

    `approval_id` alone is enough. Anything else is the receipt `malformed`.
    """
    problem = envelope_problem(envelopes)
    if problem:
        return malformed_receipt(problem)
    # Its own verdict stands: a yes that comes as a withdrawal is refused, not taken for a withdrawal.
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
    # Compared with ours it would raise a TypeError, and a workflow task that raises is tried again for ever.
    if decision.received_at is not None and decision.received_at.tzinfo is None:
        return malformed_receipt("`received_at`: needs a time zone", approval_id)
    return decision


def _unknown_field(body: dict[str, Any]) -> str:
    """Returns the first field of `body` that no decision has; "" when it has none."""
    # Shapes pass over what they do not know. Beside a yes that is what its author meant to change: a mistyped
    # `edited_args` would approve the call unedited.
    remember = body.get("remember")
    inner = remember if isinstance(remember, dict) else {}
    fields = [(str(name), name in Decision.model_fields) for name in body]
    fields += [(f"remember.{name}", name in GrantRequest.model_fields) for name in inner]
    return next((name[:_FIELD_CHARS] or "(empty)" for name, known in fields if not known), "")


class ApprovalBook:
    """Holds the requests of one turn. Every method is plain computation; callers pass the time in."""

    def __init__(self, turn: TurnKey | None = None) -> None:
        self._requests: dict[str, ApprovalRequest] = {}
        self._seen: dict[str, Receipt] = {}
        self.refusals: deque[Receipt] = deque(maxlen=REFUSALS_KEPT)
        self.refused = 0
        self.unwritten = AuditBuffer(turn)

    def open(self, request: ApprovalRequest, now: datetime) -> ApprovalRequest:
        """Begins to wait for an answer to `request`, replacing an earlier revision of it."""
        return self._put(request, now)

    def get(self, approval_id: str) -> ApprovalRequest | None:
        """Returns the request of that id in its latest revision."""
        return self._requests.get(approval_id)

    def all(self) -> tuple[ApprovalRequest, ...]:
        """Returns every request of the turn, oldest first."""
        return tuple(self._requests.values())

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Returns the requests that wait for people, oldest first."""
        return tuple(request for request in self._requests.values() if request.state == "pending")

    def waits(self, approval_id: str) -> bool:
        """Returns whether that request still waits."""
        request = self._requests.get(approval_id)
        return request is not None and request.state == "pending"

    def precheck(self, decision: Decision, now: datetime) -> Receipt | None:
        """Returns the answer to a decision that need not wait for its author to be identified; None if it must."""
        repeated = self._find_repeated(decision)
        if repeated is not None:
            return self.record_reply(decision, repeated, now)
        request = self._requests.get(decision.approval_id)
        if request is None:
            return self.record_reply(decision, _unknown(decision.approval_id), now)
        receipt = machine.objection(request, decision, now)
        return None if receipt is None else self.record_reply(decision, receipt, now)

    def examine(self, decision: Decision, authority: Authority, now: datetime) -> Receipt | None:
        """Returns the answer to a decision that cannot count, its author identified; None while it still may."""
        request = self._requests.get(decision.approval_id)
        receipt = self._find_repeated(decision)
        if receipt is not None or request is None:
            return self.record_reply(decision, receipt or _unknown(decision.approval_id), now, authority)
        receipt = machine.examine(request, decision, authority, now)
        return None if receipt is None else self.record_reply(decision, receipt, now, authority)

    def settle(
        self, decision: Decision, authority: Authority, now: datetime, asked: ApprovalRequest | None = None
    ) -> Receipt:
        """Counts a decision whose author was identified. First in order wins; the others learn who it was.

        `asked` is what the gates made of the arguments it changes, if it changes any.
        """
        # Again: while the author was identified, the same delivery may have come by the Signal, or the Update.
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
        # A refusal is not kept: sent again once people can be looked up, the same answer has to get its chance.
        if receipt.status != "refused" and decision.delivery_id:
            self._seen[_key(decision)] = receipt
        return receipt

    def apply_due_event(self, approval_id: str, happening: deadlines.DueEvent, now: datetime) -> ApprovalRequest:
        """Applies a reminder, an escalation or a deadline whose time has come; returns the request as it is then."""
        changed = deadlines.apply_event(self._requests[approval_id], happening, now)
        if changed.state == "pending":
            self.unwritten.add(audit_events.deadline_entry(changed, happening.what, now))
        return self._put(changed, now)

    def cancel(self, approval_id: str, by: str, reason: str, now: datetime) -> Receipt:
        """Withdraws a request. The receipt is `accepted` when this did it."""
        request = self._requests.get(approval_id)
        if request is None:
            return self.reject(_unknown(approval_id))
        if request.state != "pending":
            return self.reject(machine.settled_receipt(request))
        gone = self._put(machine.cancel(request, by, reason, now), now)
        return replace(machine.settled_receipt(gone), status="accepted", code="")

    def lapse(self, approval_id: str, now: datetime) -> ApprovalRequest:
        """Marks an approval as not used; its call is asked again or judged anew."""
        return self._put(machine.lapse(self._requests[approval_id]), now)

    def receipt(self, approval_id: str) -> Receipt:
        """Returns the receipt of a request, for someone who comes late."""
        request = self._requests.get(approval_id)
        return _unknown(approval_id) if request is None else machine.settled_receipt(request)

    def reject(self, receipt: Receipt) -> Receipt:
        """Remembers a refusal (the last 50, and how many there were) and hands it back."""
        self.refusals.append(receipt)
        self.refused += 1
        return receipt

    def record_reply(
        self, decision: Decision, receipt: Receipt, now: datetime, authority: Authority | None = None
    ) -> Receipt:
        """Keeps the receipt of an answer for the record, and returns it; also remembers a refusal."""
        # The turn of an answer that the gateway took proves nothing of it: a history need not hold the proof once more.
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
