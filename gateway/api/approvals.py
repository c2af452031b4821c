"""The API of requests: list, read, decide, withdraw. A decision is always answered by a receipt."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response

from signoff.approvals.audit_events import rejected_entry
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, Refused, SignoffError
from signoff.contracts.ids import parse_approval_id
from signoff.contracts.names import DEFAULT_DECIDER, DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import BatchBody, DecisionAuthor, DecisionDraft, WithdrawBody
from signoff.contracts.responses import ApprovalList, BatchReceipts
from signoff.gateway.api.faults import FAULTS, RECEIPTS
from signoff.gateway.approvals.decision_parser import once_each, parse_draft, read_batched, refused_receipt, with_key
from signoff.gateway.approvals.decisions import decide, withdraw
from signoff.gateway.approvals.value_check import whole_request
from signoff.gateway.auth.caller import AuthenticatedCaller, acting_person, channel_of, own_tenant, person_of
from signoff.gateway.auth.dependencies import As, Deps, TokenDecider, TokenReader
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.errors import receipt_status
from signoff.gateway.languages import formatter_in
from signoff.gateway.transport.middleware import unexpected_receipt
from signoff.texts.endings import written_receipt
from signoff.texts.formatter import Formatter

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])
Key = Annotated[
    str | None, Header(alias="Idempotency-Key", description="The same key again is the same answer; `delivery_id`.")
]
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/DecisionDraft"}}},
    }
}


@dataclass(frozen=True)
class _Attempt:
    """One answer as it was sent, for the record of those that never come as far as a request.

    `person` is who the sender says they are, `key` the `Idempotency-Key`, `sent` the body, `channel` what sent
    it.
    """

    caller: AuthenticatedCaller | None
    person: str | None
    key: str | None
    sent: str
    channel: str


@router.get("", summary="What waits, soonest deadline first", responses=FAULTS)
async def list_approvals(
    deps: Deps,
    caller: TokenReader,
    as_person: As = None,
    mine: Annotated[bool, Query(description="Only what the token's own person may decide.")] = False,
    approver: Annotated[str, Query(description="Only what asks this entry of policies, as `role:finance`.")] = "",
    tenant: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> ApprovalList:
    """Those that whoever asks may read; read a request by its id before deciding."""
    tenant = own_tenant(caller, tenant)
    person = None
    if mine or as_person is not None:
        person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=tenant)
    approvers = None if person is None else deps.rights(person)
    if approver:
        approvers = (approver,) if approvers is None or approver in approvers else ()
    conversations, reader = Conversations(deps), person_of(caller)
    found = await deps.requests.list_waiting(
        tenant,
        approvers=approvers,
        readers=conversations.readers(reader),
        wanted=conversations.readable(reader),
        limit=limit,
    )
    return ApprovalList(approvals=tuple(found))


@router.post("/decide", summary="Answer several", responses=FAULTS)
async def decide_several(
    body: BatchBody, request: Request, deps: Deps, caller: TokenDecider, as_person: As = None, key: Key = None
) -> BatchReceipts:
    """One receipt an answer, in their order; one that is refused keeps none of the others from counting."""
    # Raises for a field that stands twice: of such a body nobody knows which answers were meant.
    json.loads(await request.body(), object_pairs_hook=once_each)
    channel = channel_of(request)
    attempts = [(item, _Attempt(caller, as_person, key, str(item), channel)) for item in body.decisions]
    found = [await _own_receipt(deps, item, attempt) for item, attempt in attempts]
    words = _words(request, deps, caller)
    return BatchReceipts(receipts=tuple(written_receipt(each, words) for each in found))


@router.get("/{approval}", summary="One request, waiting or settled", responses=FAULTS)
async def show_approval(approval: str, deps: Deps, caller: TokenReader) -> ApprovalRequest:
    """By approval id or short code; all arguments are there, secret ones masked, and `seen` goes with them."""
    approval_id = await _find(deps, approval, caller)
    return whole_request(await Conversations(deps).load(approval_id, person_of(caller)))


@router.post(
    "/{approval}/decide",
    summary="Approve, as it is or changed, deny, or say what happened",
    responses=RECEIPTS,
    openapi_extra=_BODY,
)
async def decide_one(
    approval: str,
    request: Request,
    response: Response,
    deps: Deps,
    caller: TokenDecider,
    as_person: As = None,
    key: Key = None,
) -> Receipt:
    """The body of every answer is the receipt. Anything unclear is `malformed` and changes nothing."""
    raw = await request.body()
    attempt = _Attempt(caller, as_person, key, raw.decode(errors="replace"), channel_of(request))
    receipt = await _decide(deps, parse_draft(raw, approval), attempt)
    return _answer(receipt, response, _words(request, deps, caller))


@router.post("/{approval}/withdraw", summary="Withdraw", responses=RECEIPTS)
async def withdraw_one(
    approval: str,
    request: Request,
    response: Response,
    deps: Deps,
    caller: TokenDecider,
    as_person: As = None,
    body: WithdrawBody | None = None,
) -> Receipt:
    """For who asked for the turn, may decide, or has the role `admin`; the call ends as denied (cancelled)."""
    body = body or WithdrawBody()
    attempt = _Attempt(caller, as_person, None, body.model_dump_json(), channel_of(request))
    named, words = await _find_named(deps, approval, attempt), _words(request, deps, caller)
    if isinstance(named, Receipt):
        return _answer(await _note_attempt(deps, named, attempt), response, words)
    return _answer(await withdraw(deps, *named, body.reason), response, words)


async def _own_receipt(deps: GatewayDeps, item: Any, attempt: _Attempt) -> Receipt:
    """Returns the receipt of one answer of several, whatever happens: those before it have counted, and must be
    told.
    """
    name = str(item.get("approval_id", ""))[:200] if isinstance(item, dict) else ""
    try:
        # JSON may hold half of a surrogate pair (`"\\ud800"`), which no record and no receipt can carry.
        json.dumps(item, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return refused_receipt("malformed", "", "it holds text that is none")
    try:
        return await _decide(deps, read_batched(item, name), attempt, by_card=True)
    except SignoffError as error:
        return refused_receipt("unavailable", name, error.message)
    except Exception as error:
        return unexpected_receipt(name, error)


async def _decide(
    deps: GatewayDeps, draft: DecisionDraft | Receipt, attempt: _Attempt, *, by_card: bool = False
) -> Receipt:
    """Returns the receipt of an answer; one that never comes as far as its request is written down here."""
    if isinstance(draft, DecisionDraft):
        draft = with_key(draft, attempt.key)
    if isinstance(draft, Receipt):
        return await _note_attempt(deps, draft, attempt)
    named = await _find_named(deps, draft.approval_id, attempt)
    if isinstance(named, Receipt):
        return await _note_attempt(deps, named, attempt)
    approval_id, person = named
    # In the development profile a person is named; that counts as if they had signed in.
    assurance = "session" if attempt.caller is None else attempt.caller.assurance
    author = DecisionAuthor(person, attempt.channel, assurance, by_card=by_card)
    return await decide(deps, draft.model_copy(update={"approval_id": approval_id}), author)


async def _note_attempt(deps: GatewayDeps, receipt: Receipt, attempt: _Attempt) -> Receipt:
    """Returns `receipt`, written down: this attempt never came as far as its turn."""
    seen = rejected_entry(
        receipt,
        deps.clock(),
        subject="" if attempt.caller is None else attempt.caller.person.id,
        channel=attempt.channel,
        body=attempt.sent,
        tenant=own_tenant(attempt.caller, None),
    )
    await deps.attempts.note(deps.store, seen, receipt.code)
    return receipt


async def _find_named(deps: GatewayDeps, approval: str, attempt: _Attempt) -> tuple[str, Person] | Receipt:
    """Returns the request and the person of an attempt, or why there is no such thing."""
    try:
        approval_id = await _find(deps, approval, attempt.caller)
    except NotFound as error:
        return refused_receipt("unknown", approval, error.message)
    key = parse_approval_id(approval_id)
    tenant = DEFAULT_TENANT if key is None else key.turn.tenant
    try:
        return approval_id, acting_person(deps, attempt.caller, attempt.person, default=DEFAULT_DECIDER, tenant=tenant)
    except Refused as error:
        return refused_receipt("not_allowed", approval_id, error.message)


async def _find(deps: GatewayDeps, approval: str, caller: AuthenticatedCaller | None) -> str:
    """Returns the request behind an id or a code, of the caller's tenant. Raises `NotFound`."""
    approval_id = await Conversations(deps).approval_id(approval, person_of(caller), own_tenant(caller, None))
    key = parse_approval_id(approval_id)
    own_tenant(caller, key.turn.tenant if key is not None else None)
    return approval_id


def _answer(receipt: Receipt, response: Response, words: Formatter) -> Receipt:
    response.status_code = receipt_status(receipt)
    return written_receipt(receipt, words)


def _words(request: Request, deps: GatewayDeps, caller: AuthenticatedCaller | None) -> Formatter:
    return formatter_in(request, person_of(caller), deps.clock())
