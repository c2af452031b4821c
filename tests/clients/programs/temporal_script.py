"""The worker runs until its input ends."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from signoff_client import Gate
from signoff_client.temporal import Gated, GatedActivity

TIME = timedelta(minutes=5)


def serve(
    workflow: type, plugins: Sequence[Any], activities: Sequence[Any] = (), gated: Sequence[Any | GatedActivity] = ()
) -> None:
    asyncio.run(_work(workflow, plugins, activities, gated, *sys.argv[1:]))


async def _work(
    workflow: type,
    plugins: Sequence[Any],
    activities: Sequence[Any],
    gated: Sequence[Any],
    address: str,
    queue: str,
    url: str,
    token: str,
) -> None:
    client = await Client.connect(address, plugins=list(plugins))
    gate = Gated(Gate(url, token), gated, look_up=timedelta(days=1))
    async with Worker(client, task_queue=queue, workflows=[workflow], activities=activities, plugins=[gate]):
        await asyncio.to_thread(sys.stdin.read)
