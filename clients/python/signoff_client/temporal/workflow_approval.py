"""Asks for approval from a workflow's own code, if the dangerous step is not an activity."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, cast

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from signoff_client.temporal.messages import APPROVED, EXTERN, RETRY, Approval

_TIME: Final = timedelta(minutes=2)
"""Timeout of one attempt to use the permit."""


async def ask(tool: str, args: Mapping[str, Any] | None = None, *, says: str = "", user: str = "") -> dict[str, Any]:
    """Ask for approval of a step in the workflow's own code. Returns the approved arguments.

    This already uses and reports the permit: the workflow itself runs the step. Raises `ApplicationError` of the type
    `ToolDenied` or `ToolInDoubt` if it may not run, and `RuntimeError` in a worker without the plugin.
    """
    if EXTERN not in workflow.extern_functions():
        raise RuntimeError("this worker has no gate: give it `plugins=[signoff_client.temporal.Gated(...)]`")
    approval = Approval(tool, dict(args or {}), says, user)
    try:
        return cast(
            dict[str, Any],
            await workflow.execute_activity(
                APPROVED, approval, result_type=dict[str, Any], start_to_close_timeout=_TIME, retry_policy=RETRY
            ),
        )
    except ActivityError as error:
        if isinstance(error.cause, ApplicationError):
            raise error.cause from None
        raise
