"""Reads and updates workflow runs over one Temporal client, with shared queries and a memory of server outages."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from google.protobuf.message import Message as ProtobufMessage
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode, ServiceClient, ServiceResponse, _BridgeServiceClient

from signoff.contracts import names
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.receipt import Receipt
from signoff.contracts.session_messages import SessionReceipt

PATIENCE: Final = timedelta(seconds=3)
"""Time limit of a worker's answer, before an Update becomes a Signal or a query fails."""
_LOOK_SECONDS = 1.0
_LEAST_LOOK_SECONDS = 0.1
_POLL_SECONDS = 1.0
"""Time limit for a new worker's first poll to reach the server."""
_NO_ANSWER = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
_NO_POLLER = "no poller seen"
"""A server's immediate answer, with `FAILED_PRECONDITION`, to a query for a task queue without recent polls."""
ANOTHER = "it could not be read: the workflow with its id answers as another"
_CUT_OFF = "[TMPRL1100]"
"""The SDK core's message about an unreadable history."""
UNREADABLE = "it could not be read: the workflow with its id gives an unreadable answer"
_Receipt = TypeVar("_Receipt", Receipt, SessionReceipt)
NO_MORE_UPDATES = (
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    # A server limits parallel Updates, and Updates of a turn. A caller that exhausts them must not silence others.
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.FAILED_PRECONDITION,
)
AWAY_SECONDS: Final = 1.0
"""Pause before an absent server is probed again."""
_PROBE_SECONDS: Final = 3.0
_WAIT_SECONDS: Final = 0.3
"""Time that a caller waits for the probe of an absent server."""
_MAY_BE_AWAY: Final = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)


class RunClient:
    """Queries and updates runs.

    Stores only running queries. Safe to share within one event loop. `patience` is the time limit of workers' answers.
    """

    def __init__(
        self, client: Client, *, task_queue: str = names.DEFAULT_TASK_QUEUE, patience: timedelta = PATIENCE
    ) -> None:
        self.temporal = watch_server(client)
        self._task_queue = task_queue
        self._patience = patience
        self._queries = SharedQueries()

    @property
    def task_queue(self) -> str:
        return self._task_queue

    @property
    def patience(self) -> timedelta:
        return self._patience

    def handle(self, key: TurnKey | SessionKey, result_type: type[Any] | None = None) -> WorkflowHandle[Any, Any]:
        return self.temporal.get_workflow_handle(key.workflow_id, result_type=result_type)

    async def query(self, key: TurnKey | SessionKey, query: str, result_type: Any) -> Any:
        """Raises `NotFound`, and `ServerUnavailable` if no worker answers."""
        try:
            found = await self._run_query(self.handle(key), query, result_type=result_type)
        except RPCError as error:
            raise missing(error, key.workflow_id) from None
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            raise ServerUnavailable(f"it could not be read: {error}") from None
        # A forged workflow may answer: with an invalid answer, even the kind of error is unknown.
        except Exception:
            raise ServerUnavailable(UNREADABLE) from None
        # An empty answer decodes as any type.
        if found is None:
            raise ServerUnavailable(UNREADABLE)
        return found

    async def _run_query(self, handle: WorkflowHandle[Any, Any], query: str, *about: str, result_type: Any) -> Any:
        """The query ends within `patience`, even if it begins later."""
        late = time.monotonic() + self._patience.total_seconds()

        async def ask() -> Any:
            return await _asked_until(late, handle, query, about, result_type)

        return await self._queries.ask(" ".join((handle.id, query, *about)), ask)

    async def await_update(self, sent: Awaitable[_Receipt]) -> _Receipt:
        """Return the receipt of an Update. Raises the SDK's timeout after `patience`.

        `rpc_timeout` limits only one request: if a worker accepted an Update and was lost, the SDK would poll without
        end.
        """
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                return await sent
        except TimeoutError:
            raise WorkflowUpdateRPCTimeoutOrCancelledError from None


async def take_start_error(start: WithStartWorkflowOperation[Any, Any]) -> None:
    """Retrieve the start's error of a failed Update, so that asyncio does not log it as unretrieved."""
    with contextlib.suppress(WorkflowAlreadyStartedError, RPCError, asyncio.CancelledError, TimeoutError):
        # The result is present already, or will never arrive.
        async with asyncio.timeout(0):
            await start.workflow_handle()


async def execute_update(handle: WorkflowHandle[Any, Any], update: str, body: Any, **options: Any) -> Any:
    """Repeat an Update once if its workflow task failed, as the server then forgets it. Raises the SDK's errors."""
    try:
        return await handle.execute_update(update, body, **options)
    except RPCError as error:
        # A turn that has used up its Updates answers the same, and does so again.
        if error.status != RPCStatusCode.FAILED_PRECONDITION:
            raise
    return await handle.execute_update(update, body, **options)


async def _asked_until(
    late: float, handle: WorkflowHandle[Any, Any], query: str, about: Sequence[str], result_type: Any
) -> Any:
    """Query repeatedly until `late`.

    A worker may lose a query of a turn that just ends. A worker that just began is not yet known to poll.
    """
    patience = _LOOK_SECONDS
    polled = min(late, time.monotonic() + _POLL_SECONDS)
    while True:
        # A query that waited for another may have no time left. It still runs once.
        left = max(late - time.monotonic(), _LEAST_LOOK_SECONDS)
        try:
            return await handle.query(
                query, args=about, result_type=result_type, rpc_timeout=timedelta(seconds=min(left, patience))
            )
        except RPCError as error:
            if _is_unpolled(error) and time.monotonic() < polled:
                await asyncio.sleep(_LEAST_LOOK_SECONDS)
                continue
            # A busy machine reports a timeout late: the time limit may be over.
            if error.status not in _NO_ANSWER or late - time.monotonic() < _LEAST_LOOK_SECONDS:
                raise
            patience *= 2
        except WorkflowQueryFailedError as error:
            # The SDK's core misreads a history that ends within a task, and reads it correctly the next time.
            if _CUT_OFF not in str(error) or late - time.monotonic() < _LEAST_LOOK_SECONDS:
                raise
            await asyncio.sleep(_LEAST_LOOK_SECONDS)


