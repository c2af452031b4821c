"""How a request stands follows from its call alone, also where clocks differ or an answer came late."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aap_schemas import answer_problems

from signoff.contracts.responses import CallAnswer
from signoff.gateway.aap.approval_request import ApprovalRequestView, GivenRequest
from signoff.store.tickets import Ticket

AT = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
BODY = {"tool": "refund", "arguments": {"euro": 20}, "timeout": "10m"}
ID = "7ab8c8ec-7b2d-4fd6-9b52-752f9515eb71"
GIVEN = GivenRequest(ID, BODY, AT, AT + timedelta(minutes=10), AT + timedelta(hours=1))
CALL = CallAnswer(id="main.s.t", state="waiting", tool="refund")


def as_told(answer: dict[str, Any], ticket: Ticket | None = None) -> dict[str, Any]:
    """What an adapter is told of a call about which nobody was asked."""
    view = ApprovalRequestView(GIVEN, CALL.model_copy(update=answer), None, ticket)
    found = view.as_json()
    assert answer_problems(200, {"x-request-id": ID}, found) == []
    assert found == view.as_json()
    return found


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({}, "pending"),
        ({"state": "running"}, "pending"),
        ({"state": "permitted"}, "approved"),
        ({"state": "used"}, "approved"),
        ({"state": "ended", "code": "in_doubt"}, "approved"),
        ({"state": "denied", "source": "policy", "reason": "no"}, "denied"),
        ({"state": "denied", "source": "repeat", "reason": "no"}, "denied"),
        ({"state": "denied", "source": "human", "reason": ""}, "denied"),
        ({"state": "denied", "source": "cancelled", "reason": "withdrawn"}, "cancelled"),
        # Nobody was asked: its permit was not used in time, and what was approved stays so.
        ({"state": "denied", "source": "timeout", "reason": "late"}, "approved"),
    ],
)
def test_each_state_of_a_call_is_one_of_its_request(answer: dict[str, Any], status: str) -> None:
    """As the protocol tells it; only a denial says why."""
    found = as_told(answer)
    assert found["status"] == status
    assert found.get("decision", {}).get("note", "") == (answer.get("reason", "") if status == "denied" else "")


def test_a_use_is_never_before_its_decision() -> None:
    """Whatever the clocks of gateway and store differ by; a report is never before the use."""
    early = AT - timedelta(seconds=5)
    times = {"claimed_at": early, "finished_at": early}
    ticket = Ticket(key="k", workflow="w", call="c1.1", tool="refund", owner="use", state="claimed", **times)
    used = as_told({"state": "ended", "code": "ok", "result": "done"}, ticket)
    assert used["consumption"] == {
        "consumed_at": used["decision"]["decided_at"],
        "outcome": {"status": "succeeded", "reported_at": used["decision"]["decided_at"], "note": "done"},
    }
    failed = as_told({"state": "ended", "code": "execution_failed", "result": ""}, ticket)
    assert failed["consumption"]["outcome"]["status"] == "failed"
    assert "note" not in failed["consumption"]["outcome"]
    assert "outcome" not in as_told({"state": "ended", "code": "in_doubt"}, ticket)["consumption"]


def test_what_was_given_is_kept_as_it_was() -> None:
    """Times and body; by what the store has of it."""
    assert GivenRequest.load(ID, GIVEN.dump()) == GIVEN
    more = dataclasses.replace(GIVEN, body=BODY | {"context": {"ü": [1.5, None]}})
    assert GivenRequest.load(ID, more.dump()) == more
