"""A Temporal worker that runs Signoff's turns too, by the four lines that name the app or its plugin."""

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from signoff import App

app = App(manifest="signoff.yaml")


@activity.defn
async def pack(order: str) -> str:
    """Pack an order."""
    return f"packed {order}"


@workflow.defn
class Order:
    """The worker's own workflow."""

    @workflow.run
    async def run(self, order: str) -> str:
        """Pack an order."""
        return await workflow.execute_activity(pack, order, start_to_close_timeout=timedelta(seconds=10))


async def main(address: str = "127.0.0.1:7233", task_queue: str = "signoff") -> None:
    """Run the worker until Ctrl-C."""
    async with app.plugin() as plugin:
        client = await Client.connect(address, plugins=[plugin])
        await Worker(client, task_queue=task_queue, workflows=[Order], activities=[pack]).run()


if __name__ == "__main__":
    asyncio.run(main())
