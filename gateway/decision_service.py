"""Requests found, answered and withdrawn. Every attempt ends in a receipt."""

import dataclasses
import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from signoff.approvals import audit_events
from signoff.approvals.confirmation import MISSING, confirmed
from signoff.approvals.deadlines import first_approvers
from signoff.approvals.machine import refusal, settled_receipt, stale
from signoff.approvals.unseen_values import SEEN_NEEDED
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Assurance, Decision, Remember, Verdict
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.limits import DECISION_BYTES
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.engine.kill_switch import OPERATOR
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.edited_card import as_edited
from signoff.gateway.errors import sentence
from signoff.gateway.request_models import BatchItem, DecideBody
from signoff.gateway.secret_masks import unmasked_args
from signoff.gateway.value_check import has_read
from signoff.people.directory import Directory
from signoff.people.eligibility import Seat, seat_of, table_of
from signoff.policypool import ask_rules
from signoff.registry.gates.grant_match import Remembering
from signoff.store.request_reader import LoadedRequest

_NO_REQUEST: Final = "there is no such request"
_PASSED_ON: Final = "you are asked as nobody answered, and only for this call; answer it without having that remembered"
KEY_CHARS: Final = 200
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What a person answered, as a door understood it. `question_hash` is that of the question they were shown.

    `assurance` is how strongly the door identified the person. `edited_args`, `remember` and `result` are those of a
    decision. `confirm` is what was typed again, None where the door itself has seen to it. `seen` is what came with the
    view of every value, where one was asked for; with `by_card` nothing but the card was shown, and no yes counts to
    one that is not whole. `received_at` is when it came in, where that was not just now.
    """

    verdict: Verdict
    person: Person
    channel: str
    assurance: Assurance
    reason: str = ""
    revision: int | None = None
    question_hash: str = ""
    delivery: str = ""
    edited_args: dict[str, Any] | None = None
    remember: Remember | None = None
    result: str = ""
    confirm: str | None = None
    seen: str = ""
    by_card: bool = False
    received_at: datetime | None = None


async def decide(deps: GatewayDeps, approval_id: str, answer: Answer) -> Receipt:
    """Answer a request as the person the gateway knows, stamped with its clock and signed.

    Raises `ServerUnavailable`. A refusal is written down here: the turn may be over, or may never have seen it. Whoever
    may not read the request is answered as if there were none.
    """
    answer = dataclasses.replace(answer, delivery=answer.delivery or uuid.uuid4().hex)
    receipt = await _decide(deps, approval_id, answer)
    if receipt.status == "refused":
        tried = _draft(deps, approval_id, answer.revision, answer.question_hash, answer)
        entry = audit_events.attempt(tried, receipt, deps.clock(), witness="gateway")
        await deps.attempts.note(deps.store, entry, receipt.code)
        if not await _readable(deps, approval_id, answer.person):
            return refused("unknown", approval_id, _NO_REQUEST)
    return receipt


async def _decide(deps: GatewayDeps, approval_id: str, answer: Answer) -> Receipt:
    try:
        loaded = await deps.requests.load(approval_id)
    except NotFound:
        return refused("unknown", approval_id, _NO_REQUEST)
    request = loaded.request
    seat = seat_at(request, answer.person, deps.people, deps.clock())
    if seat.code:
        return _turned_away(request, answer.person, seat.code)
    written = answer.edited_args
    if written is not None:
        edited = _written(loaded, written)
        if isinstance(edited, Receipt):
            return edited
        answer = dataclasses.replace(answer, edited_args=edited)
    decision = _decision(deps, request, answer)
    if isinstance(decision, Receipt):
        return decision
    if _unconfirmed(deps, request, decision, answer.confirm, written):
        return refusal(request, "malformed", f"{MISSING}: send one as `confirm`")
    if request.state == "pending" and decision.verdict == "approved":
        # Of changed arguments too: whoever changed some of them approves the others as they are.
        read = request.card.whole if answer.by_card else await has_read(deps.store, loaded, answer.person, answer.seen)
        if not read:
            return refusal(request, "malformed", SEEN_NEEDED)
    if decision.remember is not None and request.allow_remember and request.state == "pending":
        if not can_remember(request, answer.person, deps.people, deps.clock()):
            return refusal(request, "not_allowed", _PASSED_ON)
        why = await ask_rules(True, Remembering(deps.catalog).problem, request, decision, loaded.args)
        if why:
            return refusal(request, "malformed", why)
    return await deps.decisions.decide(request, decision, loaded.args)


async def withdraw(deps: GatewayDeps, approval_id: str, person: Person, reason: str) -> Receipt:
    """Withdraw a request: who asked, who may decide, and operators can. Raises `StoreUnavailable`.

    Whoever may not read the request is answered as if there were none.
    """
    try:
        request = (await deps.requests.load(approval_id)).request
    except NotFound:
        return refused("unknown", approval_id, _NO_REQUEST)
    concerned = person.id == request.requester.user or OPERATOR in person.roles
    if not concerned and seat_at(request, person, deps.people, deps.clock()).code:
        told = f"only who asked, who may decide, or the role `{OPERATOR}`, can withdraw this"
        receipt = refused("not_allowed", approval_id, told)
        stranger = Decision(approval_id=approval_id, verdict="withdrawn", reason=reason, subject=person.id)
        entry = audit_events.attempt(stranger, receipt, deps.clock(), witness="gateway")
        await deps.attempts.note(deps.store, entry, receipt.code)
        return receipt if await _readable(deps, approval_id, person) else refused("unknown", approval_id, _NO_REQUEST)
    wish = Decision(
        approval_id=approval_id,
        revision=request.revision,
        question_hash=request.question_hash,
        verdict="withdrawn",
        reason=reason,
        subject=person.id,
        delivery_id=uuid.uuid4().hex,
        received_at=deps.clock(),
    )
    return await deps.decisions.decide(request, wish)


async def _readable(deps: GatewayDeps, approval_id: str, person: Person) -> bool:
    try:
        await Conversations(deps).loaded(approval_id, person)
    except NotFound:
        return False
    return True


def seat_at(request: ApprovalRequest, person: Person, people: Directory, now: datetime) -> Seat:
    """Whose answer the person may give to a request, or why none.

    A hint for pages; the workflow asks the directory again at the moment of the decision.
    """
    table = table_of(request)
    return seat_of(person, people, table, now)


def can_remember(request: ApprovalRequest, person: Person, people: Directory, now: datetime) -> bool:
    """Whether an answer of the person may be remembered for calls to come: only of whom the policy asks first.

    Whom a question was passed on to, as nobody answered, is not asked about the next ones.
    """
    if not request.allow_remember or request.kind != "approval":
        return False
    first = dataclasses.replace(table_of(request), approvers=first_approvers(request))
    return not seat_of(person, people, first, now).code


def refused(code: ReceiptCode, approval_id: str, message: str) -> Receipt:
    """A receipt of the gateway's own."""
    return Receipt(status="refused", code=code, approval_id=approval_id, message=message)


