"""Starts turns, reads their state and delivers decisions over Temporal; the gateway's client."""

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, timedelta
from typing import Any, Final

from pydantic_core import PydanticSerializationError
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
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
from signoff.contracts.ids import ApprovalKey, TurnKey, parse_approval_id
from signoff.contracts.limits import MAX_NESTING, REQUEST_BODY_BYTES
from signoff.contracts.message import Message, TextPart
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import CallView, ModelRetry, TurnInput, TurnResult, TurnView
from signoff.engine.workflow_runs import (
    ANOTHER,
    NO_MORE_UPDATES,
    PATIENCE,
    UNREADABLE,
    RunClient,
    execute_update,
    missing,
    unavailable,
)
from signoff.formats.bounds import bounds_problem
from signoff.formats.nearest_name import cut_text
from signoff.formats.replace import replace
from signoff.keys.signature_form import unsigned_principal, with_nonce
from signoff.workflows import start_options

_OURS: Final = ("ModelUnavailable", "StoreUnavailable")
_ERROR_CHARS: Final = 200

_WATCH_SECONDS = 0.7
_UPDATE_HEX = 20
_INPUT_HEX = 16
_UNDECIDED_KEPT = 1_000
"""Answers that a turn could not judge, of which it is known how often that was."""


class TurnClient(RunClient):
    """Talks to turns over one Temporal client.

    Also holds how often each of the latest answers could not be judged. The times below are those of the default
    `patience`.
    """

    def __init__(
        self, client: Client, *, task_queue: str = names.DEFAULT_TASK_QUEUE, patience: timedelta = PATIENCE
    ) -> None:
        super().__init__(client, task_queue=task_queue, patience=patience)
        self._undecided: dict[str, int] = {}

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
        return replace(turn, principal=with_nonce(turn.principal)), _input_digest(turn)

    async def view(self, key: TurnKey) -> TurnView:
        """Returns a turn's present view. Raises `NotFound`; `ServerUnavailable` when no worker answers in 3 s."""
        view: TurnView = await self.query(key, names.STATE, TurnView)
        # Whoever stands in a turn's place may answer as another: what is known of that one would be told of this one.
        if (view.tenant, view.session, view.turn) != key:
            raise ServerUnavailable(ANOTHER)
        if view.state != "running":
            return view
        return replace(view, model_retry=await self._model_retry(key))

    async def input_of(self, key: TurnKey) -> TurnInput | None:
        """Returns the input that a turn was started with, from its first event; None where that is no turn's input.

        No worker is needed. Raises `NotFound`, `ServerUnavailable`.
        """
        try:
            events = self.handle(key).fetch_history_events(page_size=1, rpc_timeout=self._patience)
            first = await anext(aiter(events))
        except RPCError as error:
            raise missing(error, key.workflow_id) from None
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
        handle = self.handle(key, TurnResult)
        try:
            described = await handle.describe(rpc_timeout=self._patience)
            if described.status != WorkflowExecutionStatus.COMPLETED:
                raise ServerUnavailable("no worker answered in time")
            turn = await self.input_of(key)
            result = await handle.result()
        except RPCError as error:
            raise missing(error, key.workflow_id) from None
        except (ValueError, TypeError, RuntimeError):
            raise ServerUnavailable(UNREADABLE) from None
        if turn is None or not isinstance(result, TurnResult):
            raise ServerUnavailable(UNREADABLE)
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
        handle = self.handle(key, TurnResult)
        try:
            result: TurnResult = await handle.result()
        except WorkflowFailureError as error:
            cause = error.cause
            text = cause.message if isinstance(cause, ApplicationError) else f"the turn ended: {cause}"
            raise ConfigError(text) from None
        except RPCError as error:
            raise missing(error, key.workflow_id) from None
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
        found: list[ApprovalRequest] = await self.query(key, names.PENDING_APPROVALS, list[ApprovalRequest])
        return found

    async def transcript(self, key: TurnKey) -> list[Message]:
        """Returns the conversation of one turn so far."""
        found: list[Message] = await self.query(key, names.TRANSCRIPT, list[Message])
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
        handle = self.handle(key.turn)
        body = decision.model_dump(mode="json", exclude_defaults=True)
        try:
            return await self._update(handle, names.DECIDE, key, decision, body)
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return await self._as_signal(handle, body, decision)
        except WorkflowUpdateFailedError as error:
            return await self._untaken_receipt(handle, body, decision, error)
        except RPCError as error:
            if error.status in NO_MORE_UPDATES:
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
        handle = self.handle(key.turn)
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
        receipt: Receipt = await self.await_update(sent)
        # What answers may be anybody's workflow.
        if isinstance(receipt, Receipt) and receipt.code == "unavailable":
            # The server would answer the same id so for ever, though the author can be looked up by now.
            self._undecided[tried] = tries + 1
            while len(self._undecided) > _UNDECIDED_KEPT:
                del self._undecided[next(iter(self._undecided))]
        return receipt

    async def require_input(self, key: TurnKey, digest: str) -> None:
        """Raises `Conflict` where a turn was begun with another input, `NotFound` where there is none."""
        try:
            described = await self.handle(key).describe()
        except RPCError as error:
            raise missing(error, key.workflow_id) from None
        # The memo, as it can be read of a turn that has closed and with no worker there.
        memo = await described.memo()
        if memo.get(names.MEMO_INPUT_DIGEST) != digest:
            raise Conflict(f"turn `{key.turn}` exists already with other input; choose another id")

    async def cancel_turn(self, key: TurnKey) -> None:
        """Asks a turn to stop; running tools are awaited, waiting requests become cancelled. Raises `NotFound`."""
        try:
            await self.handle(key).cancel()
        except RPCError as error:
            raise missing(error, key.workflow_id) from None

    async def _model_retry(self, key: TurnKey) -> ModelRetry | None:
        try:
            return await _read_model_retry(await self.handle(key).describe(rpc_timeout=self._patience))
        except RPCError as error:
            raise missing(error, key.workflow_id) from None

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
            raise missing(error, handle.id) from None
        if described.status == WorkflowExecutionStatus.RUNNING:
            return _unheard_receipt(approval_id)
        return Receipt(
            status="refused",
            code="already_decided",
            approval_id=approval_id,
            decided_at=described.close_time,
            message="the turn has ended; who decided can be read when a worker is back",
        )


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


async def _read_model_retry(described: WorkflowExecutionDescription) -> ModelRetry | None:
    """Reads from a workflow's description whether its model is asked again; None at a first try.

    Only words that Signoff's own model activity fails with are repeated: what else stands in a failure is Temporal's.
    """
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name != names.MODEL or pending.attempt < 2:
            continue
        # The SDK leaves it as the server has it: its words may be encrypted.
        error = await described.data_converter.decode_failure(pending.last_failure)
        words = error.message if isinstance(error, ApplicationError) and error.type in _OURS else ""
        waits = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        at = pending.next_attempt_schedule_time if waits and pending.HasField("next_attempt_schedule_time") else None
        return ModelRetry(
            attempt=pending.attempt,
            error=cut_text(words, _ERROR_CHARS) or "the worker that asked it was lost",
            next_at=None if at is None else at.ToDatetime(UTC),
        )
    return None
