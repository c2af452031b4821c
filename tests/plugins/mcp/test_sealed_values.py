from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table

from signoff.gateway.signed_state import StateSealer
from signoff.plugins.mcp.sealed_values import ClientSession, RequestBinding, new_session_id, open_session_id

KEY = StateSealer(b"k" * 32)
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
BINDING = RequestBinding("main", "coder", "guest", "pay", {"amount": 120, "to": "Ana"})


def test_session_id_belongs_to_its_agent() -> None:
    first, second = (new_session_id(KEY, "main", "coder") for _ in range(2))
    assert first != second
    assert open_session_id(KEY, "main", "coder", first) == ClientSession(first)
    assert open_session_id(KEY, "main", "clerk", first) is None
    assert open_session_id(KEY, "acme", "coder", first) is None
    assert open_session_id(StateSealer(b"o" * 32), "main", "coder", first) is None
    assert not any(open_session_id(KEY, "main", "coder", each) for each in ("", "x", f"{first}x", "é", "." * 3_000))


def test_session_records_whether_its_client_opens_pages() -> None:
    begun = new_session_id(KEY, "main", "coder", opens_urls=True)
    assert open_session_id(KEY, "main", "coder", begun) == ClientSession(begun, opens_urls=True)


def test_state_opens_for_the_same_request() -> None:
    state = BINDING.seal_state(KEY, "main.a.b", 3, NOW + timedelta(minutes=5))
    same = replace(BINDING, args={"to": "Ana", "amount": 120})
    assert same.open_state(KEY, state, NOW) == ("main.a.b", 3)


@table(
    "other",
    {"tenant": "acme"},
    {"agent": "clerk"},
    {"user": "ana"},
    {"tool": "refund"},
    {"args": {"amount": 121}},
)
def test_state_does_not_open_for_another_request(other: dict[str, Any]) -> None:
    state = BINDING.seal_state(KEY, "main.a.b", 1, NOW + timedelta(minutes=5))
    assert replace(BINDING, **other).open_state(KEY, state, NOW) is None


def test_old_changed_or_foreign_state_does_not_open() -> None:
    state = BINDING.seal_state(KEY, "main.a.b", 1, NOW + timedelta(minutes=5))
    assert BINDING.open_state(KEY, state, NOW + timedelta(minutes=5)) is None
    assert BINDING.open_state(KEY, state[:-1], NOW) is None
    assert BINDING.open_state(KEY, new_session_id(KEY, "main", "coder"), NOW) is None
