import asyncio
import contextlib
import os
import sys
import uuid
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from external_agents import temporal_worker
from gated_workflows import (
    Asks,
    Forgetful,
    Impatient,
    Interrupted,
    Refunds,
    Trusting,
    Twice,
    refund,
)
from temporal_rig import NEVER, Workers, asked_call, events, has_ran, order, ran, until, until_asked
from temporalio import workflow
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, is_cancelled_exception
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from signoff.temporal.embedded_server import ServerHandle, free_port
from signoff_client.temporal import Gated


async def costs(handle: WorkflowHandle[Any, Any]) -> int:
    """Count the events without tasks, which a busy machine may repeat."""
    kinds = [each for each in await events(handle) if not each.startswith("WORKFLOW_TASK")]
    signals = kinds.count("WORKFLOW_EXECUTION_SIGNALED")
    return len(kinds) - max(0, signals - 1)


async def has_seen(handle: WorkflowHandle[Any, Any]) -> bool:
    return (await events(handle)).count("ACTIVITY_TASK_COMPLETED") == 2


async def test_activity_permitted_by_a_rule_runs_at_once_and_is_reported(workers: Workers) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Refunds.run, [(name, 20.0)])
        assert await handle.result() == [f"refunded 20 EUR for {name}"]
        call = await workers.asked(handle, order=name, euro=20)
    assert (call.state, call.status.code, call.result) == ("ended", "ok", f"refunded 20 EUR for {name}")
    assert ran(name) == [20]
    assert await costs(handle) == 10


@pytest.mark.parametrize("kind", ["refund", "money", "local"])
async def test_approved_activity_runs_as_edited(workers: Workers, kind: str) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Refunds.run, [(name, 200.0)], kind)
        call = await workers.asked(handle, order=name)
        await until_asked(handle)
        assert ran(name) == []
        await workers.rig.decide(call, edited_args={"order": name, "euro": 150})
        assert await handle.result() == ["paid 150" if kind == "money" else f"refunded 150 EUR for {name}"]
    assert ran(name) == [150]
    assert kind == "local" or await costs(handle) == 13
    ended = await workers.rig.settled(call.id)
    paid = {"order": name, "euro": 150} if kind == "money" else f"refunded 150 EUR for {name}"
    assert (ended["code"], ended["result"]) == ("ok", paid)


@pytest.mark.parametrize("kind", ["refund", "local"])
async def test_denied_activity_does_not_run(workers: Workers, kind: str) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Refunds.run, [(name, 200.0), (name, 2_000.0)], kind)
        call = await workers.asked(handle, order=name)
        await workers.rig.decide(call, verdict="denied", reason="not twice")
        told = await handle.result()
    assert told[0] == "ToolDenied: Not run: it was denied by approver: not twice"
    assert told[1].startswith("ToolDenied: Not run: a rule denies it")
    assert ran(name) == []


async def test_unhandled_denial_fails_the_workflow(workers: Workers) -> None:
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Trusting.run, "closed")
        call = await workers.asked(handle, order="closed")
        await workers.rig.decide(call, verdict="denied", reason="no")
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    cause = failed.value.cause.__cause__
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable) == ("ToolDenied", True)
    assert dict(cause.details[0]) == {"id": call.id, "state": "denied", "source": "human", "by": "approver"}


async def test_unanswered_activity_does_not_run(workers: Workers) -> None:
    name = order()
    brief = Gated(workers.rig.gate(), {refund: "brief"}, look_up=NEVER)
    async with workers.work(brief) as queue:
        handle = await workers.start(queue, Refunds.run, [(name, 200.0)])
        assert await handle.result() == ["ToolDenied: Not run: nobody answered in time: Nobody answered in time."]
    assert ran(name) == []


async def test_several_activities_are_asked_about_at_once(workers: Workers) -> None:
    first, second = order(), order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Refunds.run, [(first, 200.0), (second, 300.0)])
        calls = [await workers.asked(handle, order=first), await workers.asked(handle, 2, order=second, euro=300)]
        await workers.rig.decide(calls[1])
        await until(lambda: has_ran(second))
        assert ran(first) == []
        await workers.rig.decide(calls[0], verdict="denied", reason="no")
        told = await handle.result()
    assert told == ["ToolDenied: Not run: it was denied by approver: no", f"refunded 300 EUR for {second}"]


