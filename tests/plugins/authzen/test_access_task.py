from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from tables import table

from signoff.calls import AskedQuestion
from signoff.contracts.responses import CallAnswer
from signoff.gateway.signed_state import StateSealer
from signoff.plugins.authzen.access_task import AUTO_SECONDS, AccessTaskView, find_approval

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
ARGS = {"order": "A7", "euro": 200}


@dataclass(frozen=True)
class Decided:
    state: str
    decided_at: datetime | None = NOW
    grant_ttl: float = 60.0


@dataclass(frozen=True)
class Loaded:
    request: Decided
    args: dict[str, Any]


def a_view(state: str, request: str = "", args: Any = None, **fields: Any) -> AccessTaskView:
    answer = CallAnswer.model_validate({"id": "main.s.t", "state": state, "tool": "refund"} | fields)
    asked = cast(AskedQuestion, Loaded(Decided(request), args or ARGS)) if request else None
    return AccessTaskView("coder", answer, ARGS, find_approval(answer, asked, ARGS, NOW))


@table(
    ("view", "status"),
    (a_view("waiting", "pending"), "pending"),
    (a_view("waiting"), "pending"),
    (a_view("running"), "pending"),
    (a_view("permitted", "approved"), "approved"),
    (a_view("permitted"), "approved"),
    (a_view("used", "approved"), "approved"),
    (a_view("used"), "approved"),
    (a_view("ended", "approved", code="ok"), "approved"),
    # Approved, and then not used in time: it stays an approval.
    (a_view("denied", "approved", source="timeout"), "approved"),
    (a_view("denied", source="timeout"), "approved"),
    (a_view("denied", "denied", source="human"), "denied"),
    (a_view("denied", source="policy"), "denied"),
    (a_view("denied", source="repeat"), "denied"),
    (a_view("denied", "expired", source="timeout"), "expired"),
    (a_view("denied", "cancelled", source="cancelled"), "cancelled"),
    (a_view("permitted", "approved", {"order": "A7", "euro": 150}), "denied"),
    # Python compares these as equal.
    (a_view("permitted", "approved", {"order": "A7", "euro": 200.5}), "denied"),
)
def test_task_status_follows_the_call(view: AccessTaskView, status: str) -> None:
    assert view.status == status
    told = view.as_json(StateSealer(b"k" * 32), "https://signoff.example.com/access/v1/requests")
    assert ("result" in told) is (status == "approved")
    assert ("cancel" in told["task"].get("links", {})) is (status == "pending")


def test_approval_shows_its_expiry() -> None:
    key = StateSealer(b"k" * 32)
    until = {
        state: a_view(*state).approval_json(key)["approved_until"]
        for state in (("permitted", "approved"), ("permitted",), ("used",))
    }
    assert until[("permitted", "approved")] == (NOW + timedelta(seconds=60)).isoformat()
    assert until[("permitted",)] == (NOW + timedelta(seconds=AUTO_SECONDS)).isoformat()
    assert until[("used",)] == NOW.isoformat()


def test_task_id_is_stable_and_differs_from_the_calls() -> None:
    told = [a_view("permitted").as_json(StateSealer(b"k" * 32), "https://x") for _ in range(2)]
    assert told[0] == told[1]
    assert told[0]["task"]["id"] != told[0]["result"]["approval"]["id"]
    assert told[0]["task"]["id"] != a_view("permitted").as_json(StateSealer(b"j" * 32), "https://x")["task"]["id"]
