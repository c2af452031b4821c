import asyncio
import contextlib
from datetime import timedelta

from signoff.store.call_joins import CallJoins
from signoff.store.store import open_store

KEY = "k" * 64


async def test_concurrent_equal_proposals_join_one_call(store_url: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        gateways = [CallJoins(await stack.enter_async_context(open_store(store_url))) for _ in range(2)]
        asked = [each.join(KEY, f"turn-{number}-{of}") for number in range(10) for of, each in enumerate(gateways)]
        found = await asyncio.gather(*asked)
    assert len({each.turn for each in found}) == 1
    assert sum(each.is_new for each in found) == 1


async def test_released_call_is_no_longer_joined(store_url: str) -> None:
    async with open_store(store_url) as store:
        joins = CallJoins(store)
        first = await joins.join(KEY, "one")
        await joins.release(KEY, "one")
        second = await joins.join(KEY, "two")
        await joins.release(KEY, "one")
        assert (await joins.join(KEY, "three"))[::2] == ("two", False)
        assert (await joins.join("l" * 64, "four"))[::2] == ("four", True)
    assert (first.turn, first.is_new, second.turn, second.is_new) == ("one", True, "two", True)
    assert first.at <= second.at


async def test_concurrent_releases_and_proposals_lose_no_call(store_url: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        gateways = [CallJoins(await stack.enter_async_context(open_store(store_url))) for _ in range(2)]

        async def propose(number: int, joins: CallJoins) -> tuple[str, bool]:
            found = await joins.join(KEY, f"turn-{number}")
            await joins.release(KEY, found.turn)
            return found.turn, found.is_new

        found = await asyncio.gather(*(propose(number, gateways[number % 2]) for number in range(20)))
        left = await gateways[0].join(KEY, "last")
    begun = [turn for turn, is_new in found if is_new]
    assert {turn for turn, _ in found} == set(begun)
    assert len(begun) == len(set(begun))
    assert left.is_new


async def test_calls_with_unfetched_results_are_forgotten(store_url: str) -> None:
    async with open_store(store_url) as store:
        joins = CallJoins(store)
        await joins.join(KEY, "one")
        await joins.sweep(timedelta(days=1))
        assert not (await joins.join(KEY, "two")).is_new
        await joins.sweep(timedelta(days=-1))
        assert (await joins.join(KEY, "two")).is_new


async def test_moved_key_names_another_call(store_url: str) -> None:
    async with open_store(store_url) as store:
        joins = CallJoins(store)
        assert await joins.find(KEY) == ""
        await joins.move(KEY, "one")
        assert await joins.find(KEY) == "one"
        await joins.move(KEY, "two")
        assert await joins.find(KEY) == "two"
        assert (await joins.join(KEY, "three"))[::2] == ("two", False)


async def test_options_of_a_joined_call_are_returned_again(store_url: str) -> None:
    async with open_store(store_url) as store:
        joins = CallJoins(store)
        assert await joins.read(KEY) is None
        given = '{"timeout":"10m","Grüße":null}'
        assert (await joins.join(KEY, "one", given)).given == given
        assert (await joins.join(KEY, "two", "{}"))[::3] == ("one", given)
        found = await joins.read(KEY)
        assert found is not None
        assert (found.turn, found.given, found.is_new) == ("one", given, False)
        await joins.move(KEY, "two")
        assert (await joins.join(KEY, "two")).given == ""
