"""Starts turns, reads their state and delivers decisions over Temporal; the gateway's client."""

import asyncio
import contextlib
import hashlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from pydantic_core import PydanticSerializationError
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from signoff.approvals.approval_book import malformed_receipt
from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical_json import NotCanonical, canonical_json, nesting
from signoff.contracts.decision import Decision
from signoff.contracts.errors import ConfigError, Conflict, NotFound, Refused, ServerUnavailable
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey, parse_approval_id
from signoff.contracts.limits import INLINE_BYTES, MAX_NESTING, REQUEST_BODY_BYTES
from signoff.contracts.message import Message, TextPart, user_message
from signoff.contracts.person import Principal
from signoff.contracts.receipt import Receipt
from signoff.contracts.session_messages import LateResult, MailboxMessage, SessionInput, SessionReceipt, SessionView
from signoff.contracts.turn import CallView, ModelRetry, TurnInput, TurnResult, TurnView
from signoff.engine.model_retry import read_model_retry
from signoff.engine.shared_query import SharedQueries
from signoff.engine.watched_service import watch_server
from signoff.formats.bounds import bounds_problem
from signoff.formats.replace import replace
from signoff.keys.signature_form import new_nonce, unsigned_principal
from signoff.workflows import start_options

PATIENCE: Final = timedelta(seconds=3)
"""How long a worker may take before an answer goes as a Signal, or a question is given up."""
_WATCH_SECONDS = 0.7
_LOOK_SECONDS = 1.0
_LEAST_LOOK_SECONDS = 0.1
_POLL_SECONDS = 1.0
"""How long a worker that has just begun may take until its first poll reaches the server."""
_SHOWN_CHARS = 200
_LATE_HEX = 32
_UPDATE_HEX = 20
_INPUT_HEX = 16
_BROUGHT_BYTES = INLINE_BYTES - 1_024
_NO_ANSWER = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
_NO_POLLER = "no poller seen"
"""What a server may say at once, with `FAILED_PRECONDITION`, of a query for a task queue that nobody polled lately."""
_STORED = "it is stored and taken in when a worker is back"
_ANOTHER = "it could not be read: what runs under its id answers as another"
_CUT_OFF = "[TMPRL1100]"
"""What the SDK's core writes of a history that it cannot read."""
_UNREADABLE = "it could not be read: what runs under its id answers what nobody can read"
_UNSAYABLE = "it holds a number or text that JSON cannot carry; send it as a string"
_UNDECIDED_KEPT = 1_000
"""Answers that a turn could not judge, of which it is known how often that was."""
_Receipt = TypeVar("_Receipt", Receipt, SessionReceipt)
_NO_MORE_UPDATES = (
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    # A server takes so many updates at once and so many a turn; whoever used them up must not silence the others.
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.FAILED_PRECONDITION,
)


