"""Computes the digest bound by approvals, and the short mark that people compare."""

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
    """Return the SHA-256 (64 hex digits) of the call's RFC 8785 encoding.

    `requester` is an id. `nonce` comes from the requester's principal. It separates a turn from a later one with the
    same id, once the server has forgotten the first. `1` and `1.0` produce the same digest. Raises `NotCanonical` if
    RFC 8785 cannot encode the arguments.
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
    """As `call_digest`, in the turn of `ctx`."""
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


_MOMENTS: Final = {"code", "judged_at", "opened_at", "asked_at", "ended_at", "ended_as"}
_ASKED: Final = set(Question.model_fields) - _MOMENTS


def question_hash(question: Question) -> str:
    """Covers call, terms and texts in RFC 8785 encoding, not code, times and end.

    Decisions contain this hash, so their signatures cover everything that approvers were shown. Raises `NotCanonical`.
    """
    asked = question.model_dump(mode="json", include=_ASKED)
    # RFC 8785 writes `60.0` as `60`. Integers use the fast encoder, which is three times as fast, and a running call
    # hashes its question while its requester waits.
    return sha256_hex({name: int(each) if _is_whole(each) else each for name, each in asked.items()})


def _is_whole(value: Any) -> bool:
    return type(value) is float and value.is_integer() and abs(value) < 2**53


def doubt_digest(digest: str, ticket: int) -> str:
    """Differs from every call digest, so that an answer to one question cannot be used for the other."""
    return sha256_hex({"v": DIGEST_VERSION, "doubt": digest, "ticket": ticket})


def digest_mark(digest: str, key: bytes) -> str:
    """Return the first 8 hex digits of HMAC-SHA256 of `digest`, for people to compare.

    Raises `ValueError` without a key: anyone could compute such a mark and find out masked arguments.
    """
    if not key:
        raise ValueError("a digest mark needs a key")
    return hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()[:MARK_CHARS]
