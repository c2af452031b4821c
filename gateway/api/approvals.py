"""The API of requests: list, read, decide, withdraw. A decision is always answered by a receipt."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse

from signoff.approvals.audit_events import turned_away
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Assurance
from signoff.contracts.errors import NotFound, Refused, SignoffError
from signoff.contracts.ids import parse_approval_id
from signoff.contracts.list_rows import WaitingCard
from signoff.contracts.names import DEFAULT_DECIDER, DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import BatchBody, DecisionAuthor, DecisionDraft, WithdrawBody
from signoff.contracts.responses import Fault
from signoff.gateway.auth.caller import As, acting, caller_of, own_tenant, person_of
from signoff.gateway.conversations import Conversations
from signoff.gateway.decision_service import (
    decide,
    once_each,
    parse_draft,
    read_batched,
    refused,
    with_key,
    withdraw,
)
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.error_middleware import unexpected
from signoff.gateway.errors import receipt_status
from signoff.gateway.value_check import whole_request

_WORDS: Final = {
    200: "Accepted, counted, or a repetition of the same answer.",
    202: "On its way; it takes effect when a worker is back.",
    403: "This person may not, may not approve their own, or was not identified strongly enough.",
    404: "No such request.",
    409: "Already decided, expired, cancelled, or asked again since.",
    422: "No decision: nothing was changed.",
    503: "Nobody could take the answer.",
}
RECEIPTS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": Receipt, "description": words} for status, words in _WORDS.items()
}
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/DecisionDraft"}}},
    }
}


@dataclass(frozen=True)
class _Attempt:
    """One answer as it was sent, for the record of those that never come as far as a request.

    `person` is who the sender says they are, `key` the `Idempotency-Key`, `sent` the body.
    """

    request: Request
    person: str | None
    key: str | None
    sent: str


class ApprovalsApi:
    """Handlers of `/v1/approvals`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._conversations = Conversations(deps)

    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(prefix="/v1/approvals", tags=["approvals"])
        add = router.add_api_route
        faults: dict[int | str, dict[str, Any]] = {404: {"model": Fault}, 409: {"model": Fault}, 503: {"model": Fault}}
        card: dict[int | str, dict[str, Any]] = {200: {"model": ApprovalRequest}, **faults}
        add("", self.index, methods=["GET"], summary="What waits, soonest deadline first", responses=faults)
        add("/decide", self.decide_all, methods=["POST"], summary="Approve or deny several", responses=faults)
        add("/{approval}", self.read, methods=["GET"], summary="One request, waiting or settled", responses=card)
        add(
            "/{approval}/decide",
            self.decide,
            methods=["POST"],
            summary="Approve, as it is or changed, deny, or say what happened",
            responses=RECEIPTS,
            openapi_extra=_BODY,
        )
        add("/{approval}/withdraw", self.withdraw, methods=["POST"], summary="Withdraw", responses=RECEIPTS)
        return router

    async def index(
        self,
        request: Request,
        as_person: As = None,
        mine: Annotated[bool, Query(description="Only what the token's own person may decide.")] = False,
        approver: Annotated[str, Query(description="Only what asks this entry of policies, as `role:finance`.")] = "",
        tenant: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    ) -> dict[str, list[WaitingCard]]:
        """Those that whoever asks may read; read a request by its id before deciding."""
        caller = caller_of(request)
        tenant = own_tenant(caller, tenant)
        person = None
        if mine or as_person is not None:
            person = acting(self._deps, caller, as_person, default=DEFAULT_DECIDER, tenant=tenant)
        approvers = None if person is None else self._deps.rights(person)
        if approver:
            approvers = (approver,) if approvers is None or approver in approvers else ()
        reader = person_of(request)
        found = await self._deps.requests.waiting(
            tenant,
            approvers=approvers,
            readers=self._conversations.readers(reader),
            wanted=self._conversations.readable(reader),
            limit=limit,
        )
        return {"approvals": found}

    async def read(self, approval: str, request: Request) -> JSONResponse:
        """By approval id or short code; all arguments are there, secret ones masked, and `seen` goes with them."""
        loaded = await self._conversations.loaded(await self._find(approval, request), person_of(request))
        shown = whole_request(loaded)
        return JSONResponse(shown.model_dump(mode="json"))

    async def decide(
        self,
        approval: str,
        request: Request,
        as_person: As = None,
        idempotency_key: Annotated[str | None, Header()] = None,
    ) -> JSONResponse:
        """The body of every answer is the receipt. Anything unclear is `malformed` and changes nothing."""
        raw = await request.body()
        attempt = _Attempt(request, as_person, idempotency_key, raw.decode(errors="replace"))
        return _answered(await self._decided(parse_draft(raw, approval), attempt))

    async def decide_all(
        self,
        body: BatchBody,
        request: Request,
        as_person: As = None,
        idempotency_key: Annotated[str | None, Header()] = None,
    ) -> dict[str, list[Receipt]]:
        """One receipt an answer, in their order; one that is refused keeps none of the others from counting."""
        # Raises for a field that stands twice: of such a body nobody knows which answers were meant.
        json.loads(await request.body(), object_pairs_hook=once_each)
        found = []
        for item in body.decisions:
            found.append(await self._own_receipt(item, _Attempt(request, as_person, idempotency_key, str(item))))
        return {"receipts": found}

    async def _own_receipt(self, item: Any, attempt: _Attempt) -> Receipt:
        """The receipt of one answer of several, whatever happens: those before it have counted, and must be told."""
        name = str(item.get("approval_id", ""))[:200] if isinstance(item, dict) else ""
        try:
            # JSON may hold half of a surrogate pair (`"\\ud800"`), which no record and no receipt can carry.
            json.dumps(item, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return refused("malformed", "", "it holds text that is none")
        try:
            return await self._decided(read_batched(item, name), attempt, by_card=True)
        except SignoffError as error:
            return refused("unavailable", name, error.message)
        except Exception as error:
            return unexpected(name, error)

    async def _decided(self, draft: DecisionDraft | Receipt, attempt: _Attempt, *, by_card: bool = False) -> Receipt:
        """The receipt of an answer; one that never comes as far as its request is written down here."""
        if isinstance(draft, DecisionDraft):
            draft = with_key(draft, attempt.key)
        if isinstance(draft, Receipt):
            return await self._noted(draft, attempt)
        named = await self._named(draft.approval_id, attempt)
        if isinstance(named, Receipt):
            return await self._noted(named, attempt)
        approval_id, person = named
        author = DecisionAuthor(person, "api", _assurance(attempt.request), by_card=by_card)
        return await decide(self._deps, draft.model_copy(update={"approval_id": approval_id}), author)

    async def withdraw(
        self, approval: str, request: Request, as_person: As = None, body: WithdrawBody | None = None
    ) -> JSONResponse:
        """For who asked for the turn, may decide, or has the role `admin`; the call ends as denied (cancelled)."""
        body = body or WithdrawBody()
        attempt = _Attempt(request, as_person, None, body.model_dump_json())
        named = await self._named(approval, attempt)
        if isinstance(named, Receipt):
            return _answered(await self._noted(named, attempt))
        return _answered(await withdraw(self._deps, *named, body.reason))

    async def _noted(self, receipt: Receipt, attempt: _Attempt) -> Receipt:
        """`receipt`, written down: this attempt never came as far as its turn."""
        caller = caller_of(attempt.request)
        seen = turned_away(
            receipt,
            self._deps.clock(),
            subject="" if caller is None else caller.person.id,
            channel="api",
            body=attempt.sent,
            tenant=own_tenant(caller, None),
        )
        await self._deps.attempts.note(self._deps.store, seen, receipt.code)
        return receipt

    async def _named(self, approval: str, attempt: _Attempt) -> tuple[str, Person] | Receipt:
        """The request and the person of an attempt, or why there is no such thing."""
        try:
            approval_id = await self._find(approval, attempt.request)
        except NotFound as error:
            return refused("unknown", approval, error.message)
        key = parse_approval_id(approval_id)
        tenant = DEFAULT_TENANT if key is None else key.turn.tenant
        try:
            caller = caller_of(attempt.request)
            return approval_id, acting(self._deps, caller, attempt.person, default=DEFAULT_DECIDER, tenant=tenant)
        except Refused as error:
            return refused("not_allowed", approval_id, error.message)

    async def _find(self, approval: str, request: Request) -> str:
        """The request behind an id or a code, of the caller's tenant. Raises `NotFound`."""
        caller = caller_of(request)
        person, tenant = person_of(request), own_tenant(caller, None)
        approval_id = await self._conversations.approval_id(approval, person, tenant)
        key = parse_approval_id(approval_id)
        own_tenant(caller, key.turn.tenant if key is not None else None)
        return approval_id


def _assurance(request: Request) -> Assurance:
    caller = caller_of(request)
    # In the development profile a person is named; that counts as if they had signed in.
    return "session" if caller is None else caller.assurance


def _answered(receipt: Receipt) -> JSONResponse:
    return JSONResponse(receipt.model_dump(mode="json"), status_code=receipt_status(receipt))
