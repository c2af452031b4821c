"""From a request to a turn: ids, the person from the directory, long texts into the store."""

from signoff.contracts.errors import NotFound
from signoff.contracts.ids import TurnKey, is_id, parse_approval_id
from signoff.contracts.message import Message, TextPart
from signoff.contracts.names import DEFAULT_TENANT, ENGINE
from signoff.contracts.person import Principal
from signoff.contracts.turn import TurnInput
from signoff.gateway.bodies import MessageBody, TurnBody
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.faults import BadRequest
from signoff.gateway.identity import known_person
from signoff.gateway.uuid7 import uuid7
from signoff.policy.bounds import out_of_bounds
from signoff.registry.nearest import did_you_mean, shown
from signoff.registry.people import principal_of, turn_context
from signoff.store.content import to_content


async def start(deps: GatewayDeps, body: TurnBody, channel: str) -> TurnKey:
    """Start a turn; when this returns it is in Temporal.

    Raises `NotFound` (actor, person), `Conflict` (same id, other input), `BadRequest`, `Unavailable`.
    """
    actor = chosen_actor(deps, body.actor)
    person = known_person(deps.people, body.user, body.tenant)
    turn_id = body.turn or uuid7(deps.clock())
    if why := out_of_bounds(body.context):
        raise BadRequest(f"`context` cannot be taken: {why}; send less, or send it as a string")
    messages = tuple([await _message(deps, each) for each in body.said])
    key = TurnKey(body.tenant, body.session or turn_id, turn_id)
    turn = TurnInput(
        engine=ENGINE,
        tenant_id=key.tenant,
        session_id=key.session,
        turn_id=key.turn,
        actor=actor,
        messages=messages,
        principal=_vouched(deps, principal_of(person), key),
        person_id=person.id,
        channel=channel,
        context=turn_context(person, body.context),
        dry_run=body.dry_run,
    )
    return await deps.desk.start_turn(turn)


def chosen_actor(deps: GatewayDeps, name: str | None) -> str:
    """The actor spoken to; the only one when none is named. Raises `NotFound`, `BadRequest`."""
    known = deps.catalog.actors
    if name is None:
        if len(known) == 1:
            return next(iter(known))
        listed = ", ".join(f"`{each}`" for each in known) or "none is declared"
        raise BadRequest(f"name an `actor`: {listed}")
    if name not in known:
        listed = ", ".join(f"`{each}`" for each in list(known)[:5]) or "none"
        raise NotFound(f"there is no actor {shown(name)}{did_you_mean(name, known) or f'; known: {listed}'}")
    return name


def read_turn(text: str) -> TurnKey:
    """The turn that an address names: `<tenant>.<session>.<turn>`, or the turn alone. Raises `NotFound`."""
    parts = text.split(".")
    if all(map(is_id, parts)):
        if len(parts) == 1:
            return TurnKey(DEFAULT_TENANT, text, text)
        if len(parts) == 3:
            return TurnKey(*parts)
    approval = parse_approval_id(text)
    hint = f"; did you mean `{'.'.join(approval.turn)}`?" if approval is not None else ""
    raise NotFound(f"there is no turn {shown(text)}{hint}")


def _vouched(deps: GatewayDeps, asker: Principal, key: TurnKey) -> Principal:
    """Who asks, signed for exactly this turn; as it is where the gateway has no keys."""
    return asker if deps.signer is None else deps.signer.sign_principal(asker, *key, at=deps.clock())


async def _message(deps: GatewayDeps, body: MessageBody) -> Message:
    return Message(role=body.role, parts=(TextPart(text=await to_content(deps.store, body.text)),))
