import asyncio
from collections.abc import AsyncGenerator

from signoff.gateway.live import Live, event


async def test_followers_of_one_name_share_one_source() -> None:
    started, ended, more = [], [], asyncio.Event()

    async def source() -> AsyncGenerator[str, None]:
        started.append(1)
        try:
            yield event("a", 1)
            await more.wait()
            yield event("a", 2)
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    live = Live()
    first, second = live.follow("t", source), live.follow("t", source)
    assert (await anext(first)).startswith("retry:")
    assert await anext(first) == "event: a\ndata: 1\n\n"
    assert (await anext(second)).startswith("retry:")
    assert await anext(second) == "event: a\ndata: 1\n\n"
    more.set()
    assert [await anext(first), await anext(second)] == ["event: a\ndata: 2\n\n"] * 2
    assert started == [1]
    await first.aclose()  # type: ignore[attr-defined]
    assert ended == []
    await second.aclose()  # type: ignore[attr-defined]
    while not ended:
        await asyncio.sleep(0)


async def test_finished_source_ends_the_stream_after_its_last_event() -> None:
    async def short() -> AsyncGenerator[str, None]:
        yield event("a", 1)
        yield event("a", 2)

    async def endless() -> AsyncGenerator[str, None]:
        yield event("b", 1)
        await asyncio.Event().wait()

    live = Live()
    assert [each async for each in live.follow("t", short)][-1] == "event: a\ndata: 2\n\n"
    stream = live.follow("e", endless)
    await anext(stream)
    await anext(stream)
    live.close()
    assert [each async for each in stream] == []
