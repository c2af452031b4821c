import logging
from types import SimpleNamespace
from typing import Any

import pytest
from activity_kit import pinned, task_for
from tables import table
from temporalio.exceptions import ApplicationError
from temporalio.worker import ExecuteActivityInput, ExecuteWorkflowInput
from turn_fixtures import GUEST, Ledger, pay_tool

from signoff.activities.store_identity import BEGUN_ELSEWHERE, StoreInterceptor
from signoff.contracts.activity_messages import GateTask, OutcomeTask
from signoff.formats.replace import replace

OURS, OTHERS = "a" * 16, "b" * 16
WHY = f"a turn was begun with the store {OTHERS}, and this is the store {OURS}"


class _Next:
    def __init__(self) -> None:
        self.ran: list[Any] = []

    async def execute_activity(self, input: Any) -> str:
        self.ran.append(input)
        return "ran"

    async def execute_workflow(self, input: Any) -> str:
        self.ran.append(input)
        return "ran"


def begun_with(store_id: str) -> Any:
    return replace(GUEST, store_id=store_id)


async def run_activity(interceptor: StoreInterceptor, behind: _Next, *args: Any) -> str:
    given = ExecuteActivityInput(fn=lambda: None, args=args, executor=None, headers={})
    return str(await interceptor.intercept_activity(behind).execute_activity(given))  # type: ignore[arg-type]


async def run_workflow(interceptor: StoreInterceptor, behind: _Next, *args: Any) -> str:
    made = interceptor.workflow_interceptor_class(SimpleNamespace())  # type: ignore[arg-type]
    assert made is not None
    given = ExecuteWorkflowInput(type=object, run_fn=lambda: None, args=args, headers={})  # type: ignore[arg-type, return-value]
    return str(await made(behind).execute_workflow(given))  # type: ignore[arg-type]


def task_of_gates(store_id: str) -> GateTask:
    return GateTask(ctx=pinned(user=begun_with(store_id)), calls=())


def task_of_tool(store_id: str) -> Any:
    tool = pay_tool(Ledger())
    return task_for(tool, ctx=pinned(user=begun_with(store_id)))


def task_of_outcome(store_id: str) -> OutcomeTask:
    return OutcomeTask(run=task_of_tool(store_id))


@table("make", task_of_gates, task_of_tool, task_of_outcome)
async def test_activity_of_another_store_is_rejected(make: Any) -> None:
    behind, interceptor = _Next(), StoreInterceptor(OURS)
    with pytest.raises(ApplicationError, match=WHY) as refused:
        await run_activity(interceptor, behind, make(OTHERS))
    assert (refused.value.type, refused.value.non_retryable, behind.ran) == ("OtherStore", False, [])
    for store_id in (OURS, ""):
        assert await run_activity(interceptor, behind, make(store_id)) == "ran"
    assert len(behind.ran) == 2


async def test_task_without_a_turn_runs_with_any_store() -> None:
    behind, interceptor = _Next(), StoreInterceptor(OURS)
    assert await run_activity(interceptor, behind) == "ran"
    assert await run_activity(interceptor, behind, SimpleNamespace(run=None)) == "ran"
    assert await run_workflow(interceptor, behind) == "ran"
    assert await run_workflow(interceptor, behind, SimpleNamespace()) == "ran"
    assert await run_workflow(interceptor, behind, SimpleNamespace(principal=None)) == "ran"
    assert len(behind.ran) == 5


async def test_turn_of_another_store_is_rejected() -> None:
    behind, interceptor = _Next(), StoreInterceptor(OURS)
    with pytest.raises(RuntimeError, match=WHY):
        await run_workflow(interceptor, behind, SimpleNamespace(principal=begun_with(OTHERS)))
    assert behind.ran == []
    for store_id in (OURS, ""):
        assert await run_workflow(interceptor, behind, SimpleNamespace(principal=begun_with(store_id))) == "ran"


async def test_each_foreign_store_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    interceptor = StoreInterceptor(OURS)
    with caplog.at_level(logging.WARNING, logger="signoff.activities.store_identity"):
        for store_id in (OTHERS, OTHERS, "c" * 16, OTHERS):
            with pytest.raises(ApplicationError):
                await run_activity(interceptor, _Next(), task_of_gates(store_id))
    assert [each.getMessage() for each in caplog.records] == [
        BEGUN_ELSEWHERE.format(store_id, OURS) for store_id in (OTHERS, "c" * 16)
    ]
