"""Has a workflow ask before it starts a dangerous activity: without polling, and without holding a slot.

Runs in workflows, so it must do the same at every replay.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.worker import (
    ExecuteWorkflowInput,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

from signoff_client.temporal.gated_activity import CallReader, ToolCall, to_json
from signoff_client.temporal.messages import (
    APPROVED,
    ASK,
    EXTERN,
    HEADER,
    PATCH,
    UNREACHABLE,
    WAITING,
    WITHDRAW,
    Answer,
    Approval,
    Question,
    ToldCalls,
    Use,
    kept_result,
    not_run,
)

Input = TypeVar("Input", StartActivityInput, StartLocalActivityInput)

_LONGEST_LOOK: Final = timedelta(days=1)
_ASK_SECONDS: Final = timedelta(minutes=2)
"""For how long one attempt to ask may take."""
_RETRY: Final = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=1))
_WITHDRAW_TIME: Final = timedelta(minutes=1)


@dataclass(frozen=True)
class GatePlan:
    """Says what a worker's workflows ask about, and how."""

    readers: Mapping[str, CallReader]
    signal: str
    look_up: timedelta
    """After what time a workflow that was told nothing looks for itself; twice as long each time after."""
    patience: timedelta
    """For how long a gateway that gives no answer is tried again."""
    task_queue: str | None
    """Where the gate's own activities run; the workflow's own queue when None."""
    user: Callable[[], str] | None


async def ask(tool: str, args: Mapping[str, Any] | None = None, *, says: str = "", user: str = "") -> dict[str, Any]:
    """Asks, from a workflow's own code, whether it may go on; returns the arguments that were approved.

    The permit is used and reported with that: what the workflow does next is its own. Raises `ApplicationError` of the
    type `ToolDenied` or `ToolInDoubt` where it may not, and `RuntimeError` in a worker without the plugin.
    """
    if EXTERN not in workflow.extern_functions():
        raise RuntimeError("this worker has no gate: give it `plugins=[signoff_client.temporal.Gated(...)]`")
    given = Approval(tool, dict(args or {}), says, user)
    try:
        return cast(
            dict[str, Any],
            await workflow.execute_activity(
                APPROVED, given, result_type=dict[str, Any], start_to_close_timeout=_ASK_SECONDS, retry_policy=_RETRY
            ),
        )
    except ActivityError as error:
        if isinstance(error.cause, ApplicationError):
            raise error.cause from None
        raise


def workflow_interceptor(plan: GatePlan) -> type[WorkflowInboundInterceptor]:
    """Returns the class by which each workflow of a worker has a gate of its own."""

    class GatedWorkflow(WorkflowInboundInterceptor):
        def init(self, outbound: WorkflowOutboundInterceptor) -> None:
            self._gate = _WorkflowGate(plan)
            super().init(_GatedOutbound(outbound, self._gate))

        async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
            try:
                return await super().execute_workflow(input)
            finally:
                await self._gate.close()

    return GatedWorkflow


class _GatedOutbound(WorkflowOutboundInterceptor):
    def __init__(self, following: WorkflowOutboundInterceptor, gate: "_WorkflowGate") -> None:
        super().__init__(following)
        self._gate = gate

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        return self._gate.start(input, self.next.start_activity)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        return self._gate.start(input, self.next.start_local_activity)


