"""Local activity `signoff.answers`: reads the stored answers to a request before it times out."""

import asyncio

from temporalio import activity

from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts import names
from signoff.contracts.activity_messages import AnswersTask, StoredAnswers
from signoff.store.questions.questions import Questions


class AnswersActivity:
    """Raises `StoreUnavailable`, and Temporal retries."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._rows = Questions(deps.store)

    @activity.defn(name=names.ANSWERS)
    async def read_answers(self, task: AnswersTask) -> StoredAnswers:
        """Return the revision's decisions in stored order, without voided ones.

        Waits while a denial can be undone: the turn would treat it as final.
        """
        while True:
            rows = await self._rows.read(task.approval)
            if rows is None or rows.undo_seconds <= 0:
                break
            await asyncio.sleep(rows.undo_seconds)
        counting = [each for each in (() if rows is None else rows.answers) if not each.void]
        return StoredAnswers(decisions=tuple(each.vote.decision for each in counting if each.revision == task.revision))
