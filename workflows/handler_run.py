"""Delivers one event to the handler of one subscription: a workflow with one activity and one attempt."""

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from signoff.contracts import names
    from signoff.contracts.activity_messages import EventTask
    from signoff.workflows.temporal_metadata import summary

_SLACK: Final = timedelta(seconds=10)
_HEARTBEAT: Final = timedelta(seconds=20)


@workflow.defn(name=names.HANDLER_RUN, sandboxed=False)
class HandlerRun:
    """Does not retry: after a failure, the sender starts another run."""

    @workflow.run
    async def run(self, task: EventTask) -> None:
        await workflow.execute_activity(
            names.EVENT,
            task,
            start_to_close_timeout=timedelta(seconds=task.seconds) + _SLACK,
            heartbeat_timeout=_HEARTBEAT,
            retry_policy=RetryPolicy(maximum_attempts=1),
            summary=summary(task.subscription),
        )
