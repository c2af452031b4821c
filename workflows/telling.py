"""Lets those who are asked know on their channels, beside all that the turn does."""

import asyncio

from temporalio import workflow

from signoff.contracts import names
from signoff.contracts.steps import DeliverTask
from signoff.workflows import options, outcomes


class Telling:
    """The notices of one turn that are under way. Nothing waits for one but the turn's very end.

    Nothing may follow from one either: several local activities end in any order, but a history that is read anew ends
    them in the order in which they began.
    """

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def done(self) -> bool:
        """Whether no notice is under way."""
        return not self._under_way

    def tell(self, notice: DeliverTask) -> None:
        """Have a notice written down, from where the courier takes it."""
        task = asyncio.create_task(_deliver(notice))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


async def _deliver(notice: DeliverTask) -> None:
    request = notice.request
    try:
        await workflow.execute_local_activity(
            names.DELIVER, notice, summary=f"Tell those asked: {request.code} {notice.event}", **options.DELIVER
        )
    except outcomes.LOST:
        # The request waits in the inbox all the same, and the courier looks for what was lost.
        workflow.logger.warning("nobody was told that %s is %s: the store did not answer", request.id, notice.event)
