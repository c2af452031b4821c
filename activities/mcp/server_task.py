"""Follows a task of MCP's tasks extension, with which a server answers a call that takes long, until it is over."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import mcp_types as types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from pydantic import Field, ValidationError

from signoff.contracts.errors import Unavailable

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension's name."""
LOOKS: Final = 5
"""After so many looks in a row that were not answered a task is lost."""
POLL_SECONDS: Final = 1.0
"""How often is looked where the server does not say."""
LONGEST_POLL_SECONDS: Final = 30.0
CANCEL_SECONDS: Final = 5.0
"""How long a server may take to acknowledge that a task is cancelled."""


class CreatedTask(types.Result):
    """A task that a server has begun in place of an answer."""

    result_type: Literal["task"] = "task"
    task_id: str
    poll_interval_ms: float | None = Field(None, ge=0)


class TaskState(types.Result):
    """A task as it stands, with what came of it."""

    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    poll_interval_ms: float | None = Field(None, ge=0)
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _TaskParams(types.RequestParams):
    """Names a task."""

    task_id: str


class GetTask(types.Request[_TaskParams, Literal["tasks/get"]]):
    """Asks how a task stands."""

    method: Literal["tasks/get"] = "tasks/get"
    params: _TaskParams
    name_param = "taskId"


class CancelTask(types.Request[_TaskParams, Literal["tasks/cancel"]]):
    """Asks that a task be cancelled."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _TaskParams
    name_param = "taskId"


class TaskExtension(ClientExtension):
    """Tells servers that a task may be their answer."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """See `ClientExtension`."""
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=_resolve)]


class TaskEnded(Exception):
    """A task that came to no result; with what its server says of it."""


class TaskLost(Exception):
    """A task of which nobody knows what became."""


Ask: TypeAlias = Callable[[GetTask | CancelTask, type[Any]], Awaitable[Any]]
"""Sends a request by a connection that is open, and returns its result. Raises `Unavailable` where there is none,
`ConnectionError` where it ended, and what the SDK raises."""


async def follow_task(task: CreatedTask, ask: Ask) -> types.CallToolResult:
    """Returns the result of a task once it is there, however often connections end meanwhile.

    Raises `TaskEnded` where there is none and `TaskLost` where nobody knows. Whoever cancels this cancels the task.
    """
    try:
        return await _follow(task, ask)
    except asyncio.CancelledError:
        await _cancel(task, ask)
        raise


async def _follow(task: CreatedTask, ask: Ask) -> types.CallToolResult:
    interval, missed = task.poll_interval_ms, 0
    while True:
        await asyncio.sleep(_pause(interval))
        try:
            state: TaskState = await ask(GetTask(params=_TaskParams(task_id=task.task_id)), TaskState)
        # The task is the server's own, and outlives a connection.
        except (Unavailable, ConnectionError, TimeoutError):
            missed += 1
            if missed >= LOOKS:
                raise TaskLost from None
            continue
        except (MCPError, ValidationError):
            # Not there any more, or nothing that says how it stands.
            raise TaskLost from None
        interval, missed = state.poll_interval_ms if state.poll_interval_ms is not None else interval, 0
        match state.status:
            case "completed":
                return _read_result(state)
            case "failed":
                raise TaskEnded(str((state.error or {}).get("message") or "it failed"))
            case "cancelled":
                # By somebody else, and nobody says how far it had come.
                raise TaskLost
            case "input_required":
                await _cancel(task, ask)
                raise TaskEnded("its server asks its caller for input, which Signoff does not give")


def _read_result(state: TaskState) -> types.CallToolResult:
    try:
        return types.CallToolResult.model_validate(state.result)
    except ValidationError:
        raise TaskLost from None


async def _cancel(task: CreatedTask, ask: Ask) -> None:
    with suppress(Unavailable, ConnectionError, TimeoutError, MCPError, ValidationError):
        async with asyncio.timeout(CANCEL_SECONDS):
            await ask(CancelTask(params=_TaskParams(task_id=task.task_id)), types.EmptyResult)


def _pause(milliseconds: float | None) -> float:
    return POLL_SECONDS if milliseconds is None else min(milliseconds / 1_000, LONGEST_POLL_SECONDS)


async def _resolve(task: CreatedTask, context: ClaimContext) -> types.CallToolResult:
    raise NotImplementedError("tasks are followed by whoever calls the tool")
