"""The SDK aborts a workflow task that takes too long, at any point."""

import asyncio
import inspect
import time
from typing import Any

import pytest
from turn_fixtures import Ledger, TurnRig, no, pay_tool

from signoff import worker
from signoff.testing.scripted_model import calls, respond
from signoff.workflows import call_loop

_SECONDS = 0.5


class _SlowOnce:
    """Stands for the module `asyncio`: its first `create_task` takes longer than a workflow may."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def create_task(self, coroutine: Any) -> Any:
        """Sleep in steps, because the SDK cannot interrupt a C call."""
        until = time.monotonic() + 6 * _SECONDS
        self.given.append(coroutine)
        while len(self.given) == 1 and time.monotonic() < until:
            time.sleep(0.01)
        return asyncio.create_task(coroutine)


async def test_aborted_workflow_task_leaves_no_unawaited_coroutine(
    turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "DEADLOCK_SECONDS", _SECONDS)
    slow = _SlowOnce()
    monkeypatch.setattr(call_loop, "asyncio", slow)
    script = [calls(("pay", {"amount": 20, "to": "Ana"}), ("pay", {"amount": 21, "to": "Bo"})), respond("done")]
    async with turn_rig.running([pay_tool(Ledger())], script) as turns:
        key = await turns.start()
        await turns.waiting(key, 2)
        for call in ("c1.1", "c1.2"):
            await turns.signoff.decide(no(key, call))
        result = await turns.signoff.result(key)
    assert [each.code for each in result.calls] == ["denied", "denied"]
    # One from the aborted task, then both calls.
    assert len(slow.given) >= 3
    assert {inspect.getcoroutinestate(each) for each in slow.given} == {inspect.CORO_CLOSED}
