"""The external calls of a request's agent, for routes of the core and of plugins."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from starlette.requests import Request

from signoff.calls.agent_calls import (
    MOVING,
    AgentIdentity,
    AskedQuestion,
    CallHandle,
    CallTerms,
    CallTimes,
    CallUse,
    Judgement,
    Kept,
    Sealer,
    ToolListing,
    Watch,
)
from signoff.calls.peer_turns import Exposed
from signoff.calls.use_id import make_use_id
from signoff.contracts.activity_messages import Tally, UseReply
from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.content import Content
from signoff.contracts.errors import BadRequest, Refused, SignoffError, StoreUnavailable
from signoff.contracts.message import CallPart
from signoff.contracts.person import Person
from signoff.contracts.requests import CallBody, OutcomeBody
from signoff.contracts.responses import CallAnswer, PermitAnswer
from signoff.engine.call_client import CallClient
from signoff.gateway.act_spans import use_caller_trace
from signoff.gateway.auth.caller import caller_of, own_tenant
from signoff.gateway.auth.dependencies import access_of_request
from signoff.gateway.auth.streams import streams_of
from signoff.gateway.calls.call_proposer import (
    CHANNEL,
    agent_of,
    asker_of,
    find_call,
    hand_out,
    name_call,
    propose,
    remarks_of,
    unname_call,
)
from signoff.gateway.calls.call_reader import (
    CALL,
    begin_answer,
    confirm_call,
    find_request,
    load_call,
    load_value,
    make_used_answer,
    own_tickets,
)
from signoff.gateway.calls.call_refusals import note_refused_request
from signoff.gateway.calls.call_wait import wait_for_call
from signoff.gateway.calls.permit_service import read_permit, report_outcome, use_permit, withdraw
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.external_turn import ExternalTurn
from signoff.gateway.peer_turns import OwnTurns, exposed_of
from signoff.gateway.signed_state import plugin_sealer
from signoff.gateway.transport.middleware import RETRY_SECONDS
from signoff.people.directory import principal_of, turn_context
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policypool.pool import ask_rules
from signoff.registry.capabilities import KINDS
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.registry.tool import Tool
from signoff.store.call_joins import CallJoins
from signoff.store.freezes import Freezes

_REASONS: Final = {"denied": "policy_denied", "input_invalid": "invalid_arguments"}


@dataclass(frozen=True)
class OwnCall:
    """One call of `owner`; see `CallHandle`."""

    owner: "OwnCalls" = field(repr=False)
    turn: ExternalTurn
    answer: CallAnswer
    is_new: bool = False
    edited_by: str = ""

    @property
    def id(self) -> str:
        return self.turn.name

    @property
    def agent(self) -> str:
        return self.turn.given.actor

    @property
    def user(self) -> str:
        return self.turn.requester.user

    @property
    def begun_at(self) -> datetime | None:
        return self.turn.requester.issued_at


class OwnCalls:
    """The calls of the agent that sent `request`; see `AgentCalls`."""

    def __init__(self, request: Request) -> None:
        if access_of_request(request).scope != "call":
            raise Refused("this route is open to every caller and has no agent", code="not_allowed")
        self._request = request
        self._deps: GatewayDeps = request.app.state.deps
        self._caller = caller_of(request)

    @property
    def tenant(self) -> str:
        return own_tenant(self._caller, None)

    @property
    def was_hurried(self) -> bool:
        return RETRY_SECONDS in self._request.scope

    def has_room(self) -> bool:
        return streams_of(self._request).check_room(self._request)

    def use_trace(self, given: Mapping[str, object]) -> None:
        use_caller_trace(given)

    def agent(self, named: str | None = None) -> str:
        return agent_of(self._deps, self._caller, named)[0]

    def tools(self, *, agent: str | None = None, user: str | None = None) -> list[ToolListing]:
        return list_tools_of(self._deps, *self._asker(agent, user))

    async def propose(
        self, body: CallBody, *, key: str | None = None, joins: bool = False, attended: bool = False
    ) -> OwnCall:
        own = body.use if isinstance(body.use, str) else None
        use = make_use_id(own) if body.use else ""
        turn, reply = await propose(self._deps, body, self._caller, key, use, joins=joins, attended=attended)
        is_new = reply is not None and reply.nonce == turn.requester.nonce
        if not is_new:
            # An earlier request began it.
            turn = await load_call(self._deps, turn.name, turn.given.actor, turn.key.tenant)
        call = OwnCall(self, turn, begin_answer(self._deps, turn), is_new)
        if reply is not None and reply.permit is not None and (is_new or own is None):
            return await self._take(call, await read_permit(self._deps, turn, reply, use))
        call = await self._look(call, reply, body.wait)
        if body.use and call.answer.state == "permitted":
            return await self._use(call, use)
        if own is not None and call.answer.state == "used":
            with suppress(BadRequest):
                return await self._use(call, use)
        return call

    async def find(self, place: CallBody, key: str) -> OwnCall | None:
        turn = await find_call(self._deps, place, self._caller, key)
        return None if turn is None else OwnCall(self, turn, begin_answer(self._deps, turn))

    async def name(self, place: CallBody, key: str, call: CallHandle) -> None:
        await name_call(self._deps, place, self._caller, key, self._own(call).turn)

    async def unname(self, place: CallBody, key: str, call: CallHandle) -> None:
        await unname_call(self._deps, place, self._caller, key, self._own(call).turn)

    async def load(self, call_id: str, agent: str | None = None) -> OwnCall:
        tenant = self.tenant
        name, _ = agent_of(self._deps, self._caller, agent)
        turn = await load_call(self._deps, call_id, name, tenant)
        return OwnCall(self, turn, begin_answer(self._deps, turn))

    async def wait(self, call: CallHandle, seconds: float, watch: Watch | None = None) -> OwnCall:
        own = self._own(call)
        return replace(own, answer=await wait_for_call(self._request, own.turn, seconds, watch))

    async def use(self, call: CallHandle, key: str | None = None) -> OwnCall:
        return await self._use(self._own(call), make_use_id(key))

    async def report(self, call: CallHandle, outcome: OutcomeBody) -> OwnCall:
        own = self._own(call)
        return replace(own, answer=await report_outcome(self._deps, own.turn, outcome))

    async def withdraw(self, call: CallHandle) -> OwnCall:
        own = self._own(call)
        return replace(own, answer=await withdraw(self._deps, own.turn, self._request))

    async def hand_out(self, call: CallHandle) -> None:
        await hand_out(self._deps, self._own(call).turn)

    async def attend(self, call: CallHandle, within: float = 0.0) -> None:
        await CallClient(self._deps.client).attend(self._own(call).turn.key, within)

    async def run(self, call: CallHandle) -> OwnCall:
        # The first of several concurrent attempts runs it. The others see it run.
        await CallClient(self._deps.client).use(self._own(call).turn.key, make_use_id(None))
        return await self.wait(call, 0)

    async def times(self, call: CallHandle) -> CallTimes:
        view = await self._deps.view(self._own(call).turn.key)
        begun, result = view.started_at, view.result
        ended = None if begun is None or result is None else begun + timedelta(seconds=result.elapsed_seconds)
        return CallTimes(begun, ended or begun)

    def may_decide(self, question: AskedQuestion, *, agent: str | None = None, user: str | None = None) -> bool:
        _, _, person = self._asker(agent, user)
        spec = approver_spec_of(question.request)
        return not resolve_eligibility(person, self._deps.people, spec, self._deps.clock()).code

    async def arguments(self, call: CallHandle) -> dict[str, Any]:
        turn = self._own(call).turn
        args: dict[str, Any] = await load_value(self._deps, turn, turn.call.args)
        return args

    async def question(self, call: CallHandle) -> AskedQuestion | None:
        asked = await find_request(self._deps, self._own(call).turn)
        return None if asked is None else AskedQuestion(asked.request, asked.args)

    async def permit_use(self, call: CallHandle) -> CallUse | None:
        turn = self._own(call).turn
        own = own_tickets(turn, await self._deps.store.tickets_of_turn(turn.key.workflow_id))
        last = own[-1] if own and own[-1].owner else None
        return None if last is None else CallUse(last.owner, last.claimed_at, last.finished_at)

    async def keep(self, key: str, value: str) -> Kept:
        row = await self._joins.join(self._key(key), sha256_hex(value), value)
        return Kept(row.given, row.is_new)

    async def kept(self, key: str) -> str | None:
        row = await self._joins.read(self._key(key))
        return None if row is None else row.given

    async def replace(self, key: str, value: str) -> None:
        while (row := await self.keep(key, value)).value != value:
            await self._joins.release(self._key(key), sha256_hex(row.value))

    def terms(self, tool: str) -> CallTerms:
        catalog, tools = self._deps.catalog, self._deps.catalog.tools_named(tool)
        rules = [catalog.policy(each.activity).rules for each in tools] or [ApprovalPolicy()]
        return CallTerms(
            is_external=all(each.is_external for each in tools),
            asked_seconds=min(each.timeout * (2 if each.on_timeout == "escalate" else 1) for each in rules),
            usable_seconds=min(each.grant_ttl for each in rules),
        )

    def asker(self, agent: str | None = None, user: str | None = None) -> AgentIdentity:
        tenant, name, person = self._asker(agent, user)
        return AgentIdentity(tenant, name, person.id)

    async def judge(
        self, tool: str, args: dict[str, Any], *, agent: str | None = None, user: str | None = None
    ) -> Judgement:
        return await judge_call(self._deps, *self._asker(agent, user), tool, args)

    async def sealer(self, name: str) -> Sealer:
        return await plugin_sealer(self._deps.store, name)

    def now(self) -> datetime:
        return self._deps.clock()

    def remarks(self, tool: str) -> frozenset[str]:
        return remarks_of(self._deps, tool)

    async def note_refusal(self, error: SignoffError, tool: str = "") -> None:
        await note_refused_request(self._request, error, tool)

    @property
    def _joins(self) -> CallJoins:
        return CallJoins(self._deps.store)

    def _key(self, key: str) -> str:
        agent = "" if self._caller is None else self._caller.agent
        return sha256_hex(["kept", self.tenant, agent, key])

    def _asker(self, agent: str | None, user: str | None) -> tuple[str, str, Person]:
        tenant = self.tenant
        name, declared = agent_of(self._deps, self._caller, agent)
        return tenant, name, asker_of(self._deps, declared, user, tenant)

    def _own(self, call: CallHandle) -> OwnCall:
        if not isinstance(call, OwnCall) or call.owner is not self:
            raise Refused("this call is another caller's", code="not_allowed")
        return call

    async def _look(self, call: OwnCall, reply: UseReply | None, wait: float) -> OwnCall:
        if call.is_new and reply is not None and (reply.state not in MOVING or not wait):
            return replace(call, answer=await confirm_call(self._deps, call.turn, reply.state, reply.outcome))
        return await self.wait(call, wait)

    async def _use(self, call: OwnCall, use: str) -> OwnCall:
        return await self._take(call, await use_permit(self._deps, call.turn, use))

    async def _take(self, call: OwnCall, permit: PermitAnswer) -> OwnCall:
        # The ticket records the use in any case: a failure here affects no later equal proposal.
        with suppress(StoreUnavailable):
            await hand_out(self._deps, call.turn)
        used = make_used_answer(self._deps, call.turn, permit.args, permit.key, permit.note)
        return replace(call, answer=used, edited_by=call.answer.edited_by)


class GatewayCalls:
    """Makes the calls of each request; see `ExternalCalls`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self.public_url = deps.settings.public_url

    def has_agent(self, name: str) -> bool:
        actor = self._deps.catalog.actors.get(name)
        return actor is not None and actor.external is not None

    @cached_property
    def exposed(self) -> Exposed:
        return exposed_of(self._deps.catalog)

    def turns_of(self, request: Request) -> OwnTurns:
        return OwnTurns.of(request)

    def of(self, request: Request) -> OwnCalls:
        return OwnCalls(request)


