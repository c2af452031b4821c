"""Proposes external agents' calls: the agent, the requester, and the id of the call."""

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from signoff.contracts.activity_messages import UseReply
from signoff.contracts.call import Callback, ProposedExternalCall
from signoff.contracts.canonical_json import NotCanonical, canonical_json, same_arguments, sha256_hex
from signoff.contracts.errors import BadRequest, Conflict, NotFound, Refused, StoreUnavailable
from signoff.contracts.ids import SessionKey, TurnKey, turn_name
from signoff.contracts.limits import ARGUMENTS_BYTES, CALL_SECONDS, KIB
from signoff.contracts.person import Person
from signoff.contracts.requests import CallBody, TurnBody
from signoff.contracts.turn import TurnInput
from signoff.engine.call_client import ID_CONFLICT, CallClient
from signoff.formats.bounds import SEND_IN_PARTS, bounds_problem, bounds_remedy
from signoff.formats.durations import seconds
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.gateway.auth.caller import AuthenticatedCaller, own_tenant
from signoff.gateway.auth.person_lookup import known_person
from signoff.gateway.calls.call_reader import find_success, load_call, own_tickets
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.external_turn import ExternalTurn, make_external_turn
from signoff.gateway.session_names import own_session
from signoff.gateway.turn_starter import new_id, turn_input
from signoff.people.eligibility import rights
from signoff.registry.actor import ExternalAgent
from signoff.store.call_joins import CallJoins
from signoff.store.content_store import load_in, to_content

CALLS: Final = uuid.UUID("5b0f7f5e-5d3c-5a7e-9c1b-2f0a4f6f1e11")
"""The namespace of call ids."""
CHANNEL: Final = "call"
"""The channel of an external agent's turn."""
KEY_CHARS: Final = 200
RESULT_SECONDS: Final = 0.1
"""Delay before the first look at the result of a call that Signoff runs and a rule may allow."""
_USER: Final = "user:"