class _WorkflowGate:
    """Asks for the dangerous activities of one run."""

    def __init__(self, plan: GatePlan) -> None:
        self._plan = plan
        self._asked = 0
        self._ungated = 0
        self._open: list[asyncio.Task[Any]] = []

    def start(
        self, input: Input, start: Callable[[Input], workflow.ActivityHandle[Any]]
    ) -> workflow.ActivityHandle[Any]:
        """Starts an activity, a dangerous one once it is permitted."""
        reader = self._plan.readers.get(input.activity)
        if reader is None:
            return start(input)
        converter = workflow.payload_converter()
        values = [to_json(converter, each) for each in input.args]
        call = reader.read(values)
        if call is None or not self._is_gated():
            return start(input)
        self._asked += 1
        question = self._question(call, values[0] if input.activity == APPROVED else {})
        asking = asyncio.create_task(self._run(question, input, start), name=f"gated activity: {input.activity}")
        self._open = [each for each in (*self._open, asking) if not each.done()]
        return cast("workflow.ActivityHandle[Any]", asking)

    async def close(self) -> None:
        """Withdraws what is still asked for when the workflow ends: nobody would be told the answer."""
        left = [each for each in self._open if not each.done()]
        for each in left:
            each.cancel()
        if left:
            await asyncio.gather(*left, return_exceptions=True)

    def _is_gated(self) -> bool:
        # What a run has started before there was a gate is started as it was when its history is replayed. Each such
        # activity is a patch of its own, so that the run's next one is gated; a new run has one patch for all.
        if workflow.patched(f"{PATCH}.{self._ungated}"):
            return True
        self._ungated += 1
        return False

    def _question(self, call: ToolCall, own: Mapping[str, Any]) -> Question:
        info = workflow.info()
        user = own.get("user") or ("" if self._plan.user is None else self._plan.user())
        # The run as it was begun: the same after a reset, so that what has run is not run again by that.
        key = f"{info.workflow_id}:{info.original_execution_run_id}:{self._asked}"
        words = str(own.get("says", ""))
        return Question(call.tool, dict(call.args), key, info.workflow_id, self._plan.signal, words, user)

    async def _run(
        self, question: Question, input: Input, start: Callable[[Input], workflow.ActivityHandle[Any]]
    ) -> Any:
        told = self._told_calls()
        told.states[question.key] = ""
        try:
            while True:
                answer = await self._settle(question, told)
                if answer.state == "ended":
                    converter = workflow.payload_converter()
                    return converter.from_payloads(
                        converter.to_payloads([kept_result(answer)]), [input.ret_type] if input.ret_type else None
                    )[0]
                try:
                    return await start(_with_header(input, Use(answer.id, question.tool)))
                except ActivityError as error:
                    cause = error.cause
                    if not isinstance(cause, ApplicationError) or cause.type not in (UNREACHABLE, WAITING):
                        raise
                    if cause.type == UNREACHABLE:
                        raise not_run(Answer("unreachable", answer.id, cause.message)) from None
        except ApplicationError as error:
            raise _activity_error(input, error) from error
        except BaseException as error:
            if is_cancelled_exception(error):
                await self._withdraw(question)
            raise
        finally:
            told.states.pop(question.key, None)

    async def _settle(self, question: Question, told: ToldCalls) -> Answer:
        """Returns how a call stands once it is permitted or has ended well. Raises `ApplicationError` where not."""
        looks = self._plan.look_up
        told.states[question.key] = ""
        answer = await self._ask(question, self._plan.patience)
        while answer.state == "waiting":
            try:
                await workflow.wait_condition(
                    lambda: bool(told.states[question.key]),
                    timeout=looks,
                    timeout_summary=f"{question.tool} waits for approval",
                )
            except TimeoutError:
                looks = min(2 * looks, _LONGEST_LOOK)
            state, told.states[question.key] = told.states[question.key], ""
            if state == "permitted":
                return dataclasses.replace(answer, state=state)
            answer = await self._ask(question, max(self._plan.patience, looks))
        if answer.state == "permitted" or (answer.state, answer.code) == ("ended", "ok"):
            return answer
        raise not_run(answer)

    async def _ask(self, question: Question, patience: timedelta) -> Answer:
        try:
            answer: Answer = await workflow.execute_activity(
                ASK,
                question,
                result_type=Answer,
                task_queue=self._plan.task_queue,
                start_to_close_timeout=_ASK_SECONDS,
                schedule_to_close_timeout=patience,
                retry_policy=_RETRY,
                summary=question.tool,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            reason = error.cause.message if isinstance(error.cause, ApplicationError) else "no worker asks it"
            return Answer("unreachable", text=f"Not run: Signoff gave no answer ({reason}).")
        return answer

    async def _withdraw(self, question: Question) -> None:
        withdrawing = workflow.start_activity(
            WITHDRAW,
            question,
            task_queue=self._plan.task_queue,
            schedule_to_close_timeout=_WITHDRAW_TIME,
            retry_policy=_RETRY,
            summary=question.tool,
        )
        try:
            await asyncio.shield(withdrawing)
        except ActivityError as error:
            workflow.logger.warning("a call of %s that was cancelled could not be withdrawn: %s", question.tool, error)

    def _told_calls(self) -> ToldCalls:
        """Returns what this workflow is told by signals; it is kept by the handler of the signal."""
        handler = workflow.get_signal_handler(self._plan.signal)
        if handler is None:
            told = ToldCalls()
            workflow.set_signal_handler(self._plan.signal, told.take)
            return told
        own = getattr(handler, "__self__", None)
        if not isinstance(own, ToldCalls):
            raise RuntimeError(
                f"this workflow has a handler of its own for the signal `{self._plan.signal}`: give the gate another "
                'one, `Gated(..., signal="...")`, which the declaration of the agent has to name as well'
            )
        return own


def _with_header(input: Input, use: Use) -> Input:
    headers = {**input.headers, HEADER: PayloadConverter.default.to_payload(use)}
    return dataclasses.replace(input, headers=headers)


def _activity_error(input: StartActivityInput | StartLocalActivityInput, error: ApplicationError) -> ActivityError:
    """Returns the error by which an activity is known to have failed, as it would be where it had been started."""
    return ActivityError(
        error.message,
        scheduled_event_id=0,
        started_event_id=0,
        identity="",
        activity_type=input.activity,
        activity_id=input.activity_id or "",
        retry_state=None,
    )
