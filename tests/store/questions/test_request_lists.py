import pytest
from question_kit import put, question, take
from sqlalchemy import update

from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Principal
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_lists import RequestLists
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
    # a row.
    monkeypatch.setattr("signoff.store.questions.request_lists.PIECE", 2)
    for name, fields in {
        "own": {"requester": Principal(user="ana")}, "asked": {"approvers": ("role:a_b", "user:ana")},
        "later": {"escalate_to": ("role:a_b",)}, "other": {"approvers": ("role:axb", "user:anabel", "user:a%")},
        "more": {"approvers": ("user:x", "user:ana", "user:y"), "timeout": 7200.0},
    }.items():  # fmt: skip
        await put(store, question(f"main.s.{name}.c1.1", turn=name, **fields))

    async def listed(*readers: str) -> list[str]:
        pieces = RequestLists(store).iterate_waiting("main", readers=readers)
        return [each.turn async for piece in pieces for each in piece]

    assert sorted(await listed("user:ana")) == ["asked", "more", "own"]
    assert sorted(await listed("role:a_b", "user:zoe")) == ["asked", "later"]
    assert await listed() == await listed("user:an", "na") == []
    assert len(await RequestLists(store).list_waiting("main")) == 5
    assert await listed(*(f"role:{number}" for number in range(200)), "user:ana") == await listed("user:ana")
    keys = [TurnKey("main", "s", name) for name in ("own", "other", "later", "none")]
    found = await RequestLists(store).of_turns(keys, readers=("user:ana",))
    assert {key.turn: len(asked) for key, asked in found.items()} == {"own": 1, "other": 0, "later": 0}


@pytest.mark.parametrize("body", ['{"id": "x"}', "null"])
async def test_malformed_question_row_hides_no_other(store: Store, body: str) -> None:
    await put(store, question("main.s.t.bad"))
    change = update(QUESTIONS).values(body=body)
    await store.run(lambda connection: connection.execute(change).close())
    good = await put(store)
    assert [each.id for each in await RequestLists(store).list_waiting("main")] == [good.id]
