import asyncio
from datetime import timedelta
from typing import Any

import pytest
from question_kit import DECLARED, put, question, take
from some import some
from sqlalchemy import Connection, event, insert, select, text

from signoff.approvals.digest import question_hash
from signoff.contracts.approval import Question
from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.ids import read_code
from signoff.formats.replace import replace
from signoff.store.questions.answers import Answers
from signoff.store.questions.questions import QuestionRefused, Questions, put_off_deadline
from signoff.store.store import Store, open_store
from signoff.store.tables import QUESTION_READERS, QUESTIONS, millis_from_time


async def test_same_question_is_the_same_row_while_open(store: Store) -> None:
    written: list[Question] = []

    def also(asked: Question) -> Any:
        return lambda connection: written.append(asked)

    first = await Questions(store).ask(question(), canonical_json(DECLARED), also)
    again = await Questions(store).ask(question(), canonical_json(DECLARED), also)
    assert again == first
    assert written == [first]
    assert (first.revision, read_code(first.code)) == (1, first.code)
    assert first.opened_at is not None
    rows = some(await Questions(store).read(first.id))
    assert (rows.questions, rows.answers) == ((first,), ())
    assert timedelta(0) <= rows.now - first.opened_at < timedelta(minutes=1)
    assert await store.get_blob(first.definition) == canonical_json(DECLARED)


async def test_question_near_a_deadline_moves_it_once_for_all_lists(store: Store) -> None:
    first = await put(store)
    opened = some(first.opened_at)

    async def ask(minutes: float) -> list[float]:
        asked_at = opened + timedelta(minutes=minutes)
        await Questions(store).run_locked(
            first.id, lambda connection, rows: put_off_deadline(connection, some(rows).latest, asked_at)
        )
        places = (select(QUESTIONS.c.last_at), select(QUESTION_READERS.c.last_at).distinct())
        return [
            (moment - millis_from_time(opened)) / 60_000
            for place in places
            for moment in await store.read(lambda connection, place=place: connection.scalars(place).all())
        ]

    assert await ask(44) == [60, 60]
    assert some(await Questions(store).read(first.id)).latest.asked_at is None
    assert await ask(59) == [74, 74]
    assert await ask(73) == [74, 74]
    assert some(await Questions(store).read(first.id)).latest == replace(first, asked_at=opened + timedelta(minutes=59))


@pytest.mark.parametrize("how", ["answered", "ended", "other words", "other people"])
async def test_changed_or_settled_question_gets_the_next_revision(store: Store, how: str) -> None:
    first = await put(store)
    fields: dict[str, Any] = {}
    if how == "answered":
        assert await take(store, "ana")
    elif how == "ended":
        assert await Questions(store).end(first.id, 1, "superseded")
    else:
        fields = {"agent_says": "please"} if how == "other words" else {"approvers": ("user:cfo",)}
    second = await put(store, question(**fields))
    assert (second.revision, second.code) == (2, first.code)
    rows = some(await Questions(store).read(first.id))
    assert (rows.latest, rows.revision(1) is not None, rows.revision(3)) == (second, True, None)


async def test_question_hash_covers_the_card_and_no_time(store: Store) -> None:
    first = await put(store)
    bare = question(revision=1)
    assert question_hash(first) == question_hash(bare)
    for change in ({"agent_says": "x"}, {"quorum": 2}, {"override": "x"}, {"grant_ttl": 1.0}, {"revision": 2}):
        assert question_hash(replace(first, **change)) != question_hash(bare)


async def test_codes_are_random_and_unique_in_a_tenant(store: Store) -> None:
    asked = [await put(store, question(f"main.s.t.c1.{number}")) for number in range(60)]
    codes = [each.code for each in asked]
    assert len(set(codes)) == len(codes)
    assert all(len(code) == 6 and code[1].isdigit() and code[3].isdigit() for code in codes)
    for each in asked:
        assert await Questions(store).find_by_code("main", each.code) == each.id
    assert await Questions(store).find_by_code("other", codes[0]) is None
    assert await Questions(store).find_by_code("main", "A0A0A0") in (None, *(each.id for each in asked))


