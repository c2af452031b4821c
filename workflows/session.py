"""Runs one conversation as a Temporal workflow: takes messages, begins turns in order, and takes their reports."""

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
    """The workflow of one session, in one run after another. Holds words and states, never runs anything."""

    @workflow.init
    def __init__(self, session: SessionInput) -> None:
        self._talk = Conversation(session)
        self._events_per_run = session.events_per_run

    # What people, turns and onlookers can send. Nothing here may raise: that would fail the task, again and again.

    # No handler here awaits: each is done in the step in which it came, so the end of a run breaks none off.
    @workflow.update(name=names.SAY, description="Say something to the session")
    def say(self, *envelopes: Any) -> SessionReceipt:
        """Takes a message; the receipt names the turn that is to answer it."""
        return self._talk.say(envelopes, workflow.now())

    @say.validator
    def _check_say(self, *envelopes: Any) -> None:
        problem = envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    @workflow.signal(name=names.SAY, description="Say something to the session, without a reply")
    def say_signal(self, *envelopes: Any) -> None:
        """Takes a message like `say`, for callers that cannot wait for a receipt."""
        self._talk.say(envelopes, workflow.now())

    @workflow.update(name=names.INJECT, description="Hand a late result to a turn")
    def inject(self, *envelopes: Any) -> SessionReceipt:
        """Takes a late result; the receipt names the turn that it is for."""
        return self._talk.inject(envelopes, workflow.now())

    @inject.validator
    def _check_inject(self, *envelopes: Any) -> None:
        problem = envelope_problem(envelopes)
        if problem:
            raise ValueError(problem)

    @workflow.signal(name=names.INJECT, description="Hand a late result to a turn, without a reply")
    def inject_signal(self, *envelopes: Any) -> None:
        """Takes a late result like `inject`, for callers that cannot wait for a receipt."""
        self._talk.inject(envelopes, workflow.now())

    @workflow.signal(name=names.TURN_WAITS, description="From a turn: it waits for people")
    def turn_waits(self, *envelopes: Any) -> None:
        """Lets the next message be answered meanwhile."""
        self._talk.report(envelopes, workflow.now())

    @workflow.signal(name=names.TURN_ENDED, description="From a turn: how it ended")
    def turn_ended(self, *envelopes: Any) -> None:
        """Takes a turn's answer, in its place of the conversation, however late."""
        self._talk.report(envelopes, workflow.now())

    @workflow.query(name=names.TRANSCRIPT)
    def transcript(self) -> list[Message]:
        """Returns the conversation as the next turn would read it."""
        return self._talk.transcript()

    @workflow.query(name=names.STATE)
    def state(self) -> SessionView:
        """Returns the session as an onlooker may see it."""
        return self._talk.view()

    @workflow.run
    async def run(self, session: SessionInput) -> None:
        """Runs until cancelled. What waits, the mailbox and the known ids go along into each new run."""
        if session.engine > names.ENGINE:
            # An ordinary exception: the task is retried until a worker that knows this number takes it.
            raise RuntimeError(f"this session needs engine {session.engine}, this worker has {names.ENGINE}")
        start_options.require_own_id(SessionKey(session.tenant_id, session.session_id))
        while not self._is_long():
            await self._step()
        await workflow.wait_condition(workflow.all_handlers_finished)
        # Between two steps only: what a step awaits is lost with this run. Turns that wait for people are not in it.
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
        """Waits until there is something to do."""
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
            # A turn has begun to wait or ended, so the timer was set for another moment.
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
        """Starts a turn. It is never awaited: it reports by itself, and outlives this run."""
        turn = self._talk.begin(item, workflow.now())
        key = TurnKey(turn.tenant_id, turn.session_id, turn.turn_id)
        try:
            handle = await workflow.start_child_workflow(
                names.ACTOR_TURN,
                turn,
                id=key.workflow_id,
                # Also of turns that have closed: one that ran under this id has used its tickets.
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                # A new run closes this one for the server: by default that would terminate every turn that waits.
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
        """Handles the end of a turn that this run began. Turns that ended by themselves have reported before."""
        # This run was cancelled or is let go; the turn itself goes on.
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
        # A turn that has closed tells, or told, what it took; what it did not take goes into a turn of its own.
        self._talk.record_delivered(injection)
        try:
            handle = workflow.get_external_workflow_handle(key.workflow_id)
            await handle.signal(names.INJECT, injection.model_dump(mode="json"))
        except FailureError:
            stopped = TurnError(code="stopped", message="the turn was stopped from outside")
            self._talk.record_lost_turn(key.turn, stopped, workflow.now())
