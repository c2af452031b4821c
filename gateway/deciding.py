"""Requests found, answered and withdrawn. Every attempt ends in a receipt."""

import json
import logging
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from signoff.approvals.machine import refusal, settled_receipt
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Assurance, Decision, Verdict
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import parse_approval_id, read_code
from signoff.contracts.limits import DECISION_BYTES
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.gateway.bodies import DecideBody
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.faults import Ambiguous, sentence
from signoff.listing import by_code
from signoff.registry.nearest import shown
from signoff.registry.people import Directory
from signoff.registry.seats import Seat, Table, seat_of

MARK_CHARS: Final = 8
KEY_CHARS: Final = 200
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What a person answered, as a door understood it. `shown_digest` is a digest or a card's mark.

    `assurance` is how strongly the door identified the person.
    """

    verdict: Verdict
    person: Person
    channel: str
    assurance: Assurance
    reason: str = ""
    revision: int | None = None
    shown_digest: str = ""
    delivery: str = ""


async def find_approval(deps: GatewayDeps, name: str, tenant: str = DEFAULT_TENANT) -> str:
    """The approval id behind an id or a short code. Raises `NotFound`; `Ambiguous` when a code has two."""
    if parse_approval_id(name) is not None:
        return name
    code = read_code(name)
    if code is None:
        raise NotFound(f"there is no request {shown(name)}: it is neither an approval id nor a code such as `K7Q-2FM`")
    found = await by_code(deps.desk.temporal, code, tenant=tenant)
    if len(found) > 1:
        raise Ambiguous(name, sorted(found))
    if not found:
        raise NotFound(f"there is no request with the code {shown(name)}")
    return found[0]


async def decide(deps: GatewayDeps, approval_id: str, answer: Answer) -> Receipt:
    """Answer a request as the person the gateway knows, stamped with its clock. Raises `ServerUnavailable`.

    Who plainly may not decide is refused here: every answer that reaches a turn makes its history longer.
    """
    request = await _known(deps, approval_id)
    if request is not None:
        seat = seat_at(request, answer.person, deps.people, deps.clock())
        if seat.code:
            return _turned_away(request, answer.person, seat.code)
    delivery = answer.delivery or uuid.uuid4().hex
    decision = Decision(
        approval_id=approval_id,
        revision=answer.revision,
        digest=_full_digest(request, answer),
        verdict=answer.verdict,
        reason=answer.reason,
        subject=answer.person.id,
        channel=answer.channel,
        assurance=answer.assurance,
        # A key that somebody else used must not fetch that person's receipt.
        delivery_id=f"{answer.channel}:{answer.person.id}:{delivery}",
        received_at=deps.clock(),
    )
    return await deps.desk.decide(decision)


async def withdraw(deps: GatewayDeps, approval_id: str, person: Person, reason: str) -> Receipt:
    """Withdraw a request; only who asked for the turn or may decide can. Raises `NotFound`, `ServerUnavailable`."""
    request = await deps.desk.request(approval_id)
    if person.id != request.requester.user and seat_at(request, person, deps.people, deps.clock()).code:
        return refused("not_allowed", approval_id, "only who asked, or who may decide, can withdraw this")
    return await deps.desk.withdraw(approval_id, subject=person.id, reason=reason)


def seat_at(request: ApprovalRequest, person: Person, people: Directory, now: datetime) -> Seat:
    """Whose answer the person may give to a request, or why none.

    A hint for pages; the workflow asks the directory again at the moment of the decision.
    """
    table = Table(request.tenant, request.approvers, request.requester.user, request.allow_self)
    return seat_of(person, people, table, now)


def refused(code: ReceiptCode, approval_id: str, message: str) -> Receipt:
    """A receipt of the gateway's own."""
    return Receipt(status="refused", code=code, approval_id=approval_id, message=message)


def read_decide(raw: bytes, approval_id: str) -> DecideBody | Receipt:
    """The body of a decision, or the receipt `malformed`: anything unclear is never an approval."""
    if len(raw) > DECISION_BYTES:
        return refused("malformed", approval_id, f"a decision is at most {DECISION_BYTES} bytes")
    try:
        body: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return refused("malformed", approval_id, "the body is not JSON")
    try:
        return DecideBody.model_validate(body)
    except ValidationError as error:
        told = sentence(error.errors(include_url=False, include_input=False, include_context=False))
        return refused("malformed", approval_id, told)


def read_key(header: str | None, approval_id: str) -> str | Receipt:
    """The delivery id of an `Idempotency-Key` header; empty without one, a receipt when it is no key."""
    if header is None:
        return ""
    if not 0 < len(header) <= KEY_CHARS or not header.isascii() or not header.isprintable():
        return refused("malformed", approval_id, f"`Idempotency-Key`: 1 to {KEY_CHARS} printable ASCII characters")
    return header


async def _known(deps: GatewayDeps, approval_id: str) -> ApprovalRequest | None:
    """The request as the turn has it; None when there is none, or no worker that could tell."""
    try:
        return await deps.desk.request(approval_id)
    except (NotFound, ServerUnavailable):
        return None


def _turned_away(request: ApprovalRequest, person: Person, code: ReceiptCode) -> Receipt:
    _log.warning("%s may not decide %s", person.id, request.id)
    if request.state != "pending":
        return settled_receipt(request)
    if code == "self_approval":
        return refusal(request, "self_approval", "you asked for this yourself; someone else has to decide")
    return refusal(request, "not_allowed", "you may not decide this")


def _full_digest(request: ApprovalRequest | None, answer: Answer) -> str:
    """The digest behind a card's mark. A mark of anything else is handed on, and the turn finds it stale."""
    if len(answer.shown_digest) != MARK_CHARS:
        return answer.shown_digest
    if request is None:
        # No worker can say which digest it was; the revision, which changes with it, still binds the answer.
        return "" if answer.revision is not None else answer.shown_digest
    return request.digest if request.card.mark == answer.shown_digest else answer.shown_digest
