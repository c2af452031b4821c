"""Puts a gate into each workflow of a worker: before its activities, and at its end."""

from typing import Any

from temporalio import workflow
from temporalio.worker import (
    ExecuteWorkflowInput,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

from signoff_client.temporal.call_decisions import GatePlan
from signoff_client.temporal.workflow_gate import WorkflowGate


def workflow_interceptor(plan: GatePlan) -> type[WorkflowInboundInterceptor]:
    class GatedWorkflow(WorkflowInboundInterceptor):
        def init(self, outbound: WorkflowOutboundInterceptor) -> None:
            self._gate = WorkflowGate(plan)
            super().init(_GatedOutbound(outbound, self._gate))

        async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
            try:
                return await super().execute_workflow(input)
            finally:
                await self._gate.close()

    return GatedWorkflow


class _GatedOutbound(WorkflowOutboundInterceptor):
    def __init__(self, following: WorkflowOutboundInterceptor, gate: WorkflowGate) -> None:
        super().__init__(following)
        self._gate = gate

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        return self._gate.start(input, self.next.start_activity)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        return self._gate.start(input, self.next.start_local_activity)