def list_tools_of(deps: GatewayDeps, tenant: str, agent: str, person: Person) -> list[ToolListing]:
    view = deps.catalog.tool_view(_context(deps, tenant, agent, person))
    return [listing_of(each) for each in view.visible()]


def listing_of(tool: Tool) -> ToolListing:
    return ToolListing(
        tool.name,
        tool.title,
        tool.description,
        tool.schema.schema,
        read_only=tool.read_only,
        idempotent=tool.read_only or tool.idempotent,
        runs_here=tool.runs == "signoff",
    )


async def judge_call(
    deps: GatewayDeps, tenant: str, agent: str, person: Person, tool: str, args: dict[str, Any]
) -> Judgement:
    """Uses the gates that need neither a hook nor a count.

    Raises `Unavailable`. Asks no approver, stores nothing and grants no permit.
    """
    try:
        await Freezes(deps.store).refuse_new(tenant)
    except Refused as error:
        return Judgement(False, "frozen", error.message)
    ctx = _context(deps, tenant, agent, person, "evaluation")
    call = CallPart(call=CALL, tool=tool, args=Content(inline=args))
    catalog, known = deps.catalog, GateFacts(backends=frozenset(KINDS), spent={}, at=deps.clock())
    decision = await ask_rules(catalog.may_block, judge, catalog, ctx, call, args, Tally(), known=known)
    return judgement_of(decision)


def judgement_of(found: JudgedCall) -> Judgement:
    """The agent runs the call itself."""
    if found.kind == "settled":
        return Judgement(False, _REASONS.get(found.code, found.code), found.message)
    tool = found.tool
    if tool is None or not tool.is_external:
        return Judgement(False, "run_by_signoff", "Signoff runs this tool itself: propose it as an external call")
    # Usage limits and hooks are checked only when a call is proposed.
    is_open = tool.available is not None or tool.usage_limit is not None
    if found.kind == "run" and not is_open:
        return Judgement(True)
    return Judgement(False, "approval_required", is_requestable=True)


def _context(deps: GatewayDeps, tenant: str, agent: str, person: Person, name: str = "") -> CallContext:
    return CallContext(
        actor=agent,
        session=name,
        turn=name,
        tenant=tenant,
        channel=CHANNEL,
        user=principal_of(person, deps.people),
        extra=turn_context(person, {}),
    )
