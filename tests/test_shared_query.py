import asyncio

import pytest

from signoff.engine.workflow_runs import SharedQueries


class Run:
    def __init__(self) -> None:
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0
        self.let = asyncio.Semaphore(0)

    async def ask(self) -> int:
        self.asked += 1
        number = self.asked
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.let.acquire()
        finally:
            self.at_once -= 1
        return number


async def test_callers_during_a_query_share_the_next() -> None:
    queries, run = SharedQueries(), Run()
    first = asyncio.create_task(queries.ask("a", run.ask))
    while not run.asked:
        await asyncio.sleep(0)
    others = [asyncio.create_task(queries.ask("a", run.ask)) for _ in range(5)]
    await asyncio.sleep(0)
    run.let.release()
    assert await first == 1
    run.let.release()
    assert await asyncio.gather(*others) == [2] * 5
    run.let.release()
    assert await queries.ask("a", run.ask) == 3
    assert run.most_at_once == 1


async def test_different_queries_do_not_wait_for_each_other() -> None:
    queries, run = SharedQueries(), Run()
    both = [asyncio.create_task(queries.ask(key, run.ask)) for key in "ab"]
    while run.asked < 2:
        await asyncio.sleep(0)
    run.let.release()
    run.let.release()
    assert sorted(await asyncio.gather(*both)) == [1, 2]


async def test_failed_or_cancelled_caller_delays_no_other() -> None:
    queries, run = SharedQueries(), Run()

    async def fails() -> int:
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        await queries.ask("a", fails)
    gone, stays = (asyncio.create_task(queries.ask("a", run.ask)) for _ in range(2))
    while not run.asked:
        await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    run.let.release()
    run.let.release()
    assert await stays == 2
    with pytest.raises(OSError, match="away"):
        await queries.ask("a", fails)
