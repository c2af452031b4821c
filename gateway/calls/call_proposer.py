"""Proposes calls in the name of external agents: whose call it is, for whom it acts, and under which id."""

import uuid
from typing import Final

from signoff.contracts.activity_messages import UseReply
from signoff.contracts.call import ProposedExternalCall
from signoff.contracts.canonical_json import NotCanonical, canonical_json, sha256_hex
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.ids import SessionKey
from signoff.contracts.limits import ARGUMENTS_BYTES, KIB
from signoff.contracts.person import Person
from signoff.contracts.requests import CallBody, TurnBody
from signoff.engine.call_client import CallClient
from signoff.formats.bounds import bounds_problem
from signoff.formats.durations import seconds
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.gateway.auth.caller import AuthenticatedCaller, own_tenant
from signoff.gateway.auth.person_lookup import known_person
from signoff.gateway.calls.call_reader import ExternalTurn, make_external_turn
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.errors import BadRequest
from signoff.gateway.session_names import own_session
from signoff.gateway.turn_starter import turn_input
from signoff.people.eligibility import rights
from signoff.registry.actor import ExternalAgent
from signoff.store.content_store import to_content

CALLS: Final = uuid.UUID("5b0f7f5e-5d3c-5a7e-9c1b-2f0a4f6f1e11")
"""The namespace of the ids of calls."""
CHANNEL: Final = "call"
"""By which channel a turn of an external agent is asked for."""
KEY_CHARS: Final = 200
REPORT_SECONDS: Final = 30 * 86_400.0
"""The longest time that an agent may take to report a call that it has used."""
_USER: Final = "user:"


async def propose(
    deps: GatewayDeps, body: CallBody, caller: AuthenticatedCaller | None, key: str, use: str
) -> tuple[ExternalTurn, UseReply | None]:
    """Proposes a call; when this returns it is in Temporal. Uses its permit with the try `use`, where nobody is asked.

    The same `key` of the same agent and session is the same call. Raises `Conflict` for the same key with other
    content, `NotFound` (agent, person), `Refused`, `BadRequest`, `Unavailable`.
    """
    tenant = own_tenant(caller, body.tenant)
    name, agent = agent_of(deps, caller, body.agent)
    person = _asker(deps, agent, body.user, tenant)
    if not 1 <= len(key) <= KEY_CHARS or not key.isascii() or not key.isprintable():
        raise BadRequest(f"`Idempotency-Key`: 1 to {KEY_CHARS} printable ASCII characters, such as your call's own id")
    turn_id = str(uuid.uuid5(CALLS, sha256_hex([tenant, name, body.session or "", key])))
    session = own_session(SessionKey(tenant, body.session or turn_id), person, development=deps.development)
    given = TurnBody(
        text=f"{name}: {body.tool}", actor=name, user=person.id, session=body.session, turn=turn_id, tenant=tenant
    )
    call = ProposedExternalCall(
        tool=body.tool,
        args=await to_content(deps.store, _arguments(body), session),
        says=body.says,
        report_within=_timeout(body.timeout),
    )
    turn = await turn_input(deps, given, name, CHANNEL, call)
    async with deps.acts.start(turn):
        reply = await CallClient(deps.client).propose(turn, use)
    return make_external_turn(turn, call), reply


def agent_of(deps: GatewayDeps, caller: AuthenticatedCaller | None, named: str | None) -> tuple[str, ExternalAgent]:
    """Returns the agent that a request is of: its token's; in development whoever is named, or the only one.

    Raises `Refused` (`not_allowed`) for another's name, `NotFound`, `BadRequest`.
    """
    known = {each: actor.external for each, actor in deps.catalog.actors.items() if actor.external is not None}
    if caller is not None and named not in (None, caller.agent):
        raise Refused(f"this token is of `{caller.agent}`, not of {quote_name(str(named))}", code="not_allowed")
    if caller is None and named is None and len(known) != 1:
        listed = ", ".join(f"`{each}`" for each in known) or "none is declared"
        raise BadRequest(f"name an `agent`: {listed}")
    name = caller.agent if caller is not None else next(iter(known)) if named is None else named
    if name not in known:
        raise NotFound(f"there is no external agent {quote_name(name)}{did_you_mean(name, known)}")
    return name, known[name]


def _asker(deps: GatewayDeps, agent: ExternalAgent, named: str | None, tenant: str) -> Person:
    """Returns the person in whose name an agent proposes. Raises `Refused` (`not_allowed`), `BadRequest`."""
    if named is None:
        alone = [each.removeprefix(_USER) for each in agent.acts_for if each.startswith(_USER)]
        if len(agent.acts_for) != 1 or not alone:
            raise BadRequest("name the `user` in whose name this is; the agent may act for several people")
        return known_person(deps.people, alone[0], tenant)
    allowed = set(agent.acts_for)
    person = deps.people.find(named, tenant)
    # One answer for both: an agent learns nothing of people for whom it may not act. Delegations are for deciding.
    if person is None or not person.active or allowed.isdisjoint(rights(person, ())):
        raise Refused(f"this agent may not act for {quote_name(named)}", code="not_allowed")
    return person


def _timeout(given: str | float) -> float:
    if given == "":
        return 0.0
    try:
        span = seconds(given)
    except ValueError as error:
        raise BadRequest(f"`timeout`: {error}") from None
    if not 1.0 <= span <= REPORT_SECONDS:
        raise BadRequest(f"`timeout` is between one second and {REPORT_SECONDS / 86_400:.0f} days")
    return span


def _arguments(body: CallBody) -> dict[str, object]:
    if why := bounds_problem(body.args):
        raise BadRequest(f"`args` cannot be taken: {why}; send less, or send it as a string")
    try:
        size = len(canonical_json(body.args))
    except NotCanonical:
        raise BadRequest("`args` hold a number or text that JSON cannot carry safely; send it as a string") from None
    if size > ARGUMENTS_BYTES:
        raise BadRequest(
            f"`args` are larger than {ARGUMENTS_BYTES // KIB} KiB; send less", status=413, code="too_large"
        )
    return dict(body.args)
