"""Starts turns and says things in sessions: ids, the person from the directory, long texts into the store."""

from typing import Final

from signoff.contracts.call import CallContext, Place, ProposedExternalCall
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.errors import BadRequest, ConfigError, Conflict, NotFound, Refused
from signoff.contracts.ids import SessionKey, TurnKey, is_id, is_subscription_session, parse_approval_id, uuid7
from signoff.contracts.limits import MAX_TURNS_PER_MESSAGE
from signoff.contracts.message import Message, TextPart
from signoff.contracts.names import DEFAULT_TENANT, ENGINE, PEER
from signoff.contracts.person import Person, Principal
from signoff.contracts.requests import MessageBody, ResultBody, SayBody, TurnBody
from signoff.contracts.session_messages import LateResult, MailboxMessage, SessionReceipt, turn_of
from signoff.contracts.turn import TurnInput
from signoff.engine.session_client import SessionClient
from signoff.formats.bounds import bounds_problem
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.replace import replace
from signoff.gateway.auth.person_lookup import known_person
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.session_names import is_of_peer, own_session
from signoff.keys.signature_form import new_nonce, principal_as_asked
from signoff.people.directory import principal_of, turn_context
from signoff.registry.catalog import Catalog
from signoff.store.content_store import seal_place, to_content
from signoff.store.freezes import Freezes

CONTEXT: Final = "context"
"""In `may_set`: every field of the context; one alone is `context.<name>`."""


async def start(deps: GatewayDeps, body: TurnBody, channel: str) -> TurnKey:
    """Starts a turn; when this returns it is in Temporal.

    Raises `NotFound` (actor, its route and step, person), `Conflict` (same id, other input), `Refused` (`frozen`),
    `BadRequest` (also `too_many_starts`), `Unavailable`.
    """
    turn = await turn_input(deps, body, chosen_actor(deps, body.actor), channel)
    async with deps.acts.start(turn):
        return await deps.client.start_turn(turn)


async def turn_input(
    deps: GatewayDeps, body: TurnBody, actor: str, channel: str, external: ProposedExternalCall | None = None
) -> TurnInput:
    """Returns the input of a turn that `body` asks for, its requester signed; of an external agent with its call.

    Raises as `start`.
    """
    await Freezes(deps.store).refuse_new(body.tenant)
    check_position(deps.catalog, actor, body)
    person = known_person(deps.people, body.user, body.tenant)
    check_settable(deps, person, body)
    turn_id = body.turn or new_id(deps)
    if why := bounds_problem(body.context):
        raise BadRequest(f"`context` cannot be taken: {why}; send less, or send it as a string")
    # Also where it is the turn's own: an id that Temporal has forgotten is still that of its requester's requests.
    named = SessionKey(body.tenant, body.session or turn_id)
    session = _space(own_session(named, person, development=deps.development), channel)
    # Before anything of it is kept: what is refused leaves nothing behind.
    await deps.starts.take(session.tenant, session.session, turn_id)
    messages = tuple([await _message(deps, each, session) for each in body.all_messages])
    key = TurnKey(*session, turn_id)
    ctx = CallContext(
        actor=actor,
        session=key.session,
        turn=key.turn,
        tenant=key.tenant,
        channel=channel,
        route=body.route,
        step=body.step,
        transient=body.transient,
        user=principal_of(person, deps.people),
        extra=turn_context(person, body.context),
    )
    return TurnInput(
        engine=ENGINE,
        tenant_id=key.tenant,
        session_id=key.session,
        turn_id=key.turn,
        actor=actor,
        messages=messages,
        principal=vouch(deps, ctx),
        person_id=person.id,
        channel=channel,
        route=body.route,
        step=body.step,
        transient=body.transient,
        context=ctx.extra,
        dry_run=body.dry_run,
        trace=body.trace,
        external=external,
    )


