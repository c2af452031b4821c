"""Starts turns, reads their state and delivers decisions over Temporal."""

import hashlib
import uuid
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
from signoff.contracts.activity_messages import Wake
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical_json import NotCanonical, canonical_json, nesting
from signoff.contracts.errors import ConfigError, Conflict, Refused, ServerUnavailable
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
from signoff.store.questions.answers import OwedAnswer
from signoff.workflows import start_options

_OURS: Final = ("ModelUnavailable", "StoreUnavailable")
_ERROR_CHARS: Final = 200

_UPDATE_HEX = 20
_INPUT_HEX = 16
_UNDECIDED_KEPT = 1_000
"""Number of answers for which failed judgements are counted."""


class TurnClient(RunClient):
    """Talks to turns over one Temporal client. Also counts the failed judgements of the latest answers.

    The times below apply to the default `patience`.
    """

    def __init__(
        self, client: Client, *, task_queue: str = names.DEFAULT_TASK_QUEUE, patience: timedelta = PATIENCE
    ) -> None:
        super().__init__(client, task_queue=task_queue, patience=patience)
        self._undecided: dict[str, int] = {}

    async def start_turn(self, turn: TurnInput) -> TurnKey:
        """On return, the turn is in Temporal. Equal input is the same turn.

        Raises `Conflict` if a turn with other input has the id, `Refused` (`too_large`, `malformed`) for unsupported
        input, `ServerUnavailable` if the server does not answer.
        """
        await self.begin_turn(*self.stamp_input(turn))
        return TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)

    async def begin_turn(self, turn: TurnInput, digest: str) -> bool:
        """Return False if the turn was started before. Raises as `start_turn`."""
        key = TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)
        try:
            await self.temporal.start_workflow(
                names.ACTOR_TURN,
                turn,
                id=key.workflow_id,
                task_queue=self._task_queue,
                # A worker in the same process gets the first task with the response, without matching.
                request_eager_start=True,
                # Never start twice, even after its end: a second run would find the first one's tickets. Use FAIL:
                # USE_EXISTING returns a running turn without comparing its input.
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
        """Add a nonce. The digest identifies equal input. Raises `Refused`."""
        return replace(turn, principal=with_nonce(turn.principal)), _input_digest(turn)

    async def view(self, key: TurnKey) -> TurnView:
        """Raises `NotFound`, and `ServerUnavailable` if no worker answers in 3 s."""
        view: TurnView = await self.query(key, names.STATE, TurnView)
        # A forged workflow may answer as another turn: that turn's data would be shown for this one.
        if (view.tenant, view.session, view.turn) != key:
            raise ServerUnavailable(ANOTHER)
        if view.state != "running":
            return view
        return replace(view, model_retry=await self._model_retry(key))

    async def input_of(self, key: TurnKey) -> TurnInput | None:
        """Read the input from the first event, or return `None` if that is not a turn's. Needs no worker.

        Raises `NotFound`, `ServerUnavailable`.
        """
        try:
            events = self.handle(key).fetch_history_events(page_size=1, rpc_timeout=self._patience)
            first = await anext(aiter(events))
        except RPCError as error:
            raise missing(error, key.workflow_id) from None
        given = first.workflow_execution_started_event_attributes.input.payloads
        try:
            [turn] = await self.temporal.data_converter.decode(given, [TurnInput])
        # Anyone who can start workflows chose these bytes, and a converter may raise any error.
        except Exception:
            return None
        return turn if isinstance(turn, TurnInput) else None

    async def ended_view(self, key: TurnKey) -> TurnView:
        """Return the view of an ended turn from its first and last event, without a worker's replay.

        Its conversation is the question and the answer. Its calls come from the result, without requests. Raises
        `NotFound`, and `ServerUnavailable` for a turn that still runs or ended without a result.
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
        """Wait for the turn's end. Raises `NotFound`, or `ConfigError` for a turn that never began."""
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

    async def pending(self, key: TurnKey) -> list[ApprovalRequest]:
        found: list[ApprovalRequest] = await self.query(key, names.PENDING_APPROVALS, list[ApprovalRequest])
        return found

    async def transcript(self, key: TurnKey) -> list[Message]:
        found: list[Message] = await self.query(key, names.TRANSCRIPT, list[Message])
        return found

    async def wake(self, owed: OwedAnswer) -> Receipt:
        """Wake a turn to read a stored answer. Never raises an error of the turn.

        Sends an Update. If no worker accepts it in 3 s, or one drops it, sends a Signal (receipt `pending`). Raises
        `ServerUnavailable` if the Temporal server itself does not answer.
        """
        hint = Wake(approval_id=owed.approval, revision=owed.vote.decision.revision or 1, number=owed.number)
        key = parse_approval_id(owed.approval)
        if key is None:
            return malformed_receipt("`approval_id`: no such id", owed.approval)
        # A restored store gives numbers again, and the server would repeat its reply to an earlier answer.
        name = f"{owed.number}:{key.call}:{hint.revision}:{owed.vote.at.isoformat()}"
        return await self.deliver(key, name, hint.model_dump(mode="json"))

    async def announce(self, approval_id: str, revision: int) -> Receipt:
        """Have a turn read the approvers' question about the waiting `revision`. Raises as `wake`."""
        key = parse_approval_id(approval_id)
        if key is None:
            return malformed_receipt("`approval_id`: no such id", approval_id)
        hint = Wake(approval_id=approval_id, revision=revision, number=0)
        return await self.deliver(key, f"asked:{uuid.uuid4().hex}", hint.model_dump(mode="json"))

    async def deliver(self, key: ApprovalKey, name: str, body: dict[str, Any]) -> Receipt:
        """Send an answer, or a hint to one, to its turn. Equal names are one message. Raises as `wake`."""
        handle = self.handle(key.turn)
        try:
            return await self._update(handle, key, name, body)
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return await self._as_signal(handle, body, key.id)
        except WorkflowUpdateFailedError as error:
            return await self._untaken_receipt(handle, body, key.id, error)
        except RPCError as error:
            if error.status in NO_MORE_UPDATES:
                return await self._as_signal(handle, body, key.id)
            return await self._after_the_end(handle, key.id, error)

    async def _update(
        self, handle: WorkflowHandle[Any, Any], key: ApprovalKey, name: str, body: dict[str, Any]
    ) -> Receipt:
        # The id must identify the answer: the server repeats its first result for a known id, ignoring the rest. Ids
        # belong to one workflow, so they need neither session nor turn. An id appears five times in the history.
        named = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_UPDATE_HEX]
        tried = f"{key.turn.workflow_id}:{named}"
        tries = self._undecided.get(tried, 0)
        sent = execute_update(
            handle,
            names.DECIDE,
            body,
            id=f"{named}:{tries}" if tries else named,
            result_type=Receipt,
            rpc_timeout=self._patience,
        )
        receipt: Receipt = await self.await_update(sent)
        # The answering workflow may be forged.
        if isinstance(receipt, Receipt) and receipt.code == "unavailable":
            # The server would repeat this answer to the same id forever, even once the author can be looked up.
            self._undecided[tried] = tries + 1
            while len(self._undecided) > _UNDECIDED_KEPT:
                del self._undecided[next(iter(self._undecided))]
        return receipt

    async def require_input(self, key: TurnKey, digest: str) -> None:
        """Raise `Conflict` if a turn was started with another input, `NotFound` if it does not exist."""
        try:
            described = await self.handle(key).describe()
        except RPCError as error:
            raise missing(error, key.workflow_id) from None
        # The memo is readable for a closed turn and without a worker.
        memo = await described.memo()
        if memo.get(names.MEMO_INPUT_DIGEST) != digest:
            raise Conflict(f"turn `{key.turn}` exists already with other input; choose another id")

    async def cancel_turn(self, key: TurnKey) -> None:
        """The turn waits for running tools and cancels pending requests. Raises `NotFound`."""
        try:
            await self.handle(key).cancel()
        except RPCError as error:
            raise missing(error, key.workflow_id) from None

    async def _model_retry(self, key: TurnKey) -> ModelRetry | None:
        try:
            return await _read_model_retry(await self.handle(key).describe(rpc_timeout=self._patience))
        except RPCError as error:
            raise missing(error, key.workflow_id) from None

    async def _as_signal(self, handle: WorkflowHandle[Any, Any], body: dict[str, Any], approval_id: str) -> Receipt:
        # The Update that timed out may still apply. The turn then finds nothing new.
        try:
            await handle.signal(names.APPROVAL_RESPONSE, body, rpc_timeout=self._patience)
        except RPCError as error:
            return await self._after_the_end(handle, approval_id, error)
        return Receipt(status="pending", approval_id=approval_id)

    async def _untaken_receipt(
        self,
        handle: WorkflowHandle[Any, Any],
        body: dict[str, Any],
        approval_id: str,
        error: WorkflowUpdateFailedError,
    ) -> Receipt:
        cause = error.cause
        # Compare the type: to the SDK, a validator's refusal and an Update aborted by the turn's end are the same
        # error.
        if isinstance(cause, ApplicationError) and cause.type == "ValueError":
            return malformed_receipt(cause.message, approval_id)
        # Either the turn has closed, which the Signal detects as well, or a worker dropped the Update. The SDK's core
        # does that if a turn is queried while several answers arrive. The turn then continues without the answer.
        return await self._as_signal(handle, body, approval_id)

    async def _after_the_end(self, handle: WorkflowHandle[Any, Any], approval_id: str, error: RPCError) -> Receipt:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise unavailable(error)
        return await self._closed_receipt(handle, approval_id)

    async def _closed_receipt(self, handle: WorkflowHandle[Any, Any], approval_id: str) -> Receipt:
        """Use the turn's description if no worker runs."""
        unknown = Receipt(status="refused", code="unknown", approval_id=approval_id, message="there is no such request")
        # An unreadable turn may still exist.
        words = "the turn has ended and cannot be read; its audit log has the outcome of the request"
        unread = Receipt(status="refused", code="unavailable", approval_id=approval_id, message=words)
        try:
            receipt = await self._run_query(handle, names.RECEIPT, approval_id, result_type=Receipt)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return unknown
        # The query failed, or a forged workflow under the turn's id returned another type.
        except Exception:
            return unread
        else:
            return receipt if isinstance(receipt, Receipt) else unread
        try:
            # No worker answers, but the server knows whether the turn has closed. Then the state is final.
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
            message="the turn has ended; a running worker is needed to show the decision",
        )


def _input_digest(turn: TurnInput) -> str:
    """The digest is independent of the time and key of the requester's signature.

    Raises `Refused` for input that JSON, a history or a worker's reader cannot represent.
    """
    if why := bounds_problem(turn.context):
        raise Refused(f"a turn's context cannot be taken: {why}; send less, or send it as a string", code="malformed")
    try:
        # This client starts no turn of a session. Without these fields, the digest of equal input is the same.
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
    """Return `None` at a first attempt.

    Repeats only messages of Signoff's own model activity: other failures are Temporal's.
    """
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name != names.MODEL or pending.attempt < 2:
            continue
        # The SDK returns it undecoded: it may be encrypted.
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
