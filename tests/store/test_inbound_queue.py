import asyncio
from datetime import timedelta

import pytest
from some import some

from signoff.contracts.frozen_model import FrozenModel
from signoff.store.inbound_queue import InboundQueue
from signoff.store.store import Store

DAYS = timedelta(days=30)


class Something(FrozenModel):
    key: str
    text: str = "yes"

    @property
    def author(self) -> str:
        return "ana"


async def test_repeated_message_is_not_new(store: Store) -> None:
    arrivals = InboundQueue(store)
    assert await arrivals.put("slack", [Something(key="1"), Something(key="2")], []) == 2
    assert await arrivals.put("slack", [Something(key="2", text="no"), Something(key="3")], [Something(key="2")]) == 2
    assert await arrivals.put("mail", [Something(key="1")], []) == 1
    rows = await arrivals.claim(99)
    assert {(row.channel, row.kind, Something.model_validate_json(row.body).key) for row in rows} == {
        ("slack", "action", "1"), ("slack", "action", "2"), ("slack", "action", "3"), ("slack", "status", "2"),
        ("mail", "action", "1"),
    }  # fmt: skip
    assert {Something.model_validate_json(row.body).text for row in rows} == {"yes"}


async def test_finished_message_stays_known(store: Store) -> None:
    arrivals = InboundQueue(store)
    await arrivals.put("slack", [Something(key="1"), Something(key="2")], [])
    first, second = await arrivals.claim(9)
    await arrivals.finish(first.key, {"code": "decided"})
    await arrivals.finish(second.key, {"code": "too late"}, state="dropped")
    await arrivals.finish(first.key, {"code": "other"})
    await arrivals.reschedule(first.key, 0)
    assert await arrivals.put("slack", [Something(key="1")], []) == 0
    assert await arrivals.claim(9) == []
    known = [await arrivals.read("slack", "action", key) for key in ("1", "2")]
    assert {(row.state, (row.result or {})["code"]) for row in known if row} == {
        ("done", "decided"), ("dropped", "too late")
    }  # fmt: skip
    assert await arrivals.read("slack", "status", "1") is None


async def test_rescheduled_message_is_claimed_again_after_its_delay(store: Store) -> None:
    arrivals = InboundQueue(store)
    await arrivals.put("slack", [Something(key="1")], [])
    (row,) = await arrivals.claim(9)
    await arrivals.reschedule(row.key, 60)
    assert await arrivals.claim(9) == []
    await arrivals.reschedule(row.key, 0)
    assert [each.attempts for each in await arrivals.claim(9)] == [2]


@pytest.mark.parametrize("key", ["", "a\0b", "<ü@x>", "x" * 9_000, "sha256-" + "0" * 64, "\r\n"])
async def test_any_text_is_a_valid_message_key(store: Store, key: str) -> None:
    arrivals = InboundQueue(store)
    others = [Something(key=key), Something(key=key + "1")]
    assert await arrivals.put("mail", others, others) == 4
    assert await arrivals.put("mail", others, others) == 0
    row = some(await arrivals.read("mail", "action", key))
    assert Something.model_validate_json(row.body).key == key


async def test_message_keys_are_separate_per_channel(store: Store) -> None:
    arrivals = InboundQueue(store)
    assert await arrivals.put("a", [Something(key="b:1")], []) == 1
    assert await arrivals.put("b", [Something(key="1")], [Something(key="1")]) == 2


async def test_concurrent_arrivals_are_kept_once(store_url: str) -> None:
    stores = [await Store.open(store_url) for _ in range(4)]
    fifty = [Something(key=str(number)) for number in range(50)]
    put = [InboundQueue(stores[at % 4]).put("slack", fifty[at:] + fifty[:at], []) for at in range(8)]
    assert sum(await asyncio.gather(*put)) == 50
    found = await asyncio.gather(*(InboundQueue(stores[at]).claim(20) for at in range(3)))
    found.append(await InboundQueue(stores[3]).claim(50))
    assert sorted(int(row.key.partition(":")[2]) for rows in found for row in rows) == list(range(50))
    for store in stores:
        await store.close()


async def test_only_finished_messages_are_removed_after_a_time(store: Store) -> None:
    arrivals = InboundQueue(store)
    await arrivals.put("slack", [Something(key="1"), Something(key="2")], [])
    (row, _) = await arrivals.claim(9)
    await arrivals.finish(row.key, {})
    assert await arrivals.sweep(DAYS) == 0
    assert await arrivals.sweep(timedelta(seconds=-1)) == 1
    assert await arrivals.read("slack", "action", "2") is not None


async def test_finished_message_keeps_no_text(store: Store) -> None:
    arrivals = InboundQueue(store)
    await arrivals.put("slack", [Something(key="1", text="a secret")], [])
    (row,) = await arrivals.claim(9)
    assert "a secret" in row.body
    await arrivals.finish(row.key, {"what": "decided"})
    known = some(await arrivals.read("slack", "action", "1"))
    assert (known.body, known.result) == ("", {"what": "decided"})
    assert await arrivals.put("slack", [Something(key="1", text="a secret")], []) == 0


async def test_first_note_of_a_message_is_kept(store: Store) -> None:
    arrivals = InboundQueue(store)
    await arrivals.put("slack", [Something(key="1")], [])
    (row,) = await arrivals.claim(9)
    assert (row.about, row.result) == (None, None)
    assert await arrivals.note(row.key, {"revision": 1}) == {"revision": 1}
    assert await arrivals.note(row.key, {"revision": 2}) == {"revision": 1}
    await arrivals.reschedule(row.key, 0)
    (again,) = await arrivals.claim(9)
    assert (again.about, again.result) == ({"revision": 1}, None)
    await arrivals.finish(row.key, {"code": "decided"})
    await arrivals.note(row.key, {"revision": 3})
    settled = some(await arrivals.read("slack", "action", "1"))
    assert (settled.about, settled.result) == (None, {"code": "decided"})


async def test_claim_may_exclude_a_channel(store: Store) -> None:
    arrivals = InboundQueue(store)
    for channel in ("slack", "mail"):
        await arrivals.put(channel, [Something(key="1"), Something(key="2")], [])
    assert {row.channel for row in await arrivals.claim(9, ["slack"])} == {"mail"}
    assert {row.channel for row in await arrivals.claim(9)} == {"slack"}


async def test_messages_with_a_given_result_are_removed_sooner(store: Store) -> None:
    arrivals = InboundQueue(store)
    await arrivals.put("slack", [Something(key=str(number)) for number in range(4)], [])
    first, second, third, fourth = await arrivals.claim(9)
    await arrivals.finish(first.key, {"what": "stranger", "answered": True})
    await arrivals.finish(second.key, {"what": "decided", "why": '"what": "stranger"'})
    await arrivals.finish(third.key, {"what": "stranger"})
    assert await arrivals.sweep(DAYS, what="stranger") == 0
    assert await arrivals.sweep(timedelta(seconds=-1), what="stranger") == 2
    await arrivals.forget(second.key)
    await arrivals.forget(fourth.key)
    known = [await arrivals.read("slack", "action", str(number)) for number in range(4)]
    assert [row is not None for row in known] == [False, True, False, False]
