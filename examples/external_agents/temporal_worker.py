from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from signoff_client import Gate
from signoff_client.temporal import Gated


@activity.defn
async def refund(order: str, euro: float) -> str:
    return f"refunded {euro:.0f} EUR for {order}"


def make_worker(client: Client, gate: Gate, flow: type) -> Worker:
    return Worker(client, task_queue="refunds", workflows=[flow], activities=[refund], plugins=[Gated(gate, [refund])])