@dataclass(frozen=True)
class _Proposal:
    """An agent's checked proposal."""

    body: CallBody
    tenant: str
    agent: str
    person: Person
    args: dict[str, object]
    timeout: float
    ask_within: float
    callback: Callback | None
    use: str
    attended: bool = False
    remarks: frozenset[str] = frozenset()
    """Names of arguments that are only words about the call."""

    def compared(self, args: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments that decide whether two proposals are equal."""
        return {name: value for name, value in args.items() if name not in self.remarks}

    @property
    def digest(self) -> str:
        """The key of equal proposals. Covers the requester, but not the remarks."""
        body = self.body
        return sha256_hex(
            [self.tenant, self.agent, body.session or "", self.person.id, body.tool, self.compared(self.args)]
        )

    def name_digest(self, key: str) -> str:
        return sha256_hex(["key", self.tenant, self.agent, self.body.session or "", self.person.id, key])

    def session(self, turn_id: str, *, development: bool) -> SessionKey:
        """A call without a named session gets its own."""
        named = SessionKey(self.tenant, self.body.session or turn_id)
        return own_session(named, self.person, development=development)


async def propose(
    deps: GatewayDeps,
    body: CallBody,
    caller: AuthenticatedCaller | None,
    key: str | None,
    use: str,
    *,
    joins: bool = False,
    attended: bool = False,
) -> tuple[ExternalTurn, UseReply | None]:
    """Propose a call, which is in Temporal on return.

    Uses the permit with the attempt `use` if no approval is needed. The same `key` of one agent and session means the
    same call. Without a key, the proposal joins an equal one whose permit is unused and whose result was not handed
    out.

    The reply is `None` for a call that was begun before. With `joins`, a new key names the call that a proposal without
    a key would get. An `attended` call runs only while its agent waits for it. Raises `Conflict` for the same key with
    other content, `NotFound` (agent, person), `Refused`, `BadRequest`, `Unavailable`.
    """
    proposal = _proposal(deps, body, caller, use, attended=attended)
    tenant, name = proposal.tenant, proposal.agent
    if key is None:
        return await _join(deps, proposal, new_id(deps))
    if not 1 <= len(key) <= KEY_CHARS or not key.isascii() or not key.isprintable():
        raise BadRequest(f"`Idempotency-Key`: 1 to {KEY_CHARS} printable ASCII characters, unique among your calls")
    if joins:
        return await _join_named(deps, proposal, key)
    return await _begin(deps, proposal, str(uuid.uuid5(CALLS, sha256_hex([tenant, name, body.session or "", key]))), "")


async def find_call(
    deps: GatewayDeps, body: CallBody, caller: AuthenticatedCaller | None, key: str
) -> ExternalTurn | None:
    """Return the call that a joining key or `name_call` has named. Raises like `propose`."""
    proposal = _proposal(deps, body, caller, "")
    turn_id = await CallJoins(deps.store).find(proposal.name_digest(key))
    return await _find_begun(deps, proposal, turn_id) if turn_id else None


async def name_call(
    deps: GatewayDeps, body: CallBody, caller: AuthenticatedCaller | None, key: str, turn: ExternalTurn
) -> None:
    """Let a key name a call, so that `find_call` finds it. Raises like `propose`."""
    digest = _proposal(deps, body, caller, "").name_digest(key)
    await CallJoins(deps.store).move(digest, turn.key.turn)


async def unname_call(
    deps: GatewayDeps, body: CallBody, caller: AuthenticatedCaller | None, key: str, turn: ExternalTurn
) -> None:
    """The key can then name another call. Raises like `propose`."""
    await CallJoins(deps.store).release(_proposal(deps, body, caller, "").name_digest(key), turn.key.turn)


async def hand_out(deps: GatewayDeps, turn: ExternalTurn) -> None:
    """Stop proposals from joining a call.

    Call this before its result leaves: in the other order, a crash in between would return one call's result as the
    next call's. Raises `StoreUnavailable`.
    """
    if turn.call.join_key:
        await CallJoins(deps.store).release(turn.call.join_key, turn.key.turn)


def _proposal(
    deps: GatewayDeps, body: CallBody, caller: AuthenticatedCaller | None, use: str, *, attended: bool = False
) -> _Proposal:
    tenant = own_tenant(caller, body.tenant)
    name, agent = agent_of(deps, caller, body.agent)
    person = asker_of(deps, agent, body.user, tenant)
    callback = _callback(body, name, agent)
    args, timeout = _arguments(body), _span("timeout", body.timeout)
    within = _span("ask_within", body.ask_within)
    remarks = remarks_of(deps, body.tool)
    return _Proposal(body, tenant, name, person, args, timeout, within, callback, use, attended, remarks)


def remarks_of(deps: GatewayDeps, tool: str) -> frozenset[str]:
    """If several tools have this name, return their common remarks."""
    named = [frozenset(each.remarks) for each in deps.catalog.tools_named(tool)]
    return frozenset.intersection(*named) if named else frozenset()


async def _begin(
    deps: GatewayDeps, proposal: _Proposal, turn_id: str, join_key: str
) -> tuple[ExternalTurn, UseReply | None]:
    """Joins a turn begun with the same content. Raises like `propose`."""
    body, session = proposal.body, proposal.session(turn_id, development=deps.development)
    turn_body = TurnBody(
        text=f"{proposal.agent}: {body.tool}",
        actor=proposal.agent,
        user=proposal.person.id,
        session=body.session,
        turn=turn_id,
        tenant=proposal.tenant,
    )
    call = ProposedExternalCall(
        tool=body.tool,
        args=await to_content(deps.store, proposal.args, session),
        says=body.says,
        report_within=proposal.timeout,
        ask_within=proposal.ask_within,
        callback=proposal.callback,
        join_key=join_key,
        attended=proposal.attended,
    )
    turn = await turn_input(deps, turn_body, proposal.agent, CHANNEL, call)
    async with deps.acts.start(turn):
        reply = await _start(deps, turn, proposal, call)
    begun = make_external_turn(turn, call)
    if reply is not None and reply.nonce == begun.requester.nonce:
        deps.recent_calls.keep(begun.name, begun, deps.clock())
    return begun, reply


async def _start(
    deps: GatewayDeps, turn: TurnInput, proposal: _Proposal, call: ProposedExternalCall
) -> UseReply | None:
    """Uses the cheapest way for the tool. The worker alone judges and runs the call. Raises like `propose`."""
    client, catalog = CallClient(deps.client), deps.catalog
    named = catalog.tools_named(proposal.body.tool)
    is_run_here = bool(named) and not any(each.is_external for each in named)
    if proposal.use and not is_run_here:
        return await client.propose_and_use(turn, proposal.use)
    # These calls wait for approvers, or get a permit at once. Expect a quick result from all others.
    is_asked = any(catalog.policy(each.activity).needs_person == "always" for each in named)
    if is_asked or not is_run_here:
        return await client.propose(turn)
    begun = make_external_turn(turn, call)
    return await client.propose(turn, first_look=RESULT_SECONDS, ended=partial(_await_success, deps, begun))


async def _await_success(deps: GatewayDeps, turn: ExternalTurn) -> UseReply:
    """Wait until the call's ticket records a success. The turn learns of that later."""
    clock = asyncio.get_running_loop().time
    began = clock()
    with deps.look_interval.awaiting():
        while True:
            await asyncio.sleep(deps.look_interval.seconds(clock() - began))
            with suppress(StoreUnavailable):
                if (done := await find_success(deps, turn)) is not None:
                    return UseReply(state=done.code, outcome=done)


async def _join_named(deps: GatewayDeps, proposal: _Proposal, key: str) -> tuple[ExternalTurn, UseReply | None]:
    """Find the call of a key, or name the one to join. Raises like `propose`."""
    joins, digest = CallJoins(deps.store), proposal.name_digest(key)
    # Concurrent proposals with this key get one id. If none joins a call, the new call gets that id.
    named = await joins.join(digest, new_id(deps))
    turn = None if named.is_new else await _find_begun(deps, proposal, named.turn)
    if turn is not None:
        place = SessionKey(turn.key.tenant, turn.key.session)
        args = await load_in(deps.store, turn.call.args, place)
        if turn.call.tool != proposal.body.tool or not same_arguments(
            proposal.compared(args), proposal.compared(proposal.args)
        ):
            raise Conflict(ID_CONFLICT)
        return turn, None
    turn, reply = await _join(deps, proposal, named.turn)
    if turn.key.turn != named.turn:
        await joins.move(digest, turn.key.turn)
    return turn, reply


async def _join(deps: GatewayDeps, proposal: _Proposal, turn_id: str) -> tuple[ExternalTurn, UseReply | None]:
    """Join an unused call, or begin one with this id. Raises like `propose`."""
    joins, join_key = CallJoins(deps.store), proposal.digest
    while True:
        joined = await joins.join(join_key, turn_id)
        turn = None if joined.is_new else await _find_begun(deps, proposal, joined.turn)
        if turn is None:
            try:
                return await _begin(deps, proposal, joined.turn, join_key)
            except Conflict:
                # An equal proposal with different remarks has begun it in the meantime.
                turn = await _find_begun(deps, proposal, joined.turn)
                if turn is None:
                    raise
                if joined.is_new:
                    # This proposal's own key began the call, which has since ended. There is no other call to join.
                    return turn, None
        if not await _was_used(deps, turn, joined.at):
            if turn.call.callback != proposal.callback:
                # Without its callback, the proposer would wait forever. A second question would ask approvers twice.
                raise Conflict("the same call waits with another `callback`; propose it with that, or under a key")
            return turn, None
        # The gateway that used its permit crashed before it released the call.
        await joins.release(join_key, joined.turn)


async def _find_begun(deps: GatewayDeps, proposal: _Proposal, turn_id: str) -> ExternalTurn | None:
    session = proposal.session(turn_id, development=deps.development)
    try:
        return await load_call(deps, turn_name(TurnKey(*session, turn_id)), proposal.agent, proposal.tenant)
    except NotFound:
        # The first proposer has not begun the call yet, or crashed before that.
        return None


async def _was_used(deps: GatewayDeps, turn: ExternalTurn, at: datetime) -> bool:
    """Return whether the permit was used before `at`.

    A permit that is used later still counts as joined: of several equal proposals one gets the permit, and the others
    begin no second call.
    """
    tickets = await deps.store.tickets_of_turn(turn.key.workflow_id)
    return any(each.owner and each.claimed_at < at for each in own_tickets(turn, tickets))


def agent_of(deps: GatewayDeps, caller: AuthenticatedCaller | None, named: str | None) -> tuple[str, ExternalAgent]:
    """Return the token's agent.

    In development, the agent named, or the only one. Raises `Refused` (`not_allowed`) for another agent's name,
    `NotFound`, `BadRequest`.
    """
    agents = {each: actor.external for each, actor in deps.catalog.actors.items() if actor.external is not None}
    if caller is not None and named not in (None, caller.agent):
        raise Refused(f"this token is of `{caller.agent}`, not of {quote_name(str(named))}", code="not_allowed")
    if caller is None and named is None and len(agents) != 1:
        listed = ", ".join(f"`{each}`" for each in agents) or "the gateway's manifest declares no external agent"
        raise BadRequest(f"name an `agent`: {listed}")
    name = caller.agent if caller is not None else next(iter(agents)) if named is None else named
    if name not in agents:
        near = did_you_mean(name, agents)
        raise NotFound(f"the gateway's manifest declares no external agent {quote_name(name)}{near}")
    return name, agents[name]


def asker_of(deps: GatewayDeps, agent: ExternalAgent, named: str | None, tenant: str) -> Person:
    """Raises `Refused` (`not_allowed`), `BadRequest`."""
    if named is None:
        alone = [each.removeprefix(_USER) for each in agent.acts_for if each.startswith(_USER)]
        if len(agent.acts_for) != 1 or not alone:
            raise BadRequest("name the `user`: the agent may act for several people")
        return known_person(deps.people, alone[0], tenant)
    allowed = set(agent.acts_for)
    person = deps.people.find(named, tenant)
    # One error for both: an agent learns nothing about people it may not act for. Delegations cover decisions only.
    if person is None or not person.active or allowed.isdisjoint(rights(person, ())):
        raise Refused(f"this agent may not act for {quote_name(named)}", code="not_allowed")
    return person


def _callback(body: CallBody, name: str, agent: ExternalAgent) -> Callback | None:
    """Raises `Refused` (`not_allowed`) if the agent may not use the callback."""
    if body.callback is None:
        return None
    callback = Callback.model_validate(body.callback.model_dump())
    if agent.callbacks is None or not agent.callbacks.allows(callback):
        raise Refused(f"the gateway's manifest allows `{name}` no such `callback`", code="not_allowed")
    return callback


def _span(name: str, given: str | float) -> float:
    if given == "":
        return 0.0
    try:
        span = seconds(given)
    except ValueError as error:
        raise BadRequest(f"`{name}`: {error}") from None
    if not 1.0 <= span <= CALL_SECONDS:
        raise BadRequest(f"`{name}` is between one second and {CALL_SECONDS / 86_400:.0f} days")
    return span


def _arguments(body: CallBody) -> dict[str, object]:
    if problem := bounds_problem(body.args):
        raise BadRequest(f"`args` cannot be taken: {problem}; {bounds_remedy(problem)}")
    try:
        size = len(canonical_json(body.args))
    except NotCanonical:
        raise BadRequest("`args` hold a number or text that JSON cannot carry safely; send it as a string") from None
    if size > ARGUMENTS_BYTES:
        raise BadRequest(
            f"`args` are larger than {ARGUMENTS_BYTES // KIB} KiB; {SEND_IN_PARTS}",
            status=413,
            code="too_large",
        )
    return dict(body.args)
