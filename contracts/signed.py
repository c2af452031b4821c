"""The bytes that the gateway signs and workers check.

A field that holds its default is left out: what was signed before the field existed then verifies after it does.
"""

from pydantic_core import PydanticSerializationError

from signoff.contracts.base import Shape
from signoff.contracts.canonical import NotCanonical, canonical_json
from signoff.contracts.decision import Decision
from signoff.contracts.person import Principal


def decision_bytes(decision: Decision) -> bytes:
    """RFC 8785 of the decision without `signature` and without fields at their default. Raises `NotCanonical`."""
    return canonical_json(_fields(decision))


def principal_bytes(principal: Principal, tenant: str, session: str, turn: str) -> bytes:
    """RFC 8785 of `{principal, tenant, session, turn}`, the principal as a decision is. Raises `NotCanonical`."""
    return canonical_json({"principal": _fields(principal), "tenant": tenant, "session": session, "turn": turn})


def unsigned_principal(principal: Principal) -> Principal:
    """Who it is, without the proof: what stays the same when it is signed again, at another time or by another key."""
    return principal.model_copy(update={"signed_at": None, "key_id": "", "signature": ""})


def _fields(shape: Shape) -> dict[str, object]:
    try:
        # `key_id` stays among the bytes: only the signature itself cannot be under the signature.
        return shape.model_dump(mode="json", exclude={"signature"}, exclude_defaults=True)
    except (PydanticSerializationError, UnicodeEncodeError, ValueError, RecursionError) as error:
        raise NotCanonical(str(error).partition("\n")[0]) from None
