from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from activity_kit import TURN, decision, environment, pinned
from tables import table
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from signoff.activities.caller_check import ActivityCaller, CallerInterceptor, own_problem
from signoff.contracts import names
from signoff.contracts.activity_messages import AnswersTask, GateTask, ModelTask, RecordTask, ReplyTask
from signoff.contracts.audit import AuditEntry
from signoff.contracts.ids import ApprovalKey

ENTRY = AuditEntry(stream=TURN.workflow_id, key="k", kind="turn", at=datetime.now(UTC), tenant="main")


TASKS = {
    names.MODEL: ModelTask(ctx=pinned(), completion=1, messages=()),
    names.GATE: GateTask(ctx=pinned(), calls=()),
    names.RECORD: RecordTask(audit=(ENTRY,)),
    names.REPLY: ReplyTask(ctx=pinned(), messages=(), approval=ApprovalKey(TURN, "c1.1").id, message=1),
    names.ANSWERS: AnswersTask(approval=ApprovalKey(TURN, "c1.1").id, revision=1),
}


@table("name", *TASKS)
def test_turn_may_run_its_own_activities(name: str) -> None:
    assert own_problem(ActivityCaller(names.ACTOR_TURN, TURN.workflow_id, name, "1"), [TASKS[name]]) == ""


@table("name", *TASKS)
@table("kind", "", "Foreign", names.SESSION)
def test_workflows_other_than_turns_are_rejected(name: str, kind: str) -> None:
    problem = own_problem(ActivityCaller(kind, TURN.workflow_id, name, "1"), [TASKS[name]])
    assert problem == "this activity runs only inside a turn"


@table("name", names.MODEL, names.GATE, names.ANSWERS, names.REPLY)
def test_turn_may_not_run_activities_for_another_turn(name: str) -> None:
    """Otherwise a turn could look up approvers or judge calls in another turn's name."""
    problem = own_problem(ActivityCaller(names.ACTOR_TURN, "turn/main/s/other", name, "1"), [TASKS[name]])
    assert problem == "its task names another turn"


@table(
    "args",
    [AnswersTask(approval="main.s.other.c1.1")],
    [AnswersTask(approval="nothing")],
    [AnswersTask(approval=ApprovalKey(TURN, "c1.1").id, raw=decision(approval_id="main.s.other.c1.1"))],
    [ReplyTask(ctx=pinned(), messages=(), approval="main.s.other.c1.1", message=1)],
    [{"ctx": {}}],
    [],
    [TASKS[names.MODEL], TASKS[names.MODEL]],
)
def test_task_without_a_matching_turn_is_rejected(args: list[Any]) -> None:
    assert own_problem(ActivityCaller(names.ACTOR_TURN, TURN.workflow_id, names.ANSWERS, "1"), args) != ""


class Reached(ActivityInboundInterceptor):
    def __init__(self) -> None:
        self.tasks: list[Any] = []

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        self.tasks += input.args
        return "ran"


@table(
    ("info", "problem"),
    ({}, ""),
    ({"workflow_id": "turn/main/s/other"}, "its task names another turn"),
    ({"workflow_type": None}, "this activity runs only inside a turn"),
    ({"workflow_id": None}, "its task names another turn"),
)
async def test_rejected_activity_is_neither_run_nor_retried(
    info: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    reached, task = Reached(), TASKS[names.GATE]
    checked = CallerInterceptor().intercept_activity(reached)
    execute = partial(checked.execute_activity, ExecuteActivityInput(print, [task], None, {}))
    if not problem:
        assert await environment(names.GATE).run(execute) == "ran"
        assert reached.tasks == [task]
        return
    with pytest.raises(ApplicationError, match=problem) as refused:
        await environment(names.GATE, **info).run(execute)
    assert (refused.value.type, refused.value.non_retryable, reached.tasks) == ("Refused", True, [])
    assert f"refused to run an activity: {problem}" in caplog.text


@table("name", "pay", names.OUTCOME)
def test_tool_activities_check_their_caller_themselves(name: str) -> None:
    assert own_problem(ActivityCaller("", "", name, "1"), [None]) == ""
