"""The end of a local activity and the answer to a query never meet."""

import asyncio
import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import pytest
from activity_kit import worker_deps
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker
from turn_fixtures import Ledger, pay_tool

from signoff.store.store import Store
from signoff.temporal import query_fence as module
from signoff.temporal.query_fence import PATIENCE, REST, QueryFence, is_final
from signoff.worker import SignoffPlugin

RUN = "run-1"


async def test_nothing_ends_while_a_query_is_answered_nor_right_after() -> None:
    """It ends when the answer has had the time to arrive; another run's activity at once."""
    fence = QueryFence()
    assert fence.begin_answer(RUN) == frozenset()
    ending = asyncio.create_task(fence.end(RUN, "a", done=True))
    await fence.end("run-2", "a", done=True)
    await asyncio.sleep(0.05)
    assert not ending.done()
    # Taken before: between the two a busy machine may stand still for as long as the rest takes.
    answered = time.monotonic()
    fence.end_answer(RUN)
    await ending
    assert time.monotonic() - answered >= REST * 0.9


async def ended(fence: QueryFence, name: str, *, done: bool) -> None:
    """A local activity of the run that ends, and of which the SDK's core is told."""
    await fence.end(RUN, name, done=done)
    fence.record_sent()


async def test_a_query_is_told_what_ended_before_it_until_the_workflow_has_heard_of_it() -> None:
    """What failed may be tried again, so it has not ended."""
    fence = QueryFence()
    for name, done in (("a", True), ("b", False), ("c", True)):
        # Each local activity runs in a task of its own, and its worker tells the SDK's core of it there.
        await asyncio.create_task(ended(fence, name, done=done))
    assert fence.begin_answer(RUN) == {"a", "c"}
    assert fence.begin_answer("run-2") == frozenset()
    fence.record_known(RUN, ["a"])
    assert fence.begin_answer(RUN) == {"c"}
    fence.forget(RUN)
    assert fence.begin_answer(RUN) == frozenset()


@pytest.mark.parametrize(
    ("error", "attempts", "final"),
    [
        (ValueError("x"), 0, False),
        (ValueError("x"), 3, False),
        (ValueError("x"), 2, True),
        (ValueError("x"), 1, True),
        (LookupError("x"), 0, True),
        (ApplicationError("x"), 0, False),
        (ApplicationError("x", type="LookupError"), 0, True),
        (ApplicationError("x", non_retryable=True), 0, True),
        (asyncio.CancelledError(), 0, True),
    ],
    ids=["no-end", "two-of-three", "two-of-two", "one-was-enough", "never", "ours", "named", "for-good", "cancelled"],
)
def test_what_is_tried_no_more_has_ended_for_good(error: BaseException, attempts: int, final: bool) -> None:
    """At the second try, of an activity that tries no `LookupError` again."""
    policy = RetryPolicy(maximum_attempts=attempts, non_retryable_error_types=["LookupError"])
    info = dataclasses.replace(ActivityEnvironment.default_info(), attempt=2, retry_policy=policy)
    assert is_final(error, info) is final


def test_what_names_no_policy_is_tried_again() -> None:
    """As the SDK does by default."""
    info = dataclasses.replace(ActivityEnvironment.default_info(), attempt=9, retry_policy=None)
    assert not is_final(ValueError("x"), info)


async def test_an_answer_that_never_ends_holds_nothing_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the activity ends all the same."""
    assert PATIENCE > REST
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    fence = QueryFence()
    fence.begin_answer(RUN)
    await asyncio.wait_for(fence.end(RUN, "a", done=True), 30)


class Core:
    """The SDK's core, which takes what it is told in its order, and keeps a task until its local activities end."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.over = asyncio.Event()

    async def complete_activity_task(self, raw: bytes) -> None:
        """As the SDK's."""
        self.told.append("ended")

    def complete_workflow_activation(self, raw: bytes) -> Any:
        """As the SDK's, which is told with the call."""
        self.told.append("answered")
        return self.over.wait()

    def request_workflow_eviction(self, run_id: str) -> None:
        """As the SDK's."""
        self.told.append(f"let go {run_id}")


async def test_a_worker_tells_what_its_core_was_told(store: Store) -> None:
    """Its ends, its answers as they are sent, and what is to be let go pass by `QueryFence`, in every worker of
    ours.
    """
    plugin, core = SignoffPlugin(worker_deps(store, pay_tool(Ledger()))), Core()
    fence, worker = plugin._fence, SimpleNamespace(_bridge_worker=SimpleNamespace(_ref=core))

    async def nothing_more(worker: Worker) -> None:
        """A worker that has nothing to do."""

    await plugin.run_worker(worker, nothing_more)  # type: ignore[arg-type]
    message = SimpleNamespace(run_id=RUN, SerializeToString=bytes)
    await fence.end(RUN, "a", done=True)
    await worker._bridge_worker.complete_activity_task(message)
    assert fence.begin_answer(RUN) == {"a"}
    answer = asyncio.create_task(worker._bridge_worker.complete_workflow_activation(message))
    # The task goes on, as this one does not end: it ends a moment after the answer was sent, not after the task.
    await asyncio.wait_for(fence.end(RUN, "b", done=True), PATIENCE / 2)
    core.over.set()
    await answer
    fence.release(RUN)
    assert core.told == ["ended", "answered", f"let go {RUN}"]
