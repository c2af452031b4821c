"""Starts turns and sends messages to sessions: ids, the requester, long texts into the store."""

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
"""In `may_set`: all fields of the context. `context.<name>` permits one field."""


async def start(deps: GatewayDeps, body: TurnBody, channel: str) -> TurnKey:
    """On return the turn is in Temporal.

    Raises `NotFound` (actor, its route and step, person), `Conflict` (same id, other input), `Refused` (`frozen`),
    `BadRequest` (also `too_many_starts`), `Unavailable`.
    """
    turn = await turn_input(deps, body, chosen_actor(deps, body.actor), channel)
    async with deps.acts.start(turn):
        return await deps.client.start_turn(turn)


async def turn_input(
    deps: GatewayDeps, body: TurnBody, actor: str, channel: str, external: ProposedExternalCall | None = None
) -> TurnInput:
    """The requester is signed. `external` is an external agent's call. Raises like `start`."""
    await Freezes(deps.store).refuse_new(body.tenant)
    check_position(deps.catalog, actor, body)
    person = known_person(deps.people, body.user, body.tenant)
    check_settable(deps, person, body)
    turn_id = body.turn or new_id(deps)
    if problem := bounds_problem(body.context):
        raise BadRequest(f"`context` cannot be taken: {problem}; send less, or send it as a string")
    # Also for the turn's own session: Temporal may forget an id that the requester's requests still use.
    named = SessionKey(body.tenant, body.session or turn_id)
    session = _space(own_session(named, person, development=deps.development), channel)
    # Before anything is stored: a refused start leaves nothing behind.
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
        # The text of an external call is the gateway's own summary.
        principal=vouch(deps, ctx, words="" if external else body.all_messages[-1].text),
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
    """On return the message is in Temporal.

    The receipt is never `refused`. `key` comes from `own_session`, or is the person's own name for the session. If only
    the session knows the actor, route and step are not checked here; a turn that cannot begin there ends. Raises
    `NotFound` (actor, its route and step, person), `Conflict` (same id, other words), `Refused` (another's session,
    `frozen`), `BadRequest` (also `too_many_starts`), `Unavailable`.
    """
    await Freezes(deps.store).refuse_new(key.tenant)
    person = known_person(deps.people, body.user, key.tenant)
    key = _space(own_session(key, person, development=deps.development), channel)
    check_settable(deps, person, body)
    if problem := bounds_problem(body.context):
        raise BadRequest(f"`context` cannot be taken: {problem}; send less, or send it as a string")
    message_id = body.id or new_id(deps)
    actors = tuple(each for each, actor in deps.catalog.actors.items() if actor.external is None)
    if body.actor is None and len(actors) != 1 and not await SessionClient(deps.client).has_session(key):
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
    place = Place(actor=actor or (actors[0] if len(actors) == 1 else ""), route=body.route, step=body.step)
    if place.route or place.step:
        place = await seal_place(deps.store, key, place)
    message = MailboxMessage(
        engine=ENGINE,
        id=message_id,
        actor=actor,
        message=await _message(deps, MessageBody(text=body.text), key),
        # Another agent's words are not the person's.
        principals=_vouched_for_all(deps, ctx, message_id, "" if channel == PEER else body.text),
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
    return _take(await SessionClient(deps.client).say(key, message, actor=actors[0] if len(actors) == 1 else ""))


async def add_result(deps: GatewayDeps, body: ResultBody, key: SessionKey) -> SessionReceipt:
    """Pass a late result to a turn of a session. The receipt is never `refused`.

    Raises `NotFound` (session, turn), `Conflict` (same id, other words), `Refused` (`frozen`: it may begin a turn),
    `BadRequest` (also `too_many_starts`), `Unavailable`.
    """
    await Freezes(deps.store).refuse_new(key.tenant)
    result_id = body.id or new_id(deps)
    # Counted although the turn may still run: if it has ended, a new turn begins.
    await deps.starts.take(key.tenant, key.session, body.turn, result_id)
    message = await _message(deps, MessageBody(text=body.text), key)
    injection = LateResult(id=result_id, turn=body.turn, message=message)
    return _take(await SessionClient(deps.client).inject(key, injection))


def new_id(deps: GatewayDeps) -> str:
    return uuid7(deps.clock())


def chosen_actor(deps: GatewayDeps, name: str | None) -> str:
    """By default the only actor. Raises `NotFound`, `BadRequest`."""
    actors = tuple(each for each, actor in deps.catalog.actors.items() if actor.external is None)
    if name is None:
        if len(actors) == 1:
            return next(iter(actors))
        listed = ", ".join(f"`{each}`" for each in actors) or "none is declared"
        raise BadRequest(f"name an `actor`: {listed}")
    if name in deps.catalog.actors and name not in actors:
        raise BadRequest(
            f"{quote_name(name)} is an external agent and takes no messages here; it proposes its own calls"
        )
    if name not in actors:
        listed = ", ".join(f"`{each}`" for each in list(actors)[:5]) or "none"
        raise NotFound(f"there is no actor {quote_name(name)}{did_you_mean(name, actors) or f'; known: {listed}'}")
    return name


def check_position(catalog: Catalog, actor: str, body: TurnBody | SayBody) -> None:
    """Raise `NotFound` for a route, step or transient tool that the actor cannot have."""
    try:
        catalog.scopes[actor].check(body.route, body.step, body.transient)
    except ConfigError as error:
        raise NotFound(error.message) from None


def check_settable(deps: GatewayDeps, person: Person, body: TurnBody | SayBody) -> None:
    """Raise `Refused` if `body` sets a value that this person may not set.

    Rules may read the values, and they select the tools. In the development profile, everyone may set them.
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
            "add it to their `may_set` in the directory",
            code="not_allowed",
        )


def read_turn(deps: GatewayDeps, text: str, person: Person | None, tenant: str = DEFAULT_TENANT) -> TurnKey:
    """`text` is `<tenant>.<session>.<turn>`, or a turn in the person's own session in `tenant`. Raises `NotFound`."""
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
    """`text` is `<tenant>.<session>`, or the session alone in `tenant`. Raises `NotFound`."""
    parts = text.split(".")
    if all(map(is_id, parts)) and len(parts) in (1, 2):
        return SessionKey(*parts) if len(parts) == 2 else SessionKey(tenant, text)
    raise NotFound(f"there is no session {quote_name(text)}")


def _space(key: SessionKey, channel: str) -> SessionKey:
    """Raises `Refused` for a person in another agent's conversation, or an agent in a person's."""
    # An agent's next turn reads the whole conversation. Results of tools for people are not exposed to agents.
    if is_subscription_session(key.session):
        # Events of such a session start no turns: a person in it could hide from subscriptions.
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


def _vouched_for_all(deps: GatewayDeps, ctx: CallContext, message_id: str, words: str) -> tuple[Principal, ...]:
    """Return a signed requester for each turn that one message may lead to."""
    if deps.signer is None:
        return (vouch(deps, ctx, any_actor=True),)
    turns = (turn_of(message_id, number) for number in range(1, MAX_TURNS_PER_MESSAGE + 1))
    # Only the first turn's actor is known: each actor may pass the message on. Later turns may have other causes.
    return tuple(
        vouch(deps, replace(ctx, turn=turn), any_actor=place > 0 or not ctx.actor, words="" if place else words)
        for place, turn in enumerate(turns)
    )


def vouch(deps: GatewayDeps, ctx: CallContext, *, any_actor: bool = False, words: str = "") -> Principal:
    """Sign the user of `ctx`, and their own `words`. Without keys, the requester is only stamped."""
    requester = principal_as_asked(
        ctx,
        nonce=new_nonce(),
        at=deps.clock(),
        store_id=deps.store.id,
        any_actor=any_actor,
        words=words,
    )
    if deps.signer is None:
        return requester
    try:
        return deps.signer.sign_principal(replace(ctx, user=requester))
    except NotCanonical:
        raise BadRequest("`context` holds a value that JSON cannot carry safely; send it as a string") from None


async def _message(deps: GatewayDeps, body: MessageBody, place: SessionKey) -> Message:
    return Message(role=body.role, parts=(TextPart(text=await to_content(deps.store, body.text, place)),))
