from typing import Any

import pytest
from history_rig import PEOPLE, SECRET, HistoryRig

from signoff.contracts.errors import StoreUnavailable
from signoff.gateway.history.past_reader import PastReader
from signoff.gateway.history.seen_values import ITEMS, VALUE_CHARS, find_new_recipients, value_marks
from signoff.store.history.search_words import mark
from signoff.store.store import Store


async def new_to(rig: HistoryRig, args: dict[str, Any], *, person: str = "ana", tool: str = "pay") -> dict[str, str]:
    loaded = await rig.deps.requests.load((await rig.asked({"amount": 1, **args}, tool=tool)).id)
    [reader] = [each for each in PEOPLE if each.id == person]
    return await find_new_recipients(rig.deps, loaded, reader)


async def test_recipient_is_new_until_a_request_of_the_tool_is_approved(store: Store) -> None:
    rig = HistoryRig(store)
    await rig.decided({"amount": 20, "to": "Zoe", "note": "for Max"}, by="bo")
    await rig.decided({"amount": 20, "to": "Eve"}, verdict="denied")
    await rig.decided({"amount": 20, "to": "Eve"}, tool="gift")
    await rig.asked({"amount": 20, "to": "Eve"})
    await rig.index()
    assert await new_to(rig, {"to": "Zoe"}) == {}
    for other in ("Eve", "Max", "zoe", "Zo", "Zoe ", "20"):
        assert await new_to(rig, {"to": other}) == {"to": other}
    assert await new_to(rig, {"to": "Eve"}, tool="gift") == {}


async def test_only_requests_that_the_reader_may_read_count(store: Store) -> None:
    rig = HistoryRig(store)
    await rig.decided({"amount": 20, "to": "Zoe"}, by="ana")
    await rig.index()
    for person, is_new in (("ana", False), ("bo", False), ("oz", False), ("guest", False), ("eve", True)):
        assert (await new_to(rig, {"to": "Zoe"}, person=person) == {"to": "Zoe"}) is is_new, person
    assert await new_to(rig, {"to": "Zoe"}, person="gone") == {"to": "Zoe"}


async def test_items_of_a_list_are_compared_one_by_one(store: Store) -> None:
    rig = HistoryRig(store)
    await rig.decided({"amount": 20, "to": ["Zoe", 7]})
    await rig.index()
    new = await new_to(rig, {"to": ["Eve", "Zoe", "7", True, None, "", ["Max"], {"to": "Max"}]})
    assert new == {"to.0": "Eve", "to.3": "", "to.6": "", "to.7": ""}
    assert await new_to(rig, {"to": "Zoe"}) == {}
    many = await new_to(rig, {"to": [f"p{number}" for number in range(3 * ITEMS)]})
    assert [path for path, text in many.items() if not text] == [f"to.{number}" for number in range(ITEMS, 3 * ITEMS)]


async def test_masked_long_and_other_values_count_as_not_compared(store: Store) -> None:
    rig = HistoryRig(store)
    for to in (SECRET, "x" * (VALUE_CHARS + 1), {"name": "Zoe"}, True):
        args = {"to": to, "pin": SECRET}
        await rig.decided({"amount": 20, **args})
        await rig.index()
        assert await new_to(rig, args) == {"to": ""}, to
    assert await new_to(rig, {"to": "x" * VALUE_CHARS}) == {"to": "x" * VALUE_CHARS}


async def test_numbers_are_compared_as_the_card_writes_them(store: Store) -> None:
    rig = HistoryRig(store)
    await rig.decided({"amount": 20, "to": [12345678.0, 1.5]})
    await rig.index()
    assert await new_to(rig, {"to": [12345678, 1.5, 1.25]}) == {"to.2": "1.25"}


async def test_only_declared_recipients_are_in_the_history(store: Store) -> None:
    rig = HistoryRig(store)
    request = await rig.decided({"amount": 20, "to": "Zoe", "note": "Max"})
    marks = value_marks(await rig.deps.requests.load(request.id))
    assert marks == {mark("main", "value", "pay", "to", "Zoe")}


async def test_recipients_count_as_not_compared_while_the_store_is_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    rig = HistoryRig(store)
    monkeypatch.setattr(PastReader, "find_values", away)
    assert await new_to(rig, {"to": ["Zoe", "Max"]}) == {"to.0": "", "to.1": ""}


async def test_tool_without_recipients_compares_nothing(store: Store) -> None:
    assert await new_to(HistoryRig(store), {"to": "Zoe"}, tool="order") == {}