def missing(error: RPCError, workflow_id: str) -> NotFound | ServerUnavailable:
    if error.status == RPCStatusCode.NOT_FOUND:
        return NotFound(f"there is no {workflow_id.partition('/')[0]} `{workflow_id}`")
    return unavailable(error)


def _is_unpolled(error: RPCError) -> bool:
    return error.status == RPCStatusCode.FAILED_PRECONDITION and _NO_POLLER in error.message


def unavailable(error: RPCError) -> ServerUnavailable:
    if error.status in _NO_ANSWER or _is_unpolled(error):
        return ServerUnavailable("no worker answered in time; is one running on this task queue?")
    if error.status == RPCStatusCode.INVALID_ARGUMENT and "search attribute" in error.message.lower():
        return ServerUnavailable("the server lacks Signoff's search attributes; run `signoff doctor` to create them")
    # For example for a turn with a failing task, which no worker can answer for: the server did answer.
    words = "refused this for now" if error.status == RPCStatusCode.FAILED_PRECONDITION else "did not answer"
    return ServerUnavailable(f"the Temporal server {words}: {error.message.partition(chr(10))[0]}")


class SharedQueries:
    """Answers callers with an equal question by one shared query.

    A caller never gets the answer of the running query, which may precede the caller's own last action. Each query
    makes a worker replay an uncached run, and the SDK (1.35) loses a run with parallel queries if its cache is full.
    Therefore one query runs at a time.
    """

    def __init__(self) -> None:
        self._now: dict[str, asyncio.Task[Any]] = {}
        self._next: dict[str, asyncio.Task[Any]] = {}

    async def ask(self, key: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Raises the errors of `ask`."""
        waiting = self._next.get(key)
        if waiting is None:
            before = self._now.get(key)
            waiting = asyncio.create_task(self._after(key, before, ask))
            # Retrieve the exception here: if all callers have left, asyncio would otherwise log it.
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            if before is None:
                self._now[key] = waiting
            else:
                self._next[key] = waiting
        # Shield it: a caller that leaves must not cancel the answer of the others.
        return await asyncio.shield(waiting)

    async def _after(self, key: str, before: asyncio.Task[Any] | None, ask: Callable[[], Awaitable[Any]]) -> Any:
        if before is not None:
            await asyncio.wait([before])
            self._now[key] = self._next.pop(key)
        try:
            return await ask()
        finally:
            if key not in self._next:
                del self._now[key]


def watch_server(client: Client) -> Client:
    config = client.config(active_config=True)
    config["service_client"] = WatchedService(client.service_client)
    # The active configuration already has the plugins' changes.
    config["plugins"] = []
    return Client(**config)


class WatchedService(ServiceClient):
    """During a server outage, sends only a probe in each pause. Otherwise each call would wait separately."""

    def __init__(self, service: ServiceClient) -> None:
        super().__init__(service.config)
        self._service = service
        self._away = False
        self._due = 0.0
        self._probe: asyncio.Task[None] | None = None

    @property
    def worker_service_client(self) -> _BridgeServiceClient:
        return self._service.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        self._service.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        self._service.update_api_key(api_key)

    async def _rpc_call(
        self,
        rpc: str,
        req: ProtobufMessage,
        resp_type: type[ServiceResponse],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,  # noqa: ASYNC109 (the name of the SDK)
    ) -> ServiceResponse:
        await self._await_probe()
        if self._away:
            raise RPCError("it did not answer a moment ago", RPCStatusCode.UNAVAILABLE, b"")
        try:
            return await self._service._rpc_call(
                rpc, req, resp_type, service=service, retry=retry, metadata=metadata, timeout=timeout
            )
        except RPCError as error:
            # An absent worker, or a long poll, also lets a call time out.
            if error.status in _MAY_BE_AWAY:
                self._begin_probe()
                await self._await_probe()
            raise
        except asyncio.CancelledError:
            # The caller's own time limit ended. Its next call waits for the probe.
            self._begin_probe()
            raise

    async def _await_probe(self) -> None:
        if self._away and time.monotonic() >= self._due:
            self._begin_probe()
        if self._probe is not None:
            # For a suspected outage, wait until the probe ends: another call would take as long.
            await asyncio.wait({self._probe}, timeout=_WAIT_SECONDS if self._away else None)

    def _begin_probe(self) -> None:
        if self._probe is None:
            self._probe = asyncio.create_task(self._look())

    async def _look(self) -> None:
        try:
            self._away = not await self._answers()
        finally:
            self._probe, self._due = None, time.monotonic() + AWAY_SECONDS

    async def _answers(self) -> bool:
        try:
            await self._service.workflow_service.get_system_info(
                GetSystemInfoRequest(), retry=False, timeout=timedelta(seconds=_PROBE_SECONDS)
            )
        except RPCError as error:
            return error.status not in _MAY_BE_AWAY
        return True