def read_decide(raw: bytes, approval_id: str) -> DecideBody | Receipt:
    """The body of a decision, or the receipt `malformed`: anything unclear is never an approval."""
    if len(raw) > DECISION_BYTES:
        return refused("malformed", approval_id, f"a decision is at most {DECISION_BYTES} bytes")
    try:
        body: Any = json.loads(raw, object_pairs_hook=once_each)
    except NamedTwice as error:
        return refused("malformed", approval_id, error.message)
    except (ValueError, RecursionError):
        return refused("malformed", approval_id, "the body is not JSON")
    try:
        return DecideBody.model_validate(body)
    except ValidationError as error:
        told = sentence(error.errors(include_url=False, include_input=False, include_context=False))
        return refused("malformed", approval_id, told)


class NamedTwice(Refused):
    """A body that names a field twice, of which readers take different ones."""


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of a body, for `json.loads`. Raises `NamedTwice`: others may have read the other one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NamedTwice("a field stands twice in one object of the body; send each once", code="malformed")
    return found


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


def _written(loaded: LoadedRequest, edited: dict[str, Any]) -> dict[str, Any] | Receipt:
    """Changed arguments with what was hidden from who changed them, or why that cannot be known."""
    request = loaded.request
    if request.state != "pending" or not request.secrets:
        return edited
    try:
        whole: dict[str, Any] = unmasked_args(edited, loaded.args, request.secrets)
    except Refused as error:
        return refusal(request, "malformed", error.message)
    return whole


def _unconfirmed(
    deps: GatewayDeps,
    request: ApprovalRequest,
    decision: Decision,
    typed: str | None,
    written: Mapping[str, Any] | None,
) -> bool:
    """Whether a value of the card should have been typed again, of the changed one where it is changed.

    `written` are changed arguments as they were sent, masks included.
    """
    if typed is None or decision.verdict != "approved" or request.state != "pending":
        return False
    if written is not None and request.edit != "off":
        request = as_edited(request, written, deps.catalog)
    return not confirmed(request, typed)


def _turned_away(request: ApprovalRequest, person: Person, code: ReceiptCode) -> Receipt:
    _log.warning("%s may not decide %s", person.id, request.id)
    if request.state != "pending":
        return settled_receipt(request)
    if code == "self_approval":
        return refusal(request, "self_approval", "you asked for this yourself; someone else has to decide")
    return refusal(request, "not_allowed", "you may not decide this")


def _decision(deps: GatewayDeps, request: ApprovalRequest, answer: Answer) -> Decision | Receipt:
    """The answer as it would be signed, or why it names nothing that could be: what was not shown is never signed."""
    revision = 1 if answer.revision is None else answer.revision
    development = deps.settings.profile == "development"
    if not answer.question_hash and not development:
        return refusal(request, "malformed", "`question_hash`: send back the one of the request that was shown")
    asked = request.question_hash if revision == request.revision else ""
    decision = _draft(deps, request.id, revision, answer.question_hash or asked, answer)
    # Who answers an earlier revision is told what became of the one that is asked now.
    named = revision == request.revision and decision.question_hash == request.question_hash
    return decision if named else stale(request, decision)


def _draft(deps: GatewayDeps, approval_id: str, revision: int | None, question_hash: str, answer: Answer) -> Decision:
    return Decision(
        approval_id=approval_id,
        revision=revision,
        question_hash=question_hash,
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
