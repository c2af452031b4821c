"""Workflows before a gate, as their histories tell: that they wait, and for which call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from client_rig import ClientRig
from polling import pauses
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from signoff_client import Call


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Returns once it holds."""
    for pause in pauses():
        if await condition():
            return
        await asyncio.sleep(pause)


async def events(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """The kinds of a workflow's events."""
    history = await handle.fetch_history()
    return [EventType.Name(each.event_type).removeprefix("EVENT_TYPE_") for each in history.events]


async def until_asked(handle: WorkflowHandle[Any, Any], times: int = 1) -> None:
    """Returns once the workflow has asked so often, and waits."""

    async def has_asked() -> bool:
        return (await events(handle)).count("TIMER_STARTED") >= times

    await until(has_asked)


async def asked_call(rig: ClientRig, handle: WorkflowHandle[Any, Any], client: Client) -> Call:
    """The call that a workflow has asked for, which its history names."""
    for event in (await handle.fetch_history()).events:
        for payload in event.activity_task_completed_event_attributes.result.payloads:
            [answer] = await client.data_converter.decode([payload])
            if isinstance(answer, dict) and answer.get("state") == "waiting":
                call = rig.gate().find(answer["id"], wait=0)
                await call.settle()
                return call
    raise AssertionError("it has not asked")
