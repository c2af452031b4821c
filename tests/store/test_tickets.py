import pytest
from tables import table

from signoff.store.store import Store
from signoff.store.tickets import number_of_key, ticket_key


def test_first_ticket_is_the_digest_and_later_ones_are_numbered() -> None:
    keys = [ticket_key("abc", number) for number in (1, 2, 12)]
    assert keys == ["abc", "abc/2", "abc/12"]
    assert [number_of_key(key) for key in keys] == [1, 2, 12]


@table("number", 0, -1)
def test_tickets_are_numbered_from_one(number: int) -> None:
    with pytest.raises(ValueError, match="from 1"):
        ticket_key("abc", number)


async def test_claim_without_its_right_is_superseded(store: Store) -> None:
    given = {"workflow": "turn/main/s/t", "call": "c1.1", "tool": "pay"}
    lost = await store.claim("key", **given, holds=lambda connection: False)
    assert (lost.kind, await store.read_ticket("key")) == ("superseded", None)
    assert (await store.claim("key", **given, holds=lambda connection: True)).kind == "fresh"
