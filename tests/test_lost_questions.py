"""A worker that loses a question is asked again, within the same patience."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from session_rig import message
from temporalio.client import WorkflowQueryFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from signoff.contracts import names
from signoff.contracts.decision import Decision
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey
from signoff.contracts.message import user_message
from signoff.contracts.session_messages import LateResult
from signoff.engine import workflow_runs
from signoff.engine.session_client import SessionClient
from signoff.engine.turn_client import TurnClient
from signoff.formats.replace import replace


@pytest.fixture(autouse=True)
def no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the watch over the server: these clients are stand-ins without a service."""
    monkeypatch.setattr(workflow_runs, "watch_server", lambda client: client)


KEY = TurnKey("main", "s", "t")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("signoff.engine.workflow_runs.time", clock)
    return clock


class Forgetful:
    """A turn that loses so many questions; each time it is told how long it may take."""

    id = KEY.workflow_id

    def __init__(self, losses: int, clock: Clock | None = None, *, late: float = 0.0) -> None:
        self.losses = losses
        self.waits: list[float] = []
        self.clock = clock or Clock()
        self.late = late

    async def query(self, query: str, *, rpc_timeout: timedelta, **asked: Any) -> str:
        self.waits.append(rpc_timeout.total_seconds())
        if len(self.waits) <= self.losses:
            self.clock.now += self.waits[-1] + self.late
            raise RPCError("lost", RPCStatusCode.DEADLINE_EXCEEDED, b"")
        return f"{query} {asked['args']}"

    def get_workflow_handle(self, workflow_id: str, **named: Any) -> "Forgetful":
        return self


class Unreadable(Forgetful):
    """A turn that has ended, and whose history no worker understands."""

    async def execute_update(self, *args: Any, **named: Any) -> Any:
        raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")

    async def query(self, query: str, **asked: Any) -> str:
        raise WorkflowQueryFailedError("nondeterminism")


def signoff(turn: Forgetful, patience: float = 7) -> TurnClient:
    return TurnClient(turn, patience=timedelta(seconds=patience))  # type: ignore[arg-type]


async def test_a_lost_question_is_asked_again_with_more_time(clock: Clock) -> None:
    turn = Forgetful(2, clock)
    assert await signoff(turn).pending(KEY) == "pending_approvals ()"  # type: ignore[comparison-overlap]
    assert turn.waits == [1.0, 2.0, 4.0]


async def test_nobody_is_asked_for_longer_than_the_patience_lasts(clock: Clock) -> None:
    turn = Forgetful(1_000, clock)
    with pytest.raises(ServerUnavailable, match="no worker answered in time"):
        await signoff(turn, patience=9).view(KEY)
    assert turn.waits == [1.0, 2.0, 4.0, 2.0]


@pytest.mark.parametrize("late", [1.99, 2.0, 30.0])
async def test_a_machine_so_busy_that_it_tells_too_late_asks_for_no_time_below_nothing(
    clock: Clock, late: float
) -> None:
    turn = Forgetful(1_000, clock, late=late)
    with pytest.raises(ServerUnavailable, match="no worker answered in time"):
        await signoff(turn, patience=3).view(KEY)
    assert turn.waits == [1.0]


async def test_a_request_whose_turn_cannot_be_read_is_not_called_unknown() -> None:
    answer = Decision(approval_id=ApprovalKey(KEY, "c1.1").id, verdict="approved", subject="ana", channel="test")
    receipt = await signoff(Unreadable(0)).decide(answer)
    assert (receipt.status, receipt.code) == ("refused", "unavailable")
    assert "its audit log has the outcome of the request" in receipt.message


class HalfRead(Forgetful):
    """A turn whose history is first seen up to the middle of a task."""

    async def query(self, query: str, *, rpc_timeout: timedelta, **asked: Any) -> str:
        self.waits.append(rpc_timeout.total_seconds())
        if len(self.waits) <= self.losses:
            raise WorkflowQueryFailedError("[TMPRL1100] Nondeterminism error: Missing associated machine")
        return f"{query} {asked['args']}"


async def test_a_history_that_was_read_up_to_the_middle_is_asked_about_again(clock: Clock) -> None:
    turn = HalfRead(2, clock)
    assert await signoff(turn).pending(KEY) == "pending_approvals ()"  # type: ignore[comparison-overlap]
    assert len(turn.waits) == 3


