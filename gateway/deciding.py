"""Requests found, answered and withdrawn. Every attempt ends in a receipt."""

import dataclasses
import json
import logging
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from signoff.approvals import entries
from signoff.approvals.machine import refusal, settled_receipt, stale
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical import NotCanonical
from signoff.contracts.decision import Assurance, Decision, Remember, Verdict
from signoff.contracts.errors import NotFound, Refused, ServerUnavailable
from signoff.contracts.ids import parse_approval_id, read_code
from signoff.contracts.limits import DECISION_BYTES
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.gateway.bodies import BatchItem, DecideBody
from signoff.gateway.confirming import MISSING, confirmed
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.edited_card import as_edited
from signoff.gateway.faults import Ambiguous, sentence
from signoff.gateway.masking import unmasked_args
from signoff.killswitch import OPERATOR
from signoff.listing import by_code
from signoff.policypool import ask_rules
from signoff.registry.nearest import shown
from signoff.registry.people import Directory
from signoff.registry.remembering import Remembering
from signoff.registry.seats import Seat, Table, seat_of
from signoff.store.content import load

MARK_CHARS: Final = 8
KEY_CHARS: Final = 200
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What a person answered, as a door understood it. `shown_digest` is a digest or a card's mark.

    `assurance` is how strongly the door identified the person. `edited_args`, `remember` and `result` are those of a
    decision. `confirm` is what was typed again, None where the door itself has seen to it. `received_at` is when it
    came in, where that was not just now.
    """

    verdict: Verdict
    person: Person
    channel: str
    assurance: Assurance
    reason: str = ""
    revision: int | None = None
    shown_digest: str = ""
    delivery: str = ""
    edited_args: dict[str, Any] | None = None
    remember: Remember | None = None
    result: str = ""
    confirm: str | None = None
    received_at: datetime | None = None


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
    """Answer a request as the person the gateway knows, stamped with its clock and signed.

    Raises `ServerUnavailable`. A refusal is written down here: the turn may be over, or may never have seen it.
    """
    answer = dataclasses.replace(answer, delivery=answer.delivery or uuid.uuid4().hex)
    receipt = await _decide(deps, approval_id, answer)
    if receipt.status == "refused":
        tried = _decision(deps, approval_id, None, answer)
        entry = entries.attempt(tried, receipt, deps.clock(), witness="gateway")
        await deps.attempts.note(deps.store, entry, receipt.code)
    return receipt


async def _decide(deps: GatewayDeps, approval_id: str, answer: Answer) -> Receipt:
    """Who plainly may not decide is refused here: every answer that reaches a turn makes its history longer."""
    try:
        request = await _known(deps, approval_id)
    except NotFound:
        return refused("unknown", approval_id, "there is no such request")
    if request is not None:
        seat = seat_at(request, answer.person, deps.people, deps.clock())
        if seat.code:
            return _turned_away(request, answer.person, seat.code)
    if answer.edited_args is not None:
        edited = await _written(deps, approval_id, request, answer.edited_args)
        if isinstance(edited, Receipt):
            return edited
        answer = dataclasses.replace(answer, edited_args=edited)
    wished = _decision(deps, approval_id, request, answer)
    if request is not None and not wished.digest:
        # It names another revision and nothing else, so there is nothing that could be signed.
        return stale(request, wished)
    if request is not None and _unconfirmed(deps, request, wished, answer.confirm):
        return refusal(request, "malformed", f"{MISSING}: send one as `confirm`")
    if request is not None and wished.remember is not None and request.allow_remember and request.state == "pending":
        why = await _unremembered(deps, request, wished)
        if why:
            return refusal(request, "malformed", why)
    decision = _vouched(deps, wished)
    return decision if isinstance(decision, Receipt) else await deps.desk.decide(decision)


async def withdraw(deps: GatewayDeps, approval_id: str, person: Person, reason: str) -> Receipt:
    """Withdraw a request: who asked, who may decide, and operators can. Raises `NotFound`, `ServerUnavailable`."""
    request = await deps.desk.request(approval_id)
    concerned = person.id == request.requester.user or OPERATOR in person.roles
    if not concerned and seat_at(request, person, deps.people, deps.clock()).code:
        told = f"only who asked, who may decide, or the role `{OPERATOR}`, can withdraw this"
        receipt = refused("not_allowed", approval_id, told)
        stranger = Decision(approval_id=approval_id, verdict="withdrawn", reason=reason, subject=person.id)
        entry = entries.attempt(stranger, receipt, deps.clock(), witness="gateway")
        await deps.attempts.note(deps.store, entry, receipt.code)
        return receipt
    wish = Decision(
        approval_id=approval_id,
        revision=request.revision,
        digest=request.digest,
        verdict="withdrawn",
        reason=reason,
        subject=person.id,
        delivery_id=uuid.uuid4().hex,
        received_at=deps.clock(),
    )
    signed = _vouched(deps, wish)
    return signed if isinstance(signed, Receipt) else await deps.desk.withdraw(signed)


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


def read_batch_item(item: Any, name: str) -> BatchItem | Receipt:
    """One answer of several, or the receipt `malformed` for it alone."""
    try:
        return BatchItem.model_validate(item)
    except ValidationError as error:
        told = sentence(error.errors(include_url=False, include_input=False, include_context=False))
        return refused("malformed", name, told)


def read_key(header: str | None, approval_id: str) -> str | Receipt:
    """The delivery id of an `Idempotency-Key` header; empty without one, a receipt when it is no key."""
    if header is None:
        return ""
    if not 0 < len(header) <= KEY_CHARS or not header.isascii() or not header.isprintable():
        return refused("malformed", approval_id, f"`Idempotency-Key`: 1 to {KEY_CHARS} printable ASCII characters")
    return header


async def _known(deps: GatewayDeps, approval_id: str) -> ApprovalRequest | None:
    """The request as the turn has it; None when there is no worker that could tell. Raises `NotFound`."""
    try:
        return await deps.desk.request(approval_id)
    except ServerUnavailable:
        return None


async def _written(
    deps: GatewayDeps, approval_id: str, request: ApprovalRequest | None, edited: dict[str, Any]
) -> dict[str, Any] | Receipt:
    """Changed arguments with what was hidden from who changed them, or why that cannot be known."""
    if request is None:
        return refused("unavailable", approval_id, "no worker can check changed arguments now; try again")
    if request.state != "pending" or not request.secrets:
        return edited
    try:
        whole: dict[str, Any] = unmasked_args(edited, await load(deps.store, request.args), request.secrets)
    except Refused as error:
        return refusal(request, "malformed", error.message)
    return whole


def _unconfirmed(deps: GatewayDeps, request: ApprovalRequest, decision: Decision, typed: str | None) -> bool:
    """Whether a value of the card should have been typed again, of the changed one where it is changed."""
    if typed is None or decision.verdict != "approved" or request.state != "pending":
        return False
    if decision.digest != request.digest:
        # The turn finds it stale, which is to be told first.
        return False
    if decision.edited_args is not None and request.allow_edit:
        request = as_edited(request, decision.edited_args, deps.catalog)
    return not confirmed(request, typed)


async def _unremembered(deps: GatewayDeps, request: ApprovalRequest, decision: Decision) -> str:
    """Why the answer cannot be remembered, said before it is sent; the worker asks the same where it is written."""
    args = decision.edited_args
    if args is None:
        args = await load(deps.store, request.args)
    return await ask_rules(True, Remembering(deps.catalog).problem, request, decision, args)


def _turned_away(request: ApprovalRequest, person: Person, code: ReceiptCode) -> Receipt:
    _log.warning("%s may not decide %s", person.id, request.id)
    if request.state != "pending":
        return settled_receipt(request)
    if code == "self_approval":
        return refusal(request, "self_approval", "you asked for this yourself; someone else has to decide")
    return refusal(request, "not_allowed", "you may not decide this")


def _decision(deps: GatewayDeps, approval_id: str, request: ApprovalRequest | None, answer: Answer) -> Decision:
    revision, digest = _bound(request, answer)
    return Decision(
        approval_id=approval_id,
        revision=revision,
        digest=digest,
        verdict=answer.verdict,
        edited_args=answer.edited_args,
        reason=answer.reason,
        subject=answer.person.id,
        channel=answer.channel,
        assurance=answer.assurance,
        # A key that somebody else used must not fetch that person's receipt.
        delivery_id=f"{answer.channel}:{answer.person.id}:{answer.delivery}",
        received_at=answer.received_at or deps.clock(),
        remember=answer.remember,
        result=answer.result,
    )


def _vouched(deps: GatewayDeps, decision: Decision) -> Decision | Receipt:
    """`decision` signed, or why it cannot be. What is not bound to what the person saw is never signed."""
    development = deps.settings.profile == "development"
    if deps.signer is None and development:
        return decision
    if deps.signer is None or not decision.digest:
        told = "no worker can show what this request says now; nothing was changed, try again"
        return decision if development else refused("unavailable", decision.approval_id, told)
    try:
        return deps.signer.sign_decision(decision)
    except NotCanonical:
        told = "the answer holds a number or text that JSON cannot carry safely; send it as a string"
        return refused("malformed", decision.approval_id, told)


def _bound(request: ApprovalRequest | None, answer: Answer) -> tuple[int | None, str]:
    """Revision and digest of what the person saw. What was something else is handed on, and the turn finds it stale."""
    marked = len(answer.shown_digest) == MARK_CHARS
    if request is None:
        # No worker can say which digest it was; the revision, which changes with it, still binds the answer.
        return answer.revision, "" if marked and answer.revision is not None else answer.shown_digest
    # An answer that names no revision can only have meant the first one.
    revision = 1 if answer.revision is None else answer.revision
    seen = not answer.shown_digest or (marked and request.card.mark == answer.shown_digest)
    return revision, request.digest if seen and revision == request.revision else answer.shown_digest
