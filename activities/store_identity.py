"""Keeps workers from turns of another store, whose tickets are not in this one.

A store that was moved away, or restored without the end of its log, starts again silently, and a worker that continued
would repeat completed calls. It retries until the turn's own store is back.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from signoff.contracts.activity_messages import OutcomeTask

BEGUN_ELSEWHERE: Final = (
    "a turn was begun with the store {}, and this is the store {}: it is left alone until its own store is back, with "
    "all of its files"
)
_log: Final = logging.getLogger(__name__)


class StoreInterceptor(Interceptor):
    """Checks that each turn, and each of its activities, began with the store `store_id`."""

    def __init__(self, store_id: str) -> None:
        self._store_id = store_id
        self._reported: set[str] = set()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(next, self._problem)

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """The SDK creates one instance a run, and passes it only the next interceptor."""
        problem = self._problem

        class OfTurn(WorkflowInboundInterceptor):
            """Fails the task of a turn, not the turn: another worker, or the right store, continues it."""

            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
                """See `WorkflowInboundInterceptor`."""
                requester = getattr(input.args[0], "principal", None) if input.args else None
                why = problem(getattr(requester, "store_id", ""))
                if why:
                    # Raise an ordinary exception, which does not end the turn.
                    raise RuntimeError(why)
                return await super().execute_workflow(input)

        return OfTurn

    def _problem(self, store_id: str) -> str:
        if store_id in ("", self._store_id):
            return ""
        why = BEGUN_ELSEWHERE.format(store_id, self._store_id)
        # Log once a store: the server retries every few seconds, with every such turn.
        if store_id not in self._reported:
            self._reported.add(store_id)
            _log.warning("%s", why)
        return why


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, problem: Callable[[str], str]) -> None:
        super().__init__(next)
        self._problem = problem

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        task = input.args[0] if input.args else None
        ctx = getattr(task.run if isinstance(task, OutcomeTask) else task, "ctx", None)
        why = self._problem(ctx.user.store_id) if ctx is not None else ""
        if why:
            raise ApplicationError(why, type="OtherStore")
        return await super().execute_activity(input)