async def test_end_state_is_set_once(store: Store) -> None:
    first = await put(store)
    assert await Questions(store).end(first.id, 1, "cancelled")
    assert not await Questions(store).end(first.id, 1, "lapsed")
    assert not await Questions(store).end(first.id, 2, "cancelled")
    rows = some(await Questions(store).read(first.id))
    assert (rows.latest.ended_as, rows.request(rows.latest).state) == ("cancelled", "cancelled")
    assert await Questions(store).read("main.s.t.c9.9") is None


def question_of(turn: str, tenant: str = "main", **fields: Any) -> Question:
    return question(f"{tenant}.s.{turn}.c1.1", tenant=tenant, turn=turn, **fields)


async def ask_within(store: Store, asked: Question, waiting: int) -> Question | None:
    try:
        return await Questions(store).ask(asked, canonical_json(DECLARED), waiting=waiting)
    except QuestionRefused:
        return None


async def test_waiting_requests_of_a_tenant_never_exceed_the_limit(store_url: str) -> None:
    async with open_store(store_url) as one, open_store(store_url) as other:
        asking = [ask_within((one, other)[at % 2], question_of(f"t{at}"), 6) for at in range(20)]
        asking += [ask_within((one, other)[at % 2], question_of(f"t{at}", "acme"), 6) for at in range(3)]
        asked = [each for each in await asyncio.gather(*asking) if each is not None]
        tenants = [each.tenant for each in asked]
        assert (tenants.count("main"), tenants.count("acme")) == (6, 3)


async def test_voided_answer_leaves_its_question_waiting(store: Store) -> None:
    first = some(await ask_within(store, question_of("t1"), 1))
    assert await take(store, "ana", approval=first.id)
    assert await Answers(store).void(first.id, "ana")
    assert await ask_within(store, question_of("t2"), 1) is None
    assert await take(store, "bo", approval=first.id)
    assert await ask_within(store, question_of("t2"), 1) is not None


@pytest.mark.parametrize("how", ["answered", "ended", "expired"])
async def test_settled_question_makes_room_for_another(store: Store, how: str) -> None:
    first = some(await ask_within(store, question_of("t1", timeout=0.05 if how == "expired" else 3600.0), 1))
    if how != "expired":
        assert await ask_within(store, question_of("t2"), 1) is None
    if how == "answered":
        assert await take(store, "ana", approval=first.id)
    elif how == "ended":
        assert await Questions(store).end(first.id, 1, "cancelled")
    else:
        await asyncio.sleep(0.1)
    assert await ask_within(store, question_of("t2"), 1) is not None


async def test_existing_question_is_asked_again_despite_the_limit(store: Store) -> None:
    first = some(await ask_within(store, question_of("t1"), 1))
    assert await ask_within(store, question_of("t1"), 1) == first
    changed = some(await ask_within(store, question_of("t1", agent_says="please"), 1))
    assert changed.revision == 2
    assert await ask_within(store, question_of("t2"), 1) is None
    assert await Questions(store).read("main.s.t2.c1.1") is None


async def test_code_lookup_uses_the_index_of_codes(store: Store) -> None:
    """Without the index's condition in the query, SQLite reads all questions of a tenant for each new one."""
    await put(store)
    statements: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        statements.append((statement, parameters))

    def fill(connection: Connection) -> None:
        row = dict(connection.execute(select(QUESTIONS)).one()._mapping)
        more = [row | {"approval": f"main.s.t.{n}", "code": f"{n}"} for n in range(3_000)]
        connection.execute(insert(QUESTIONS), more)
        connection.execute(text("ANALYZE"))

    await store.run(fill)
    await store.read(lambda connection: event.listen(connection.engine, "before_cursor_execute", note))
    assert await Questions(store).find_by_code("main", "2999") == "main.s.t.2999"
    await put(store, question("main.s.t.last"))

    def explain(connection: Connection) -> list[str]:
        event.remove(connection.engine, "before_cursor_execute", note)
        how = "EXPLAIN " if store.dialect == "postgresql" else "EXPLAIN QUERY PLAN "
        return [
            "\n".join(str(line[-1]) for line in connection.exec_driver_sql(how + statement, parameters))
            for statement, parameters in statements
            if "questions.code = " in statement
        ]

    plans = await store.read(explain)
    assert plans
    assert [plan for plan in plans if "questions_codes" not in plan] == []
