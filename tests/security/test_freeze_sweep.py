import pytest

from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.receipt import Receipt
from signoff.contracts.responses import WaitingCard
from signoff.engine.kill_switch import sweep


class Waiting:
    """The turns of `stuck` requests do not answer, and `foreign` requests may not be ended."""

    def __init__(self, count: int, *, stuck: frozenset[str] = frozenset(), foreign: frozenset[str] = frozenset()):
        self.left = [f"a{at}" for at in range(count)]
        self.stuck, self.foreign = stuck, foreign
        self.tried: list[str] = []

    async def cards(self) -> list[WaitingCard]:
        return [WaitingCard(id=each, code=each) for each in self.left]

    async def withdraw(self, approval: str, reason: str) -> Receipt:
        self.tried.append(approval)
        if approval in self.stuck:
            raise ServerUnavailable("no worker answers")
        if approval in self.foreign:
            return Receipt(status="refused", code="not_allowed", approval_id=approval)
        self.left.remove(approval)
        return Receipt(status="accepted", code="", approval_id=approval)


async def test_sweep_withdraws_every_waiting_request() -> None:
    waiting = Waiting(25)
    swept = await sweep(waiting.cards, waiting.withdraw, "drill", pause=0.0)
    assert (swept.withdrawn, swept.waiting, len(waiting.tried)) == (25, (), 25)


@pytest.mark.parametrize(("count", "tried"), [(7, 7), (10, 10), (25, 10), (800, 10)])
async def test_sweep_names_the_requests_left_at_its_time_limit(count: int, tried: int) -> None:
    """The first ten are tried even without patience. A pass of all 800 would take too long."""
    waiting = Waiting(count)
    swept = await sweep(waiting.cards, waiting.withdraw, "drill", patience=0.0, pause=0.0)
    assert (swept.withdrawn, len(waiting.tried)) == (tried, tried)
    assert list(swept.waiting) == waiting.left


async def test_stuck_request_does_not_delay_the_others() -> None:
    waiting = Waiting(12, stuck=frozenset({"a0"}), foreign=frozenset({"a1"}))
    swept = await sweep(waiting.cards, waiting.withdraw, "drill", patience=0.2, pause=0.01)
    assert (swept.withdrawn, swept.waiting) == (10, ("a1", "a0"))
    assert waiting.tried.count("a0") > 1
    assert waiting.tried.count("a1") == 1
