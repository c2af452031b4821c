from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table

from signoff.calls import CallTimes
from signoff.contracts.responses import CallAnswer
from signoff.plugins.mcp.protocol_server import created_task, detailed_task, result_of

BEGAN = datetime(2026, 11, 26, 12, tzinfo=UTC)


@table(
    ("fields", "is_error", "texts"),
    ({"state": "ended", "code": "ok", "result": "paid"}, False, ["paid"]),
    ({"state": "ended", "code": "ok", "result": [1, "é"]}, False, ['[1, "é"]']),
    ({"state": "ended", "code": "ok", "result": "paid", "note": "Bo changed it"}, False, ["Bo changed it", "paid"]),
    ({"state": "ended", "code": "execution_failed", "result": "closed"}, True, ["closed"]),
    ({"state": "ended", "code": "in_doubt", "result": "?", "note": "edited"}, True, ["edited\n?"]),
    ({"state": "denied", "source": "human", "by": "Ana", "reason": "no"}, True, ["Denied by Ana (human): no"]),
    ({"state": "denied", "source": "timeout"}, True, ["Denied (timeout)."]),
    (
        {"state": "waiting", "code": "K7Q-2FM"},
        True,
        [
            "Waiting for approval, K7Q-2FM. Call the same tool with the same arguments later to get its result.",
        ],
    ),
    (
        {"state": "running"},
        True,
        ["Not finished yet. Call the same tool with the same arguments later to get its result."],
    ),
)
def test_result_describes_the_calls_outcome(fields: dict[str, object], is_error: bool, texts: list[str]) -> None:
    result = result_of(CallAnswer.model_validate({"id": "main.a.b", "tool": "pay", **fields}))
    assert (result["isError"], [each["text"] for each in result["content"]]) == (is_error, texts)


def test_object_is_also_structured_content() -> None:
    result = result_of(CallAnswer(id="main.a.b", tool="pay", state="ended", code="ok", result={"paid": 3}))
    assert (result["structuredContent"], result["content"][0]["text"]) == ({"paid": 3}, '{"paid": 3}')


def answer(**fields: Any) -> CallAnswer:
    return CallAnswer.model_validate({"id": "main.a.b", "tool": "pay", **fields})


@table(
    ("fields", "status", "words"),
    ({"state": "waiting", "code": "K7Q-2FM"}, "working", "K7Q-2FM waits for approval"),
    ({"state": "waiting"}, "working", None),
    ({"state": "running"}, "working", None),
    ({"state": "permitted"}, "working", None),
    ({"state": "ended", "code": "ok", "result": "paid"}, "completed", None),
    ({"state": "ended", "code": "execution_failed", "result": "x"}, "completed", None),
    ({"state": "denied", "source": "human", "reason": "no"}, "completed", "no"),
    ({"state": "denied", "source": "cancelled", "reason": "withdrawn"}, "cancelled", "withdrawn"),
)
def test_task_status_is_the_calls(fields: dict[str, Any], status: str, words: str | None) -> None:
    task = detailed_task(answer(**fields), CallTimes(BEGAN, BEGAN))
    assert (task["taskId"], task["status"], task.get("statusMessage")) == ("main.a.b", status, words)
    assert ("result" in task) == (status == "completed")


def test_task_has_the_times_of_its_turn() -> None:
    created = created_task(answer(state="waiting"), CallTimes(BEGAN, BEGAN))
    assert (created["resultType"], created["createdAt"], created["lastUpdatedAt"]) == (
        "task",
        "2026-11-26T12:00:00.000Z",
        "2026-11-26T12:00:00.000Z",
    )
    times = CallTimes(BEGAN, BEGAN + timedelta(seconds=61.5))
    ended = detailed_task(answer(state="ended", code="ok", result="paid"), times)
    assert ended["lastUpdatedAt"] == "2026-11-26T12:01:01.500Z"
