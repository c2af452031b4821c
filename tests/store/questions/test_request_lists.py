from typing import Any

import pytest
from question_kit import put, question, take
from sqlalchemy import Connection, event, insert, select, text, update

from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Principal
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_lists import PIECE, RequestLists
from signoff.store.store import Store
from signoff.store.tables import QUESTIONS


async def test_only_open_questions_are_listed_as_waiting(store: Store) -> None:
    for name, fields in {
        "late": {"timeout": 7200.0}, "open": {}, "half": {"quorum": 2, "timeout": 5400.0}, "answered": {}, "ended": {},
        "over": {"timeout": 0.0}, "again": {"timeout": 9000.0}, "elsewhere": {"tenant": "other"},
    }.items():  # fmt: skip
        await put(store, question(f"main.s.t.{name}", **fields))
    assert await take(store, "ana", approval="main.s.t.answered")
    assert await take(store, "ana", approval="main.s.t.half")
    await Questions(store).end("main.s.t.ended", 1, "cancelled")
    await put(store, question("main.s.t.again", timeout=9000.0, notes=("asked again",)))
    waiting = await RequestLists(store).list_waiting("main")
    assert [(each.id.rpartition(".")[2], each.revision) for each in waiting] == [
        ("open", 1), ("half", 1), ("late", 1), ("again", 2),
    ]  # fmt: skip
    assert [len(each.votes) for each in waiting] == [0, 1, 0, 0]


async def test_request_list_reads_only_rows_relevant_to_its_reader(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Requester, approvers and escalation approvers. Entries are never confused, and pages neither repeat nor omit
    # a row. Questions without recorded entries are read by all.
    monkeypatch.setattr("signoff.store.questions.request_lists.PIECE", 2)
    for name, fields in {
        "own": {"requester": Principal(user="ana")}, "asked": {"approvers": ("role:a_b", "user:ana")},
        "later": {"escalate_to": ("role:a_b",)}, "other": {"approvers": ("role:axb", "user:anabel", "user:a%")},
        "more": {"approvers": ("user:x", "user:ana", "user:y"), "timeout": 7200.0}, "old": {"timeout": 9000.0},
    }.items():  # fmt: skip
        await put(store, question(f"main.s.{name}.c1.1", turn=name, **fields))
    unknown = update(QUESTIONS).where(QUESTIONS.c.turn == "old").values(readers=None)
    await store.run(lambda connection: connection.execute(unknown).close())

    async def listed(*readers: str) -> list[str]:
        pieces = RequestLists(store).iterate_waiting("main", readers=readers)
        return [each.turn async for piece in pieces for each in piece]

    assert sorted(await listed("user:ana")) == ["asked", "more", "old", "own"]
    assert sorted(await listed("role:a_b", "user:zoe")) == ["asked", "later", "old"]
    assert await listed() == await listed("user:an", "na") == ["old"]
    assert len(await RequestLists(store).list_waiting("main")) == 6
    assert await listed(*(f"role:{number}" for number in range(200)), "user:ana") == [
        each.turn for each in await RequestLists(store).list_waiting("main")
    ]
    keys = [TurnKey("main", "s", name) for name in ("own", "other", "later", "none")]
    found = await RequestLists(store).of_turns(keys, readers=("user:ana",))
    assert {key.turn: len(asked) for key, asked in found.items()} == {"own": 1, "other": 0, "later": 0}


async def test_request_list_reads_only_the_rows_it_shows(store: Store) -> None:
    # By an index in the order of the list, as both databases say, and not sorted. Seen to fail: a list of 1,000 took
    # 2.25 times as long on PostgreSQL at 10,000 waiting questions as at 1,000.
    await put(store, question("main.s.t.first", approvers=("role:finance",)))
    statements: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        statements.append((statement, parameters))

    def fill(connection: Connection) -> None:
        row = dict(connection.execute(select(QUESTIONS)).one()._mapping)
        more = [
            row | {"approval": f"main.s.t.{n}", "code": f"{n}", "last_at": row["last_at"] + n} for n in range(3_000)
        ]
        connection.execute(insert(QUESTIONS), more)
        connection.execute(text("ANALYZE"))

    await store.run(fill)
    await store.read(lambda connection: event.listen(connection.engine, "before_cursor_execute", note))
    lists = RequestLists(store).iterate_waiting("main", readers=("user:ana", "role:finance"))
    pieces = [len(await anext(lists)) for _ in range(2)]
    await lists.aclose()
    assert pieces == [PIECE, PIECE]

    def explain(connection: Connection) -> list[str]:
        event.remove(connection.engine, "before_cursor_execute", note)
        how = "EXPLAIN " if store.dialect == "postgresql" else "EXPLAIN QUERY PLAN "
        return [
            "\n".join(str(line[-1]) for line in connection.exec_driver_sql(how + statement, parameters))
            for statement, parameters in statements
            if "FROM questions" in statement
        ]

    plans = await store.read(explain)
    assert len(plans) == 2
    for plan in plans:
        assert "questions_waiting" in plan, plan
        assert "Sort" not in plan, plan
        assert "B-TREE" not in plan, plan


@pytest.mark.parametrize("body", ['{"id": "x"}', "null"])
async def test_malformed_question_row_hides_no_other(store: Store, body: str) -> None:
    await put(store, question("main.s.t.bad"))
    change = update(QUESTIONS).values(body=body)
    await store.run(lambda connection: connection.execute(change).close())
    good = await put(store)
    assert [each.id for each in await RequestLists(store).list_waiting("main")] == [good.id]
