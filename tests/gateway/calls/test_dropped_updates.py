from collections.abc import Iterator
from typing import Any

import pytest
from call_rig import CallRig
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowUpdateInput,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from turn_fixtures import PATIENCE

from signoff.contracts.activity_messages import UseReply
from signoff.contracts.ids import TurnKey
from signoff.engine.call_client import CallClient
from signoff.engine.turn_client import TurnClient

FAILED_TASK = RPCError("workflow task failure", RPCStatusCode.FAILED_PRECONDITION, b"")
"""The server's error if the workflow task that should accept the Update failed."""
DROPPED = WorkflowUpdateFailedError(ApplicationError("dropped", type="AcceptedUpdateFailed"))
"""The server's error if a worker did not answer the Update."""


class _Dropping(Interceptor):
    def __init__(self, errors: Iterator[Exception]) -> None:
        self.errors = errors

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _DroppingOutbound(next, self.errors)


class _DroppingOutbound(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, errors: Iterator[Exception]) -> None:
        super().__init__(next)
        self._errors = errors

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> Any:
        for error in self._errors:
            raise error
        return await super().start_workflow_update(input)


def client_after(agent: CallRig, *errors: Exception) -> CallClient:
    turns = agent.rig.deps.client
    config = turns.temporal.config()
    config["interceptors"] = [_Dropping(iter(errors))]
    return CallClient(TurnClient(Client(**config), task_queue=turns.task_queue, patience=PATIENCE))


@pytest.mark.parametrize("error", [FAILED_TASK, DROPPED], ids=["failed task", "dropped"])
async def test_permit_survives_dropped_updates(agent: CallRig, error: Exception) -> None:
    """Without the retry, such an error counted as the turn's end, and the permit as lapsed."""
    call = (await agent.propose()).json()["id"]
    key = TurnKey(*call.split("."))
    used = await client_after(agent, error, error).use(key, "a-try-of-mine")
    assert isinstance(used, UseReply)
    assert used.permit is not None
    await agent.report(call)
    await agent.rig.turns.signoff.result(key)
    assert await client_after(agent, error).use(key, "another-try") is None
