"""Sends messages and late results to sessions."""

from typing import Any

from pydantic_core import PydanticSerializationError
from temporalio.client import (
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    WorkflowIDConflictPolicy,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from signoff.contracts import names
from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import SessionKey
from signoff.contracts.session_messages import LateResult, MailboxMessage, SessionInput, SessionReceipt, SessionView
from signoff.engine.workflow_runs import (
    ANOTHER,
    NO_MORE_UPDATES,
    RunClient,
    execute_update,
    missing,
    take_start_error,
    unavailable,
)
from signoff.formats.replace import replace
from signoff.keys.signature_form import with_nonce
from signoff.workflows import start_options

_STORED = "it is stored and taken in when a worker is back"
_UNSAYABLE = "it holds a number or text that JSON cannot carry; send it as a string"


class SessionClient:
    """Talks to sessions, over the client of all runs. The times below apply to the default `patience`."""

    def __init__(self, runs: RunClient) -> None:
        self._runs = runs

    async def say(self, key: SessionKey, message: MailboxMessage, *, actor: str = "") -> SessionReceipt:
        """Send a message to a session. Starts a missing session, which then talks to `actor`.

        Sends an Update. If no worker accepts it in 3 s, sends the same message as a Signal (receipt `pending`). Raises
        `ServerUnavailable` if the Temporal server itself does not answer.
        """
        # Check before sending: a worker drops an unreadable Signal, with a line in its log.
        message = replace(message, principals=tuple(map(with_nonce, message.principals)))
        body = _plain(message)
        if body is None:
            return _unsayable(_UNSAYABLE)
        try:
            receipt = await self._runs.await_update(self._start_with(key, message, body, actor))
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return await self._send_message(key, message, body, actor)
        except WorkflowUpdateFailedError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type == "ValueError":
                return _unsayable(error.cause.message)
            return await self._send_message(key, message, body, actor)
        except RPCError as error:
            if error.status not in (*NO_MORE_UPDATES, RPCStatusCode.ABORTED, RPCStatusCode.NOT_FOUND):
                raise unavailable(error) from None
            return await self._send_message(key, message, body, actor)
        return receipt

    async def _start_with(
        self, key: SessionKey, message: MailboxMessage, body: dict[str, Any], actor: str
    ) -> SessionReceipt:
        # Start and send in one request: a caller that crashes in between would leave an empty session.
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            names.SESSION,
            _first(key, message.actor or actor),
            **self._session_options(key, message),
        )
        try:
            receipt: SessionReceipt = await self._runs.temporal.execute_update_with_start_workflow(
                names.SAY,
                body,
                start_workflow_operation=start,
                result_type=SessionReceipt,
                rpc_timeout=self._runs.patience,
            )
        except Exception:
            await take_start_error(start)
            raise
        return receipt

    async def inject(self, key: SessionKey, injection: LateResult) -> SessionReceipt:
        """A turn's successor may get the result. Raises `NotFound` for a session that does not exist,
        `ServerUnavailable`.
        """
        body = _plain(injection)
        if body is None:
            return _unsayable(_UNSAYABLE)
        handle = self._runs.handle(key)
        try:
            sent = execute_update(
                handle, names.INJECT, body, result_type=SessionReceipt, rpc_timeout=self._runs.patience
            )
            receipt: SessionReceipt = await self._runs.await_update(sent)
        except WorkflowUpdateFailedError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type == "ValueError":
                return _unsayable(error.cause.message)
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            pass
        except RPCError as error:
            if error.status not in NO_MORE_UPDATES:
                raise missing(error, key.workflow_id) from None
        else:
            return receipt
        # The Update may still apply. The shared id makes the second one a duplicate.
        try:
            await handle.signal(names.INJECT, body, rpc_timeout=self._runs.patience)
        except RPCError as error:
            raise missing(error, key.workflow_id) from None
        return SessionReceipt(status="pending", message=_STORED)

    async def session(self, key: SessionKey) -> SessionView:
        """Raises `NotFound`, and `ServerUnavailable` if no worker answers in 3 s."""
        view: SessionView = await self._runs.query(key, names.STATE, SessionView)
        if (view.tenant, view.session) != key:
            raise ServerUnavailable(ANOTHER)
        return view

    async def has_session(self, key: SessionKey) -> bool:
        """Needs no worker. Raises `ServerUnavailable`."""
        try:
            await self._runs.handle(key).describe(rpc_timeout=self._runs.patience)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise unavailable(error) from None
        return True

    async def _send_message(
        self, key: SessionKey, message: MailboxMessage, body: dict[str, Any], actor: str
    ) -> SessionReceipt:
        # The Update that timed out may still apply. The shared id makes the second one a duplicate.
        try:
            await self._runs.temporal.start_workflow(
                names.SESSION,
                _first(key, message.actor or actor),
                **self._session_options(key, message),
                # The server stores a Signal without a running worker, but not an Update.
                start_signal=names.SAY,
                start_signal_args=[body],
                rpc_timeout=self._runs.patience,
            )
        except RPCError as error:
            raise unavailable(error) from None
        return SessionReceipt(status="pending", turn=message.id, message=_STORED)

    def _session_options(self, key: SessionKey, message: MailboxMessage) -> dict[str, Any]:
        return {
            "id": key.workflow_id,
            "task_queue": self._runs.task_queue,
            "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
            "memo": start_options.session_memo(message),
            "search_attributes": start_options.session_attributes(key.tenant),
            "priority": start_options.priority(key.tenant),
        }


def _first(key: SessionKey, actor: str) -> SessionInput:
    return SessionInput(engine=names.ENGINE, tenant_id=key.tenant, session_id=key.session, actor=actor)


def _plain(item: MailboxMessage | LateResult) -> dict[str, Any] | None:
    """Return `None` if JSON cannot represent `item`."""
    try:
        body = item.model_dump(mode="json")
        canonical_json(body)
    except (NotCanonical, PydanticSerializationError, UnicodeEncodeError):
        return None
    return body


def _unsayable(message: str) -> SessionReceipt:
    return SessionReceipt(status="refused", code="malformed", message=message)
