"""The API of requests: list, read, decide, withdraw. A decision is always answered by a receipt."""

from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import BatchBody, WithdrawBody
from signoff.contracts.responses import ApprovalList, BatchReceipts
from signoff.gateway.api.faults import FAULTS, RECEIPTS
from signoff.gateway.approvals.api_attempts import (
    ApiAttempt,
    decide_draft,
    decide_item,
    find_named,
    find_request,
    note_attempt,
)
from signoff.gateway.approvals.decision_parser import parse_draft
from signoff.gateway.approvals.decisions import withdraw
from signoff.gateway.approvals.value_check import whole_request
from signoff.gateway.auth.caller import AuthenticatedCaller, acting_person, channel_of, own_tenant, person_of, scopes_of
from signoff.gateway.auth.dependencies import As, Deps, TokenDecider, TokenReader
from signoff.gateway.conversations import Conversations
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.errors import receipt_status
from signoff.gateway.languages import formatter_in
from signoff.gateway.transport.json_route import JsonRoute
from signoff.texts.endings import written_receipt
from signoff.texts.formatter import Formatter

router = APIRouter(prefix="/v1/approvals", tags=["approvals"], route_class=JsonRoute)
Key = Annotated[
    str | None, Header(alias="Idempotency-Key", description="The same key again is the same answer; `delivery_id`.")
]
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/DecisionDraft"}}},
    }
}


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
    what = ("api approvals", tenant, approvers, limit)
    found = await deps.lists.share(
        reader,
        scopes_of(caller),
        what,
        lambda: deps.requests.list_waiting(
            tenant,
            approvers=approvers,
            readers=conversations.readers(reader),
            wanted=conversations.readable(reader),
            limit=limit,
        ),
    )
    return ApprovalList(approvals=tuple(found))


@router.post("/decide", summary="Answer several", responses=FAULTS)
async def decide_several(
    body: BatchBody, request: Request, deps: Deps, caller: TokenDecider, as_person: As = None, key: Key = None
) -> BatchReceipts:
    """One receipt an answer, in their order; one that is refused keeps none of the others from counting."""
    channel = channel_of(request)
    attempts = [(item, ApiAttempt(caller, as_person, key, str(item), channel)) for item in body.decisions]
    found = [await decide_item(deps, item, attempt) for item, attempt in attempts]
    words = _words(request, deps, caller)
    return BatchReceipts(receipts=tuple(written_receipt(each, words) for each in found))


@router.get("/{approval}", summary="One request, waiting or settled", responses=FAULTS)
async def show_approval(approval: str, deps: Deps, caller: TokenReader) -> ApprovalRequest:
    """By approval id or short code; all arguments are there, secret ones masked, and `seen` goes with them."""
    approval_id = await find_request(deps, approval, caller)
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
    attempt = ApiAttempt(caller, as_person, key, raw.decode(errors="replace"), channel_of(request))
    receipt = await decide_draft(deps, parse_draft(raw, approval), attempt)
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
    attempt = ApiAttempt(caller, as_person, None, body.model_dump_json(), channel_of(request))
    named, words = await find_named(deps, approval, attempt), _words(request, deps, caller)
    if isinstance(named, Receipt):
        return _answer(await note_attempt(deps, named, attempt), response, words)
    return _answer(await withdraw(deps, *named, body.reason), response, words)


def _answer(receipt: Receipt, response: Response, words: Formatter) -> Receipt:
    response.status_code = receipt_status(receipt)
    return written_receipt(receipt, words)


def _words(request: Request, deps: GatewayDeps, caller: AuthenticatedCaller | None) -> Formatter:
    return formatter_in(request, person_of(caller), deps.clock())
