"""Asks from a workflow's own code, where what is dangerous is no activity."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, cast

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from signoff_client.temporal.messages import APPROVED, EXTERN, RETRY, Approval

_TIME: Final = timedelta(minutes=2)
"""For how long one attempt to use the permit may take."""


async def ask(tool: str, args: Mapping[str, Any] | None = None, *, says: str = "", user: str = "") -> dict[str, Any]:
    """Asks, from a workflow's own code, whether it may go on; returns the arguments that were approved.

    The permit is used and reported with that: what the workflow does next is its own. Raises `ApplicationError` of the
    type `ToolDenied` or `ToolInDoubt` where it may not, and `RuntimeError` in a worker without the plugin.
    """
    if EXTERN not in workflow.extern_functions():
        raise RuntimeError("this worker has no gate: give it `plugins=[signoff_client.temporal.Gated(...)]`")
    given = Approval(tool, dict(args or {}), says, user)
    try:
        return cast(
            dict[str, Any],
            await workflow.execute_activity(
                APPROVED, given, result_type=dict[str, Any], start_to_close_timeout=_TIME, retry_policy=RETRY
            ),
        )
    except ActivityError as error:
        if isinstance(error.cause, ApplicationError):
            raise error.cause from None
        raise
