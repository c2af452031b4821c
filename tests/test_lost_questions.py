"""A worker that loses a question is asked again, within the same patience."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from signoff.client import Signoff
from signoff.contracts.decision import Decision
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import ApprovalKey, TurnKey

KEY = TurnKey("main", "s", "t")


class Forgetful:
    """A turn that loses so many questions; each time it is told how long it may take."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.waits: list[float] = []

    async def query(self, query: str, *, rpc_timeout: timedelta, **asked: Any) -> str:
        """As a handle's."""
        self.waits.append(rpc_timeout.total_seconds())
        if len(self.waits) <= self.losses:
            raise RPCError("lost", RPCStatusCode.DEADLINE_EXCEEDED, b"")
        return f"{query} {asked['args']}"

    def get_workflow_handle(self, workflow_id: str, **named: Any) -> "Forgetful":
        """As a client's."""
        return self

    get_workflow_handle_for = get_workflow_handle


class Unreadable(Forgetful):
    """A turn that has ended, and whose history no worker understands."""

    async def execute_update(self, *args: Any, **named: Any) -> Any:
        """As a handle's, of a workflow that is closed."""
        raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")

    async def query(self, query: str, **asked: Any) -> str:
        """As a handle's."""
        raise WorkflowQueryFailedError("nondeterminism")


def signoff(turn: Forgetful) -> Signoff:
    """The client, over nothing else."""
    return Signoff(turn, patience=timedelta(seconds=7))  # type: ignore[arg-type]


async def test_a_lost_question_is_asked_again_with_more_time() -> None:
    """First for a second, then for twice as long: a slow worker is not asked the same ten times."""
    turn = Forgetful(2)
    assert await signoff(turn).pending(KEY) == "pending_approvals ()"  # type: ignore[comparison-overlap]
    assert turn.waits == [1.0, 2.0, 4.0]


async def test_nobody_is_asked_for_longer_than_the_patience_lasts() -> None:
    """The last wait is what is left."""
    turn = Forgetful(1_000)
    with pytest.raises(ServerUnavailable, match="no worker answered in time"):
        await signoff(turn).view(KEY)
    assert turn.waits[:3] == [1.0, 2.0, 4.0]
    assert len(turn.waits) == 4
    assert turn.waits[3] == pytest.approx(7.0, abs=1.0)


async def test_a_request_whose_turn_cannot_be_read_is_not_called_unknown() -> None:
    """Who answers it too late is told where to look, not that there was nothing."""
    answer = Decision(approval_id=ApprovalKey(KEY, "c1.1").id, verdict="approved", subject="ana", channel="test")
    receipt = await signoff(Unreadable(0)).decide(answer)
    assert (receipt.status, receipt.code) == ("refused", "unavailable")
    assert "its record says what became of the request" in receipt.message
