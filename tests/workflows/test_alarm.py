"""A call's timers are never cancelled. One timer serves every wait that does not end before it fires."""

import asyncio
from collections import Counter
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import TimeSkipper
from temporalio.worker import Replayer, Worker

from signoff.workflows.alarm import Alarm


@workflow.defn(sandboxed=False)
class Waiting:
    def __init__(self) -> None:
        self._heard = 0

    @workflow.signal
    def call(self) -> None:
        self._heard += 1

    @workflow.query
    def heard(self) -> int:
        return self._heard

    @workflow.run
    async def run(self, spans: list[float], at_once: bool) -> list[bool]:
        alarm = Alarm()
        waits = [self._wait(alarm, number, span) for number, span in enumerate(spans, 1)]
        return list(await asyncio.gather(*waits)) if at_once else [await each for each in waits]

    async def _wait(self, alarm: Alarm, number: int, span: float) -> bool:
        return await alarm.wait(lambda: self._heard >= number, workflow.now() + timedelta(seconds=span), "Wait")


async def test_later_wait_reuses_running_timer_and_earlier_wait_starts_its_own(client: Client, task_queue: str) -> None:
    async with Worker(client, task_queue=task_queue, workflows=[Waiting]):
        spans = [7_200.0, 10_800.0, 3_600.0]
        handle = await client.start_workflow(Waiting.run, args=[spans, False], id=task_queue, task_queue=task_queue)
        while not (await _events(handle))["TIMER_STARTED"]:
            await asyncio.sleep(0.05)
        for number in (1, 2, 3):
            await handle.signal(Waiting.call)
            # Wait for each signal to arrive: two in one task would end the next wait at once.
            while await handle.query(Waiting.heard) < number:
                await asyncio.sleep(0.05)
        assert await handle.result() == [True, True, True]
    events = await _events(handle)
    assert (events["TIMER_STARTED"], events["TIMER_CANCELED"], events["TIMER_FIRED"]) == (2, 0, 0)
    replayer = Replayer(workflows=[Waiting], data_converter=client.data_converter, namespace=client.namespace)
    await replayer.replay_workflow(await handle.fetch_history())


async def test_longer_wait_continues_after_shared_timer_fires(client: Client, task_queue: str) -> None:
    async with Worker(client, task_queue=task_queue, workflows=[Waiting]):
        spans = [3_600.0, 7_200.0]
        handle = await client.start_workflow(Waiting.run, args=[spans, True], id=task_queue, task_queue=task_queue)
        # Use the workflow's own clock: a busy machine may read both times at once.
        for number in (1, 2):
            while (await _events(handle))["TIMER_STARTED"] < number:
                await asyncio.sleep(0.05)
            await TimeSkipper(client).fast_forward(handle, timedelta(minutes=61))
        assert await handle.result() == [False, False]
    events = await _events(handle)
    assert (events["TIMER_STARTED"], events["TIMER_CANCELED"], events["TIMER_FIRED"]) == (2, 0, 2)


async def test_satisfied_or_expired_wait_starts_no_timer(client: Client, task_queue: str) -> None:
    async with Worker(client, task_queue=task_queue, workflows=[Waiting]):
        handle = await client.start_workflow(
            Waiting.run, args=[[-1.0, -1.0], False], id=task_queue, task_queue=task_queue, start_signal="call"
        )
        assert await handle.result() == [True, False]
    assert (await _events(handle))["TIMER_STARTED"] == 0


async def _events(handle: WorkflowHandle[Waiting, list[bool]]) -> Counter[str]:
    names = [each.WhichOneof("attributes") or "" for each in (await handle.fetch_history()).events]
    return Counter(name.removesuffix("_event_attributes").upper() for name in names)