async def say(deps: GatewayDeps, body: SayBody, key: SessionKey, channel: str) -> SessionReceipt:
    """Says something in a session of `body.user`; when this returns it is in Temporal. The receipt is never `refused`.

    `key` is that of `own_session`, or what this person calls it.

    Of an actor that only the session knows, route and step are not looked up here: a turn that cannot begin there ends.
    Raises `NotFound` (actor, its route and step, person), `Conflict` (same id, other words), `Refused` (another's
    session, `frozen`), `BadRequest` (also `too_many_starts`), `Unavailable`.
    """
    await Freezes(deps.store).refuse_new(key.tenant)
    person = known_person(deps.people, body.user, key.tenant)
    key = _space(own_session(key, person, development=deps.development), channel)
    check_settable(deps, person, body)
    if why := bounds_problem(body.context):
        raise BadRequest(f"`context` cannot be taken: {why}; send less, or send it as a string")
    message_id = body.id or new_id(deps)
    known = tuple(each for each, actor in deps.catalog.actors.items() if actor.external is None)
    if body.actor is None and len(known) != 1 and not await SessionClient(deps.client).has_session(key):
        # Refused by the session itself, it would have begun one that talks to nobody.
        chosen_actor(deps, None)
    actor = chosen_actor(deps, body.actor) if body.actor is not None else ""
    if actor:
        check_position(deps.catalog, actor, body)
    await deps.starts.take(key.tenant, key.session, message_id)
    ctx = CallContext(
        actor=actor,
        session=key.session,
        turn=message_id,
        tenant=key.tenant,
        channel=channel,
        route=body.route,
        step=body.step,
        transient=body.transient,
        user=principal_of(person, deps.people),
        extra=turn_context(person, body.context),
    )
    place = Place(actor=actor or (known[0] if len(known) == 1 else ""), route=body.route, step=body.step)
    if place.route or place.step:
        place = await seal_place(deps.store, key, place)
    message = MailboxMessage(
        engine=ENGINE,
        id=message_id,
        actor=actor,
        message=await _message(deps, MessageBody(text=body.text), key),
        principals=_vouched_for_all(deps, ctx, message_id),
        person_id=person.id,
        channel=channel,
        route=body.route,
        step=body.step,
        seal=place.seal,
        transient=body.transient,
        context=ctx.extra,
        dry_run=body.dry_run,
        trace=body.trace,
    )
    return _take(await SessionClient(deps.client).say(key, message, actor=known[0] if len(known) == 1 else ""))


async def add_result(deps: GatewayDeps, body: ResultBody, key: SessionKey) -> SessionReceipt:
    """Hands a late result to a turn of a session. The receipt is never `refused`.

    Raises `NotFound` (session, turn), `Conflict` (same id, other words), `Refused` (`frozen`: it may begin a turn),
    `BadRequest` (also `too_many_starts`), `Unavailable`.
    """
    await Freezes(deps.store).refuse_new(key.tenant)
    result_id = body.id or new_id(deps)
    # Counted, though it may reach a turn that goes on: where that has ended, another one begins.
    await deps.starts.take(key.tenant, key.session, body.turn, result_id)
    message = await _message(deps, MessageBody(text=body.text), key)
    injection = LateResult(id=result_id, turn=body.turn, message=message)
    return _take(await SessionClient(deps.client).inject(key, injection))


def new_id(deps: GatewayDeps) -> str:
    """Returns an id that nobody used."""
    return uuid7(deps.clock())


def chosen_actor(deps: GatewayDeps, name: str | None) -> str:
    """Returns the actor spoken to; the only one when none is named. Raises `NotFound`, `BadRequest`."""
    known = tuple(each for each, actor in deps.catalog.actors.items() if actor.external is None)
    if name is None:
        if len(known) == 1:
            return next(iter(known))
        listed = ", ".join(f"`{each}`" for each in known) or "none is declared"
        raise BadRequest(f"name an `actor`: {listed}")
    if name in deps.catalog.actors and name not in known:
        raise BadRequest(
            f"{quote_name(name)} thinks elsewhere, and nobody speaks to it here; it proposes its own calls"
        )
    if name not in known:
        listed = ", ".join(f"`{each}`" for each in list(known)[:5]) or "none"
        raise NotFound(f"there is no actor {quote_name(name)}{did_you_mean(name, known) or f'; known: {listed}'}")
    return name


def check_position(catalog: Catalog, actor: str, body: TurnBody | SayBody) -> None:
    """Raises `NotFound` for a route, a step or a tool of the turn's own that the actor cannot have."""
    try:
        catalog.scopes[actor].check(body.route, body.step, body.transient)
    except ConfigError as error:
        raise NotFound(error.message) from None


