import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

from encrypted_client import encrypted_client
from gated_workflows import ACTIVITIES, WORKFLOWS, refund
from temporalio.worker import Worker

from signoff_client import Gate
from signoff_client.temporal import Gated, GatedActivity


async def work(address: str, queue: str, url: str, token: str) -> None:
    client = await encrypted_client(address)
    plugin = Gated(Gate(url, token), [refund, GatedActivity("hang", tool="refund")])
    with ThreadPoolExecutor(2) as threads:
        await Worker(
            client,
            task_queue=queue,
            workflows=WORKFLOWS,
            activities=ACTIVITIES,
            activity_executor=threads,
            plugins=[plugin],
        ).run()


asyncio.run(work(*sys.argv[1:]))
