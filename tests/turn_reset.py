import uuid
from collections.abc import Collection

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client

from signoff.contracts.ids import TurnKey

ANSWERS = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
)
"""The events of people's answers."""


async def reset_turn(
    client: Client,
    key: TurnKey,
    before: Collection[EventType.ValueType],
    *,
    to_start: bool = False,
    without_answers: bool = False,
) -> None:
    await reset_workflow(client, key.workflow_id, before, to_start=to_start, without_answers=without_answers)


async def reset_workflow(
    client: Client,
    workflow: str,
    before: Collection[EventType.ValueType],
    *,
    to_start: bool = False,
    without_answers: bool = False,
) -> None:
    """Reset to the last workflow task completed before the first event of these types, or to the first task. `to_start`
    resets to the first workflow task in any case.
    """
    point = 0
    async for event in client.get_workflow_handle(workflow).fetch_history_events():
        if event.event_type in before or (point and to_start):
            break
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            point = event.event_id
    excluded = (
        ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
        ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
    )
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow),
            reason="test",
            workflow_task_finish_event_id=point,
            request_id=uuid.uuid4().hex,
            reset_reapply_exclude_types=excluded if without_answers else (),
        )
    )