@pytest.mark.parametrize("run", [Impatient.run, Refunds.run, Forgetful.run])
async def test_cancellation_withdraws_the_call(workers: Workers, run: Any) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, run, [(name, 200.0)] if run == Refunds.run else name)
        call = await workers.asked(handle, order=name)
        if run == Impatient.run:
            await until_asked(handle)
            await handle.signal(Impatient.cancel)
            assert await handle.result() == "CancelledError"
        elif run == Refunds.run:
            await until_asked(handle)
            await handle.cancel()
            with pytest.raises(WorkflowFailureError) as ended:
                await handle.result()
            assert is_cancelled_exception(ended.value.cause)
        else:
            assert await handle.result() == "forgotten"
    assert (await workers.rig.show(call.id))["source"] == "cancelled"
    assert ran(name) == []


async def test_approval_covers_one_execution(workers: Workers) -> None:
    """Its failure is not retried, although the activity would be."""
    async with workers.work(workers.gated()) as queue:
        before = len(ran("closed"))
        handle = await workers.start(queue, Refunds.run, [("closed", 20.0)])
        assert await handle.result() == ["ValueError: the bank is closed"]
        call = await workers.asked(handle, order="closed", euro=20)
    assert (call.status.code, call.result) == ("execution_failed", "ValueError: the bank is closed")
    assert len(ran("closed")) == before + 1


async def test_histories_without_a_gate_replay_with_it(workers: Workers) -> None:
    name = order()
    async with workers.work() as queue:
        handle = await workers.start(queue, Twice.run, name, 200.0)
        await until(lambda: has_seen(handle))
    assert ran(name) == [20]
    of_server: Any = {
        "workflows": [Twice],
        "namespace": workers.client.namespace,
        "data_converter": workers.client.data_converter,
    }
    replayer = Replayer(**of_server, plugins=[workers.gated()])
    await replayer.replay_workflow(await handle.fetch_history())
    async with workers.work(workers.gated(), queue=queue):
        await handle.signal(Twice.go_on)
        call = await workers.asked(handle, order=name)
        await workers.rig.decide(call)
        assert await handle.result() == [f"refunded 20 EUR for {name}", f"seen {name}", f"refunded 200 EUR for {name}"]
    assert ran(name) == [20, 200]
    history = await handle.fetch_history()
    await replayer.replay_workflow(history)
    with pytest.raises(NondeterminismError):
        await Replayer(**of_server).replay_workflow(history)


async def test_unreachable_gateway_means_no_run_of_an_activity(workers: Workers) -> None:
    name, brief = order(), timedelta(seconds=1)
    gone = workers.gated(f"http://127.0.0.1:{free_port()}", patience=brief)
    async with workers.work(gone) as queue:
        handle = await workers.start(queue, Refunds.run, [(name, 20.0)])
        [told] = await handle.result()
    assert told.startswith("ToolDenied: Not run: Signoff gave no answer")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    # The local activity has time to ask, and the caller gives up soon.
    async with workers.work(workers.gated(url)) as queue, workers.work(workers.gated(url, patience=brief)) as other:
        async with workers.rig.serve(port=port):
            handle = await workers.start(queue, Refunds.run, [(name, 200.0)], "refund", other)
            await until_asked(handle)
            call = await workers.asked(handle, order=name)
        await workers.rig.decide(call)
        [told] = await handle.result()
    assert told.startswith("ToolDenied: Not run: Signoff gave no answer (no gateway answers")
    assert ran(name) == []


async def test_activity_without_a_permit_is_refused(workers: Workers) -> None:
    name = order()
    async with workers.work() as queue, workers.work(workers.gated()) as other:
        handle = await workers.start(queue, Refunds.run, [(name, 20.0)], "refund", other)
        [told] = await handle.result()
    assert told.startswith("ToolDenied: Not run: it was started without approval")
    assert ran(name) == []


async def test_lost_signal_delays_the_workflow_only_for_a_while(workers: Workers) -> None:
    name = order()
    lost = workers.gated(look_up=timedelta(seconds=1))
    async with workers.work(lost) as queue:
        handle = await workers.client.start_workflow(
            Refunds.run, [(name, 200.0)], id=f"gated-{uuid.uuid4().hex}", task_queue=queue
        )
        call = await workers.asked(handle, order=name)
        await until_asked(handle, 2)
        await workers.rig.decide(call)
        assert await handle.result() == [f"refunded 200 EUR for {name}"]


async def test_workflow_code_may_request_approval(workers: Workers) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Asks.run, name)
        await until_asked(handle)
        call = await asked_call(workers.rig, handle, workers.client)
        assert (await workers.rig.request(call)).agent_says == "a good customer"
        await workers.rig.decide(call, edited_args={"order": name, "euro": 150})
        assert await handle.result() == {"order": name, "euro": 150}
        ended = await workers.rig.settled(call.id)
        assert (ended["code"], ended["result"]) == ("ok", {"order": name, "euro": 150})
        handle = await workers.start(queue, Asks.run, name)
        await until_asked(handle)
        call = await asked_call(workers.rig, handle, workers.client)
        await workers.rig.decide(call, verdict="denied", reason="no")
        told = await handle.result()
    assert told == {"type": "ToolDenied", "message": "Not run: it was denied by approver: no"}