class TurnClient:
    """Talks to turns and sessions over one Temporal client.

    Keeps only running queries; safe to share within one event loop.

    Holds the queries under way, and how often each of the latest answers could not be judged.

    `patience` is how long workers may take to answer; the times told of below are the default's.
    """

    def __init__(
        self, client: Client, *, task_queue: str = names.DEFAULT_TASK_QUEUE, patience: timedelta = PATIENCE
    ) -> None:
        self.temporal = watch_server(client)
        self._task_queue = task_queue
        self._patience = patience
        self._queries = SharedQueries()
        self._undecided: dict[str, int] = {}

    @property
    def task_queue(self) -> str:
        """Returns the task queue of the workers."""
        return self._task_queue

    async def start_turn(self, turn: TurnInput) -> TurnKey:
        """Starts a turn; when this returns the turn is in Temporal. The same input again is the same turn.

        Raises `Conflict` when the id is taken by a turn with other input, `Refused` (`too_large`, `malformed`) for
        input that cannot be carried, `ServerUnavailable` when nobody answers.
        """
        await self.begin_turn(*self.stamp_input(turn))
        return TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)

    async def begin_turn(self, turn: TurnInput, digest: str) -> bool:
        """Starts a turn with a stamped input; returns False where it was begun before. Raises as `start_turn`."""
        key = TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)
        try:
            await self.temporal.start_workflow(
                names.ACTOR_TURN,
                turn,
                id=key.workflow_id,
                task_queue=self._task_queue,
                # A worker beside this client gets the first task with the answer, without a round of matching.
                request_eager_start=True,
                # Never twice, closed or not: a second run would find the first one's tickets. FAIL: USE_EXISTING hands
                # back a turn that runs, without a word of whether it was begun with this input.
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                memo=start_options.memo(turn, digest),
                search_attributes=start_options.attributes(turn),
                static_summary=start_options.summary(turn),
                priority=start_options.priority(turn.tenant_id),
            )
        except WorkflowAlreadyStartedError:
            await self.require_input(key, digest)
            return False
        except RPCError as error:
            raise unavailable(error) from None
        return True

    def stamp_input(self, turn: TurnInput) -> tuple[TurnInput, str]:
        """Returns a turn's input with a nonce, and the digest by which the same input is known. Raises `Refused`."""
        return replace(turn, principal=_with_nonce(turn.principal)), _input_digest(turn)

    async def view(self, key: TurnKey) -> TurnView:
        """Returns a turn's present view. Raises `NotFound`; `ServerUnavailable` when no worker answers in 3 s."""
        view: TurnView = await self._query(key, names.STATE, TurnView)
        # Whoever stands in a turn's place may answer as another: what is known of that one would be told of this one.
        if (view.tenant, view.session, view.turn) != key:
            raise ServerUnavailable(_ANOTHER)
        if view.state != "running":
            return view
        return replace(view, model_retry=await self._model_retry(key))

    async def input_of(self, key: TurnKey) -> TurnInput | None:
        """Returns the input that a turn was started with, from its first event; None where that is no turn's input.

        No worker is needed. Raises `NotFound`, `ServerUnavailable`.
        """
        try:
            events = self._handle(key).fetch_history_events(page_size=1, rpc_timeout=self._patience)
            first = await anext(aiter(events))
        except RPCError as error:
            raise _missing(error, key.workflow_id) from None
        given = first.workflow_execution_started_event_attributes.input.payloads
        try:
            [turn] = await self.temporal.data_converter.decode(given, [TurnInput])
        # Whoever may start workflows chose these bytes, and a converter raises what it likes.
        except Exception:
            return None
        return turn if isinstance(turn, TurnInput) else None

    async def ended_view(self, key: TurnKey) -> TurnView:
        """Builds the view of a turn that has ended from its first and last event, without a worker reading its history
        anew.

        Its conversation is the question and the answer; its calls are those of the result, without requests. Raises
        `NotFound`, and `ServerUnavailable` for a turn that goes on or ended without a result.
        """
        handle = self._handle(key, TurnResult)
        try:
            described = await handle.describe(rpc_timeout=self._patience)
            if described.status != WorkflowExecutionStatus.COMPLETED:
                raise ServerUnavailable("no worker answered in time")
            turn = await self.input_of(key)
            result = await handle.result()
        except RPCError as error:
            raise _missing(error, key.workflow_id) from None
        except (ValueError, TypeError, RuntimeError):
            raise ServerUnavailable(_UNREADABLE) from None
        if turn is None or not isinstance(result, TurnResult):
            raise ServerUnavailable(_UNREADABLE)
        calls = tuple(CallView(call=each.call, tool=each.tool, state=each.code, outcome=each) for each in result.calls)
        words = tuple(TextPart(text=part.content) for part in result.parts)
        answer = (Message(role="assistant", parts=words),) if words else ()
        return TurnView(
            tenant=key.tenant,
            session=key.session,
            turn=key.turn,
            actor=turn.actor,
            state=result.state,
            requester=turn.principal,
            messages=(*turn.messages, *answer),
            calls=calls,
            result=result,
            started_at=described.start_time,
            in_session=turn.in_session,
        )

    async def result(self, key: TurnKey) -> TurnResult:
        """Waits for the turn's end and returns its result.

        Raises `NotFound`, or `ConfigError` for a turn that never began.
        """
        handle = self._handle(key, TurnResult)
        try:
            result: TurnResult = await handle.result()
        except WorkflowFailureError as error:
            cause = error.cause
            text = cause.message if isinstance(cause, ApplicationError) else f"the turn ended: {cause}"
            raise ConfigError(text) from None
        except RPCError as error:
            raise _missing(error, key.workflow_id) from None
        return result

    async def watch(self, key: TurnKey) -> AsyncIterator[TurnView]:
        """Yields the turn's view whenever it changed, until it has its result."""
        last: TurnView | None = None
        while True:
            view = await self.view(key)
            if view != last:
                yield view
                last = view
            if view.result is not None:
                return
            # Asked again and again: a query leaves no event; to be told instead would use up the turn's 2,000 Updates.
            await asyncio.sleep(_WATCH_SECONDS)

    async def request(self, approval_id: str) -> ApprovalRequest:
        """Returns one request, waiting or settled. Raises `NotFound`."""
        key = parse_approval_id(approval_id)
        if key is None:
            raise NotFound(f"`{approval_id}` is no approval id")
        view = await self.view(key.turn)
        for call in view.calls:
            if call.call == key.call and call.approval is not None:
                return call.approval
        raise NotFound(f"there is no request `{approval_id}`")

    async def pending(self, key: TurnKey) -> list[ApprovalRequest]:
        """Returns the requests of one turn that wait."""
        found: list[ApprovalRequest] = await self._query(key, names.PENDING_APPROVALS, list[ApprovalRequest])
        return found

    async def transcript(self, key: TurnKey) -> list[Message]:
        """Returns the conversation of one turn so far."""
        found: list[Message] = await self._query(key, names.TRANSCRIPT, list[Message])
        return found

    async def decide(self, decision: Decision) -> Receipt:
        """Delivers a decision to its turn and returns the receipt; never raises an error of the turn.

        The decision is sent as an Update; when no worker takes it in 3 s, or one drops it, the same decision goes as a
        Signal (receipt `pending`). Raises `ServerUnavailable` when the Temporal server itself does not answer.
        """
        key = parse_approval_id(decision.approval_id)
        if key is None:
            return malformed_receipt("`approval_id`: no such id", decision.approval_id)
        # Made here, not in the turn: the Update and the Signal that may follow it must be one answer.
        if not decision.delivery_id:
            decision = replace(decision, delivery_id=uuid.uuid4().hex)
        handle = self._handle(key.turn)
        body = decision.model_dump(mode="json", exclude_defaults=True)
        try:
            return await self._update(handle, names.DECIDE, key, decision, body)
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return await self._as_signal(handle, body, decision)
        except WorkflowUpdateFailedError as error:
            return await self._untaken_receipt(handle, body, decision, error)
        except RPCError as error:
            if error.status in _NO_MORE_UPDATES:
                return await self._as_signal(handle, body, decision)
            return await self._after_the_end(handle, decision.approval_id, error)

    async def withdraw(self, wish: Decision) -> Receipt:
        """Withdraws one waiting request; its call ends as denied (cancelled). The verdict of `wish` is `withdrawn`."""
        approval_id = wish.approval_id
        key = parse_approval_id(approval_id)
        if key is None:
            return malformed_receipt("`approval_id`: no such id", approval_id)
        if not wish.delivery_id:
            wish = replace(wish, delivery_id=uuid.uuid4().hex)
        handle = self._handle(key.turn)
        body = wish.model_dump(mode="json", exclude_defaults=True)
        try:
            return await self._update(handle, names.CANCEL, key, wish, body)
        # No Signal follows: there is none to withdraw by. Should the Update still apply, it does what was wished.
        except (WorkflowUpdateRPCTimeoutOrCancelledError, WorkflowUpdateFailedError):
            return _unheard_receipt(approval_id)
        except RPCError as error:
            # A turn whose task fails takes none just now.
            if error.status == RPCStatusCode.FAILED_PRECONDITION:
                return _unheard_receipt(approval_id)
            return await self._after_the_end(handle, approval_id, error)

    async def _update(
        self,
        handle: WorkflowHandle[Any, Any],
        update: str,
        key: ApprovalKey,
        decision: Decision,
        body: dict[str, Any],
    ) -> Receipt:
        """Returns the receipt of an answer sent as an Update; sent again while it waits, it is still one Update."""
        # All that tells two apart: the server gives a known update id its first result, whatever else is in the second.
        # Ids are the workflow's own, so that neither session nor turn need be in them.
        kind = "" if update == names.DECIDE else f"{update}:"
        update_id = f"{kind}{decision.delivery_id}:{key.call}:{decision.revision or 1}"
        # An Update's id lies five times in the history of its turn.
        named = hashlib.sha256(update_id.encode(errors="surrogatepass")).hexdigest()[:_UPDATE_HEX]
        tried = f"{key.turn.workflow_id}:{named}"
        tries = self._undecided.get(tried, 0)
        sent = execute_update(
            handle,
            update,
            body,
            id=f"{named}:{tries}" if tries else named,
            result_type=Receipt,
            rpc_timeout=self._patience,
        )
        receipt: Receipt = await self._await_update(sent)
        # What answers may be anybody's workflow.
        if isinstance(receipt, Receipt) and receipt.code == "unavailable":
            # The server would answer the same id so for ever, though the author can be looked up by now.
            self._undecided[tried] = tries + 1
            while len(self._undecided) > _UNDECIDED_KEPT:
                del self._undecided[next(iter(self._undecided))]
        return receipt

    async def _await_update(self, sent: Awaitable[_Receipt]) -> _Receipt:
        """Returns the receipt of an Update; raises the SDK's timeout where it takes longer than `patience`.

        `rpc_timeout` bounds a request: of an Update that a worker accepted and did not complete, as it was lost, the
        SDK would ask for ever.
        """
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                return await sent
        except TimeoutError:
            raise WorkflowUpdateRPCTimeoutOrCancelledError from None

    async def say(self, key: SessionKey, message: MailboxMessage, *, actor: str = "") -> SessionReceipt:
        """Sends a message to a session; starts the session if there is none, and makes it talk to `actor`.

        Sent as an Update; when no worker takes it in 3 s, the same message goes as a Signal (receipt `pending`). Raises
        `ServerUnavailable` when the Temporal server itself does not answer.
        """
        # Looked at before it is sent: a worker drops a Signal that it cannot read, with a line in its log.
        message = replace(message, principals=tuple(map(_with_nonce, message.principals)))
        body = _plain(message)
        if body is None:
            return _unsayable(_UNSAYABLE)
        try:
            receipt = await self._await_update(self._start_with(key, message, body, actor))
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return await self._send_message(key, message, body, actor)
        except WorkflowUpdateFailedError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type == "ValueError":
                return _unsayable(error.cause.message)
            return await self._send_message(key, message, body, actor)
        except RPCError as error:
            if error.status not in (*_NO_MORE_UPDATES, RPCStatusCode.ABORTED, RPCStatusCode.NOT_FOUND):
                raise unavailable(error) from None
            return await self._send_message(key, message, body, actor)
        return receipt

    async def _start_with(
        self, key: SessionKey, message: MailboxMessage, body: dict[str, Any], actor: str
    ) -> SessionReceipt:
        # In one request with the message: a caller that dies between two would leave an empty session behind.
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            names.SESSION,
            _first(key, message.actor or actor),
            **self._session_options(key, message),
        )
        try:
            receipt: SessionReceipt = await self.temporal.execute_update_with_start_workflow(
                names.SAY,
                body,
                start_workflow_operation=start,
                result_type=SessionReceipt,
                rpc_timeout=self._patience,
            )
        except Exception:
            await take_start_error(start)
            raise
        return receipt

    async def inject(self, key: SessionKey, injection: LateResult) -> SessionReceipt:
        """Delivers a late result to a turn of a session, or to the turn that goes on in its place.

        Raises `NotFound` for a session that does not exist, `ServerUnavailable`.
        """
        body = _plain(injection)
        if body is None:
            return _unsayable(_UNSAYABLE)
        handle = self._handle(key)
        try:
            sent = execute_update(handle, names.INJECT, body, result_type=SessionReceipt, rpc_timeout=self._patience)
            receipt: SessionReceipt = await self._await_update(sent)
        except WorkflowUpdateFailedError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.type == "ValueError":
                return _unsayable(error.cause.message)
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            pass
        except RPCError as error:
            if error.status not in _NO_MORE_UPDATES:
                raise _missing(error, key.workflow_id) from None
        else:
            return receipt
        # The Update may still apply; the shared id makes the second one a duplicate.
        try:
            await handle.signal(names.INJECT, body, rpc_timeout=self._patience)
        except RPCError as error:
            raise _missing(error, key.workflow_id) from None
        return SessionReceipt(status="pending", message=_STORED)

    async def deliver_result(self, event_id: str, text: str) -> SessionReceipt:
        """Delivers the result of work that a handler handed off under `event_id` (`ToolContext.hand_off`), once.

        It reaches the turn that handed it off, or the one that goes on in its place, as a message that names the id.
        Raises `NotFound` for an id that names nothing, and for a turn without a session; `ServerUnavailable`.
        """
        named = parse_approval_id(event_id)
        if named is None:
            raise NotFound(f"`{event_id[:_SHOWN_CHARS]}` is not the id of an event, `<tenant>.<session>.<turn>.<call>`")
        # A session runs no activity that could store it, so it lies inline; some room is for the words around it.
        if len(text.encode("utf-8", "replace")) > _BROUGHT_BYTES:
            return _unsayable(f"it is over {_BROUGHT_BYTES} bytes; keep it elsewhere and say where it lies")
        turn = named.turn
        # From the event alone, so that it is brought once, whoever brings it; the event's id is too long for an id.
        late = f"late-{hashlib.sha256(event_id.encode()).hexdigest()[:_LATE_HEX]}"
        message = user_message(f"Result of `{event_id}`: {text}")
        return await self.inject(
            SessionKey(turn.tenant, turn.session), LateResult(id=late, turn=turn.turn, message=message)
        )

    async def session(self, key: SessionKey) -> SessionView:
        """Returns a session's present view. Raises `NotFound`; `ServerUnavailable` when no worker answers in 3 s."""
        view: SessionView = await self._query(key, names.STATE, SessionView)
        if (view.tenant, view.session) != key:
            raise ServerUnavailable(_ANOTHER)
        return view

    async def has_session(self, key: SessionKey) -> bool:
        """Returns whether a session exists; needs no worker. Raises `ServerUnavailable`."""
        try:
            await self._handle(key).describe(rpc_timeout=self._patience)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise unavailable(error) from None
        return True

    async def require_input(self, key: TurnKey, digest: str) -> None:
        """Raises `Conflict` where a turn was begun with another input, `NotFound` where there is none."""
        try:
            described = await self._handle(key).describe()
        except RPCError as error:
            raise _missing(error, key.workflow_id) from None
        # The memo, as it can be read of a turn that has closed and with no worker there.
        memo = await described.memo()
        if memo.get(names.MEMO_INPUT_DIGEST) != digest:
            raise Conflict(f"turn `{key.turn}` exists already with other input; choose another id")

    async def cancel_turn(self, key: TurnKey) -> None:
        """Asks a turn to stop; running tools are awaited, waiting requests become cancelled. Raises `NotFound`."""
        try:
            await self._handle(key).cancel()
        except RPCError as error:
            raise _missing(error, key.workflow_id) from None

    async def _send_message(
        self, key: SessionKey, message: MailboxMessage, body: dict[str, Any], actor: str
    ) -> SessionReceipt:
        # The Update that timed out may still apply; the shared id makes the second one a duplicate.
        try:
            await self.temporal.start_workflow(
                names.SESSION,
                _first(key, message.actor or actor),
                **self._session_options(key, message),
                # The server keeps a Signal though no worker runs, which it does with no Update.
                start_signal=names.SAY,
                start_signal_args=[body],
                rpc_timeout=self._patience,
            )
        except RPCError as error:
            raise unavailable(error) from None
        return SessionReceipt(status="pending", turn=message.id, message=_STORED)

    def _session_options(self, key: SessionKey, message: MailboxMessage) -> dict[str, Any]:
        return {
            "id": key.workflow_id,
            "task_queue": self._task_queue,
            "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
            "memo": start_options.session_memo(message),
            "search_attributes": start_options.session_attributes(key.tenant),
            "priority": start_options.priority(key.tenant),
        }

    def _handle(self, key: TurnKey | SessionKey, result_type: type[Any] | None = None) -> WorkflowHandle[Any, Any]:
        return self.temporal.get_workflow_handle(key.workflow_id, result_type=result_type)

    async def _query(self, key: TurnKey | SessionKey, query: str, result_type: Any) -> Any:
        try:
            found = await self._run_query(self._handle(key), query, result_type=result_type)
        except RPCError as error:
            raise _missing(error, key.workflow_id) from None
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            raise ServerUnavailable(f"it could not be read: {error}") from None
        # What answers may be anybody's workflow: of an answer that is none, not even the kind of error is known.
        except Exception:
            raise ServerUnavailable(_UNREADABLE) from None
        # Nothing at all is read as whatever was expected.
        if found is None:
            raise ServerUnavailable(_UNREADABLE)
        return found

    async def _run_query(self, handle: WorkflowHandle[Any, Any], query: str, *about: str, result_type: Any) -> Any:
        """Returns the answer to a query that begins now or later, and ends within `patience`."""
        late = time.monotonic() + self._patience.total_seconds()

        async def ask() -> Any:
            return await _asked_until(late, handle, query, about, result_type)

        return await self._queries.ask(" ".join((handle.id, query, *about)), ask)

    async def _model_retry(self, key: TurnKey) -> ModelRetry | None:
        try:
            return await read_model_retry(await self._handle(key).describe(rpc_timeout=self._patience))
        except RPCError as error:
            raise _missing(error, key.workflow_id) from None

    async def _as_signal(self, handle: WorkflowHandle[Any, Any], body: dict[str, Any], decision: Decision) -> Receipt:
        # The Update that timed out may still apply; the shared delivery id makes the second one a duplicate.
        try:
            await handle.signal(names.APPROVAL_RESPONSE, body, rpc_timeout=self._patience)
        except RPCError as error:
            return await self._after_the_end(handle, decision.approval_id, error)
        return Receipt(status="pending", approval_id=decision.approval_id, verdict=decision.verdict)

    async def _untaken_receipt(
        self,
        handle: WorkflowHandle[Any, Any],
        body: dict[str, Any],
        decision: Decision,
        error: WorkflowUpdateFailedError,
    ) -> Receipt:
        cause = error.cause
        # By its type: a validator's refusal and an Update that the turn's end broke off are one error to the SDK.
        if isinstance(cause, ApplicationError) and cause.type == "ValueError":
            return malformed_receipt(cause.message, decision.approval_id)
        # Either the turn has closed, which the Signal learns, too, or a worker let the Update drop: the SDK's core does
        # that to a turn which is queried while several answers arrive. Then the turn goes on and has not heard it.
        return await self._as_signal(handle, body, decision)

    async def _after_the_end(self, handle: WorkflowHandle[Any, Any], approval_id: str, error: RPCError) -> Receipt:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise unavailable(error)
        return await self._closed_receipt(handle, approval_id)

    async def _closed_receipt(self, handle: WorkflowHandle[Any, Any], approval_id: str) -> Receipt:
        """Builds the receipt of a request of an ended turn; from the turn's description when no worker is there."""
        unknown = Receipt(status="refused", code="unknown", approval_id=approval_id, message="there is no such request")
        # That it cannot be read does not mean that it is not there.
        words = "the turn has ended and cannot be read; its record says what became of the request"
        unread = Receipt(status="refused", code="unavailable", approval_id=approval_id, message=words)
        try:
            receipt = await self._run_query(handle, names.RECEIPT, approval_id, result_type=Receipt)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return unknown
        # A query that fails, or that is answered with what is no receipt, by whatever runs under the turn's id.
        except Exception:
            return unread
        else:
            return receipt if isinstance(receipt, Receipt) else unread
        try:
            # No worker answers, but the server alone knows whether the turn has closed: then nothing changes any more.
            described = await handle.describe()
        except RPCError as error:
            raise _missing(error, handle.id) from None
        if described.status == WorkflowExecutionStatus.RUNNING:
            return _unheard_receipt(approval_id)
        return Receipt(
            status="refused",
            code="already_decided",
            approval_id=approval_id,
            decided_at=described.close_time,
            message="the turn has ended; who decided can be read when a worker is back",
        )


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


