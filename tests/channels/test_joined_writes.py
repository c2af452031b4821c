import asyncio
from collections.abc import Sequence

import pytest

from signoff.channels.outbound.joined_calls import JoinedCalls


class Writer:
    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def write(self, items: Sequence[int]) -> int:
        self.calls.append(list(items))
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return len(items)


async def test_calls_made_while_one_runs_share_the_next_one() -> None:
    writer = Writer()
    joined = JoinedCalls(writer.write)
    first = asyncio.create_task(joined.call([1]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(joined.call([number])) for number in (2, 3)]
    writer.may_end.set()
    assert await asyncio.gather(first, *others) == [1, 2, 2]
    assert writer.calls == [[1], [2, 3]]


async def test_each_caller_gets_the_error_of_its_call() -> None:
    writer = Writer()
    writer.error = ValueError("no")
    writer.may_end.set()
    joined = JoinedCalls(writer.write)
    ended = await asyncio.gather(joined.call([1]), joined.call([2]), return_exceptions=True)
    assert ended == [writer.error, writer.error]
    writer.error = None
    assert await joined.call([3]) == 1


async def test_cancelled_caller_does_not_cancel_the_others() -> None:
    writer = Writer()
    joined = JoinedCalls(writer.write)
    calls = [asyncio.create_task(joined.call([number])) for number in (1, 2)]
    await asyncio.sleep(0)
    calls[0].cancel()
    writer.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    assert await calls[1] == 2
