import random
from datetime import UTC, datetime
from typing import Any

import pytest
from question_kit import put, question, take
from sqlalchemy import insert, select, update

from signoff.contracts.approval import ApprovalRequest, Question
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Person, Principal
from signoff.gateway.read_access import may_read, of_request
from signoff.people.eligibility import rights
from signoff.store.old_turns import remove_turn
from signoff.store.questions.answers import Answers
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store
from signoff.store.tables import QUESTION_READERS, QUESTIONS

ROLES = ("finance", "legal", "ops", "board")
PEOPLE = tuple(
    Person(id=name, name=name, roles=roles)
    for name, roles in {"ana": ("finance",), "bo": ("legal", "ops"), "cy": (), "di": ("board",), "ed": ("ops",)}.items()
)
STEPS = 80


class Players:
    """Random acts on a store with few approvals, so that they meet."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.names: dict[str, Question] = {}

    async def act(self) -> None:
        acts = (self.ask, self.ask, self.answer, self.answer, self.void, self.end, self.expire)
        await self.random.choice(acts)()

    async def ask(self) -> None:
        name = f"main.s.t.c{self.random.randrange(30)}.1"
        asked = question(
            name,
            requester=Principal(user=self.random.choice(PEOPLE).id),
            approvers=self.entries(),
            escalate_to=self.entries() if self.random.random() < 0.3 else (),
            quorum=self.random.choice((1, 2)),
            timeout=self.random.choice((3600.0, 7200.0)),
            notes=(str(self.random.random()),),
        )
        self.names[name] = await put(self.store, asked)

    async def answer(self) -> None:
        if self.names:
            verdict = self.random.choice(("approved", "denied"))
            await take(self.store, self.random.choice(PEOPLE).id, verdict, self.random.choice(list(self.names)))

    async def void(self) -> None:
        if self.names:
            name, person = self.random.choice(list(self.names)), self.random.choice(PEOPLE).id
            await Answers(self.store).void(name, person)

    async def end(self) -> None:
        if self.names and self.random.random() < 0.5:
            ended = self.names[self.random.choice(list(self.names))]
            await Questions(self.store).end(ended.id, ended.revision, "cancelled")

    async def expire(self) -> None:
        if self.names and self.random.random() < 0.3:
            name = self.random.choice(list(self.names))
            for table in (QUESTIONS, QUESTION_READERS):
                past = update(table).where(table.c.approval == name).values(last_at=1)
                await self.store.run(lambda connection, past=past: connection.execute(past).close())

    def entries(self) -> tuple[str, ...]:
        every = [f"role:{role}" for role in ROLES] + [f"user:{person.id}" for person in PEOPLE]
        return tuple(self.random.sample(every, self.random.randrange(1, 4)))

    async def waiting(self) -> list[ApprovalRequest]:
        query = select(QUESTIONS.c.approval, QUESTIONS.c.last_at).order_by(QUESTIONS.c.revision)
        rows = await self.store.read(lambda connection: connection.execute(query).all())
        places = {name: last for name, last in {row.approval: row.last_at for row in rows}.items() if last > 1}
        found = []
        for name in sorted(places, key=lambda name: (places[name], name)):
            read = await Questions(self.store).read(name)
            assert read is not None
            found.append(read.request(read.latest))
        return [each for each in found if each.state == "pending"]


@pytest.mark.parametrize("seed", range(3))
async def test_list_of_a_reader_equals_all_waiting_requests_that_they_may_read(
    store: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("signoff.store.questions.request_lists.PIECE", 3)
    monkeypatch.setattr("signoff.store.questions.question_readers._ENTRIES", 2)
    players = Players(store, seed)
    listed = 0
    for step in range(STEPS):
        await players.act()
        if step % 8 != 7:
            continue
        waiting = await players.waiting()
        for person in PEOPLE:
            entries = rights(person, players.random.sample(PEOPLE, players.random.randrange(3)))
            pieces = [each async for each in RequestLists(store).iterate_waiting("main", readers=entries)]
            chosen = [each for piece in pieces for each in piece]

            def reads(request: ApprovalRequest, person: Person = person, entries: Any = entries) -> bool:
                return may_read(person, entries, of_request(request), development=False)

            assert list(filter(reads, chosen)) == list(filter(reads, waiting))
            # The preselection itself leaves out the others.
            assert {each.id for each in chosen} <= {each.id for each in waiting}
            listed += len(chosen)
        assert [each.id for each in await RequestLists(store).list_waiting("main")] == [each.id for each in waiting]
    assert listed > 2 * STEPS


async def over(store: Store) -> dict[str, set[bool]]:
    rows = await store.read(lambda connection: connection.execute(select(QUESTION_READERS)).all())
    found: dict[str, set[bool]] = {}
    for row in rows:
        found.setdefault(f"{row.approval.rpartition('.')[2]}/{row.revision}", set()).add(row.over_at is not None)
    return found


async def test_readers_are_over_when_their_question_waits_no_longer(store: Store) -> None:
    for name in ("answered", "ended", "again", "void", "open"):
        await put(store, question(f"main.s.t.{name}", approvers=("role:finance", "user:ana")))
    for name in ("answered", "void"):
        assert await take(store, "bo", approval=f"main.s.t.{name}")
    assert (await over(store))["void/1"] == {True}
    await Answers(store).void("main.s.t.void", "bo")
    await Questions(store).end("main.s.t.ended", 1, "cancelled")
    await put(store, question("main.s.t.again", notes=("asked again",)))
    assert await over(store) == {
        "answered/1": {True}, "ended/1": {True}, "again/1": {True}, "again/2": {False}, "void/1": {False},
        "open/1": {False},
    }  # fmt: skip


async def test_answerer_reads_the_request_in_each_later_revision(store: Store) -> None:
    await put(store, question(quorum=2))
    assert await take(store, "bo")

    async def listed() -> list[int]:
        pieces = RequestLists(store).iterate_waiting("main", readers=("user:bo",))
        return [each.revision async for piece in pieces for each in piece]

    assert await listed() == [1]
    await put(store, question(quorum=2, notes=("asked again",)))
    assert await listed() == [2]


async def test_reader_row_at_another_deadline_neither_moves_nor_repeats_its_request(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker may insert such rows.
    monkeypatch.setattr("signoff.store.questions.request_lists.PIECE", 1)
    for name in ("first", "second"):
        await put(store, question(f"main.s.t.{name}"))
    own = select(QUESTION_READERS).where(QUESTION_READERS.c.reader == "user:guest")
    rows = await store.read(lambda connection: connection.execute(own).all())
    forged = [{**row._mapping, "reader": "user:ana", "last_at": row.last_at + 1} for row in rows]
    await store.run(lambda connection: connection.execute(insert(QUESTION_READERS), forged).close())
    pieces = RequestLists(store).iterate_waiting("main", readers=("user:ana", "user:guest"))
    listed = [each.id async for piece in pieces for each in piece]
    assert listed == ["main.s.t.first", "main.s.t.second"]


async def test_removed_turn_leaves_no_readers(store: Store) -> None:
    asked = await put(store)
    await Questions(store).end(asked.id, 1, "cancelled")
    key = TurnKey(asked.tenant, asked.session, asked.turn)
    before = round(datetime.now(UTC).timestamp() * 1000) + 10_000
    assert (await store.run(lambda connection: remove_turn(connection, key, before))).questions == 1
    assert await over(store) == {}
