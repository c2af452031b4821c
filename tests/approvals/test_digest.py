import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.approvals.digest import call_digest, digest_in_context, digest_mark, doubt_digest
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.person import Principal
from signoff.testing import a_call_context

PARTS: dict[str, Any] = {
    "tenant": "main",
    "session": "s1",
    "turn": "t1",
    "call": "c1.1",
    "requester": "rui",
    "nonce": "n",
    "tool": "book_flight",
    "definition": "d" * 64,
    "args": {"totalCost": 420, "flight": "TP 531"},
}


def test_digest_is_sha256_of_the_canonical_call() -> None:
    canonical = json.dumps({"v": 1, **PARTS}, sort_keys=True, separators=(",", ":")).encode()
    assert call_digest(**PARTS) == hashlib.sha256(canonical).hexdigest()


def test_digest_uses_turn_and_requester_of_the_context() -> None:
    user = Principal(user=PARTS["requester"], nonce=PARTS["nonce"])
    ctx = a_call_context(**{name: PARTS[name] for name in ("tenant", "session", "turn")}, user=user)
    own = {name: PARTS[name] for name in ("call", "tool", "definition", "args")}
    assert digest_in_context(ctx, **own) == call_digest(**PARTS)


def test_outcome_digest_is_sha256_of_call_and_attempt() -> None:
    canonical = json.dumps({"v": 1, "doubt": "d" * 64, "ticket": 2}, sort_keys=True, separators=(",", ":")).encode()
    assert doubt_digest("d" * 64, 2) == hashlib.sha256(canonical).hexdigest()


@pytest.mark.row("N07")
@table("part", *sorted(PARTS))
def test_every_part_is_bound(part: str) -> None:
    other = {"totalCost": 421, "flight": "TP 531"} if part == "args" else PARTS[part] + "x"
    assert call_digest(**{**PARTS, part: other}) != call_digest(**PARTS)


@pytest.mark.row("N14")
def test_order_and_number_notation_do_not_matter() -> None:
    turned = {"flight": "TP 531", "totalCost": 420.0}
    assert call_digest(**{**PARTS, "args": turned}) == call_digest(**PARTS)


@table("value", 2**53, -(2**53), float("nan"), float("inf"), "\ud800", {1, 2})
def test_arguments_without_a_canonical_form_have_no_digest(value: Any) -> None:
    with pytest.raises(NotCanonical):
        call_digest(**{**PARTS, "args": {"a": value}})


@given(digest=st.text(alphabet="0123456789abcdef", min_size=64, max_size=64), key=st.binary(min_size=1, max_size=64))
def test_mark_is_keyed(digest: str, key: bytes) -> None:
    assert digest_mark(digest, key) == hmac.digest(key, digest.encode(), "sha256").hex()[:8]


def test_mark_without_a_key_raises_value_error() -> None:
    """An unkeyed mark would let masked arguments be guessed."""
    with pytest.raises(ValueError, match=r"^a digest mark needs a key$"):
        digest_mark("0" * 64, b"")


def test_call_context_for_tests_refuses_unknown_fields() -> None:
    with pytest.raises(TypeError, match="a CallContext has no field `chanel`; did you mean `channel`"):
        a_call_context(chanel="slack")
