"""Proposes calls for workflows, and uses each permit right before its activity runs."""

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from signoff_client.call import Call
from signoff_client.control_flow import suspension_in, suspension_of
from signoff_client.gate import Gate
from signoff_client.messages import clip, encode_json, same_arguments
from signoff_client.status import explain
from signoff_client.temporal.gated_activity import CallReader, ToolCall, argument_names, from_json, to_json
from signoff_client.temporal.messages import (
    APPROVED,
    ASK,
    DENIED,
    HEADER,
    NOT_KEPT,
    UNREACHABLE,
    WAITING,
    WITHDRAW,
    Answer,
    Approval,
    Question,
    Use,
    answer_from_status,
    kept_result,
    not_run,
)

_RESULT_BYTES: Final = 60_000
"""The largest result in a report. The gateway accepts slightly more."""


@dataclass
class GateActivities:
    """The gate's own activities: short, and safe to retry."""

    gate: Gate

    @activity.defn(name=ASK)
    async def ask(self, question: Question) -> Answer:
        """Propose the call, or find it again if it was proposed before."""
        call = self._call(question)
        await call.settle()
        if call.state == "unreachable":
            raise ApplicationError(call.status.reason, type=UNREACHABLE)
        return answer_from_status(call.status)

    @activity.defn(name=WITHDRAW)
    async def withdraw(self, question: Question) -> None:
        """Withdraw a call, including one whose proposal is still in progress: it finds the call withdrawn."""
        call = self._call(question)
        await call.settle()
        if call.state in ("waiting", "permitted"):
            await call.withdraw()
        if call.state == "unreachable":
            raise ApplicationError(call.status.reason, type=UNREACHABLE)

    @activity.defn(name=APPROVED)
    async def approved(self, approval: Approval) -> dict[str, Any]:
        """Return the approved arguments, which the gate has already put in."""
        return approval.args

    def _call(self, question: Question) -> Call:
        target = {"workflow": {"id": question.workflow, "signal": question.signal}, "state": question.key}
        return self.gate.call(
            question.tool,
            question.args,
            key=question.key,
            user=question.user or None,
            says=question.says,
            wait=0,
            patience=0,
            callback=target,
        )


class GatedActivities(ActivityInboundInterceptor):
    """Runs a dangerous activity with the approved arguments, once, and reports the outcome."""

    def __init__(
        self, following: ActivityInboundInterceptor, gate: Gate, readers: Mapping[str, CallReader], patience: timedelta
    ) -> None:
        super().__init__(following)
        self._gate = gate
        self._readers = readers
        self._patience = patience

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        reader = self._readers.get(info.activity_type)
        if reader is None:
            return await self.next.execute_activity(input)
        converter = activity.payload_converter()
        values = [to_json(converter, each) for each in input.args]
        proposed = reader.read(values)
        if proposed is None:
            return await self.next.execute_activity(input)
        call = await self._find(input, proposed)
        if call.state == "ended":
            return _answered(call)
        try:
            async with call:
                if call:
                    approved = _Approved(reader, converter, values, proposed)
                    result = await self.next.execute_activity(approved.apply(input, call.args))
                    if suspension := suspension_in(result):
                        call.suspend(is_resumed=suspension == "resumed")
                    else:
                        call.result = _reported(converter, result)
                    return result
        except CancelledError:
            raise
        except Exception as error:
            if suspension_of(error):
                raise
            raise _final(error) from error
        raise self._refusal(call)

    async def _find(self, input: ExecuteActivityInput, proposed: ToolCall) -> Call:
        info = activity.info()
        header = input.headers.get(HEADER)
        if header is None:
            words = "Not run: it was started without approval, by a worker without a gate or before the gate existed."
            raise ApplicationError(words, type=DENIED, non_retryable=True)
        use = PayloadConverter.default.from_payload(header, Use)
        # Use half of the attempt's time: with a later permit, the activity would run after its workflow gave up.
        times = (self._patience, info.start_to_close_timeout, info.heartbeat_timeout)
        patience = min(each for each in times if each) / 2
        seconds = patience.total_seconds()
        if info.activity_type == APPROVED:
            # Workflow code may repeat freely. Any other activity is permitted for one execution.
            call = self._gate.find(use.id, wait=0, patience=seconds, attempt=use.id[:200])
        else:
            # The server gives a first attempt to one worker. Later attempts and local activities may follow a lost
            # worker.
            named = use.attempt if info.attempt == 1 and not info.is_local else ""
            call = self._gate.find(use.id, wait=0, patience=seconds, attempt=named, is_repeated=use.is_resumed)
        await call.settle()
        if call.state in ("permitted", "used", "ended") and call.tool != proposed.tool:
            words = f"Not run: it was permitted to run `{call.tool}`, which is not `{proposed.tool}`."
            raise ApplicationError(words, type=DENIED, non_retryable=True)
        return call

    def _refusal(self, call: Call) -> ApplicationError:
        if call.state == "waiting":
            return ApplicationError(call.text, type=WAITING, non_retryable=True)
        if call.state == "unreachable":
            tried = datetime.now(UTC) - activity.info().scheduled_time
            return ApplicationError(explain(call.status), type=UNREACHABLE, non_retryable=tried > self._patience)
        return not_run(answer_from_status(call.status))


@dataclass(frozen=True)
class _Approved:
    """Replaces an activity's input by the approved arguments."""

    reader: CallReader
    converter: PayloadConverter
    values: Sequence[Any]
    proposed: ToolCall

    def apply(self, input: ExecuteActivityInput, args: Mapping[str, Any]) -> ExecuteActivityInput:
        if same_arguments(args, self.proposed.args):
            return input
        changed = self.reader.write(self.values, args)
        hints = _hints(input.fn)
        own: list[Any] = list(input.args[: len(changed)])
        own += [None] * (len(changed) - len(own))
        for at, value in enumerate(changed):
            if at >= len(self.values) or value != self.values[at]:
                own[at] = from_json(self.converter, value, own[at], hints[at] if at < len(hints) else None)
        return dataclasses.replace(input, args=own)


def _answered(call: Call) -> Any:
    """Raise `ApplicationError` if the call's outcome is not a result."""
    answer = answer_from_status(call.status)
    if answer.code != "ok":
        raise not_run(answer)
    return kept_result(answer)


def _final(error: Exception) -> ApplicationError:
    """Return the error as non-retryable: the approval is for one execution."""
    if not isinstance(error, ApplicationError):
        return ApplicationError(str(error), type=type(error).__name__, non_retryable=True)
    return ApplicationError(error.message, *error.details, type=error.type, non_retryable=True, category=error.category)


def _reported(converter: PayloadConverter, result: Any) -> Any:
    try:
        plain = to_json(converter, result)
        if len(encode_json(plain)) <= _RESULT_BYTES:
            return plain
    except (TypeError, ValueError, RecursionError):
        plain = repr(result)
    return {NOT_KEPT: clip(str(plain))}


def _hints(function: Callable[..., Any]) -> list[Any]:
    """Return `None` for an untyped argument."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        hints = {}
    return [hints.get(name) for name in argument_names(function)]
