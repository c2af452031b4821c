"""Proposes external agents' calls over Temporal, uses permits and announces reports."""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

from temporalio.client import (
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from signoff.contracts import names
from signoff.contracts.activity_messages import CallPresence, CallRequest, UseReply, UseRequest
from signoff.contracts.errors import ConfigError, Conflict, NotFound, ServerUnavailable
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.ids import TurnKey
from signoff.contracts.turn import TurnInput
from signoff.engine.turn_client import TurnClient
from signoff.engine.workflow_runs import take_start_error, unavailable
from signoff.formats.replace import replace
from signoff.workflows import start_options
from signoff.workflows.external_permit import use_refusal

PATIENCE: Final = timedelta(seconds=10)
"""Time limit for the answer to a proposed call. A call that Signoff runs itself may take longer."""
_UPDATE_HEX: Final = 20
_NO_ANSWER: Final = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
_NOT_NOW: Final = (RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.UNAVAILABLE, RPCStatusCode.FAILED_PRECONDITION)
"""Statuses of a server whose turn has too many pending Updates, has just ended, or failed a task."""
_AGAIN_SECONDS: Final = 0.2
"""Seconds before a dropped Update is sent again."""
ID_CONFLICT: Final = "this id names another call of yours, with other content; choose another one"
_SILENT: Final = "no worker answered in time; ask again with the same key"
_JUDGED: Final = ("waiting", "permitted", "used")
"""States of a judged call whose turn has nothing to do at present."""
_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 1.0
_R = TypeVar("_R", bound=FrozenModel)


class CallClient:
    """Talks to the turns of external calls."""

    def __init__(self, turns: TurnClient) -> None:
        self._turns = turns

    async def propose(
        self, turn: TurnInput, *, first_look: float = 0.0, ended: Callable[[], Awaitable[UseReply]] | None = None
    ) -> UseReply | None:
        """Start the turn of a call. Returns its state once it waits, may be used or has ended.

        Equal input is the same call. Returns `None` if its turn has ended, was started before, or did not answer in
        time. `first_look` is the delay in seconds before the first poll. `ended` returns once a source other than the
        turn reports the call's end. Raises `Conflict` for another input with the same id, `Refused`,
        `ServerUnavailable`.
        """
        key = TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)
        turn, digest = self._turns.stamp_input(turn)
        try:
            is_new = await self._turns.begin_turn(turn, digest)
        except Conflict:
            raise Conflict(ID_CONFLICT) from None
        judged = await self._await_judged(key, first_look, ended)
        return replace(judged, nonce=turn.principal.nonce) if is_new and judged is not None else None

    async def _await_judged(
        self, key: TurnKey, first_look: float, ended: Callable[[], Awaitable[UseReply]] | None
    ) -> UseReply | None:
        known = [self._await_end(key), *([] if ended is None else [ended()]), self._look(key, first_look)]
        waits = [asyncio.ensure_future(each) for each in known]
        try:
            await asyncio.wait(waits, timeout=PATIENCE.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
            return next((each.result() for each in waits if each.done()), None)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.wait(waits)

    async def _await_end(self, key: TurnKey) -> UseReply | None:
        """Return `None` if the ended turn does not return all of the outcome."""
        try:
            result = await self._turns.result(key)
        except (ConfigError, NotFound, ServerUnavailable):
            return None
        outcome = next(iter(result.calls), None)
        if outcome is None or outcome.left_out or result.state != "complete":
            return None
        return UseReply(state=outcome.code, outcome=outcome)

    async def _look(self, key: TurnKey, pause: float) -> UseReply | None:
        """Return a call's state once the call waits or may be used, or `None` if no worker answers."""
        while True:
            await asyncio.sleep(pause)
            pause = min(max(2 * pause, _FIRST_PAUSE), _LAST_PAUSE)
            # A dropped query is repeated. `_await_end` reports the end of the turn.
            with contextlib.suppress(_Dropped, RPCError):
                try:
                    state = await self._send(key, names.CALL_STATE, FrozenModel(), UseReply)
                except WorkflowUpdateRPCTimeoutOrCancelledError:
                    # The SDK raises this instead of the task's own cancellation: continuing would never end.
                    return None
                if state in _JUDGED:
                    return UseReply(state=str(state))

    async def propose_and_use(self, turn: TurnInput, use: str) -> UseReply | None:
        """Start the turn of a call and, after judgement, use its permit with the use request `use`, in one request.

        Returns `None` if its turn has ended, or did not answer in time. Equal input is the same call. Raises as
        `propose`.
        """
        key = TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)
        turn, digest = self._turns.stamp_input(turn)
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            names.ACTOR_TURN,
            turn,
            id=key.workflow_id,
            task_queue=self._turns.task_queue,
            # Never start twice, even after its end. A running turn itself reports whether it has this input.
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            memo=start_options.memo(turn, digest),
            search_attributes=start_options.attributes(turn),
            static_summary=start_options.summary(turn),
            priority=start_options.priority(turn.tenant_id),
        )
        try:
            reply: Any = await self._turns.temporal.execute_update_with_start_workflow(
                names.AWAIT_CALL,
                CallRequest(input=digest, use=use).model_dump(mode="json", exclude_defaults=True),
                # An Update's id appears five times in the history of its turn.
                id=hashlib.sha256(f"{digest}:{use}".encode()).hexdigest()[:_UPDATE_HEX],
                start_workflow_operation=start,
                result_type=UseReply,
                rpc_timeout=PATIENCE,
            )
        except WorkflowUpdateFailedError:
            reply = None
        except (WorkflowUpdateRPCTimeoutOrCancelledError, WorkflowAlreadyStartedError, RPCError) as error:
            await take_start_error(start)
            if isinstance(error, RPCError) and error.status not in (*_NO_ANSWER, *_NOT_NOW):
                raise unavailable(error) from None
            reply = None
        if not isinstance(reply, UseReply):
            # The turn has ended, or no worker answers. Only the server knows whether the turn exists.
            try:
                await self._turns.require_input(key, digest)
            except Conflict:
                raise Conflict(ID_CONFLICT) from None
            except NotFound:
                raise ServerUnavailable(_SILENT) from None
            return None
        if reply.code == "conflict":
            raise Conflict(ID_CONFLICT)
        return reply

    async def use(self, key: TurnKey, use: str) -> UseReply | None:
        """Return `None` if the call's turn has ended. Raises `ServerUnavailable`."""
        reply = await self._update(key, names.USE_CALL, UseRequest(use=use), UseReply)
        if isinstance(reply, str):
            return use_refusal(reply)
        return reply

    async def tell_report(self, key: TurnKey) -> None:
        """Report to a call's turn that the store has its report. Has no effect after the turn's end.

        A turn that misses this finds the report at its deadline. Raises `ServerUnavailable`.
        """
        await self._signal(key, names.REPORT_CALL)

    async def attend(self, key: TurnKey, within: float = 0.0) -> None:
        """Report to a call's turn that its agent waits for it, or with `within`, that it stopped waiting.

        Has no effect after the turn's end. Raises `ServerUnavailable`.
        """
        await self._signal(key, names.ATTEND_CALL, CallPresence(within=within).model_dump(mode="json"))

    async def _signal(self, key: TurnKey, signal: str, *envelopes: Any) -> None:
        handle = self._turns.temporal.get_workflow_handle(key.workflow_id)
        try:
            await handle.signal(signal, args=envelopes, rpc_timeout=PATIENCE)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise unavailable(error) from None

    async def _update(self, key: TurnKey, update: str, body: FrozenModel, result_type: type[_R]) -> _R | str | None:
        """Return the reason of a refusal without history event, or `None` after the turn's end."""
        try:
            # `rpc_timeout` limits only one of several requests: a dropped Update would never be reported.
            async with asyncio.timeout(PATIENCE.total_seconds()):
                while True:
                    with contextlib.suppress(_Dropped):
                        return await self._send(key, update, body, result_type)
                    await asyncio.sleep(_AGAIN_SECONDS)
        except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError):
            raise ServerUnavailable(_SILENT) from None
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise unavailable(error) from None

    async def _send(self, key: TurnKey, update: str, body: FrozenModel, result_type: type[_R]) -> _R | str | None:
        handle = self._turns.temporal.get_workflow_handle(key.workflow_id)
        try:
            # Use a new id each time: the server repeats its first answer to a known id forever.
            reply: Any = await handle.execute_update(
                update, body.model_dump(mode="json"), result_type=result_type, rpc_timeout=PATIENCE
            )
        except WorkflowUpdateFailedError as error:
            # To the SDK, a validator's refusal, a dropped Update and the turn's end are the same error. Only an ended
            # turn answers a second Update with "not found".
            if isinstance(error.cause, ApplicationError) and error.cause.type == "ValueError":
                return error.cause.message
            raise _Dropped from None
        except RPCError as error:
            if error.status == RPCStatusCode.FAILED_PRECONDITION:
                raise _Dropped from None
            raise
        return reply if isinstance(reply, result_type) else None


class _Dropped(Exception):
    """Raised if no worker handled an Update: a task of its turn failed, or a worker dropped it."""
