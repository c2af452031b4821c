"""Hands the call of an external agent out to that agent, once, and waits for its report."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow

from signoff.contracts import names
from signoff.contracts.activity_messages import (
    GateDecision,
    OutcomeTask,
    RunOptions,
    RunTask,
    ToolReply,
    UseCode,
    UseReply,
)
from signoff.formats.replace import replace
from signoff.workflows import options, outcomes
from signoff.workflows.alarm import Alarm
from signoff.workflows.external_permit import (
    ExternalPermit,
    closing_reason,
    examine_use,
    use_problem,
    use_refusal,
)
from signoff.workflows.turn_state import TurnState

_LAPSED: Final = "Not executed: its permit was not used in time."
_LONGEST_AWAY: Final = 86_400.0
_MOST_LOOKS: Final = 20
_FROZEN: Final = "frozen:"
"""Prefix of the reason with which calls of a frozen tenant are denied."""
_AGAIN: Final[dict[str, UseCode]] = {"stale": "stale", "policy": "stale", "lapsed": "lapsed"}


class ExternalRunner:
    """Holds the permit of one call until its agent uses it.

    Runs nothing itself. `lock` is held during activities whose completion must keep its position in the history.
    """

    def __init__(self, state: TurnState, lock: Callable[[], AbstractAsyncContextManager[None]], alarm: Alarm) -> None:
        self._state = state
        self._lock = lock
        self._alarm = alarm
        self._permit = ExternalPermit()
        self._is_recorded = False
        self._reports = self._looks = 0
        self._visits = 0

    @property
    def is_open(self) -> bool:
        return self._permit.is_open

    @property
    def is_used(self) -> bool:
        return self._permit.used is not None

    def hear_report(self) -> None:
        """Look up the call's report in the store.

        The signal proves nothing: anyone who can signal the turn could have sent it.
        """
        self._reports += 1

    @property
    def is_recorded(self) -> bool:
        """True once an activity has recorded the audit entries from before the use of the permit."""
        return self._is_recorded

    async def run(self, task: RunTask, gate_decision: GateDecision, begun: Callable[[], OutcomeTask]) -> ToolReply:
        """Return the reported outcome, or why the permit was not used.

        `begun` builds the input of the outcome activity for the agent's ticket.
        """
        self._state.show_state(task.call, "permitted", gate_decision.rule)
        self._permit = self._permit.open_up()
        reply = await self._until_used(task, gate_decision.options)
        self._permit = self._permit.close()
        if reply.used is None:
            return reply
        self._state.show_state(task.call, "used", gate_decision.rule)
        return await self._until_reported(task, gate_decision.options, begun)

    async def wait_for_agent(self, task: RunTask, gate_decision: GateDecision) -> ToolReply | None:
        """Wait until the agent wants an approved call that Signoff itself runs.

        Returns `None` then, or why the call never runs: an unused permit lapses.
        """
        self._state.show_state(task.call, "permitted", gate_decision.rule)
        self._permit = self._permit.open_up()
        is_wished = await self._is_wished(workflow.now() + timedelta(seconds=gate_decision.options.grant_ttl))
        if is_wished:
            self._permit = self._permit.answer_try(UseReply())
        self._permit = self._permit.close()
        if is_wished:
            return None
        if self._state.stopped:
            return ToolReply(outcome=outcomes.unwanted_outcome(task.call, task.tool))
        return ToolReply(outcome=outcomes.failed_outcome(task.call, task.tool, "skipped", _LAPSED))

    async def is_left(self, within: float) -> bool:
        """Return whether the agent stays away for `within` seconds; 0 means that it waits now."""
        self._visits += 1
        mine = self._visits
        if within <= 0:
            return False
        until = workflow.now() + timedelta(seconds=min(within, _LONGEST_AWAY))
        await self._alarm.wait(lambda: self._visits != mine or self._state.result is not None, until, "Nobody waits")
        return self._visits == mine and self._state.result is None

    def use_problem(self, wish: str) -> UseCode:
        """Return why the use request `wish` is refused at once, or "" if it needs a closer check."""
        return use_problem(self._permit, wish, self._closing_reason())

    async def use(self, wish: str) -> UseReply:
        """Use the permit for the use request `wish`. A repeated request gets the same reply. Never raises."""
        while True:
            known = examine_use(self._permit, wish, stopped=self._state.stopped, why_closed=self._closing_reason())
            if isinstance(known, UseReply):
                return known
            if known != "wait":
                break
            await workflow.wait_condition(lambda: not self._permit.tried_by or not self._permit.is_open)
        self._permit = self._permit.begin_try(wish)
        await workflow.wait_condition(lambda: self._permit.answer is not None)
        reply = self._permit.answer or use_refusal("unavailable")
        self._permit = self._permit.end_try()
        return reply

    def _closing_reason(self) -> UseCode:
        ended = (view.outcome for view in self._state.calls.values() if view.outcome is not None)
        is_asked, outcome = bool(self._state.book.pending()), next(ended, None)
        return closing_reason(is_asked=is_asked, stopped=self._state.stopped, outcome=outcome)

    async def _until_used(self, task: RunTask, run: RunOptions) -> ToolReply:
        until = workflow.now() + timedelta(seconds=run.grant_ttl)
        while True:
            if not await self._is_wished(until):
                if self._state.stopped:
                    return ToolReply(outcome=outcomes.unwanted_outcome(task.call, task.tool))
                return ToolReply(outcome=outcomes.failed_outcome(task.call, task.tool, "skipped", _LAPSED))
            reply = await self._claim(replace(task, use=self._permit.tried_by), run)
            if reply is None:
                self._permit = self._permit.answer_try(use_refusal("unavailable"))
                await workflow.wait_condition(lambda: not self._permit.tried_by)
                continue
            self._permit = self._permit.answer_try(_use_reply(self._with_remark(task, reply)))
            return reply

    def _with_remark(self, task: RunTask, reply: ToolReply) -> ToolReply:
        question = self._state.book.get(task.approval_id)
        if reply.used is None or question is None or not question.remarks:
            return reply
        note = "\n".join(filter(None, (reply.used.note, question.remarks)))
        return replace(reply, used=replace(reply.used, note=note))

    async def _is_wished(self, until: datetime) -> bool:
        # Let an agent that already waits for the judgement go first. Then no timer is needed.
        await workflow.wait_condition(lambda: True)
        if not (self._permit.tried_by or self._state.stopped):
            await self._alarm.wait(lambda: bool(self._permit.tried_by) or self._state.stopped, until, "Permit")
        return bool(self._permit.tried_by) and not self._state.stopped and workflow.now() < until

    async def _claim(self, task: RunTask, run: RunOptions) -> ToolReply | None:
        """Derive the right to run and claim the ticket. Returns `None` if it is unknown whether that succeeded."""
        try:
            async with self._lock():
                reply: ToolReply = await workflow.execute_local_activity(
                    run.activity or task.tool,
                    task,
                    # The tool's activity compares this id with its task, so that no task runs another call.
                    activity_id=task.call,
                    result_type=ToolReply,
                    summary="Use the permit",
                    **options.USE,
                )
        except outcomes.LOST as error:
            kind = outcomes.error_type(error)
            if kind == "InDoubt":
                return ToolReply(outcome=outcomes.in_doubt_outcome(task.call, task.tool))
            if kind == "Refused":
                return ToolReply(
                    outcome=outcomes.failed_outcome(task.call, task.tool, "refused", outcomes.error_text(error))
                )
            return None
        self._is_recorded = True
        return reply

    async def _until_reported(self, task: RunTask, run: RunOptions, begun: Callable[[], OutcomeTask]) -> ToolReply:
        given = self._state.turn.external
        within = (0.0 if given is None else given.report_within) or run.report_within
        until = workflow.now() + timedelta(seconds=within)
        while True:
            is_heard = await self._alarm.wait(self._is_report_heard, until, "Report")
            self._looks = self._reports
            look = replace(begun(), report="look" if is_heard else "give_up")
            async with self._lock():
                kept: ToolReply = await workflow.execute_local_activity(
                    names.OUTCOME, look, result_type=ToolReply, summary="Look up the agent's report", **options.OUTCOME
                )
            if kept.outcome is not None:
                return kept
            if not is_heard:
                return ToolReply(outcome=outcomes.in_doubt_outcome(task.call, task.tool))

    def _is_report_heard(self) -> bool:
        # Limit the lookups: each is a history event, and anyone with Temporal credentials can send this signal.
        return self._looks < self._reports and self._looks < _MOST_LOOKS


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
