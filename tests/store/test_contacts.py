from signoff.store.messages.contacts import ChannelContacts
from signoff.store.store import Store

IDENTITY = "7c9e6679:ana"


async def test_latest_handle_of_an_identity_is_found_on_its_channel_alone(store: Store) -> None:
    office, other = ChannelContacts(store, "office"), ChannelContacts(store, "other")
    assert await office.find(IDENTITY) is None
    await office.keep({IDENTITY: {"place": "first"}, "bo": {"place": "bo"}})
    await office.keep({IDENTITY: {"place": "second"}})
    assert await office.find(IDENTITY) == {"place": "second"}
    assert await office.find("bo") == {"place": "bo"}
    assert await office.find(IDENTITY.upper()) is None
    assert await other.find(IDENTITY) is None


async def test_contact_is_deleted_by_none(store: Store) -> None:
    office = ChannelContacts(store, "office")
    await office.keep({IDENTITY: {"place": "first"}, "bo": {"place": "bo"}})
    await office.keep({IDENTITY: None, "nobody": None})
    assert await office.find(IDENTITY) is None
    assert await office.find("bo") == {"place": "bo"}
    await office.keep({IDENTITY: {"place": "again"}})
    assert await office.find(IDENTITY) == {"place": "again"}
