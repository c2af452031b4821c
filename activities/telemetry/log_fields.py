"""Adds the ids of turn and call to every line that an activity logs."""

from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from signoff.contracts.activity_messages import RunTask
from signoff.contracts.ids import parse_workflow_id
from signoff.telemetry.json_log import bind_log_fields, fields_of_call, fields_of_turn


class LogFieldsInterceptor(Interceptor):
    """Binds the fields of an activity's log."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Bound(next)


class _Bound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        workflow = activity.info().workflow_id or ""
        turn, task = parse_workflow_id(workflow), input.args[0] if input.args else None
        if turn is not None and isinstance(task, RunTask):
            fields = fields_of_call(turn, task.call)
        else:
            fields = fields_of_turn(workflow)
        with bind_log_fields(fields):
            return await super().execute_activity(input)
