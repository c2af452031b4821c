"""Hands the call of an agent that thinks elsewhere out to it, once, and takes its report of what became of it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow

from signoff.contracts import names
from signoff.contracts.activity_messages import (
    GateDecision,
    OutcomeTask,
    ReportReply,
    RunOptions,
    ToolReply,
    ToolTask,
    UseCode,
    UseReply,
)
from signoff.contracts.call import ReportedOutcome
from signoff.contracts.message import CallPart
from signoff.workflows import options, outcomes
from signoff.workflows.alarm import Alarm
from signoff.workflows.turn_state import TurnState

_LAPSED: Final = "Not executed: its permit was not used in time."
_LONGEST_AWAY: Final = 86_400.0
_FROZEN: Final = "frozen:"
"""How the reason of a call begins that is denied as its tenant is frozen."""
_AGAIN: Final[dict[str, UseCode]] = {"stale": "stale", "policy": "stale", "lapsed": "lapsed"}
_WORDS: Final[dict[UseCode, str]] = {
    "used": "this permit was used already",
    "waiting": "people are still asked about this call",
    "denied": "this call was denied",
    "lapsed": "this permit was withdrawn, or not used in time",
    "stale": "what was permitted has changed meanwhile; the call is judged again",
    "frozen": "nothing is begun, as the tenant is frozen",
    "ended": "this call has ended",
    "conflict": "this key names a call with other content; choose another key",
    "unavailable": "it cannot be said now whether it may run; try again with the same id",
}


def use_refusal(code: UseCode) -> UseReply:
    """Makes the answer to who may not use a permit."""
    return UseReply(code=code, message=_WORDS[code])


class ExternalRunner:
    """Runs nothing itself: holds the permit of one call until its agent uses it, and waits for the report.

    `lock` is held while an activity is under way whose end must stand in the history where it happened.
    """

    def __init__(self, state: TurnState, lock: Callable[[], AbstractAsyncContextManager[None]], alarm: Alarm) -> None:
        self._state = state
        self._lock = lock
        self._alarm = alarm
        self._is_open = False
        self._wish = ""
        self._reply: UseReply | None = None
        self._used_by = ""
        self._used: UseReply | None = None
        self._report: ReportedOutcome | None = None
        self._reported: ToolReply | None = None
        self._is_reporting = False
        self._is_recorded = False
        self._visits = 0

    @property
    def is_open(self) -> bool:
        """Whether a permit waits to be used."""
        return self._is_open

    @property
    def is_used(self) -> bool:
        """Whether the permit was handed out."""
        return self._used is not None

    @property
    def is_recorded(self) -> bool:
        """Whether an activity has recorded what the turn had seen before the permit was used."""
        return self._is_recorded

    async def run(
        self, call: CallPart, task: ToolTask, gate_decision: GateDecision, begun: Callable[[], OutcomeTask]
    ) -> ToolReply:
        """Returns the outcome of the call once its agent has reported it, or why it was never used.

        `begun` makes the question to the activity of outcomes about the ticket that the agent uses.
        """
        self._state.show_state(call.call, "permitted", gate_decision.rule)
        self._is_open = True
        reply = await self._until_used(call, task, gate_decision.options)
        self._is_open = False
        if self._wish and self._reply is None:
            self._reply = use_refusal("lapsed")
        if reply.used is None:
            return reply
        self._state.show_state(call.call, "used", gate_decision.rule)
        return await self._until_reported(call, gate_decision.options, begun)

    async def wait_for_agent(self, call: CallPart, gate_decision: GateDecision) -> ToolReply | None:
        """Returns None once the agent waits for a call that was approved and that Signoff runs; else why it never is.

        A permit that nobody comes for lapses like any other.
        """
        self._state.show_state(call.call, "permitted", gate_decision.rule)
        self._is_open = True
        is_wished = await self._is_wished(workflow.now() + timedelta(seconds=gate_decision.options.grant_ttl))
        self._is_open = False
        self._reply = UseReply() if is_wished else use_refusal("lapsed")
        if is_wished:
            return None
        if self._state.stopped:
            return ToolReply(outcome=outcomes.unwanted_outcome(call.call, call.tool))
        return ToolReply(outcome=outcomes.failed_outcome(call.call, call.tool, "skipped", _LAPSED))

    async def is_left(self, within: float) -> bool:
        """Returns whether nobody waits for the call again within so many seconds; 0 says that somebody does."""
        self._visits += 1
        mine = self._visits
        if within <= 0:
            return False
        until = workflow.now() + timedelta(seconds=min(within, _LONGEST_AWAY))
        await self._alarm.wait(lambda: self._visits != mine or self._state.result is not None, until, "Nobody waits")
        return self._visits == mine and self._state.result is None

    def use_problem(self, wish: str) -> UseCode:
        """Returns why the try `wish` is refused at once; "" where it has to be looked at."""
        if self._used is not None:
            return "" if wish == self._used_by else "used"
        return "" if self._is_open or self._wish else self._why_closed()

    async def use(self, wish: str) -> UseReply:
        """Uses the permit for the try `wish`; the same try is handed the same again. Never raises."""
        while True:
            if self._used is not None:
                return self._used if wish == self._used_by else use_refusal("used")
            if not self._is_open or self._state.stopped:
                return use_refusal(self._why_closed())
            if not self._wish:
                break
            await workflow.wait_condition(lambda: not self._wish or not self._is_open)
        self._wish, self._reply = wish, None
        await workflow.wait_condition(lambda: self._reply is not None)
        reply = self._reply or use_refusal("unavailable")
        self._wish = ""
        return reply

    async def take_report(self, report: ReportedOutcome) -> ReportReply:
        """Takes what the agent says of the call that it ran, once. Never raises."""
        if self._used is None:
            return ReportReply(code="not_used", message="only a call whose permit was used can be reported")
        if self._report is not None and self._report != report:
            return _conflict()
        if self._report is None and not self._is_reporting:
            return ReportReply(code="conflict", message="it was not reported in time, and is recorded as in doubt")
        self._report = report
        await workflow.wait_condition(lambda: self._reported is not None or not self._is_reporting)
        stands = self._reported.outcome if self._reported is not None else None
        if stands is None:
            return ReportReply(code="unavailable", message="it could not be written down; report it again")
        same = (stands.code, stands.value) == (report.code, report.result)
        return ReportReply(outcome=stands) if same else _conflict()

    def _why_closed(self) -> UseCode:
        if self._state.book.pending():
            return "waiting"
        ended = [view.outcome for view in self._state.calls.values() if view.outcome is not None]
        if not ended:
            return "lapsed" if self._state.stopped else "waiting"
        return {"denied": "denied", "skipped": "lapsed"}.get(ended[0].code, "ended")  # type: ignore[return-value]

    async def _until_used(self, call: CallPart, task: ToolTask, run: RunOptions) -> ToolReply:
        until = workflow.now() + timedelta(seconds=run.grant_ttl)
        while True:
            if not await self._is_wished(until):
                if self._state.stopped:
                    return ToolReply(outcome=outcomes.unwanted_outcome(call.call, call.tool))
                return ToolReply(outcome=outcomes.failed_outcome(call.call, call.tool, "skipped", _LAPSED))
            reply = await self._claim(call, task.model_copy(update={"use": self._wish}), run)
            if reply is None:
                self._reply = use_refusal("unavailable")
                await workflow.wait_condition(lambda: not self._wish)
                continue
            self._reply = _use_reply(reply)
            if reply.used is not None:
                self._used_by, self._used = self._wish, self._reply
            return reply

    async def _is_wished(self, until: datetime) -> bool:
        """Returns whether somebody wants to use the permit, once they do; False once nobody may any more."""
        # Who waits for the judgement and wishes to use the permit at once is heard first: no timer is set then.
        await workflow.wait_condition(lambda: True)
        if not (self._wish or self._state.stopped):
            await self._alarm.wait(lambda: bool(self._wish) or self._state.stopped, until, "Permit")
        return bool(self._wish) and not self._state.stopped and workflow.now() < until

    async def _claim(self, call: CallPart, task: ToolTask, run: RunOptions) -> ToolReply | None:
        """Has the right to run derived and the ticket claimed; None where nobody can say whether it was."""
        try:
            async with self._lock():
                reply: ToolReply = await workflow.execute_local_activity(
                    run.activity or call.tool,
                    task,
                    # The tool's activity compares it with its permit, so that no permit runs another call.
                    activity_id=call.call,
                    result_type=ToolReply,
                    summary="Use the permit",
                    **options.USE,
                )
        except outcomes.LOST as error:
            kind = outcomes.error_type(error)
            if kind == "InDoubt":
                return ToolReply(outcome=outcomes.in_doubt_outcome(call.call, call.tool))
            if kind == "Refused":
                return ToolReply(
                    outcome=outcomes.failed_outcome(call.call, call.tool, "refused", outcomes.error_text(error))
                )
            return None
        self._is_recorded = True
        return reply

    async def _until_reported(self, call: CallPart, run: RunOptions, begun: Callable[[], OutcomeTask]) -> ToolReply:
        given = self._state.turn.external
        within = (0.0 if given is None else given.report_within) or run.report_within
        self._is_reporting = True
        await self._alarm.wait(lambda: self._report is not None, workflow.now() + timedelta(seconds=within), "Report")
        unknown = outcomes.in_doubt_outcome(call.call, call.tool)
        reported = self._report or ReportedOutcome(code="in_doubt", result=unknown.value)
        async with self._lock():
            self._reported = await workflow.execute_local_activity(
                names.OUTCOME,
                begun().model_copy(update={"reported": reported}),
                result_type=ToolReply,
                summary="Write down what became of it",
                **options.OUTCOME,
            )
        self._is_reporting = False
        if self._reported is None or self._reported.outcome is None:
            return ToolReply(outcome=unknown)
        return self._reported


def _use_reply(reply: ToolReply) -> UseReply:
    if reply.used is not None:
        return UseReply(permit=reply.used)
    if reply.again:
        return use_refusal(_AGAIN.get(reply.again, "stale"))
    ended = reply.outcome
    if ended is not None and ended.denied is not None and ended.denied.reason.startswith(_FROZEN):
        return use_refusal("frozen")
    code: UseCode = "denied" if ended is not None and ended.code in ("denied", "refused") else "ended"
    return use_refusal(code)


def _conflict() -> ReportReply:
    words = "another outcome of this call was reported before; the first one stands"
    return ReportReply(code="conflict", message=words)
