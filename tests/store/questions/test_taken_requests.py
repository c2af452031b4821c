import asyncio
from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Connection, update

from signoff.store.questions.taken_requests import TAKEN_FOR, TakenRequest, TakenRequests
from signoff.store.store import Also, Store
from signoff.store.tables import TAKEN_REQUESTS

REQUEST = "main.s.t.c1.1"


def nothing(row: TakenRequest) -> Also:
    return lambda connection: None


def noting(rows: list[str]) -> Callable[[TakenRequest], Also]:
    return lambda row: lambda connection: rows.append(row.person)


async def age(store: Store, by: timedelta) -> None:
    back = round(by.total_seconds() * 1000)
    moving = update(TAKEN_REQUESTS).values(taken_at=TAKEN_REQUESTS.c.taken_at - back)

    def write(connection: Connection) -> int:
        return connection.execute(moving).rowcount

    assert await store.run(write)


async def test_first_person_holds_a_request_and_the_second_learns_of_them(store: Store) -> None:
    taken, notes = TakenRequests(store), list[str]()
    first = await taken.take(REQUEST, "main", "ana", noting(notes))
    second = await taken.take(REQUEST, "main", "bo", noting(notes))
    again = await taken.take(REQUEST, "main", "ana", noting(notes))
    assert (first.is_new, first.holder.person) == (True, "ana")
    assert (second, again) == (first._replace(is_new=False), first._replace(is_new=False))
    assert notes == ["ana"]
    assert await taken.find("main", [REQUEST, "main.s.t.c2.1"]) == {REQUEST: first.holder}
    assert await taken.list_of("main") == {REQUEST: first.holder}


async def test_exactly_one_of_many_takers_at_once_holds_a_request(store: Store) -> None:
    taken, notes = TakenRequests(store), list[str]()
    people = [f"p{number}" for number in range(8)]
    results = await asyncio.gather(*(taken.take(REQUEST, "main", each, noting(notes)) for each in people))
    assert sum(each.is_new for each in results) == 1
    assert {each.holder.person for each in results} == set(notes)
    assert len(notes) == 1


async def test_request_is_free_after_fifteen_minutes_of_the_store(store: Store) -> None:
    taken = TakenRequests(store)
    await taken.take(REQUEST, "main", "ana", nothing)
    await age(store, TAKEN_FOR - timedelta(seconds=30))
    assert (await taken.take(REQUEST, "main", "bo", nothing)).holder.person == "ana"
    await age(store, timedelta(seconds=30))
    assert await taken.find("main", [REQUEST]) == {}
    assert await taken.list_of("main") == {}
    assert not await taken.release(REQUEST, "main", "ana", lambda connection: None)
    assert (await taken.take(REQUEST, "main", "bo", nothing)).is_new


async def test_only_the_holder_releases_a_request(store: Store) -> None:
    taken, notes = TakenRequests(store), list[str]()
    await taken.take(REQUEST, "main", "ana", nothing)
    assert not await taken.release(REQUEST, "main", "bo", lambda connection: notes.append("bo"))
    assert not await taken.release(REQUEST, "other", "ana", lambda connection: notes.append("other"))
    assert await taken.release(REQUEST, "main", "ana", lambda connection: notes.append("ana"))
    assert notes == ["ana"]
    assert (await taken.take(REQUEST, "main", "bo", nothing)).is_new


async def test_other_tenants_do_not_see_a_taken_request(store: Store) -> None:
    taken = TakenRequests(store)
    await taken.take(REQUEST, "main", "ana", nothing)
    assert await taken.find("other", [REQUEST]) == {}
    assert await taken.list_of("other") == {}


async def test_sweep_deletes_lapsed_rows_alone(store: Store) -> None:
    taken = TakenRequests(store)
    await taken.take(REQUEST, "main", "ana", nothing)
    await age(store, TAKEN_FOR)
    await taken.take("main.s.t.c2.1", "main", "ana", nothing)
    assert await taken.sweep() == 1
    assert list(await taken.list_of("main")) == ["main.s.t.c2.1"]
