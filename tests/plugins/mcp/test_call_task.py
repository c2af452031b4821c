"""A call reads as a task of the extension."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table

from signoff.calls import CallTimes
from signoff.contracts.responses import CallAnswer
from signoff.plugins.mcp.call_task import created_task, detailed_task

BEGAN = datetime(2026, 11, 26, 12, tzinfo=UTC)


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
def test_its_status_is_that_of_the_call(fields: dict[str, Any], status: str, words: str | None) -> None:
    task = detailed_task(answer(**fields), CallTimes(BEGAN, BEGAN))
    assert (task["taskId"], task["status"], task.get("statusMessage")) == ("main.a.b", status, words)
    assert ("result" in task) == (status == "completed")


def test_a_task_has_the_times_of_its_turn() -> None:
    created = created_task(answer(state="waiting"), CallTimes(BEGAN, BEGAN))
    assert (created["resultType"], created["createdAt"], created["lastUpdatedAt"]) == (
        "task",
        "2026-11-26T12:00:00.000Z",
        "2026-11-26T12:00:00.000Z",
    )
    times = CallTimes(BEGAN, BEGAN + timedelta(seconds=61.5))
    ended = detailed_task(answer(state="ended", code="ok", result="paid"), times)
    assert ended["lastUpdatedAt"] == "2026-11-26T12:01:01.500Z"
