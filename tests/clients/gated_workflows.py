import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from signoff_client.temporal import ask

RAN: list[tuple[str, float]] = []
_TIME = timedelta(minutes=5)


@dataclass
class Money:
    order: str
    euro: float


@activity.defn
async def refund(order: str, euro: float) -> str:
    RAN.append((order, euro))
    if order == "closed":
        raise ValueError("the bank is closed")
    return f"refunded {euro:.0f} EUR for {order}"


@activity.defn
def refund_money(money: Money) -> Money:
    RAN.append((money.order, money.euro))
    return money


@activity.defn
async def hang(order: str, euro: float) -> str:
    """Starts a payment and hangs. Its order is a file that records the start, and a second file ends it."""
    await asyncio.to_thread(Path(order).touch)
    while not await asyncio.to_thread(Path(f"{order}.end").exists):
        if activity.info().heartbeat_timeout:
            activity.heartbeat()
        await asyncio.sleep(0.1)
    return "paid at last"


class InterruptException(Exception):
    __module__ = "strands.interrupt"


INTERRUPTED: set[str] = set()
"""Orders about which a tool has asked its user."""


@activity.defn
async def interrupt(order: str, euro: float) -> str:
    if order not in INTERRUPTED:
        INTERRUPTED.add(order)
        raise InterruptException(order)
    RAN.append((order, euro))
    return f"refunded {euro:.0f} EUR for {order}"


@activity.defn
async def complete_elsewhere(order: str, euro: float) -> str:
    activity.raise_complete_async()


@activity.defn
async def look(order: str) -> str:
    return f"seen {order}"


def _words(error: ActivityError) -> str:
    cause = error.cause
    return f"{cause.type}: {cause.message}" if isinstance(cause, ApplicationError) else f"{type(cause).__name__}"


@workflow.defn
class Refunds:
    @workflow.run
    async def run(self, orders: list[tuple[str, float]], kind: str = "refund", queue: str = "") -> list[str]:
        """`kind` is the activity. `local` is a refund as a local activity, `slow` hangs and is retried."""
        return list(await asyncio.gather(*(self._refund(order, euro, kind, queue) for order, euro in orders)))

    async def _refund(self, order: str, euro: float, kind: str, queue: str) -> str:
        retry = RetryPolicy(initial_interval=timedelta(milliseconds=100))
        try:
            if kind == "local":
                return await workflow.execute_local_activity(
                    refund, args=[order, euro], start_to_close_timeout=_TIME, retry_policy=retry
                )
            if kind == "money":
                paid = await workflow.execute_activity(refund_money, Money(order, euro), start_to_close_timeout=_TIME)
                return f"paid {paid.euro:.0f}"
            beat = timedelta(seconds=2) if kind == "hang" else None
            return str(
                await workflow.execute_activity(
                    "hang" if kind == "slow" else kind,
                    args=[order, euro],
                    start_to_close_timeout=timedelta(seconds=2) if kind == "slow" else _TIME,
                    heartbeat_timeout=beat,
                    retry_policy=retry,
                    task_queue=queue or None,
                )
            )
        except ActivityError as error:
            return _words(error)


@workflow.defn
class Impatient:
    def __init__(self) -> None:
        self._cancel = False

    @workflow.signal
    def cancel(self) -> None:
        self._cancel = True

    @workflow.run
    async def run(self, order: str, kind: str = "refund", how: str = "TRY_CANCEL") -> str:
        hangs = kind == "hang"
        handle = workflow.start_activity(
            kind,
            args=[order, 20.0 if hangs else 200.0],
            start_to_close_timeout=_TIME,
            heartbeat_timeout=timedelta(seconds=30) if hangs and how != "ABANDON" else None,
            cancellation_type=workflow.ActivityCancellationType[how],
        )
        await workflow.wait_condition(lambda: self._cancel)
        handle.cancel()
        try:
            return str(await handle)
        except ActivityError as error:
            return _words(error)


@workflow.defn
class Stubborn:
    @workflow.run
    async def run(self, order: str) -> list[str]:
        told = []
        for name in ("refund", "refund", "refund_money"):
            args: list[Any] = [Money(order, 200.0)] if name == "refund_money" else [order, 200.0]
            try:
                told.append(str(await workflow.execute_activity(name, args=args, start_to_close_timeout=_TIME)))
            except ActivityError as error:
                told.append(_words(error))
        return told


@workflow.defn
class Renewed:
    def __init__(self) -> None:
        self._go_on = False

    @workflow.signal
    def go_on(self) -> None:
        self._go_on = True

    @workflow.run
    async def run(self, order: str, is_new: bool = False) -> str:
        refunding = workflow.start_activity(refund, args=[order, 200.0], start_to_close_timeout=_TIME)
        if not is_new:
            await workflow.wait_condition(lambda: self._go_on)
            workflow.continue_as_new(args=[order, True])
        return await refunding


@workflow.defn
class Interrupted:
    def __init__(self) -> None:
        self.told = ""
        self._go_on = False

    @workflow.query
    def what_was_told(self) -> str:
        return self.told

    @workflow.signal
    def go_on(self) -> None:
        self._go_on = True

    @workflow.run
    async def run(self, order: str) -> str:
        once: dict[str, Any] = {"start_to_close_timeout": _TIME, "retry_policy": RetryPolicy(maximum_attempts=1)}
        try:
            return await workflow.execute_activity(interrupt, args=[order, 200.0], **once)
        except ActivityError as error:
            self.told = _words(error)
        await workflow.wait_condition(lambda: self._go_on)
        return await workflow.execute_activity(interrupt, args=[order, 200.0], **once)


@workflow.defn
class Parent:
    @workflow.run
    async def run(self, order: str) -> str:
        return await workflow.execute_child_workflow("Trusting", order, id=f"{workflow.info().workflow_id}-child")


@workflow.defn
class Trusting:
    @workflow.run
    async def run(self, order: str) -> str:
        return await workflow.execute_activity(refund, args=[order, 200.0], start_to_close_timeout=_TIME)


@workflow.defn
class Forgetful:
    @workflow.run
    async def run(self, order: str) -> str:
        refunding = workflow.start_activity(refund, args=[order, 200.0], start_to_close_timeout=_TIME)
        await workflow.sleep(0.1)
        return "refunded" if refunding.done() else "forgotten"


@workflow.defn
class Twice:
    def __init__(self) -> None:
        self._go_on = False

    @workflow.signal
    def go_on(self) -> None:
        self._go_on = True

    @workflow.run
    async def run(self, order: str, euro: float) -> list[str]:
        first = await workflow.execute_activity(refund, args=[order, 20.0], start_to_close_timeout=_TIME)
        seen = await workflow.execute_activity(look, order, start_to_close_timeout=_TIME)
        await workflow.wait_condition(lambda: self._go_on)
        try:
            second = await workflow.execute_activity(refund, args=[order, euro], start_to_close_timeout=_TIME)
        except ActivityError as error:
            second = _words(error)
        return [first, seen, second]


@workflow.defn
class Asks:
    @workflow.run
    async def run(self, order: str) -> dict[str, Any]:
        try:
            return await ask("refund", {"order": order, "euro": 200}, says="a good customer", user="guest")
        except ApplicationError as error:
            return {"type": error.type, "message": error.message}
        except RuntimeError as error:
            return {"error": str(error)}


WORKFLOWS = [Refunds, Trusting, Impatient, Stubborn, Renewed, Parent, Forgetful, Twice, Asks, Interrupted]
ACTIVITIES = [refund, refund_money, hang, look, interrupt, complete_elsewhere]
