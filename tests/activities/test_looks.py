"""The end of a local activity and the answer to a query never overlap."""

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from activity_kit import worker_deps
from tables import table
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker
from turn_fixtures import Ledger, pay_tool

from signoff.store.store import Store
from signoff.temporal import query_fence as module
from signoff.temporal.query_fence import QueryFence, is_final
from signoff.worker import SignoffPlugin

RUN = "run-1"


@table(
    ("error", "attempts", "final"),
    (ValueError("x"), 0, False),
    (ValueError("x"), 3, False),
    (ValueError("x"), 2, True),
    (ValueError("x"), 1, True),
    (LookupError("x"), 0, True),
    (ApplicationError("x"), 0, False),
    (ApplicationError("x", type="LookupError"), 0, True),
    (ApplicationError("x", non_retryable=True), 0, True),
    ids=["no-end", "two-of-three", "two-of-two", "one-was-enough", "never", "ours", "named", "for-good"],
)
def test_failed_attempt_without_further_retries_is_final(error: Exception, attempts: int, final: bool) -> None:
    policy = RetryPolicy(maximum_attempts=attempts, non_retryable_error_types=["LookupError"])
    info = dataclasses.replace(ActivityEnvironment.default_info(), attempt=2, retry_policy=policy)
    assert is_final(error, info) is final


def test_failure_without_a_retry_policy_is_not_final() -> None:
    info = dataclasses.replace(ActivityEnvironment.default_info(), attempt=9, retry_policy=None)
    assert not is_final(ValueError("x"), info)


async def test_endless_query_answer_does_not_block_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    fence = QueryFence()
    fence.record_begun(RUN, "a")
    fence.record_query(RUN)
    await asyncio.wait_for(fence.end(RUN, "a", done=True), 30)
    # The answer is not sent if it arrives later.
    assert fence.end_answer(RUN)


class Core:
    def __init__(self) -> None:
        self.told: list[str] = []

    async def poll_workflow_activation(self) -> bytes:
        asked = WorkflowActivation(run_id=RUN)
        asked.jobs.add().query_workflow.query_id = "q-1"
        return asked.SerializeToString()

    async def complete_workflow_activation(self, raw: bytes) -> None:
        self.told.append(WorkflowActivationCompletion.FromString(raw).WhichOneof("status") or "")

    def request_workflow_eviction(self, run_id: str) -> None:
        self.told.append(f"let go {run_id}")


async def test_worker_passes_its_fence_with_core_messages(store: Store) -> None:
    plugin, core = SignoffPlugin(worker_deps(store, pay_tool(Ledger()))), Core()
    fence, worker = plugin._fence, SimpleNamespace(_bridge_worker=SimpleNamespace(_ref=core))

    async def nothing_more(worker: Worker) -> None:
        """A worker without work."""

    await plugin.run_worker(worker, nothing_more)  # type: ignore[arg-type]
    bridge: Any = worker._bridge_worker
    answer = WorkflowActivationCompletion(run_id=RUN)
    answer.successful.SetInParent()
    fence.record_begun(RUN, "a")
    await fence.end(RUN, "a", done=True)
    assert (await bridge.poll_workflow_activation()).run_id == RUN
    await bridge.complete_workflow_activation(answer)
    await bridge.complete_workflow_activation(answer)
    fence.release(RUN)
    assert core.told == ["failed", "successful", f"let go {RUN}"]
