from typing import Any

from history_rig import PEOPLE, SECRET, HistoryRig

from signoff.gateway.history.seen_values import ITEMS, VALUE_CHARS, find_new_recipients
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
    assert await new_to(rig, {"to": ["Eve", "Zoe", "7", True, None, ["Max"], {"to": "Max"}]}) == {"to.0": "Eve"}
    assert await new_to(rig, {"to": "Zoe"}) == {}
    many = await new_to(rig, {"to": [f"p{number}" for number in range(3 * ITEMS)]})
    assert len(many) == ITEMS


async def test_masked_long_and_other_values_are_not_compared(store: Store) -> None:
    rig = HistoryRig(store)
    for args in ({"to": SECRET, "pin": SECRET}, {"to": "x" * (VALUE_CHARS + 1)}, {"to": {"name": "Zoe"}}, {"to": 1.5}):
        assert await new_to(rig, args) == {}
    assert await new_to(rig, {"to": "x" * VALUE_CHARS}) != {}


async def test_tool_without_recipients_compares_nothing(store: Store) -> None:
    assert await new_to(HistoryRig(store), {"to": "Zoe"}, tool="order") == {}
