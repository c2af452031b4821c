"""What one would write by hand: model, wait for a signal, tool, model. No gate, no ticket, nothing to look at."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow

PATIENCE = timedelta(seconds=60)


@dataclass
class Ask:
    """Input of the workflow. `human` is whether it waits for a signal before the tool."""

    text: str
    human: bool


@dataclass
class Payment:
    """What the model proposes and the tool does."""

    amount: float
    to: str


@activity.defn
async def propose(messages: list[str]) -> Payment:
    """The model's first completion: it proposes a call."""
    return Payment(amount=420 if messages[0] == "human" else 20, to="Ana")


@activity.defn
async def transfer(payment: Payment) -> str:
    """The tool."""
    return "paid"


@activity.defn
async def conclude(messages: list[str]) -> str:
    """The model's second completion: it answers."""
    return "done"


@workflow.defn
class HandWritten:
    """The least that does the work."""

    def __init__(self) -> None:
        self._verdict = ""

    @workflow.signal
    def decide(self, verdict: str) -> None:
        """A person's answer."""
        self._verdict = verdict

    @workflow.run
    async def run(self, ask: Ask) -> str:
        """Propose, wait, pay, conclude."""
        messages = [ask.text]
        payment = await workflow.execute_activity(propose, messages, start_to_close_timeout=PATIENCE)
        if ask.human:
            await workflow.wait_condition(lambda: bool(self._verdict))
        messages.append(await workflow.execute_activity(transfer, payment, start_to_close_timeout=PATIENCE))
        return await workflow.execute_activity(conclude, messages, start_to_close_timeout=PATIENCE)


@activity.defn
async def allow(payment: Payment) -> bool:
    """Whether a call may run: no workflow can look that up itself."""
    return payment.amount < 50


@workflow.defn
class OneActivity:
    """The least that runs a tool: one activity."""

    @workflow.run
    async def run(self, payment: Payment) -> str:
        """Pays."""
        return await workflow.execute_activity(transfer, payment, start_to_close_timeout=PATIENCE)


@workflow.defn
class RunElsewhere:
    """The least that lets somebody else run a tool: an activity says yes, and it ends once it is told the outcome."""

    def __init__(self) -> None:
        self._told = ""

    @workflow.update
    async def permit(self, payment: Payment) -> bool:
        """Whether it may run."""
        return await workflow.execute_activity(allow, payment, start_to_close_timeout=PATIENCE)

    @workflow.update
    async def report(self, told: str) -> str:
        """What became of it."""
        self._told = told
        return told

    @workflow.run
    async def run(self, payment: Payment) -> str:
        """Waits for the report."""
        await workflow.wait_condition(lambda: bool(self._told))
        return self._told
