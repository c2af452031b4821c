"""Reads and updates workflow runs over one Temporal client: queries are shared, and an absent server is remembered."""

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
"""How long a worker may take before an answer goes as a Signal, or a question is given up."""
_LOOK_SECONDS = 1.0
_LEAST_LOOK_SECONDS = 0.1
_POLL_SECONDS = 1.0
"""How long a worker that has just begun may take until its first poll reaches the server."""
_NO_ANSWER = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
_NO_POLLER = "no poller seen"
"""What a server may say at once, with `FAILED_PRECONDITION`, of a query for a task queue that nobody polled lately."""
ANOTHER = "it could not be read: what runs under its id answers as another"
_CUT_OFF = "[TMPRL1100]"
"""What the SDK's core writes of a history that it cannot read."""
UNREADABLE = "it could not be read: what runs under its id answers what nobody can read"
_Receipt = TypeVar("_Receipt", Receipt, SessionReceipt)
NO_MORE_UPDATES = (
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    # A server takes so many updates at once and so many a turn; whoever used them up must not silence the others.
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.FAILED_PRECONDITION,
)
AWAY_SECONDS: Final = 1.0
"""Pause after which an absent server is asked again."""
_PROBE_SECONDS: Final = 3.0
_WAIT_SECONDS: Final = 0.3
"""Time that a caller waits for the probe of a server that is known to be away."""
_MAY_BE_AWAY: Final = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)


class RunClient:
    """Queries and updates runs.

    Keeps only running queries; safe to share within one event loop. `patience` is how long workers may take to answer.
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
        """Returns the task queue of the workers."""
        return self._task_queue

    @property
    def patience(self) -> timedelta:
        """Returns how long workers may take to answer."""
        return self._patience

    def handle(self, key: TurnKey | SessionKey, result_type: type[Any] | None = None) -> WorkflowHandle[Any, Any]:
        """Returns a handle of a run."""
        return self.temporal.get_workflow_handle(key.workflow_id, result_type=result_type)

    async def query(self, key: TurnKey | SessionKey, query: str, result_type: Any) -> Any:
        """Returns the answer to a query. Raises `NotFound`, and `ServerUnavailable` where no worker answers."""
        try:
            found = await self._run_query(self.handle(key), query, result_type=result_type)
        except RPCError as error:
            raise missing(error, key.workflow_id) from None
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            raise ServerUnavailable(f"it could not be read: {error}") from None
        # What answers may be anybody's workflow: of an answer that is none, not even the kind of error is known.
        except Exception:
            raise ServerUnavailable(UNREADABLE) from None
        # Nothing at all is read as whatever was expected.
        if found is None:
            raise ServerUnavailable(UNREADABLE)
        return found

    async def _run_query(self, handle: WorkflowHandle[Any, Any], query: str, *about: str, result_type: Any) -> Any:
        """Returns the answer to a query that begins now or later, and ends within `patience`."""
        late = time.monotonic() + self._patience.total_seconds()

        async def ask() -> Any:
            return await _asked_until(late, handle, query, about, result_type)

        return await self._queries.ask(" ".join((handle.id, query, *about)), ask)

    async def await_update(self, sent: Awaitable[_Receipt]) -> _Receipt:
        """Returns the receipt of an Update; raises the SDK's timeout where it takes longer than `patience`.

        `rpc_timeout` bounds a request: of an Update that a worker accepted and did not complete, as it was lost, the
        SDK would ask for ever.
        """
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                return await sent
        except TimeoutError:
            raise WorkflowUpdateRPCTimeoutOrCancelledError from None


async def take_start_error(start: WithStartWorkflowOperation[Any, Any]) -> None:
    """Takes the error, if any, out of the start of an Update that failed: else asyncio writes into the log that nobody
    did.
    """
    with contextlib.suppress(WorkflowAlreadyStartedError, RPCError, asyncio.CancelledError, TimeoutError):
        # It is there already, or never comes.
        async with asyncio.timeout(0):
            await start.workflow_handle()


async def execute_update(handle: WorkflowHandle[Any, Any], update: str, body: Any, **options: Any) -> Any:
    """Executes an Update; once more where its workflow task failed, with which a server forgets it.

    Raises what the SDK does.
    """
    try:
        return await handle.execute_update(update, body, **options)
    except RPCError as error:
        # A turn that has had as many Updates as it may answers so as well, and again.
        if error.status != RPCStatusCode.FAILED_PRECONDITION:
            raise
    return await handle.execute_update(update, body, **options)


async def _asked_until(
    late: float, handle: WorkflowHandle[Any, Any], query: str, about: Sequence[str], result_type: Any
) -> Any:
    """Queries a turn until `late`; repeats the query meanwhile, because a worker may lose one of a turn that just
    ends, and one that has just begun is not known to poll yet.
    """
    patience = _LOOK_SECONDS
    polled = min(late, time.monotonic() + _POLL_SECONDS)
    while True:
        # One that had to wait for another may have nothing left of its time; it looks once all the same.
        left = max(late - time.monotonic(), _LEAST_LOOK_SECONDS)
        try:
            return await handle.query(
                query, args=about, result_type=result_type, rpc_timeout=timedelta(seconds=min(left, patience))
            )
        except RPCError as error:
            if _is_unpolled(error) and time.monotonic() < polled:
                await asyncio.sleep(_LEAST_LOOK_SECONDS)
                continue
            # A busy machine tells of a time that ran out long after it did: nothing may be left of the patience.
            if error.status not in _NO_ANSWER or late - time.monotonic() < _LEAST_LOOK_SECONDS:
                raise
            patience *= 2
        except WorkflowQueryFailedError as error:
            # The SDK's core reads a history that ends in the middle of a task wrong, and the next time right.
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
    """Makes our error of one of the server's."""
    if error.status in _NO_ANSWER or _is_unpolled(error):
        return ServerUnavailable("no worker answered in time; is one running on this task queue?")
    if error.status == RPCStatusCode.INVALID_ARGUMENT and "search attribute" in error.message.lower():
        return ServerUnavailable("the server lacks Signoff's search attributes; run `signoff doctor` to create them")
    # Such as for a turn whose task fails, of which no worker can be asked: the server did answer.
    words = "refused this for now" if error.status == RPCStatusCode.FAILED_PRECONDITION else "did not answer"
    return ServerUnavailable(f"the Temporal server {words}: {error.message.partition(chr(10))[0]}")