class Unpolled(Forgetful):
    """A turn whose worker the server has not seen yet; each query takes it 0.2 s."""

    async def query(self, query: str, *, rpc_timeout: timedelta, **asked: Any) -> str:
        self.waits.append(rpc_timeout.total_seconds())
        if len(self.waits) <= self.losses:
            self.clock.now += 0.2
            words = "no poller seen for task queue recently, worker may be down"
            raise RPCError(words, RPCStatusCode.FAILED_PRECONDITION, b"")
        return f"{query} {asked['args']}"


async def test_a_worker_that_has_just_begun_is_given_time_to_poll(clock: Clock) -> None:
    turn = Unpolled(3, clock)
    assert await signoff(turn).pending(KEY) == "pending_approvals ()"  # type: ignore[comparison-overlap]
    assert len(turn.waits) == 4


async def test_where_no_worker_polls_the_query_ends_before_its_patience(clock: Clock) -> None:
    turn = Unpolled(1_000, clock)
    with pytest.raises(ServerUnavailable, match="no worker answered in time; is one running on this task queue"):
        await signoff(turn, patience=9).view(KEY)
    assert len(turn.waits) == 5


class Failing(Forgetful):
    """A turn whose workflow task fails, over and over."""

    async def query(self, query: str, **asked: Any) -> str:
        words = "Unable to query workflow due to Workflow Task in failed state.\nmore"
        raise RPCError(words, RPCStatusCode.FAILED_PRECONDITION, b"")


async def test_a_query_that_the_server_refuses_is_told_as_its_refusal() -> None:
    with pytest.raises(ServerUnavailable) as told:
        await signoff(Failing(0)).view(KEY)
    words = "the Temporal server refused this for now: Unable to query workflow due to Workflow Task in failed state."
    assert str(told.value) == words


class Stuck(Forgetful):
    """A turn whose task has failed so often that the server takes no Update for it."""

    async def execute_update(self, *args: Any, **named: Any) -> Any:
        words = "Unable to perform workflow execution update due to Workflow Task in failed state."
        raise RPCError(words, RPCStatusCode.FAILED_PRECONDITION, b"")


async def test_a_withdrawal_from_a_turn_whose_task_fails_is_refused_for_now() -> None:
    wish = Decision(approval_id=ApprovalKey(KEY, "c1.1").id, verdict="withdrawn", subject="ana", channel="test")
    receipt = await signoff(Stuck(0)).withdraw(wish)
    assert (receipt.status, receipt.code) == ("refused", "unavailable")


class Endless(Forgetful):
    """A turn or session that accepts an Update and never completes it, as its worker was lost in between."""

    def __init__(self) -> None:
        super().__init__(0)
        self.signals: list[str] = []

    async def execute_update(self, *args: Any, **named: Any) -> Any:
        """As the SDK, which asks for the outcome for ever, and raises this where its task is cancelled."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise WorkflowUpdateRPCTimeoutOrCancelledError from None

    async def execute_update_with_start_workflow(self, *args: Any, **named: Any) -> Any:
        await self.execute_update()

    async def signal(self, signal: str, *args: Any, **named: Any) -> None:
        self.signals.append(signal)

    async def start_workflow(self, *args: Any, start_signal: str, **named: Any) -> None:
        self.signals.append(start_signal)


async def test_what_is_accepted_and_never_completed_goes_as_a_signal_within_patience() -> None:
    turn = Endless()
    client, session = signoff(turn, patience=0.2), SessionKey("main", "s")
    sessions = SessionClient(client)
    answer = Decision(approval_id=ApprovalKey(KEY, "c1.1").id, verdict="approved", subject="ana", channel="test")
    async with asyncio.timeout(30):
        receipt = await client.decide(answer)
        unheard = await client.withdraw(replace(answer, verdict="withdrawn"))
        value = await sessions.say(session, message("hello"), actor="desk")
        late = await sessions.inject(session, LateResult(id="late-1", turn="t", message=user_message("late")))
    assert [receipt.status, value.status, late.status] == ["pending"] * 3
    assert (unheard.status, unheard.code) == ("refused", "unavailable")
    assert turn.signals == [names.APPROVAL_RESPONSE, names.SAY, names.INJECT]