async def test_workflow_names_its_requester(workers: Workers) -> None:
    name = order()
    gated = workers.gated(user=lambda: str(workflow.memo_value("user")))
    async with workers.work(gated) as queue:
        told = [
            await workers.client.execute_workflow(
                Refunds.run,
                args=[[(name, 20.0)]],
                id=f"gated-{uuid.uuid4().hex}",
                task_queue=queue,
                memo={"user": user},
            )
            for user in ("guest", "ana")
        ]
    assert told[0] == [f"refunded 20 EUR for {name}"]
    assert "this agent may not act for `ana`" in told[1][0]
    assert ran(name) == [20]


async def test_workflow_without_a_gate_cannot_request_approval(workers: Workers) -> None:
    async with workers.work() as queue:
        handle = await workers.start(queue, Asks.run, "A7")
        assert "this worker has no gate" in (await handle.result())["error"]


async def test_example_gates_its_activity(workers: Workers) -> None:
    name = order()
    async with temporal_worker.make_worker(workers.client, workers.rig.gate(), Refunds) as worker:
        handle = await workers.start(worker.task_queue, Refunds.run, [(name, 200.0)])
        call = await workers.asked(handle, order=name)
        await workers.rig.decide(call, edited_args={"order": name, "euro": 120})
        assert await handle.result() == [f"refunded 120 EUR for {name}"]
    assert (await workers.rig.settled(call.id))["result"] == f"refunded 120 EUR for {name}"


@contextlib.asynccontextmanager
async def killable(server: ServerHandle, workers: Workers, queue: str) -> AsyncIterator[Process]:
    here = Path(__file__).parent
    paths = (here, here.parent, here.parents[1] / "clients" / "python")
    command = (sys.executable, here / "programs" / "gated_worker.py", server.address, queue)
    process = await asyncio.create_subprocess_exec(
        *command, workers.rig.url, workers.rig.token, env={**os.environ, "PYTHONPATH": ":".join(map(str, paths))}
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.timeout(300)
async def test_killed_worker_loses_no_approval_and_repeats_no_run(
    server: ServerHandle, workers: Workers, tmp_path: Path
) -> None:
    name, queue, begun = order(), f"gated-{uuid.uuid4().hex}", tmp_path / "begun"
    async with killable(server, workers, queue) as process:
        asked = await workers.start(queue, Refunds.run, [(name, 200.0)])
        await until_asked(asked)
        call = await workers.asked(asked, order=name)
        hanging = await workers.start(queue, Refunds.run, [(str(begun), 20.0)], "hang")
        await until(lambda: asyncio.to_thread(begun.exists))
        process.kill()
    await workers.rig.decide(call)
    async with workers.work(workers.gated(), queue=queue):
        assert await asked.result() == [f"refunded 200 EUR for {name}"]
        assert await hanging.result() == [
            "ToolInDoubt: Not run: its permit was used before, and its outcome is unknown here."
        ]
    assert ran(name) == [200]


async def test_interrupted_activity_resumes_with_its_permit_in_another_worker(workers: Workers) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Interrupted.run, name)
        call = await workers.asked(handle, order=name)
        await workers.rig.decide(call, edited_args={"order": name, "euro": 150})

        async def is_interrupted() -> bool:
            return bool(await handle.query(Interrupted.what_was_told))

        await until(is_interrupted)
        assert await handle.query(Interrupted.what_was_told) == f"InterruptException: {name}"
    assert (await workers.rig.show(call.id))["state"] == "used"
    async with workers.work(workers.gated(), queue=queue):
        await handle.signal(Interrupted.go_on)
        assert await handle.result() == f"refunded 150 EUR for {name}"
    ended = await workers.rig.settled(call.id)
    assert (ended["code"], ended["result"], ran(name)) == ("ok", f"refunded 150 EUR for {name}", [150])


async def test_activity_completed_elsewhere_is_not_reported_as_in_doubt(workers: Workers) -> None:
    name = order()
    async with workers.work(workers.gated()) as queue:
        handle = await workers.start(queue, Refunds.run, [(name, 20.0)], "complete_elsewhere")
        call = await workers.asked(handle, order=name, euro=20)

        async def is_used() -> bool:
            return (await workers.rig.show(call.id))["state"] not in ("waiting", "permitted", "running")

        await until(is_used)
        outside = workers.client.get_async_activity_handle(workflow_id=handle.id, run_id=None, activity_id="2")
        await outside.complete("paid elsewhere")
        assert await handle.result() == ["paid elsewhere"]
        assert (await workers.rig.show(call.id))["state"] == "used"
