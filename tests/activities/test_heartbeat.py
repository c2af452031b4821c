import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

from temporalio.testing import ActivityEnvironment

from signoff.activities.heartbeat import SECONDS, send_heartbeats
from signoff.workflows import options


async def beats(work: Callable[[asyncio.Event], Awaitable[None]], seconds: float, *, local: bool = False) -> int:
    """The event is set at the second heartbeat."""
    sent: list[tuple[object, ...]] = []
    twice = asyncio.Event()

    def note(*details: object) -> None:
        sent.append(details)
        if len(sent) == 2:
            twice.set()

    async def run() -> None:
        async with send_heartbeats(seconds):
            await work(twice)

    env = ActivityEnvironment()
    env.info = dataclasses.replace(env.info, is_local=local)
    env.on_heartbeat = note
    await env.run(run)
    return len(sent)


async def test_long_activity_sends_repeated_heartbeats() -> None:
    async def wait(twice: asyncio.Event) -> None:
        await twice.wait()

    assert await beats(wait, 0.001) >= 2


async def test_short_activity_sends_no_heartbeat() -> None:
    async def done(twice: asyncio.Event) -> None:
        await asyncio.sleep(0)

    assert await beats(done, SECONDS) == 0


async def test_local_activity_sends_no_heartbeat() -> None:
    async def yields(twice: asyncio.Event) -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    assert await beats(yields, 0.0, local=True) == 0
    assert await beats(yields, 0.0) > 0


def test_heartbeat_period_is_well_below_the_timeout() -> None:
    assert options.MODEL["heartbeat_timeout"].total_seconds() > 3 * SECONDS
