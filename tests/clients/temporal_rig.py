import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from client_rig import ClientRig
from gated_workflows import (
    ACTIVITIES,
    RAN,
    WORKFLOWS,
    complete_elsewhere,
    interrupt,
    refund,
    refund_money,
)
from polling import pauses
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Interceptor, Worker

from signoff_client import Call
from signoff_client.temporal import Gated, GatedActivity

_REFUNDS = (refund_money, "hang", interrupt, complete_elsewhere)
NEVER = timedelta(days=1)
"""The interval of a workflow's own look-ups in a test: it gets a signal, or waits forever."""


@dataclass
class Workers:
    rig: ClientRig
    client: Client

    def gated(self, url: str = "", **fields: Any) -> Gated:
        given: dict[str, Any] = {"look_up": NEVER, "patience": timedelta(minutes=5)} | fields
        dangerous = [refund, *(GatedActivity(each, tool="refund") for each in _REFUNDS)]
        return Gated(self.rig.gate(url), dangerous, **given)

    @contextlib.asynccontextmanager
    async def work(
        self, *plugins: Gated, queue: str = "", client: Client | None = None, interceptors: Sequence[Interceptor] = ()
    ) -> AsyncIterator[str]:
        queue = queue or f"gated-{uuid.uuid4().hex}"
        with ThreadPoolExecutor(2) as threads:
            async with Worker(
                client or self.client,
                task_queue=queue,
                workflows=WORKFLOWS,
                activities=ACTIVITIES,
                activity_executor=threads,
                plugins=plugins,
                interceptors=interceptors,
            ):
                yield queue

    async def start(self, queue: str, run: Any, *args: Any, client: Client | None = None) -> WorkflowHandle[Any, Any]:
        """The agent's declaration permits it as a callback target."""
        return await (client or self.client).start_workflow(
            run, args=args, id=f"gated-{uuid.uuid4().hex}", task_queue=queue
        )

    async def asked(self, handle: WorkflowHandle[Any, Any], number: int = 1, **fields: Any) -> Call:
        run = handle.result_run_id or (await handle.describe()).run_id
        key = f"{handle.id}:{run}:{number}"
        told = {"workflow": {"id": handle.id, "signal": "signoff.call"}, "state": key}
        given = {"order": "A7", "euro": 200} | fields
        call = self.rig.gate().call("refund", given, key=key, callback=told, wait=0)
        # The order of proposals does not matter: the test proposes the same call as the workflow.
        await call.settle()
        return call


def order() -> str:
    return f"o-{uuid.uuid4().hex[:8]}"


def ran(name: str) -> list[float]:
    return [euro for each, euro in RAN if each == name]


async def has_ran(name: str) -> bool:
    return bool(ran(name))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    for pause in pauses():
        if await condition():
            return
        await asyncio.sleep(pause)


async def events(handle: WorkflowHandle[Any, Any]) -> list[str]:
    history = await handle.fetch_history()
    return [EventType.Name(each.event_type).removeprefix("EVENT_TYPE_") for each in history.events]


async def until_asked(handle: WorkflowHandle[Any, Any], times: int = 1) -> None:
    async def has_asked() -> bool:
        return (await events(handle)).count("TIMER_STARTED") >= times

    await until(has_asked)


async def asked_call(rig: ClientRig, handle: WorkflowHandle[Any, Any], client: Client) -> Call:
    for event in (await handle.fetch_history()).events:
        for payload in event.activity_task_completed_event_attributes.result.payloads:
            [answer] = await client.data_converter.decode([payload])
            if isinstance(answer, dict) and answer.get("state") == "waiting":
                call = rig.gate().find(answer["id"], wait=0)
                await call.settle()
                return call
    raise AssertionError("it has not asked")
