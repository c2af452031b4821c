"""Runs one conversation: accepts messages, starts turns in order and handles their reports."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError, FailureError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from signoff.approvals.approval_book import envelope_problem
    from signoff.contracts import names
    from signoff.contracts.ids import SessionKey, TurnKey
    from signoff.contracts.limits import SESSION_BYTES
    from signoff.contracts.message import Message
    from signoff.contracts.session_messages import (
        FollowUp,
        LateResult,
        MailboxMessage,
        SessionInput,
        SessionReceipt,
        SessionView,
    )
    from signoff.contracts.turn import TurnError
    from signoff.workflows import start_options
    from signoff.workflows.conversation import Conversation


@workflow.defn(name=names.SESSION, sandboxed=False)
class Session:
    """The workflow of one session, in consecutive runs. Runs no activity."""

    @workflow.init
    def __init__(self, session: SessionInput) -> None:
        self._talk = Conversation(session)
        self._events_per_run = session.events_per_run

    # Handlers for people, turns and observers. None may raise: that would fail the workflow task again and again.

    # No handler awaits. Each ends in the task that delivered it, so the end of a run interrupts none.
    @workflow.update(name=names.SAY, description="Say something to the session")
    def say(self, *envelopes: Any) -> SessionReceipt:
        """The receipt names the turn that will answer the message."""
        return self._talk.say(envelopes, workflow.now())

    @say.validator
    def _check_say(self, *envelopes: Any) -> None:
        problem = envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    @workflow.signal(name=names.SAY, description="Say something to the session, without a reply")
    def say_signal(self, *envelopes: Any) -> None:
        """Like `say`, for callers that cannot wait for a receipt."""
        self._talk.say(envelopes, workflow.now())

    @workflow.update(name=names.INJECT, description="Hand a late result to a turn")
    def inject(self, *envelopes: Any) -> SessionReceipt:
        """The receipt names the turn that will receive the result."""
        return self._talk.inject(envelopes, workflow.now())

    @inject.validator
    def _check_inject(self, *envelopes: Any) -> None:
        problem = envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    @workflow.signal(name=names.INJECT, description="Hand a late result to a turn, without a reply")
    def inject_signal(self, *envelopes: Any) -> None:
        """Like `inject`, for callers that cannot wait for a receipt."""
        self._talk.inject(envelopes, workflow.now())

    @workflow.signal(name=names.TURN_WAITS, description="From a turn: it waits for people")
    def turn_waits(self, *envelopes: Any) -> None:
        """The next message may start its turn while this one waits for people."""
        self._talk.report(envelopes, workflow.now())

    @workflow.signal(name=names.TURN_ENDED, description="From a turn: how it ended")
    def turn_ended(self, *envelopes: Any) -> None:
        """Insert a turn's answer at its position in the conversation, even if it is late."""
        self._talk.report(envelopes, workflow.now())

    @workflow.query(name=names.TRANSCRIPT)
    def transcript(self) -> list[Message]:
        return self._talk.transcript()

    @workflow.query(name=names.STATE)
    def state(self) -> SessionView:
        return self._talk.view()

    @workflow.run
    async def run(self, session: SessionInput) -> None:
        """Each new run takes over turns, mailbox, undelivered results and known ids."""
        if session.engine > names.ENGINE:
            # Raise an ordinary exception, so that Temporal retries the task until a newer worker takes it.
            raise RuntimeError(f"this session needs engine {session.engine}, this worker has {names.ENGINE}")
        start_options.require_own_id(SessionKey(session.tenant_id, session.session_id))
        while not self._is_long():
            await self._step()
        await workflow.wait_condition(workflow.all_handlers_finished)
        # Continue only between two steps: anything a step awaits is lost with this run. No step awaits a turn.
        workflow.continue_as_new(self._talk.snapshot())

    async def _step(self) -> None:
        item = self._talk.next(workflow.now())
        letter = self._talk.next_undelivered()
        if letter is not None:
            await self._deliver(*letter)
        elif item is not None:
            await self._begin(item)
        else:
            await self._rest()

    async def _rest(self) -> None:
        ends = self._talk.patience_deadline()
        left = None if ends is None else max(ends - workflow.now(), timedelta(milliseconds=1))
        try:
            await workflow.wait_condition(
                partial(self._is_called, ends),
                timeout=left,
                timeout_summary="The next message waits its turn",
            )
        except TimeoutError:
            return

    def _is_called(self, ends: datetime | None) -> bool:
        talk = self._talk
        return (
            talk.next(workflow.now()) is not None
            or talk.next_undelivered() is not None
            # A turn has started to wait or has ended, so the timer is out of date.
            or talk.patience_deadline() != ends
            or self._is_long()
        )

    def _is_long(self) -> bool:
        info = workflow.info()
        return (
            info.is_continue_as_new_suggested()
            or info.get_current_history_length() >= self._events_per_run
            or info.get_current_history_size() >= SESSION_BYTES
        )

    async def _begin(self, item: FollowUp | MailboxMessage) -> None:
        """Start a turn. Does not await its end: the turn outlives this run and reports it."""
        turn = self._talk.begin(item, workflow.now())
        key = TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)
        try:
            handle = await workflow.start_child_workflow(
                names.ACTOR_TURN,
                turn,
                id=key.workflow_id,
                # Reject ids of closed turns as well: such a turn has used the tickets of this id.
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                # Continue-as-new closes this run. The default policy would then terminate every waiting turn.
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
                memo=start_options.memo(turn),
                search_attributes=start_options.attributes(turn),
                static_summary=start_options.summary(turn),
            )
        except WorkflowAlreadyStartedError:
            self._talk.forget(turn, workflow.now())
            return
        handle.add_done_callback(partial(self._handle_end, turn.turn_id))

    def _handle_end(self, turn_id: str, task: Any) -> None:
        """Record a lost turn of this run. Turns that ended normally have already reported."""
        # This run was cancelled or evicted. The turn itself continues.
        if task.cancelled():
            return
        failure = task.exception()
        if isinstance(failure, ChildWorkflowError):
            cause = failure.cause
            config = isinstance(cause, ApplicationError) and cause.type == "ConfigError"
            words = cause.message if isinstance(cause, ApplicationError) else "the turn was stopped from outside"
            code = "config_error" if config else "stopped"
            self._talk.record_lost_turn(turn_id, TurnError(code=code, message=words), workflow.now())

    async def _deliver(self, key: TurnKey, injection: LateResult) -> None:
        # A closed turn reports the late results that it received. Each of the others gets a new turn.
        self._talk.record_delivered(injection)
        try:
            handle = workflow.get_external_workflow_handle(key.workflow_id)
            await handle.signal(names.INJECT, injection.model_dump(mode="json"))
        except FailureError:
            stopped = TurnError(code="stopped", message="the turn was stopped from outside")
            self._talk.record_lost_turn(key.turn, stopped, workflow.now())
