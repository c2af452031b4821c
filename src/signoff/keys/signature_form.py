"""Produces the bytes that the gateway signs and workers verify.

A field with its default value is left out, so that signatures from before the field existed stay valid.
"""

import hashlib
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
    """Omit `signature` and fields at their default. The encoding is RFC 8785. Raises `NotCanonical`."""
    return canonical_json(_fields(decision))


def principal_as_asked(
    ctx: CallContext, *, nonce: str, at: datetime, store_id: str = "", any_actor: bool = False, words: str = ""
) -> Principal:
    """Return the user of `ctx` as the unsigned requester of its turn.

    `ctx.extra` is the context given with the request. `at` is an aware time. Rules run calls for this requester for
    `ASKED_SECONDS`. With `any_actor`, the request is for the session's actor when the turn begins. `words` is the
    person's own message.
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
        words=hash_words(words, nonce) if words else "",
        nonce=nonce,
        store_id=store_id,
        issued_at=issued,
    )


def hash_words(text: str, nonce: str) -> str:
    """Return the SHA-256 of a nonce and a message, in hex."""
    return hashlib.sha256(f"{nonce}\n{text}".encode(errors="surrogatepass")).hexdigest()


def new_nonce() -> str:
    """Return 128 random bits, in characters valid in any text."""
    return secrets.token_urlsafe(16)


def with_nonce(principal: Principal) -> Principal:
    """Only an unsigned principal may be changed here."""
    if principal.nonce or principal.signature or principal.key_id:
        return principal
    return replace(principal, nonce=new_nonce())


def is_as_asked(ctx: CallContext) -> bool:
    """Return whether `ctx` has the actor, route, step and tools of its user's request.

    A session passes turns on to other actors. Routes and tool reach belong to one actor, so a turn passed on starts
    without them.
    """
    user = ctx.user
    place, asked = (ctx.route, ctx.step, ctx.transient), (user.route, user.step, user.transient)
    if user.actor:
        return user.actor == ctx.actor and place == asked
    return place in (asked, ("", "", ()))


def principal_bytes(ctx: CallContext) -> bytes:
    """See `asker_bytes`. Raises `NotCanonical`."""
    turn = TurnKey(ctx.tenant, ctx.session, ctx.turn)
    return asker_bytes(ctx.user, turn, channel=ctx.channel, context=context_digest(ctx))


def asker_bytes(asker: Principal, turn: TurnKey, *, channel: str, context: str) -> bytes:
    """Encode `{principal, tenant, session, turn, channel, context}` by RFC 8785. Raises `NotCanonical`.

    `context` is a `context_digest`.
    """
    return canonical_json({"principal": _fields(asker), **turn._asdict(), "channel": channel, "context": context})


def unsigned_principal(principal: Principal) -> Principal:
    """Remove request and proof: the result is the same at any time and for any key."""
    return Principal.model_validate(
        principal.model_dump(include={"user", "person_id", "name", "tier", "roles", "locale"})
    )


def context_digest(ctx: CallContext) -> str:
    """Hash the context as given (SHA-256), without additions by tools. Raises `NotCanonical`."""
    user, extra_data = ctx.user, ctx.extra.get(DATA)
    data = extra_data if isinstance(extra_data, Mapping) else {}
    try:
        # Use JSON types, as a history returns them: people's attributes may be dates.
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
        # `key_id` is signed too: only the signature itself cannot be.
        return shape.model_dump(mode="json", exclude={"signature"}, exclude_defaults=True)
    except (PydanticSerializationError, UnicodeEncodeError, ValueError, RecursionError) as error:
        raise NotCanonical(str(error).partition("\n")[0]) from None