def _first(key: SessionKey, actor: str) -> SessionInput:
    return SessionInput(engine=names.ENGINE, tenant_id=key.tenant, session_id=key.session, actor=actor)


def _with_nonce(principal: Principal) -> Principal:
    """Adds a nonce to `principal` where the gateway has not: an unsigned principal may be changed here."""
    if principal.nonce or principal.signature or principal.key_id:
        return principal
    return replace(principal, nonce=new_nonce())


def _input_digest(turn: TurnInput) -> str:
    """Computes the digest of a turn's input, which is the same whenever and by whichever key its requester was signed.

    Raises `Refused` for input that JSON, a history or a worker's reader cannot carry.
    """
    if why := bounds_problem(turn.context):
        raise Refused(f"a turn's context cannot be taken: {why}; send less, or send it as a string", code="malformed")
    try:
        # A turn that a session begins is not started here; left out, they say nothing new of the same input.
        plain = turn.model_dump(mode="json", exclude={"in_session", "denied", "session_events"})
        if nesting(plain) > MAX_NESTING:
            raise Refused(f"a turn's input is nested deeper than {MAX_NESTING} levels; send it flat", code="malformed")
        asked_by = unsigned_principal(turn.principal).model_dump(mode="json")
        body = canonical_json({**plain, "principal": asked_by})
    except (NotCanonical, PydanticSerializationError, UnicodeEncodeError):
        text = "a turn's input holds a number or text that JSON cannot carry safely; send it as a string"
        raise Refused(text, code="malformed") from None
    if len(body) > REQUEST_BODY_BYTES:
        raise Refused(f"a turn's input is at most {REQUEST_BODY_BYTES} bytes; send less", code="too_large")
    return hashlib.sha256(body).hexdigest()[:_INPUT_HEX]


def _unheard_receipt(approval_id: str) -> Receipt:
    return Receipt(status="refused", code="unavailable", approval_id=approval_id, message="no worker answered")


def _plain(item: MailboxMessage | LateResult) -> dict[str, Any] | None:
    """Converts `item` to the JSON that is sent, or None where JSON cannot carry it."""
    try:
        body = item.model_dump(mode="json")
        canonical_json(body)
    except (NotCanonical, PydanticSerializationError, UnicodeEncodeError):
        return None
    return body


def _unsayable(message: str) -> SessionReceipt:
    return SessionReceipt(status="refused", code="malformed", message=message)


def _missing(error: RPCError, workflow_id: str) -> NotFound | ServerUnavailable:
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