class SharedQueries:
    """Answers callers that ask the same question meanwhile by the next query, which is one for all of them.

    A caller never gets the answer of the query under way: it may have been answered before what the caller did last.
    Each query makes a worker read a run that it no longer keeps, and the SDK (1.35) loses a run that is queried several
    times at once where it has no place left to keep it in: hence one at a time, however many callers there are.
    """

    def __init__(self) -> None:
        self._now: dict[str, asyncio.Task[Any]] = {}
        self._next: dict[str, asyncio.Task[Any]] = {}

    async def ask(self, key: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Calls `ask` once for all callers with the same `key` now; returns its result. Raises what it raises."""
        waiting = self._next.get(key)
        if waiting is None:
            before = self._now.get(key)
            waiting = asyncio.create_task(self._after(key, before, ask))
            # Looked at here: where all who asked have gone away, nobody else does, and asyncio complains.
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            if before is None:
                self._now[key] = waiting
            else:
                self._next[key] = waiting
        # Shielded: one who goes away does not take the answer from the others.
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
    """Return `client` with a service that fails at once while its server is away."""
    config = client.config(active_config=True)
    config["service_client"] = WatchedService(client.service_client)
    # The active configuration has their changes already.
    config["plugins"] = []
    return Client(**config)


class WatchedService(ServiceClient):
    """Asks a server that did not answer nothing but whether it is back, once in a pause.

    Without it each of a page's calls would wait for the server by itself.
    """

    def __init__(self, service: ServiceClient) -> None:
        super().__init__(service.config)
        self._service = service
        self._away = False
        self._due = 0.0
        self._probe: asyncio.Task[None] | None = None

    @property
    def worker_service_client(self) -> _BridgeServiceClient:
        """See `ServiceClient`."""
        return self._service.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """See `ServiceClient`."""
        self._service.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        """See `ServiceClient`."""
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
            # A worker that is away lets a call run out of time as well, and so does a long poll.
            if error.status in _MAY_BE_AWAY:
                self._begin_probe()
                await self._await_probe()
            raise
        except asyncio.CancelledError:
            # The caller's own time ran out. Its next call waits for the probe.
            self._begin_probe()
            raise

    async def _await_probe(self) -> None:
        if self._away and time.monotonic() >= self._due:
            self._begin_probe()
        if self._probe is not None:
            # Until the probe ends where the server is only suspected: a call of its own would take no less.
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
