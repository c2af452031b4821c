"""Follows a task of MCP's tasks extension to its end. A server answers a long call with such a task."""

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
"""After this many failed polls in a row, a task counts as lost."""
POLL_SECONDS: Final = 1.0
"""Polling interval if the server names none."""
LONGEST_POLL_SECONDS: Final = 30.0
CANCEL_SECONDS: Final = 5.0
"""Time limit for a server to acknowledge a cancelled task."""


class CreatedTask(types.Result):
    """A task that a server started instead of answering."""

    result_type: Literal["task"] = "task"
    task_id: str
    poll_interval_ms: float | None = Field(None, ge=0)


class TaskState(types.Result):
    """The state of a task, with its result or error."""

    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    poll_interval_ms: float | None = Field(None, ge=0)
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _TaskParams(types.RequestParams):
    """Names a task."""

    task_id: str


class GetTask(types.Request[_TaskParams, Literal["tasks/get"]]):
    """Requests the state of a task."""

    method: Literal["tasks/get"] = "tasks/get"
    params: _TaskParams
    name_param = "taskId"


class CancelTask(types.Request[_TaskParams, Literal["tasks/cancel"]]):
    """Requests the cancellation of a task."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _TaskParams
    name_param = "taskId"


class TaskExtension(ClientExtension):
    """Announces to servers that the client accepts tasks as answers."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=_resolve)]


class TaskEnded(Exception):
    """A task ended without a result. The message is the server's."""


class TaskLost(Exception):
    """The outcome of a server task is unknown."""


Ask: TypeAlias = Callable[[GetTask | CancelTask, type[Any]], Awaitable[Any]]
"""Sends a request over an open connection, and returns its result.

Raises `Unavailable` without a connection, `ConnectionError` if it ended, and the SDK's errors.
"""


async def follow_task(task: CreatedTask, ask: Ask) -> types.CallToolResult:
    """Return the result of a task, across any number of ended connections.

    Raises `TaskEnded` without a result, `TaskLost` if the outcome is unknown. Cancelling this cancels the task.
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
        # The task belongs to the server, and outlives a connection.
        except (Unavailable, ConnectionError, TimeoutError):
            missed += 1
            if missed >= LOOKS:
                raise TaskLost from None
            continue
        except (MCPError, ValidationError):
            # The task does not exist, or the answer has no state.
            raise TaskLost from None
        interval, missed = state.poll_interval_ms if state.poll_interval_ms is not None else interval, 0
        match state.status:
            case "completed":
                return _read_result(state)
            case "failed":
                raise TaskEnded(str((state.error or {}).get("message") or "it failed"))
            case "cancelled":
                # Another client cancelled it, and its progress is unknown.
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
    raise NotImplementedError("the tool's caller follows the task")
