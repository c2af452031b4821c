import asyncio
from datetime import timedelta

from sqlalchemy import update

from signoff.contracts.ids import SessionKey
from signoff.store.blobs import Blob
from signoff.store.completions import KEPT, Completions
from signoff.store.leases import in_seconds
from signoff.store.store import Store
from signoff.store.tables import COMPLETIONS

HERE = SessionKey("main", "s")


async def test_first_reply_of_a_completion_is_kept_with_its_blob(store: Store) -> None:
    kept = Completions(store)
    first, second = Blob.of(b'{"id": 1}'), Blob.of(b'{"id": 2}')
    assert await kept.read("run", 1) is None
    one = await kept.keep("run", 1, b"one", HERE, first)
    assert one.body == b"one"
    assert await kept.keep("run", 1, b"two", HERE, second) == one
    assert await kept.read("run", 1) == one
    assert await store.get_blob(first.sha256) == first.body
    assert await store.get_blob(second.sha256) is None
    assert (await kept.keep("other", 1, b"three", HERE)).body == b"three"


async def test_concurrent_attempts_get_the_same_reply(store: Store) -> None:
    kept = Completions(store)
    bodies = [f"reply {number}".encode() for number in range(8)]
    found = await asyncio.gather(*(kept.keep("run", 1, body, HERE) for body in bodies))
    assert len(set(found)) == 1
    assert found[0].body in bodies


async def test_late_attempt_finds_the_reply_of_a_finished_completion(store: Store) -> None:
    kept = Completions(store)
    for number in (1, 2, 3):
        await kept.keep("run", number, b"reply", HERE)
    assert (await kept.keep("run", 1, b"late", HERE)).body == b"reply"


async def test_all_old_replies_are_dropped_together(store: Store) -> None:
    kept = Completions(store)
    for number in range(1, 46):
        await kept.keep("old", number, b"reply", HERE)
    await _age(store, *(f"old.{number}" for number in range(1, 46)))
    await kept.keep("young", 1, b"reply", HERE)
    assert await kept.drop_old() == 45
    assert [await kept.read("old", number) for number in (1, 45)] == [None, None]
    assert await kept.read("young", 1) is not None


async def _age(store: Store, *keys: str) -> None:
    at = in_seconds(-(KEPT + timedelta(seconds=1)).total_seconds())
    aged = update(COMPLETIONS).where(COMPLETIONS.c.key.in_(keys)).values(kept_at=at)
    await store.run(lambda connection: connection.execute(aged).rowcount)
