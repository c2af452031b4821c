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
    # Without a question: its permit was not used in time, and the approval stays one.
    ({"state": "denied", "source": "timeout", "reason": "late"}, "approved"),
)
def test_request_status_follows_the_calls_state(answer: dict[str, Any], status: str) -> None:
    found = as_told(answer)
    assert found["status"] == status
    assert found.get("decision", {}).get("note", "") == (answer.get("reason", "") if status == "denied" else "")


def test_use_is_never_shown_before_its_decision() -> None:
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


def test_given_request_is_stored_unchanged() -> None:
    assert GivenRequest.load(ID, GIVEN.dump()) == GIVEN
    more = dataclasses.replace(GIVEN, body=BODY | {"context": {"ü": [1.5, None]}})
    assert GivenRequest.load(ID, more.dump()) == more
    # Like the protocol's canonical JSON: nothing escaped, no spaces.
    assert more.dump().startswith(
        '[{"tool":"refund","arguments":{"euro":20},"timeout":"10m","context":{"ü":[1.5,null]}}'
    )


def asked_view(call: dict[str, Any], args: dict[str, Any], **request: Any) -> dict[str, Any]:
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
def test_decision_time_is_never_before_the_request(state: str, after: int, told: str) -> None:
    at = (AT + timedelta(seconds=after)).astimezone(timezone(timedelta(hours=2)))
    call = {"state": "permitted"} if state == "approved" else {"state": "denied", "source": "human"}
    found = asked_view(call, BODY["arguments"], state=state, decided_at=at, grant_ttl=60.0)
    assert (found["decision"]["status"], found["decision"]["decided_at"]) == (state, told)


def test_adapter_reads_utc_for_any_machine_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        found = asked_view({"state": "permitted"}, BODY["arguments"], state="approved", decided_at=AT, grant_ttl=60.0)
    time.tzset()
    assert found["decision"]["decided_at"] == "2026-11-26T12:00:00.000000Z"


@table(("ttl", "until"), (60.0, "12:00:55.000000Z"), (1.0, "12:00:00.000001Z"))
def test_approval_expires_after_its_lifetime_and_after_its_decision(ttl: float, until: str) -> None:
    before = AT - timedelta(seconds=5)
    found = asked_view({"state": "permitted"}, BODY["arguments"], state="approved", decided_at=before, grant_ttl=ttl)
    assert found["decision"]["expires_at"] == f"2026-11-26T{until}"


def test_adapter_reads_the_edited_arguments_of_an_approval() -> None:
    args = {"euro": 20, "note": "für Ana"}
    found = asked_view({"state": "permitted"}, args, state="approved", decided_at=AT, grant_ttl=60.0)
    assert found["status"] == "denied"
    assert found["decision"]["note"].endswith(': {"euro": 20, "note": "für Ana"}')
