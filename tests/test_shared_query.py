"""One query of a run at a time, shared by those who asked before it began."""

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


async def test_who_asks_meanwhile_shares_the_next_query() -> None:
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


async def test_different_questions_wait_for_nobody() -> None:
    queries, run = SharedQueries(), Run()
    both = [asyncio.create_task(queries.ask(key, run.ask)) for key in "ab"]
    while run.asked < 2:
        await asyncio.sleep(0)
    run.let.release()
    run.let.release()
    assert sorted(await asyncio.gather(*both)) == [1, 2]


async def test_one_that_fails_or_goes_away_holds_up_nobody() -> None:
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
