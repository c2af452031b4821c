"""The hand-written equivalent: model, wait for a signal, tool, model. It has no gates, tickets or inbox."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow

PATIENCE = timedelta(seconds=60)


@dataclass
class Ask:
    """The workflow's input. With `human`, it waits for a signal before the tool."""

    text: str
    human: bool


@dataclass
class Payment:
    """The proposed payment."""

    amount: float
    to: str


@activity.defn
async def propose(messages: list[str]) -> Payment:
    return Payment(amount=420 if messages[0] == "human" else 20, to="Ana")


@activity.defn
async def transfer(payment: Payment) -> str:
    return "paid"


@activity.defn
async def conclude(messages: list[str]) -> str:
    return "done"


@workflow.defn
class HandWritten:
    """The smallest workflow for the work."""

    def __init__(self) -> None:
        self._verdict = ""

    @workflow.signal
    def decide(self, verdict: str) -> None:
        self._verdict = verdict

    @workflow.run
    async def run(self, ask: Ask) -> str:
        messages = [ask.text]
        payment = await workflow.execute_activity(propose, messages, start_to_close_timeout=PATIENCE)
        if ask.human:
            await workflow.wait_condition(lambda: bool(self._verdict))
        messages.append(await workflow.execute_activity(transfer, payment, start_to_close_timeout=PATIENCE))
        return await workflow.execute_activity(conclude, messages, start_to_close_timeout=PATIENCE)


@activity.defn
async def allow(payment: Payment) -> bool:
    """A workflow cannot look this up without an activity."""
    return payment.amount < 50


@workflow.defn
class OneActivity:
    """The smallest workflow for a tool: one activity."""

    @workflow.run
    async def run(self, payment: Payment) -> str:
        return await workflow.execute_activity(transfer, payment, start_to_close_timeout=PATIENCE)


@workflow.defn
class RunElsewhere:
    """The smallest workflow for a tool elsewhere: an activity permits the call, and a report of the outcome ends it."""

    def __init__(self) -> None:
        self._told = ""

    @workflow.update
    async def permit(self, payment: Payment) -> bool:
        return await workflow.execute_activity(allow, payment, start_to_close_timeout=PATIENCE)

    @workflow.update
    async def report(self, told: str) -> str:
        self._told = told
        return told

    @workflow.run
    async def run(self, payment: Payment) -> str:
        await workflow.wait_condition(lambda: bool(self._told))
        return self._told