def check_settable(deps: GatewayDeps, person: Person, body: TurnBody | SayBody) -> None:
    """Raises `Refused` where `body` sets what this person may not.

    Rules may read it, and which tools there are hangs on it. In the development profile, where nobody proves anything,
    everybody may.
    """
    if deps.settings.profile == "development":
        return
    wanted = [name for name in ("route", "step", "transient") if getattr(body, name)]
    if CONTEXT not in person.may_set:
        wanted += [f"{CONTEXT}.{name}" for name in body.context]
    lacking = next((name for name in wanted if name not in person.may_set), None)
    if lacking is not None:
        raise Refused(
            f"{quote_name(lacking)} may not be set by requests of `{person.id}`; "
            "whoever keeps the people adds it to their "
            "`may_set`",
            code="not_allowed",
        )


def read_turn(deps: GatewayDeps, text: str, person: Person | None, tenant: str = DEFAULT_TENANT) -> TurnKey:
    """Returns the turn that an address names: `<tenant>.<session>.<turn>`, or of its own session the person's in
    `tenant`.

    Raises `NotFound`.
    """
    parts = text.split(".")
    if all(map(is_id, parts)):
        if len(parts) == 1:
            return TurnKey(*own_session(SessionKey(tenant, text), person, development=deps.development), text)
        if len(parts) == 3:
            return TurnKey(*parts)
    approval = parse_approval_id(text)
    hint = f"; did you mean `{'.'.join(approval.turn)}`?" if approval is not None else ""
    raise NotFound(f"there is no turn {quote_name(text)}{hint}")


def read_session(text: str, tenant: str = DEFAULT_TENANT) -> SessionKey:
    """Returns the session that an address names: `<tenant>.<session>`, or one of `tenant` alone. Raises `NotFound`."""
    parts = text.split(".")
    if all(map(is_id, parts)) and len(parts) in (1, 2):
        return SessionKey(*parts) if len(parts) == 2 else SessionKey(tenant, text)
    raise NotFound(f"there is no session {quote_name(text)}")


def _space(key: SessionKey, channel: str) -> SessionKey:
    """Returns `key`. Raises `Refused` where people would speak in a conversation of another agent, or it in theirs."""
    # An agent reads all of its conversation in its next turn, and what tools told people is not exposed to it.
    if is_subscription_session(key.session):
        # Events of such a session start no turns: a person there would hide from subscriptions.
        raise Refused("this conversation is a subscription's; begin one of your own", code="not_allowed")
    if is_of_peer(key) != (channel == PEER):
        whose = "another agent's" if channel != PEER else "not another agent's"
        raise Refused(f"this conversation is {whose}; begin one of your own", code="not_allowed")
    return key


def _take(receipt: SessionReceipt) -> SessionReceipt:
    match receipt:
        case SessionReceipt(status="refused", code="conflict"):
            raise Conflict(receipt.message)
        case SessionReceipt(status="refused", code="unknown"):
            raise NotFound(receipt.message)
        case SessionReceipt(status="refused", code="full"):
            raise BadRequest(receipt.message, status=429, code="full")
        case SessionReceipt(status="refused", code="not_allowed"):
            raise Refused(receipt.message, code="not_allowed")
        case SessionReceipt(status="refused"):
            raise BadRequest(receipt.message)
    return receipt


def _vouched_for_all(deps: GatewayDeps, ctx: CallContext, message_id: str) -> tuple[Principal, ...]:
    """Says who asks, signed for each of the turns that one message may lead to."""
    if deps.signer is None:
        return (vouch(deps, ctx, any_actor=True),)
    turns = (turn_of(message_id, number) for number in range(1, MAX_TURNS_PER_MESSAGE + 1))
    # Only of the first it is known who answers: whoever does may pass it on.
    return tuple(
        vouch(deps, replace(ctx, turn=turn), any_actor=place > 0 or not ctx.actor) for place, turn in enumerate(turns)
    )


def vouch(deps: GatewayDeps, ctx: CallContext, *, any_actor: bool = False) -> Principal:
    """Returns the user of `ctx` as who asks for its turn: signed, or just stamped where the gateway has no keys."""
    asker = principal_as_asked(ctx, nonce=new_nonce(), at=deps.clock(), store_id=deps.store.id, any_actor=any_actor)
    if deps.signer is None:
        return asker
    try:
        return deps.signer.sign_principal(replace(ctx, user=asker))
    except NotCanonical:
        raise BadRequest("`context` holds what JSON cannot carry safely; send it as a string") from None


async def _message(deps: GatewayDeps, body: MessageBody, place: SessionKey) -> Message:
    return Message(role=body.role, parts=(TextPart(text=await to_content(deps.store, body.text, place)),))
