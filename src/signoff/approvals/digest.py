"""Computes what an approval is bound to: the digest of a call, and the short mark people compare."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

from signoff.contracts.approval import Question
from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import sha256_hex

DIGEST_VERSION: Final = 1
MARK_CHARS: Final = 8


def call_digest(
    *,
    tenant: str,
    session: str,
    turn: str,
    call: str,
    requester: str,
    nonce: str,
    tool: str,
    definition: str,
    args: Mapping[str, Any],
) -> str:
    """Computes the sha-256 over RFC 8785 of `v` and all of these, as 64 hex digits.

    `requester` is the id of who asked, `nonce` the one of their principal: once the server has forgotten a turn,
    another may have its id, and has none of its calls.

    `1` and `1.0` have one digest. Raises `NotCanonical` for arguments that RFC 8785 cannot write.
    """
    return sha256_hex(
        {
            "v": DIGEST_VERSION,
            "tenant": tenant,
            "session": session,
            "turn": turn,
            "call": call,
            "requester": requester,
            "nonce": nonce,
            "tool": tool,
            "definition": definition,
            "args": dict(args),
        }
    )


def digest_in_context(ctx: CallContext, *, call: str, tool: str, definition: str, args: Mapping[str, Any]) -> str:
    """Computes the digest of a call of the turn and the requester of `ctx`, as `call_digest` does."""
    return call_digest(
        tenant=ctx.tenant,
        session=ctx.session,
        turn=ctx.turn,
        call=call,
        requester=ctx.user.user,
        nonce=ctx.user.nonce,
        tool=tool,
        definition=definition,
        args=args,
    )


_MOMENTS: Final = {"code", "judged_at", "opened_at", "ended_at", "ended_as"}
_ASKED: Final = set(Question.model_fields) - _MOMENTS


def question_hash(question: Question) -> str:
    """Computes the sha-256 over RFC 8785 of what people are asked: call, terms and words, without code, times and
    ending.

    A decision names it, so its signature covers everything that its author was shown. Raises `NotCanonical`.
    """
    asked = question.model_dump(mode="json", include=_ASKED)
    # RFC 8785 writes `60.0` as `60`. Said as a number without a fraction it is written by the quick way, three times as
    # fast, and a call that runs hashes its question while somebody waits.
    return sha256_hex({name: int(each) if _is_whole(each) else each for name, each in asked.items()})


def _is_whole(value: Any) -> bool:
    return type(value) is float and value.is_integer() and abs(value) < 2**53


def doubt_digest(digest: str, ticket: int) -> str:
    """Computes what an answer about a call in doubt is bound to, of the call's digest and the ticket in question.

    It is no call's digest, so that no answer to one question passes for an answer to the other.
    """
    return sha256_hex({"v": DIGEST_VERSION, "doubt": digest, "ticket": ticket})


def digest_mark(digest: str, key: bytes) -> str:
    """Computes the first 8 hex digits of HMAC-SHA256 of `digest`: people can compare it, and masked arguments stay
    unguessed.

    Raises ValueError without a key: a mark that anyone can compute would give those arguments away.
    """
    if not key:
        raise ValueError("a digest mark needs a key")
    return hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()[:MARK_CHARS]
