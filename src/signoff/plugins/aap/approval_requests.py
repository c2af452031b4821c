"""Takes approval requests: each is an external call, and its answer is how that stands. Nothing is decided here."""

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from starlette.requests import Request

from signoff.contracts.canonical_json import same_arguments, sha256_hex
from signoff.contracts.errors import BadRequest, Conflict, NotFound, Refused, ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey, is_id, turn_name
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.person import Person
from signoff.contracts.requests import CallBody, OutcomeBody
from signoff.contracts.responses import CallAnswer
from signoff.formats.durations import seconds
from signoff.formats.nearest_name import quote_name
from signoff.gateway.auth.caller import AuthenticatedCaller, own_tenant
from signoff.gateway.calls.call_proposer import CALLS, LONGEST_SECONDS, agent_of, asker_of, propose
from signoff.gateway.calls.call_reader import find_request, load_call, own_tickets, read_call
from signoff.gateway.calls.call_refusals import note_refusal
from signoff.gateway.calls.call_wait import wait_for_call
from signoff.gateway.calls.call_withdrawal import withdraw
from signoff.gateway.calls.external_turn import ExternalTurn
from signoff.gateway.calls.permit_service import use_id, use_permit
from signoff.gateway.calls.report_service import report_outcome
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.session_names import own_session
from signoff.gateway.transport.middleware import AAP
from signoff.plugins.aap.approval_request import ApprovalRequestView, GivenRequest
from signoff.plugins.aap.problems import ApprovalProblem, ProblemCode
from signoff.plugins.aap.request_body import CreateBody, OutcomeReport
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.store.call_joins import CallJoins
from signoff.store.tickets import Ticket

_CONFLICT: Final = 409
_UNUSABLE: Final[dict[str, ProblemCode]] = {"used": "already_consumed", "lapsed": "approval_expired"}
_HANDED_OUT: Final = ("used", "ended")
_NOTED: Final[dict[ProblemCode, str]] = {
    "not_found": "unknown",
    "idempotency_conflict": "conflict",
    "run_by_signoff": "not_allowed",
}
_CONFLICT_WORDS: Final = "this key was used before, for another request; choose another one"


