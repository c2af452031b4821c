from datetime import timedelta

from signoff.contracts.limits import FOOTERS_PER_PERSON
from signoff.store.messages.footer_hashes import Footer, Footers
from signoff.store.store import Store


async def test_footer_is_known_after_its_confirmation(store: Store) -> None:
    footers = Footers(store)
    for code in ("K7Q2FM", "A1B2C3", "A1B2C3"):
        await footers.ask("main", "ana", "d1", code)
    assert {(each.code, each.known) for each in await footers.list_newest("main", "ana")} == {
        ("K7Q2FM", False),
        ("A1B2C3", False),
    }
    await footers.confirm("main", "ana", "d1")
    assert all(each.known for each in await footers.list_newest("main", "ana"))
    assert await footers.list_newest("main", "bo") == []
    assert await footers.list_newest("other", "ana") == []
    await footers.confirm("main", "ana", "d2")
    assert {each.digest for each in await footers.list_newest("main", "ana")} == {"d1"}


async def test_known_footers_are_not_displaced_by_unconfirmed_ones(store: Store) -> None:
    footers = Footers(store)
    await footers.ask("main", "ana", "known", "K7Q2FM")
    await footers.confirm("main", "ana", "known")
    for number in range(FOOTERS_PER_PERSON + 5):
        await footers.ask("main", "ana", f"d{number}", "K7Q2FM")
    found = await footers.list_newest("main", "ana")
    assert len(found) == FOOTERS_PER_PERSON
    assert found[0] == Footer("known", "K7Q2FM", known=True)


async def test_unconfirmed_footers_are_forgotten(store: Store) -> None:
    footers = Footers(store)
    await footers.ask("main", "ana", "d1", "K7Q2FM")
    await footers.ask("main", "ana", "d2", "K7Q2FM")
    await footers.confirm("main", "ana", "d2")
    await footers.sweep(timedelta(hours=1))
    assert len(await footers.list_newest("main", "ana")) == 2
    await footers.sweep(timedelta(seconds=-1))
    assert [each.digest for each in await footers.list_newest("main", "ana")] == ["d2"]
