"""The API of requests: list, read, decide, withdraw. The answer to a decision is always a receipt."""

from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import AssignmentBody, BatchBody, QuestionBody, WithdrawBody
from signoff.contracts.responses import ApprovalList, BatchReceipts, PasskeyOptions
from signoff.formats.replace import replace
from signoff.gateway.api.faults import FAULTS, RECEIPTS
from signoff.gateway.approvals.api_attempts import (
    ApiAttempt,
    assign,
    author_of_attempt,
    decide_draft,
    decide_items,
    find_named,
    find_request,
    note_attempt,
)
from signoff.gateway.approvals.decision_parser import parse_draft
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.approvals.question_service import QuestionService
from signoff.gateway.approvals.request_holders import add_holders
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
Key = Annotated[str | None, Header(alias="Idempotency-Key", description="Same key, same answer. Equals `delivery_id`.")]
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/DecisionDraft"}}},
    }
}


@router.get("", summary="List pending requests, soonest deadline first", responses=FAULTS)
async def list_approvals(
    deps: Deps,
    caller: TokenReader,
    as_person: As = None,
    mine: Annotated[bool, Query(description="Only requests that the token's person may decide.")] = False,
    approver: Annotated[str, Query(description="Only requests with this approver entry, such as `role:finance`.")] = "",
    tenant: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> ApprovalList:
    """Lists the requests that the caller may read. Read a request by its id before deciding it."""
    tenant = own_tenant(caller, tenant)
    person = None
    if mine or as_person is not None:
        person = acting_person(deps, caller, as_person, default=DEFAULT_DECIDER, tenant=tenant)
    approvers = None if person is None else deps.rights(person)
    if approver:
        approvers = (approver,) if approvers is None or approver in approvers else ()
    conversations, reader = Conversations(deps), person_of(caller)
    what = ("api approvals", tenant, approvers, limit)
    cards = await deps.lists.share(
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
    return ApprovalList(approvals=tuple(await add_holders(deps, tenant, cards)))


@router.post("/decide", summary="Decide several requests", responses=FAULTS)
async def decide_several(
    body: BatchBody, request: Request, deps: Deps, caller: TokenDecider, as_person: As = None, key: Key = None
) -> BatchReceipts:
    """Returns one receipt for each decision, in order. A refused one does not affect the others."""
    channel = channel_of(request)
    receipts = await decide_items(
        deps, body.decisions, lambda item: ApiAttempt(caller, as_person, key, str(item), channel)
    )
    words = _words(request, deps, caller)
    return BatchReceipts(receipts=tuple(written_receipt(each, words) for each in receipts))


@router.get("/{approval}", summary="Read a request, pending or settled", responses=FAULTS)
async def show_approval(approval: str, deps: Deps, caller: TokenReader) -> ApprovalRequest:
    """Takes an approval id or short code. Returns all arguments, with masked secrets, and their `seen`."""
    approval_id = await find_request(deps, approval, caller)
    return whole_request(await Conversations(deps).load(approval_id, person_of(caller)))


@router.post(
    "/{approval}/decide",
    summary="Approve, edit or deny a request, or report its outcome",
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
    """The body of every answer is the receipt. An unclear decision is `malformed` and changes nothing."""
    raw = await request.body()
    attempt = ApiAttempt(caller, as_person, key, raw.decode(errors="replace"), channel_of(request))
    receipt = await decide_draft(deps, parse_draft(raw, approval), attempt)
    return _answer(receipt, response, _words(request, deps, caller))


@router.post(
    "/{approval}/passkey",
    summary="Challenge your passkey for one decision",
    responses=FAULTS,
    openapi_extra=_BODY,
)
async def make_challenge(
    approval: str, request: Request, deps: Deps, caller: TokenDecider, as_person: As = None
) -> PasskeyOptions:
    """For a request with `min_assurance: present`. Takes the decision to confirm, and binds the challenge to it."""
    raw = await request.body()
    attempt = ApiAttempt(caller, as_person, None, raw.decode(errors="replace"), channel_of(request))
    draft = parse_draft(raw, approval)
    if isinstance(draft, Receipt):
        raise Refused(draft.message, code=draft.code)
    named = await find_named(deps, approval, attempt)
    if isinstance(named, Receipt):
        raise NotFound(named.message) if named.code == "unknown" else Refused(named.message, code=named.code)
    author = author_of_attempt(named[1], attempt)
    return await DecisionService(deps).make_challenge(replace(draft, approval_id=named[0]), author)


@router.post("/{approval}/withdraw", summary="Withdraw a request", responses=RECEIPTS)
async def withdraw_one(
    approval: str,
    request: Request,
    response: Response,
    deps: Deps,
    caller: TokenDecider,
    as_person: As = None,
    body: WithdrawBody | None = None,
) -> Receipt:
    """For the requester, approvers and the role `admin`. The call ends as denied (cancelled)."""
    body = body or WithdrawBody()
    attempt = ApiAttempt(caller, as_person, None, body.model_dump_json(), channel_of(request))
    named, words = await find_named(deps, approval, attempt), _words(request, deps, caller)
    if isinstance(named, Receipt):
        return _answer(await note_attempt(deps, named, attempt), response, words)
    return _answer(await DecisionService(deps).withdraw(*named, body.reason), response, words)


@router.post("/{approval}/messages", summary="Ask the agent about its request", responses=RECEIPTS)
async def ask_agent(
    approval: str,
    body: QuestionBody,
    request: Request,
    response: Response,
    deps: Deps,
    caller: TokenDecider,
    as_person: As = None,
) -> Receipt:
    """For approvers, at most three times. The agent's answer appears in `messages` of the request.

    An approval then needs its `thread`.
    """
    channel = channel_of(request)
    attempt = ApiAttempt(caller, as_person, None, body.model_dump_json(), channel)
    named, words = await find_named(deps, approval, attempt), _words(request, deps, caller)
    if isinstance(named, Receipt):
        return _answer(await note_attempt(deps, named, attempt), response, words)
    return _answer(await QuestionService(deps).ask(*named, body.text, channel), response, words)


@router.post("/{approval}/reassign", summary="Hand a request on to another approver", responses=RECEIPTS)
async def reassign_one(
    approval: str,
    body: AssignmentBody,
    request: Request,
    response: Response,
    deps: Deps,
    caller: TokenDecider,
    as_person: As = None,
) -> Receipt:
    """The caller may decide it no longer, and the other person cannot hand it on again."""
    attempt = ApiAttempt(caller, as_person, None, body.model_dump_json(), channel_of(request))
    return _answer(await assign(deps, approval, "handed_on", body, attempt), response, _words(request, deps, caller))


@router.post("/{approval}/add-approver", summary="Require one more approval of a request", responses=RECEIPTS)
async def add_approver(
    approval: str,
    body: AssignmentBody,
    request: Request,
    response: Response,
    deps: Deps,
    caller: TokenDecider,
    as_person: As = None,
) -> Receipt:
    """The named person's own approval is then required, besides all others."""
    attempt = ApiAttempt(caller, as_person, None, body.model_dump_json(), channel_of(request))
    return _answer(await assign(deps, approval, "added", body, attempt), response, _words(request, deps, caller))


def _answer(receipt: Receipt, response: Response, words: Formatter) -> Receipt:
    response.status_code = receipt_status(receipt)
    return written_receipt(receipt, words)


def _words(request: Request, deps: GatewayDeps, caller: AuthenticatedCaller | None) -> Formatter:
    return formatter_in(request, person_of(caller), deps.clock())
