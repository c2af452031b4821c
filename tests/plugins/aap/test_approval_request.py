"""How a request stands follows from its call alone, also where clocks differ or an answer came late."""

import dataclasses
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from aap_schemas import answer_problems
from tables import table

from signoff.calls import AskedQuestion, CallUse
from signoff.contracts.responses import CallAnswer
from signoff.formats.replace import replace
from signoff.plugins.aap.approval_request import ApprovalRequestView, GivenRequest
from signoff.testing import a_request

AT = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
BODY = {"tool": "refund", "arguments": {"euro": 20}, "timeout": "10m"}
ID = "7ab8c8ec-7b2d-4fd6-9b52-752f9515eb71"
GIVEN = GivenRequest(ID, BODY, AT, AT + timedelta(minutes=10), AT + timedelta(hours=1), "main.s.t")
CALL = CallAnswer(id="main.s.t", state="waiting", tool="refund")


def as_told(answer: dict[str, Any], ticket: CallUse | None = None) -> dict[str, Any]:
    """What an adapter is told of a call about which nobody was asked."""
    view = ApprovalRequestView(GIVEN, replace(CALL, **answer), None, ticket)
    found = view.as_json()
    assert answer_problems(200, {"x-request-id": ID}, found) == []
    assert found == view.as_json()
    return found


@table(
    ("answer", "status"),
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
)
def test_each_state_of_a_call_is_one_of_its_request(answer: dict[str, Any], status: str) -> None:
    found = as_told(answer)
    assert found["status"] == status
    assert found.get("decision", {}).get("note", "") == (answer.get("reason", "") if status == "denied" else "")


def test_a_use_is_never_before_its_decision() -> None:
    early = AT - timedelta(seconds=5)
    ticket = CallUse("use", early, early)
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
    assert GivenRequest.load(ID, GIVEN.dump()) == GIVEN
    more = dataclasses.replace(GIVEN, body=BODY | {"context": {"ü": [1.5, None]}})
    assert GivenRequest.load(ID, more.dump()) == more
    # As the protocol's canonical JSON has it: nothing escaped, no blanks.
    assert more.dump().startswith(
        '[{"tool":"refund","arguments":{"euro":20},"timeout":"10m","context":{"ü":[1.5,null]}}'
    )


def asked_view(call: dict[str, Any], args: dict[str, Any], **request: Any) -> dict[str, Any]:
    """What an adapter is told of a call about which people were asked."""
    asked = AskedQuestion(a_request(**request), args)
    found = ApprovalRequestView(GIVEN, replace(CALL, **call), asked, None).as_json()
    assert answer_problems(200, {"x-request-id": ID}, found) == []
    return found


@table(
    ("after", "told"),
    (5, "2026-11-26T12:00:05.000000Z"),
    (-5, "2026-11-26T12:00:00.000000Z"),
)
@table("state", "approved", "denied")
def test_an_answer_was_given_when_it_was_but_not_before_it_was_asked_for(state: str, after: int, told: str) -> None:
    at = (AT + timedelta(seconds=after)).astimezone(timezone(timedelta(hours=2)))
    call = {"state": "permitted"} if state == "approved" else {"state": "denied", "source": "human"}
    found = asked_view(call, BODY["arguments"], state=state, decided_at=at, grant_ttl=60.0)
    assert (found["decision"]["status"], found["decision"]["decided_at"]) == (state, told)


def test_adapter_reads_utc_whatever_the_clock_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        found = asked_view({"state": "permitted"}, BODY["arguments"], state="approved", decided_at=AT, grant_ttl=60.0)
    time.tzset()
    assert found["decision"]["decided_at"] == "2026-11-26T12:00:00.000000Z"


@table(("ttl", "until"), (60.0, "12:00:55.000000Z"), (1.0, "12:00:00.000001Z"))
def test_what_was_approved_can_be_used_for_its_time_and_ends_after_its_decision(ttl: float, until: str) -> None:
    before = AT - timedelta(seconds=5)
    found = asked_view({"state": "permitted"}, BODY["arguments"], state="approved", decided_at=before, grant_ttl=ttl)
    assert found["decision"]["expires_at"] == f"2026-11-26T{until}"


def test_an_adapter_learns_which_other_arguments_were_approved() -> None:
    args = {"euro": 20, "note": "für Ana"}
    found = asked_view({"state": "permitted"}, args, state="approved", decided_at=AT, grant_ttl=60.0)
    assert found["status"] == "denied"
    assert found["decision"]["note"].endswith(': {"euro": 20, "note": "für Ana"}')
