"""Writes the bytes that the gateway signs and workers check.

A field that holds its default is left out: what was signed before the field existed then verifies after it does.
"""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic_core import PydanticSerializationError, to_jsonable_python

from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import NotCanonical, canonical_json, sha256_hex
from signoff.contracts.decision import Decision
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Principal
from signoff.contracts.updates import DATA
from signoff.formats.replace import replace


def decision_bytes(decision: Decision) -> bytes:
    """Returns RFC 8785 of the decision without `signature` and fields at their default. Raises `NotCanonical`."""
    return canonical_json(_fields(decision))


def principal_as_asked(
    ctx: CallContext, *, nonce: str, at: datetime, store_id: str = "", any_actor: bool = False
) -> Principal:
    """Returns the user of `ctx` as who asks for its turn, not signed yet; `ctx.extra` is the context that is given with
    it.

    `at` is an aware time; rules run calls for it for `ASKED_SECONDS`. `any_actor`: for whomever the session talks to
    when the turn begins.
    """
    issued = at.astimezone(UTC)
    data = ctx.extra.get(DATA)
    apart = isinstance(data, Mapping)
    return replace(
        unsigned_principal(ctx.user),
        actor="" if any_actor else ctx.actor,
        route=ctx.route,
        step=ctx.step,
        transient=ctx.transient,
        given=tuple(sorted(name for name in ctx.extra if not (apart and name == DATA))),
        given_data=tuple(sorted(data)) if isinstance(data, Mapping) else (),
        nonce=nonce,
        store_id=store_id,
        issued_at=issued,
    )


def new_nonce() -> str:
    """Returns 128 random bits, of characters that any text takes."""
    return secrets.token_urlsafe(16)


def with_nonce(principal: Principal) -> Principal:
    """Adds a nonce to `principal` where the gateway has not: an unsigned principal may be changed here."""
    if principal.nonce or principal.signature or principal.key_id:
        return principal
    return replace(principal, nonce=new_nonce())


def is_as_asked(ctx: CallContext) -> bool:
    """Returns whether `ctx` has the actor, route, step and tools that its user asked for; a session passes turns on to
    other actors.

    Routes and the reach of tools are an actor's own, so whoever it is passed to begins without.
    """
    user = ctx.user
    place, asked = (ctx.route, ctx.step, ctx.transient), (user.route, user.step, user.transient)
    if user.actor:
        return user.actor == ctx.actor and place == asked
    return place in (asked, ("", "", ()))


def principal_bytes(ctx: CallContext) -> bytes:
    """Returns RFC 8785 of the user of `ctx`, written as a decision is, and of what it asked for. Raises `NotCanonical`.

    See `asker_bytes`.
    """
    turn = TurnKey(ctx.tenant, ctx.session, ctx.turn)
    return asker_bytes(ctx.user, turn, channel=ctx.channel, context=context_digest(ctx))


def asker_bytes(asker: Principal, turn: TurnKey, *, channel: str, context: str) -> bytes:
    """Returns RFC 8785 of `{principal, tenant, session, turn, channel, context}`; the last is a `context_digest`.

    Raises `NotCanonical`.
    """
    return canonical_json({"principal": _fields(asker), **turn._asdict(), "channel": channel, "context": context})


def unsigned_principal(principal: Principal) -> Principal:
    """Returns a principal without its request and its proof: the same at any time, by whichever key."""
    return Principal.model_validate(
        principal.model_dump(include={"user", "person_id", "name", "tier", "roles", "locale"})
    )


def context_digest(ctx: CallContext) -> str:
    """Returns sha-256 of what was given of the context.

    What tools have added to the context is not in it. Raises `NotCanonical`.
    """
    user, extra_data = ctx.user, ctx.extra.get(DATA)
    data = extra_data if isinstance(extra_data, Mapping) else {}
    try:
        # In JSON's own types, as a history gives it back: people's attributes may be dates.
        given = to_jsonable_python(
            {
                "context": {name: ctx.extra[name] for name in user.given},
                "data": {name: data[name] for name in user.given_data},
            }
        )
    except (KeyError, PydanticSerializationError, UnicodeEncodeError, ValueError, RecursionError) as error:
        raise NotCanonical(f"the context is not as it was given ({type(error).__name__})") from None
    return sha256_hex(given)


def _fields(shape: FrozenModel) -> dict[str, object]:
    try:
        # `key_id` stays among the bytes: only the signature itself cannot be under the signature.
        return shape.model_dump(mode="json", exclude={"signature"}, exclude_defaults=True)
    except (PydanticSerializationError, UnicodeEncodeError, ValueError, RecursionError) as error:
        raise NotCanonical(str(error).partition("\n")[0]) from None
