"""Makes a workflow ask before it starts a dangerous activity, without polling and without a worker slot.

Runs in workflows, so it must be deterministic in replay.
"""

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

from temporalio import workflow
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, is_cancelled_exception
from temporalio.worker import StartActivityInput, StartLocalActivityInput

from signoff_client.control_flow import suspension_in
from signoff_client.messages import same_arguments
from signoff_client.temporal.call_decisions import (
    CallPlace,
    GatePlan,
    activity_error,
    check_failure,
    is_suspended,
    make_question,
    next_look,
    next_step,
    unreachable_answer,
)
from signoff_client.temporal.gated_activity import to_json
from signoff_client.temporal.messages import (
    APPROVED,
    ASK,
    HEADER,
    PATCH,
    RETRY,
    WITHDRAW,
    Answer,
    Question,
    ToldCalls,
    Use,
    kept_result,
    not_run,
)

Input = TypeVar("Input", StartActivityInput, StartLocalActivityInput)

_ASK_TIME: Final = timedelta(minutes=2)
"""Timeout of one attempt to ask."""
_WITHDRAW_TIME: Final = timedelta(minutes=1)


@dataclass(frozen=True)
class _Suspended:
    """A call whose activity a framework suspends. Started again, it keeps its call and attempt."""

    question: Question
    attempt: str

    def is_of(self, question: Question) -> bool:
        own = self.question
        same_caller = (own.tool, own.user, own.says) == (question.tool, question.user, question.says)
        return same_caller and same_arguments(own.args, question.args)


