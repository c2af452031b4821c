import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from session_rig import message
from temporalio.client import WorkflowQueryFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from signoff.approvals.machine import vote_of
from signoff.contracts import names
from signoff.contracts.activity_messages import Authority
from signoff.contracts.decision import Decision, Verdict
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey
from signoff.contracts.message import user_message
from signoff.contracts.session_messages import LateResult
from signoff.engine import workflow_runs
from signoff.engine.session_client import SessionClient
from signoff.engine.turn_client import TurnClient
from signoff.store.questions.answers import OwedAnswer


@pytest.fixture(autouse=True)
def no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """These stand-in clients have no service that the watch could ask."""
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
    """Loses this number of queries and records each allowed time."""

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
    async def execute_update(self, *args: Any, **named: Any) -> Any:
        raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")

    async def query(self, query: str, **asked: Any) -> str:
        raise WorkflowQueryFailedError("nondeterminism")


def owed(verdict: Verdict = "approved") -> OwedAnswer:
    decision = Decision(approval_id=ApprovalKey(KEY, "c1.1").id, verdict=verdict, subject="ana", channel="test")
    authority = Authority(allowed=True, subject="ana")
    return OwedAnswer(decision.approval_id, 1, vote_of(decision, authority, datetime.now(UTC)))


def signoff(turn: Forgetful, patience: float = 7) -> TurnClient:
    return TurnClient(turn, patience=timedelta(seconds=patience))  # type: ignore[arg-type]


async def test_lost_query_is_repeated_with_more_time(clock: Clock) -> None:
    turn = Forgetful(2, clock)
    assert await signoff(turn).pending(KEY) == "pending_approvals ()"  # type: ignore[comparison-overlap]
    assert turn.waits == [1.0, 2.0, 4.0]


async def test_query_is_not_repeated_after_the_patience(clock: Clock) -> None:
    turn = Forgetful(1_000, clock)
    with pytest.raises(ServerUnavailable, match="no worker answered in time"):
        await signoff(turn, patience=9).view(KEY)
    assert turn.waits == [1.0, 2.0, 4.0, 2.0]


@pytest.mark.parametrize("late", [1.99, 2.0, 30.0])
async def test_overdue_query_asks_for_no_negative_time(clock: Clock, late: float) -> None:
    turn = Forgetful(1_000, clock, late=late)
    with pytest.raises(ServerUnavailable, match="no worker answered in time"):
        await signoff(turn, patience=3).view(KEY)
    assert turn.waits == [1.0]


async def test_request_of_an_unreadable_turn_is_not_reported_as_unknown() -> None:
    receipt = await signoff(Unreadable(0)).wake(owed())
    assert (receipt.status, receipt.code) == ("refused", "unavailable")
    assert "its audit log has the outcome of the request" in receipt.message


class HalfRead(Forgetful):
    """Its history is first read up to the middle of a task."""

    async def query(self, query: str, *, rpc_timeout: timedelta, **asked: Any) -> str:
        self.waits.append(rpc_timeout.total_seconds())
        if len(self.waits) <= self.losses:
            raise WorkflowQueryFailedError("[TMPRL1100] Nondeterminism error: Missing associated machine")
        return f"{query} {asked['args']}"


async def test_query_of_a_partially_read_history_is_repeated(clock: Clock) -> None:
    turn = HalfRead(2, clock)
    assert await signoff(turn).pending(KEY) == "pending_approvals ()"  # type: ignore[comparison-overlap]
    assert len(turn.waits) == 3


class Unpolled(Forgetful):
    """The server has not seen its worker yet. Each query takes 0.2 s."""

    async def query(self, query: str, *, rpc_timeout: timedelta, **asked: Any) -> str:
        self.waits.append(rpc_timeout.total_seconds())
        if len(self.waits) <= self.losses:
            self.clock.now += 0.2
            words = "no poller seen for task queue recently, worker may be down"
            raise RPCError(words, RPCStatusCode.FAILED_PRECONDITION, b"")
        return f"{query} {asked['args']}"


async def test_new_worker_gets_time_for_its_first_poll(clock: Clock) -> None:
    turn = Unpolled(3, clock)
    assert await signoff(turn).pending(KEY) == "pending_approvals ()"  # type: ignore[comparison-overlap]
    assert len(turn.waits) == 4


async def test_query_without_a_polling_worker_ends_before_its_patience(clock: Clock) -> None:
    turn = Unpolled(1_000, clock)
    with pytest.raises(ServerUnavailable, match="no worker answered in time; is one running on this task queue"):
        await signoff(turn, patience=9).view(KEY)
    assert len(turn.waits) == 5


class Failing(Forgetful):
    async def query(self, query: str, **asked: Any) -> str:
        words = "Unable to query workflow due to Workflow Task in failed state.\nmore"
        raise RPCError(words, RPCStatusCode.FAILED_PRECONDITION, b"")


async def test_query_refused_by_the_server_is_reported_with_its_message() -> None:
    with pytest.raises(ServerUnavailable) as told:
        await signoff(Failing(0)).view(KEY)
    words = "the Temporal server refused this for now: Unable to query workflow due to Workflow Task in failed state."
    assert str(told.value) == words


class Stuck(Forgetful):
    """Its task has failed so often that the server accepts no Update for it."""

    async def execute_update(self, *args: Any, **named: Any) -> Any:
        words = "Unable to perform workflow execution update due to Workflow Task in failed state."
        raise RPCError(words, RPCStatusCode.FAILED_PRECONDITION, b"")

    async def signal(self, signal: str, *args: Any, **named: Any) -> None:
        assert signal == names.APPROVAL_RESPONSE


async def test_answer_to_a_failing_turn_is_sent_as_a_signal() -> None:
    assert (await signoff(Stuck(0)).wake(owed("withdrawn"))).status == "pending"


class Endless(Forgetful):
    """Accepts an Update and never completes it, because its worker was lost in between."""

    def __init__(self) -> None:
        super().__init__(0)
        self.signals: list[str] = []

    async def execute_update(self, *args: Any, **named: Any) -> Any:
        """The SDK waits forever for the result, and raises this error on cancellation."""
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


async def test_uncompleted_update_is_sent_as_a_signal_within_the_patience() -> None:
    turn = Endless()
    client, session = signoff(turn, patience=0.2), SessionKey("main", "s")
    sessions = SessionClient(client)
    async with asyncio.timeout(30):
        receipt = await client.wake(owed())
        value = await sessions.say(session, message("hello"), actor="desk")
        late = await sessions.inject(session, LateResult(id="late-1", turn="t", message=user_message("late")))
    assert [receipt.status, value.status, late.status] == ["pending"] * 3
    assert turn.signals == [names.APPROVAL_RESPONSE, names.SAY, names.INJECT]
