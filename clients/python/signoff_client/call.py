"""One call of an agent's tool: proposed, run by its block if permitted, and reported."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from signoff_client.control_flow import suspension_of
from signoff_client.exchange import CallExchange, Exchange
from signoff_client.messages import Proposal, ReportCode, same_arguments, to_text
from signoff_client.status import CallStatus, State, describe_outcome, explain
from signoff_client.transport import Transport
from signoff_client.wait_over import WaitOver

_LOG: Final = logging.getLogger("signoff_client")
_TASKS: Final[set[asyncio.Task[Any]]] = set()
"""Keeps references to shielded tasks: without one, Python may drop a task before it ends."""
_UNSET: Final = object()


class NotRun(Exception):
    """Raised if a call was not run. The message is for the model."""

    def __init__(self, call: "Call") -> None:
        super().__init__(call.text)
        self.call = call


class Call:
    """Proposes one call. True inside its block if this program may run it, once.

    Use `async with`, or `with` without an event loop. Leaving the block reports the outcome:

    - `ok` if `result` was set.
    - `execution_failed` for an exception.
    - `in_doubt` if the call may have taken effect: a cancellation, a timeout, or a block without a result.

    Exceptions propagate. A framework's signal that suspends the call (an interrupt, a deferral, an activity that
    completes elsewhere) is not an outcome, and nothing is reported.
    """

    def __init__(self, transport: Transport, proposal: Proposal, exchange: CallExchange, *, withdraw: bool) -> None:
        self._transport = transport
        self._proposal = proposal
        self._withdraws = withdraw
        self._exchange = exchange
        self._status: CallStatus | None = None
        self._is_entered = False
        self._is_mine = False
        self._result: Any = _UNSET
        self._failure = ""
        self._is_suspended = False
        self._outcome: tuple[ReportCode, Any] | None = None
        self._report_problem: str | None = None

    def __bool__(self) -> bool:
        return self._is_mine

    def __repr__(self) -> str:
        return f"<Call {self.tool} {self.id} {self.state}>"

    @property
    def tool(self) -> str:
        """The tool. "" for a found call until the gateway has named it."""
        return self._proposal.tool or self.status.tool

    @property
    def id(self) -> str:
        """The id of the call at the gateway; "" until the gateway has named it."""
        return self._exchange.id

    @property
    def state(self) -> State:
        """The state of the call; `waiting` before it was proposed."""
        return self.status.state

    @property
    def status(self) -> CallStatus:
        """The gateway's whole report, with the decider, the request's code and the note."""
        return CallStatus("waiting") if self._status is None else self._status

    @property
    def args(self) -> dict[str, Any]:
        """The approved arguments. Raises `NotRun` if the call must not be run."""
        self._must_be_mine()
        return dict(self.status.args)

    @property
    def key(self) -> str:
        """The same for every attempt of one call, for a backend with idempotency keys. Raises `NotRun`."""
        self._must_be_mine()
        return self.status.key

    @property
    def is_edited(self) -> bool:
        """Whether the call is permitted with other arguments than proposed."""
        if self._exchange.is_found:
            return self.state == "permitted" and bool(self.status.edited_by)
        return self.state == "permitted" and not same_arguments(self.status.args, self._proposal.args)

    @property
    def result(self) -> Any:
        """The result, also if Signoff ran the call; `None` without one."""
        return self.status.result if self._result is _UNSET else self._result

    @result.setter
    def result(self, value: Any) -> None:
        self._must_be_mine()
        if self._outcome is not None:
            raise RuntimeError(
                "this call's outcome was reported at the end of its block: set `result` inside the block"
            )
        self._result = value

    @property
    def is_reported(self) -> bool:
        """Whether the gateway has accepted the report of the outcome."""
        return self._report_problem == ""

    @property
    def text(self) -> str:
        """The result, or the reason why it was not run: for the model."""
        if self._outcome is None and self._result is _UNSET:
            return self._wait_over.words if self.state == "waiting" else explain(self.status)
        words = describe_outcome(*(self._outcome or ("ok", self._result)))
        return f"{words}\n({self.note_text})" if self.note_text else words

    @property
    def note_text(self) -> str:
        """For the model: the approvers' change of the arguments, and their remark. "" without both."""
        if not self.is_edited:
            return self.status.note if self.state == "permitted" else ""
        who = self.status.edited_by or "The approver"
        note = f": {self.status.note}" if self.status.note else ""
        return f"{who} edited the arguments before it ran, to {to_text(dict(self.status.args))}{note}"

    def fail(self, reason: str) -> None:
        """Report a failure without an exception. Raises `NotRun` if the call must not be run."""
        self._must_be_mine()
        self._failure = reason

    def suspend(self, *, is_resumed: bool = True) -> None:
        """Leave the block without a report.

        A resumed call runs again through this gate. Raises `NotRun` like `fail`.
        """
        self._must_be_mine()
        self._is_suspended = True
        if is_resumed:
            self._exchange.suspend(self.status)

    async def settle(self) -> None:
        """Propose the call and wait for approvers, without using the permit. Its block may be entered later."""
        self._status = await self._ask(self._exchange.settle())
        self._note_wait()

    async def withdraw(self) -> bool:
        """Withdraw the call. Returns whether this succeeded."""
        return not await self._transport.run(self._exchange.withdraw())

    async def __aenter__(self) -> Self:
        self._enter()
        self._take_status(await self._ask(self._exchange.obtain(self._status)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_mine and not self._suspends(error):
            await _finish(self._report(*self._judge(error), self._hurried(error)))

    def __enter__(self) -> Self:
        self._enter()
        try:
            self._take_status(self._transport.run_blocking(self._exchange.obtain(self._status)))
        except BaseException as error:
            if self._withdraws and self.id:
                self._transport.run_blocking(self._hurried(error).withdraw())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_mine and not self._suspends(error):
            code, result = self._judge(error)
            self._take_problem(self._transport.run_blocking(self._hurried(error).report(code, result)))

    def _enter(self) -> None:
        if self._is_entered:
            raise RuntimeError("a call's block can be entered only once: make another call")
        self._is_entered = True

    @property
    def _wait_over(self) -> WaitOver:
        return WaitOver(self.status, self._proposal.wait, has_key=self._proposal.key is not None)

    def _note_wait(self) -> None:
        if self.state == "waiting" and self._proposal.wait:
            _LOG.warning("%s", self._wait_over.advice)

    def _must_be_mine(self) -> None:
        if not self._is_mine:
            raise NotRun(self)

    def _take_status(self, status: CallStatus) -> None:
        self._status = status
        self._note_wait()
        self._is_mine = status.state == "permitted"

    async def _ask(self, exchange: Exchange[CallStatus]) -> CallStatus:
        try:
            return await self._transport.run(exchange)
        except BaseException as error:
            if self._withdraws and self.id:
                await _finish(self._transport.run(self._hurried(error).withdraw()))
            raise

    async def _report(self, code: ReportCode, result: Any, exchange: CallExchange) -> None:
        self._take_problem(await self._transport.run(exchange.report(code, result)))

    def _take_problem(self, problem: str) -> None:
        self._report_problem = problem
        if problem:
            _LOG.warning("cannot report the outcome of %s (%s): %s", self.tool, self.id, problem)

    def _suspends(self, error: BaseException | None) -> bool:
        suspension = suspension_of(error)
        if suspension and not self._is_suspended:
            self.suspend(is_resumed=suspension == "resumed")
        return self._is_suspended

    def _judge(self, error: BaseException | None) -> tuple[ReportCode, Any]:
        outcome: tuple[ReportCode, Any] = "in_doubt", "its block ended without a result"
        if error is None and self._failure:
            outcome = "execution_failed", self._failure
        elif self._result is not _UNSET:
            outcome = "ok", self._result
        elif error is not None:
            outcome = _judge_error(error), f"{type(error).__name__}: {error}".removesuffix(": ")
        self._outcome = outcome
        return outcome

    def _hurried(self, error: BaseException | None) -> CallExchange:
        """Limit the exchange to one attempt if the task is cancelled or the program interrupted."""
        if error is None or isinstance(error, Exception):
            return self._exchange
        return replace(self._exchange, patience=0.0)


def _judge_error(error: BaseException) -> ReportCode:
    # A timeout or cancellation may arrive while the effect is in progress.
    return "execution_failed" if isinstance(error, Exception) and not isinstance(error, TimeoutError) else "in_doubt"


async def _finish(work: Coroutine[Any, Any, Any]) -> None:
    """Await work that continues even if this task is cancelled."""
    task = asyncio.create_task(work)
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)
    await asyncio.shield(task)