class WorkflowGate:
    """Asks for the dangerous activities of one run."""

    def __init__(self, plan: GatePlan) -> None:
        self._plan = plan
        self._asked = 0
        self._ungated = 0
        self._open: list[asyncio.Task[Any]] = []
        self._suspended: list[_Suspended] = []

    def start(
        self, input: Input, start: Callable[[Input], workflow.ActivityHandle[Any]]
    ) -> workflow.ActivityHandle[Any]:
        reader = self._plan.readers.get(input.activity)
        if reader is None:
            return start(input)
        converter = workflow.payload_converter()
        values = [to_json(converter, each) for each in input.args]
        call = reader.read(values)
        if call is None or not self._is_gated():
            return start(input)
        self._asked += 1
        info, own = workflow.info(), values[0] if input.activity == APPROVED else {}
        place = CallPlace(info.workflow_id, info.original_execution_run_id, self._asked)
        question = make_question(self._plan, place, call, own)
        suspended = next((each for each in self._suspended if each.is_of(question)), None)
        if suspended is not None:
            self._suspended.remove(suspended)
        # By the current run: after a reset, the same number is another attempt.
        step = suspended or _Suspended(question, f"{info.run_id}:{self._asked}")
        running = self._run(step, input, start, is_resumed=suspended is not None)
        asking = asyncio.create_task(running, name=f"gated activity: {input.activity}")
        self._open = [each for each in (*self._open, asking) if not each.done()]
        return cast("workflow.ActivityHandle[Any]", asking)

    async def close(self) -> None:
        """Withdraw open calls when the workflow ends: no code would receive their answers."""
        left = [each for each in self._open if not each.done()]
        for each in left:
            each.cancel()
        if left:
            await asyncio.gather(*left, return_exceptions=True)

    def _is_gated(self) -> bool:
        # Activities from before the gate existed are started ungated when their history is replayed. Each has its own
        # patch, so that the run's next activity is gated. A new run has one patch for all.
        if workflow.patched(f"{PATCH}.{self._ungated}"):
            return True
        self._ungated += 1
        return False

    async def _run(
        self,
        step: "_Suspended",
        input: Input,
        start: Callable[[Input], workflow.ActivityHandle[Any]],
        *,
        is_resumed: bool,
    ) -> Any:
        question, signals = step.question, self._told_calls()
        try:
            while True:
                answer = await self._settle(question, signals, is_resumed=is_resumed)
                if answer.state == "ended":
                    return _result(answer, input.ret_type)
                try:
                    use = Use(answer.id, question.tool, step.attempt, is_resumed)
                    result = await start(self._permitted(input, use))
                    if suspension_in(result) == "resumed":
                        self._suspended.append(step)
                    return result
                except ActivityError as error:
                    if is_suspended(error):
                        self._suspended.append(step)
                        raise
                    check_failure(error, answer)
        except BaseException as error:
            if is_cancelled_exception(error):
                await self._withdraw(question)
                if not isinstance(error, ActivityError):
                    raise _failure(input, CancelledError("it was cancelled before it was started")) from error
            if isinstance(error, ApplicationError):
                raise _failure(input, error) from error
            raise
        finally:
            signals.states.pop(question.key, None)

    async def _settle(self, question: Question, told: ToldCalls, *, is_resumed: bool) -> Answer:
        """Raise `ApplicationError` unless the call is permitted or has succeeded."""
        looks = self._plan.look_up
        told.states[question.key] = ""
        answer = await self._ask(question, self._plan.patience)
        while next_step(answer) == "wait":
            try:
                await workflow.wait_condition(
                    lambda: bool(told.states[question.key]),
                    timeout=looks,
                    timeout_summary=f"{question.tool} waits for approval",
                )
            except TimeoutError:
                looks = next_look(looks)
            state, told.states[question.key] = told.states[question.key], ""
            if state == "permitted":
                return dataclasses.replace(answer, state=state)
            answer = await self._ask(question, max(self._plan.patience, looks))
        if next_step(answer) == "refuse" and not (is_resumed and answer.state == "used"):
            raise not_run(answer)
        return answer

    async def _ask(self, question: Question, patience: timedelta) -> Answer:
        try:
            answer: Answer = await workflow.execute_activity(
                ASK,
                question,
                result_type=Answer,
                task_queue=self._plan.task_queue,
                start_to_close_timeout=_ASK_TIME,
                schedule_to_close_timeout=patience,
                retry_policy=RETRY,
                summary=question.tool,
            )
        except ActivityError as error:
            return unreachable_answer(error)
        return answer

    async def _withdraw(self, question: Question) -> None:
        withdrawing = workflow.start_activity(
            WITHDRAW,
            question,
            task_queue=self._plan.task_queue,
            schedule_to_close_timeout=_WITHDRAW_TIME,
            retry_policy=RETRY,
            summary=question.tool,
        )
        try:
            await asyncio.shield(withdrawing)
        except ActivityError as error:
            workflow.logger.warning("a call of %s that was cancelled could not be withdrawn: %s", question.tool, error)

    def _told_calls(self) -> ToldCalls:
        handler = workflow.get_signal_handler(self._plan.signal)
        if handler is None:
            signals = ToldCalls()
            workflow.set_signal_handler(self._plan.signal, signals.take)
            return signals
        own = getattr(handler, "__self__", None)
        if not isinstance(own, ToldCalls):
            raise RuntimeError(
                f"this workflow already handles the signal `{self._plan.signal}`: give the gate another "
                'one, `Gated(..., signal="...")`, and name it in the declaration of the agent too'
            )
        return own

    def _permitted(self, input: Input, use: Use) -> Input:
        """The activity for a workflow's own code runs on the gate's queue."""
        headers = {**input.headers, HEADER: PayloadConverter.default.to_payload(use)}
        permitted = dataclasses.replace(input, headers=headers)
        if isinstance(permitted, StartActivityInput) and permitted.activity == APPROVED:
            permitted.task_queue = self._plan.task_queue
        return permitted


def _failure(
    input: StartActivityInput | StartLocalActivityInput, cause: ApplicationError | CancelledError
) -> ActivityError:
    return activity_error(input.activity, input.activity_id or "", cause)


def _result(answer: Answer, kind: Any) -> Any:
    converter = workflow.payload_converter()
    return converter.from_payloads(converter.to_payloads([kept_result(answer)]), [kind] if kind else None)[0]