@dataclass(frozen=True)
class ApprovalRequests:
    """The approval requests of one agent in the name of one person.

    Methods raise `ApprovalProblem` for what is refused, `Unavailable` for what is away.
    """

    deps: GatewayDeps
    caller: AuthenticatedCaller | None
    tenant: str
    agent: str
    person: Person
    request: Request

    @classmethod
    def of(
        cls, deps: GatewayDeps, caller: AuthenticatedCaller | None, agent: str, user: str | None, request: Request
    ) -> "ApprovalRequests":
        """Returns those of the agent whose token it is. Raises `Refused` (`not_allowed`), `NotFound`, `BadRequest`."""
        tenant = own_tenant(caller, None)
        name, declared = agent_of(deps, caller, agent)
        return cls(deps, caller, tenant, name, asker_of(deps, declared, user, tenant), request)

    async def create(self, body: CreateBody, key: str) -> tuple[ApprovalRequestView, bool]:
        """Proposes a call, once for each key; returns its request, and whether it is new."""
        request_id = str(uuid.uuid5(CALLS, self._digest("approval request", key)))
        joins, row = CallJoins(self.deps.store), self._digest("request", request_id)
        found = await joins.read(row)
        if found is None:
            turn, given = await self._begin(body, request_id)
            found = await joins.join(row, turn.key.turn, given.dump())
        given = GivenRequest.load(request_id, found.given)
        if sha256_hex(given.body) != sha256_hex(body.as_sent):
            raise await self._refusal("idempotency_conflict", _CONFLICT_WORDS, body.tool_name)
        return await self._view(given, await self._load_turn(found.turn)), found.is_new

    async def show(self, request_id: str, wait: float = 0.0) -> ApprovalRequestView:
        """Returns a request as it stands, after `wait` seconds at the latest where it is pending."""
        given, turn = await self._load(request_id)
        return await self._view(given, turn, await wait_for_call(self.request, turn, wait))

    async def cancel(self, request_id: str) -> ApprovalRequestView:
        """Withdraws what is pending; nobody is asked any more."""
        given, turn = await self._load(request_id)
        found = await self._view(given, turn)
        if found.status == "pending":
            try:
                await withdraw(self.deps, turn, self.request)
            except BadRequest as error:
                raise ApprovalProblem("already_terminal", error.message) from None
            found = await self._view(given, turn)
        if found.status == "pending":
            raise ServerUnavailable("it was withdrawn, and its turn has not heard of that yet; ask again")
        if found.status != "cancelled":
            raise ApprovalProblem("already_terminal", f"the request is {found.status}")
        return found

    async def consume(self, request_id: str, key: str) -> ApprovalRequestView:
        """Uses the approval of a request, once; the same key again is the same use."""
        given, turn = await self._load(request_id)
        found, use = await self._view(given, turn), use_id(f"{request_id}/{key}")
        # Looked at before it is used: of what people changed nothing may be used up here.
        if found.status != "approved":
            raise ApprovalProblem("not_approved", f"the request is {found.status}")
        if found.ticket is None and found.usable_until is not None and self.deps.clock() >= found.usable_until:
            raise ApprovalProblem("approval_expired", "the approval was not used in time")
        if found.ticket is None or found.answer.state != "ended" or found.ticket.owner != use:
            try:
                permit = await use_permit(self.deps, turn, use)
            except BadRequest as error:
                if error.status != _CONFLICT:
                    raise
                raise ApprovalProblem(_UNUSABLE.get(error.code, "not_approved"), error.message) from None
            if not same_arguments(permit.args, given.body["arguments"]):
                raise ApprovalProblem("not_approved", "what was permitted is not what was asked for")
            found = await self._view(given, turn)
        return found

    async def report(self, request_id: str, report: OutcomeReport) -> ApprovalRequestView:
        """Takes what became of a call that ran; the first report stands."""
        given, turn = await self._load(request_id)
        if (await self._view(given, turn)).status != "approved":
            raise ApprovalProblem("not_consumed", "only a call whose approval was consumed has an outcome")
        code = "ok" if report.status == "succeeded" else "execution_failed"
        try:
            await report_outcome(self.deps, turn, OutcomeBody(code=code, result=report.note))
        except Conflict as error:
            raise ApprovalProblem("outcome_conflict", error.message) from None
        except BadRequest as error:
            if error.code != "not_used":
                raise
            raise ApprovalProblem("not_consumed", error.message) from None
        return await self._view(given, turn)

    async def _begin(self, body: CreateBody, request_id: str) -> tuple[ExternalTurn, GivenRequest]:
        """Finds the call that people wanted with just these arguments, or proposes one."""
        tools = self.deps.catalog.tools_named(body.tool_name)
        if not all(tool.is_external for tool in tools):
            # Run here and by its agent as well, one approval would be two effects.
            words = f"{quote_name(body.tool_name)} is run by Signoff itself; propose it as an external call"
            raise await self._refusal("run_by_signoff", words, body.tool_name)
        policies = [self.deps.catalog.policy(tool.activity).rules for tool in tools]
        policies = policies or [ApprovalPolicy()]
        window = min(seconds(body.timeout), LONGEST_SECONDS)
        edited = await self._find_edited(body, request_id)
        turn = edited or await self._propose(body, request_id, window)
        # By its own moment, from which its deadline is counted: it may have been proposed by an earlier try.
        begun = turn.requester.issued_at if edited is None else None
        begun = begun or self.deps.clock()
        asked = min(each.timeout * (2 if each.on_timeout == "escalate" else 1) for each in policies)
        usable = begun + timedelta(seconds=min(each.grant_ttl for each in policies))
        deadline = begun + timedelta(seconds=min(window, asked))
        return turn, GivenRequest(request_id, body.as_sent, begun, deadline, usable)

    async def _propose(self, body: CreateBody, request_id: str, window: float) -> ExternalTurn:
        proposal = CallBody(
            tool=body.tool_name,
            args=body.arguments,
            agent=self.agent,
            user=self.person.id,
            says=body.agent_reasoning[:REASON_CHARS],
            ask_within=window,
        )
        try:
            turn, _ = await propose(self.deps, proposal, self.caller, f"approval-request:{request_id}", "")
        except Conflict:
            raise await self._refusal("idempotency_conflict", _CONFLICT_WORDS, body.tool_name) from None
        return await self._load_turn(turn.key.turn)

    async def _find_edited(self, body: CreateBody, request_id: str) -> ExternalTurn | None:
        """Returns the call that was approved with just these arguments in place of its own, once for each approval."""
        joins = CallJoins(self.deps.store)
        named = await joins.find(self._edited_key(body.tool_name, body.arguments))
        if not named:
            return None
        turn = await self._load_turn(named)
        answer, asked = await read_call(self.deps, turn), await find_request(self.deps, turn)
        if answer.state != "permitted" or answer.expires_at is None or answer.expires_at <= self.deps.clock():
            return None
        if asked is None or not same_arguments(asked.args, body.arguments):
            return None
        # Of several that ask with these arguments one is given the approval; of the others people are asked.
        taken = await joins.join(self._digest("edited request", turn.key.turn), request_id)
        return turn if taken.turn == request_id else None

    async def _view(
        self, given: GivenRequest, turn: ExternalTurn, answer: CallAnswer | None = None
    ) -> ApprovalRequestView:
        answer = answer or await read_call(self.deps, turn)
        asked = await find_request(self.deps, turn)
        ticket = await self._find_ticket(turn) if answer.state in _HANDED_OUT else None
        found = ApprovalRequestView(given, answer, asked, ticket)
        if found.approval is not None and not found.is_as_proposed and answer.state == "permitted":
            key, joins = self._edited_key(turn.call.tool, dict(found.approval.args)), CallJoins(self.deps.store)
            if await joins.find(key) != turn.key.turn:
                await joins.move(key, turn.key.turn)
        return found

    async def _find_ticket(self, turn: ExternalTurn) -> Ticket | None:
        own = own_tickets(turn, await self.deps.store.tickets_of_turn(turn.key.workflow_id))
        return own[-1] if own and own[-1].owner else None

    async def _load(self, request_id: str) -> tuple[GivenRequest, ExternalTurn]:
        known, words = is_id(request_id), f"there is no request {quote_name(request_id)} of this agent"
        found = await CallJoins(self.deps.store).read(self._digest("request", request_id)) if known else None
        if found is None:
            raise await self._refusal("not_found", words)
        try:
            return GivenRequest.load(request_id, found.given), await self._load_turn(found.turn)
        except NotFound:
            # Its turn is older than the server keeps any.
            raise await self._refusal("not_found", words) from None

    async def _refusal(self, code: ProblemCode, words: str, tool: str = "") -> ApprovalProblem:
        """Returns a refusal that is written down, by the code that those of all agents have."""
        noted = Refused(words, code=_NOTED[code])
        await note_refusal(self.deps, self.caller, f"{AAP}{self.agent}", noted, tool)
        return ApprovalProblem(code, words)

    async def _load_turn(self, turn_id: str) -> ExternalTurn:
        session = own_session(SessionKey(self.tenant, turn_id), self.person, development=self.deps.development)
        return await load_call(self.deps, turn_name(TurnKey(*session, turn_id)), self.agent, self.tenant)

    def _edited_key(self, tool: str, args: dict[str, Any]) -> str:
        return self._digest("edited", tool, args)

    def _digest(self, *values: Any) -> str:
        """Returns a key of this agent's alone, in the name of this person."""
        return sha256_hex(["approval requests", self.tenant, self.agent, self.person.id, *values])
