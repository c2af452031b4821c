import asyncio
from datetime import UTC, datetime

import pytest
from question_kit import put, question, take
from some import some

from signoff.contracts.ids import TurnKey
from signoff.store.questions.answers import Answers
from signoff.store.questions.questions import Questions, end_by_turn
from signoff.store.store import Store, open_store

DECIDERS = 50


async def test_answer_is_owed_until_its_turn_has_it(store: Store) -> None:
    first = await put(store)
    await take(store, "ana")
    assert await Answers(store).list_owed(60.0, 10) == []
    owed = await Answers(store).list_owed(0.0, 10)
    assert [(each.approval, each.number, each.vote.subject) for each in owed] == [(first.id, 1, "ana")]
    await Answers(store).hand_over(first.id, "ana")
    assert await Answers(store).list_owed(0.0, 10) == []


@pytest.mark.parametrize(
    ("key", "nonce", "doubt_of", "stands"),
    [
        ("", "", 0, False),
        ("d" * 64, "", 0, True),
        ("e" * 64, "", 0, True),
        ("d" * 64, "another", 0, False),
        ("d" * 64, "", 1, False),
        (f"{'d' * 64}/2", "", 1, True),
    ],
)
async def test_approval_is_final_after_its_call_has_begun(
    store: Store, key: str, nonce: str, doubt_of: int, stands: bool
) -> None:
    first = await put(store, question(doubt_of=doubt_of))
    await take(store, "ana")
    if key:
        await store.claim(key, workflow=TurnKey("main", "s", "t").workflow_id, call="c1.1", tool="pay", nonce=nonce)
    if stands:
        assert not await store.run(lambda connection: end_by_turn(connection, first.id, 1, "lapsed"))
    assert await Answers(store).void(first.id, "ana") is not stands
    rows = some(await Questions(store).read(first.id))
    assert rows.request(rows.latest).state == ("approved" if stands else "pending")


async def race(stores: list[Store], settings: int) -> list[bool]:
    verdicts = ("approved", "denied")
    return await asyncio.gather(
        *(take(stores[number % len(stores)], f"p{number}", verdicts[number % settings]) for number in range(DECIDERS))
    )


@pytest.mark.parametrize("verdicts", [1, 2])
async def test_exactly_one_of_fifty_concurrent_answers_settles(store: Store, store_url: str, verdicts: int) -> None:
    await put(store)
    async with open_store(store_url) as second:
        taken = await race([store, second], verdicts)
    assert taken.count(True) == 1
    rows = some(await Questions(store).read("main.s.t.c1.1"))
    assert [each.number for each in rows.answers] == [1]
    assert rows.request(rows.latest).state in ("approved", "denied")


async def test_concurrent_answers_take_exactly_the_quorum(store: Store, store_url: str) -> None:
    await put(store, question(quorum=3))
    async with open_store(store_url) as second:
        taken = await race([store, second], 1)
    assert taken.count(True) == 3
    rows = some(await Questions(store).read("main.s.t.c1.1"))
    assert [each.number for each in rows.answers] == [1, 2, 3]
    assert rows.request(rows.latest, datetime.now(UTC)).state == "approved"
