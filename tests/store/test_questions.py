"""Questions and answers in the store: one row a question, one order of answers, and exactly one that settles."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, update

from signoff.approvals.digest import question_hash
from signoff.approvals.machine import count_vote
from signoff.contracts.approval import Question, Vote
from signoff.contracts.canonical_json import canonical_json, sha256_hex
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey, read_code
from signoff.contracts.person import Principal
from signoff.store.questions import ApprovalRows, Questions, add_answer, end_by_turn
from signoff.store.store import Store, open_store
from signoff.store.tables import QUESTIONS

DECLARED = {"name": "pay"}
DECIDERS = 50


def question(approval: str = "main.s.t.c1.1", **fields: Any) -> Question:
    """A question as the gates ask it, without revision, code and time."""
    given: dict[str, Any] = {
        "id": approval, "tenant": "main", "session": "s", "turn": "t", "call": "c1.1",
        "requester": Principal(user="guest"), "tool": "pay", "definition": sha256_hex(DECLARED),
        "args": Content(inline={"amount": 5}), "digest": "d" * 64, "timeout": 3600.0,
    }  # fmt: skip
    return Question(**given | fields)


async def put(store: Store, asked: Question | None = None) -> Question:
    """The row of a question."""
    return await Questions(store).ask(asked or question(), canonical_json(DECLARED))


async def take(store: Store, who: str, verdict: Any = "approved", approval: str = "main.s.t.c1.1") -> bool:
    """Take an answer as the gateway does: inserted only while the ones before leave it room; whether it was."""

    def work(connection: Connection, rows: ApprovalRows | None) -> bool:
        assert rows is not None
        asked = rows.request(rows.latest)
        decision = Decision(
            approval_id=approval, revision=asked.revision, verdict=verdict, subject=who, delivery_id=who
        )
        vote = Vote(subject=who, verdict=verdict, at=rows.now, decision=decision)
        after = count_vote(asked, vote)
        if asked.state != "pending" or after is asked:
            return False
        add_answer(connection, rows, vote, settles=after.state != "pending")
        return True

    return await Questions(store).run_locked(approval, work)


async def test_the_same_question_is_the_same_row_while_it_is_open(store: Store) -> None:
    """An activity is tried twice and a turn reset: nobody is asked twice, and nothing is written twice."""
    written: list[Question] = []

    def also(asked: Question) -> Any:
        return lambda connection: written.append(asked)

    first = await Questions(store).ask(question(), canonical_json(DECLARED), also)
    again = await Questions(store).ask(question(), canonical_json(DECLARED), also)
    assert again == first
    assert written == [first]
    assert (first.revision, read_code(first.code)) == (1, first.code)
    assert first.opened_at is not None
    rows = await Questions(store).read(first.id)
    assert rows is not None
    assert (rows.questions, rows.answers) == ((first,), ())
    assert timedelta(0) <= rows.now - first.opened_at < timedelta(minutes=1)
    assert await store.get_blob(first.definition) == canonical_json(DECLARED)


@pytest.mark.parametrize("how", ["answered", "ended", "other words", "other people"])
async def test_another_question_is_the_next_revision(store: Store, how: str) -> None:
    """Once it is answered or ended, or when anything that people are shown is another; the code stays."""
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
    rows = await Questions(store).read(first.id)
    assert rows is not None
    assert (rows.latest, rows.revision(1) is not None, rows.revision(3)) == (second, True, None)


async def test_a_hash_covers_what_people_are_shown_and_no_moment(store: Store) -> None:
    """Asked again in other words it is another; its code, time and end are not under it."""
    first = await put(store)
    bare = question(revision=1)
    assert question_hash(first) == question_hash(bare)
    for change in ({"agent_says": "x"}, {"quorum": 2}, {"override": "x"}, {"grant_ttl": 1.0}, {"revision": 2}):
        assert question_hash(first.model_copy(update=change)) != question_hash(bare)


async def test_codes_are_random_and_unique_in_a_tenant(store: Store) -> None:
    """Two digits at fixed places; each means one request; another tenant's say nothing."""
    asked = [await put(store, question(f"main.s.t.c1.{number}")) for number in range(60)]
    codes = [each.code for each in asked]
    assert len(set(codes)) == len(codes)
    assert all(len(code) == 6 and code[1].isdigit() and code[3].isdigit() for code in codes)
    for each in asked:
        assert await Questions(store).find_by_code("main", each.code) == each.id
    assert await Questions(store).find_by_code("other", codes[0]) is None
    assert await Questions(store).find_by_code("main", "A0A0A0") in (None, *(each.id for each in asked))


async def test_an_ending_is_set_once(store: Store) -> None:
    """The first word stands, and is what the row says from then on."""
    first = await put(store)
    assert await Questions(store).end(first.id, 1, "cancelled")
    assert not await Questions(store).end(first.id, 1, "lapsed")
    assert not await Questions(store).end(first.id, 2, "cancelled")
    rows = await Questions(store).read(first.id)
    assert rows is not None
    assert (rows.latest.ended_as, rows.request(rows.latest).state) == ("cancelled", "cancelled")
    assert await Questions(store).read("main.s.t.c9.9") is None


async def test_only_open_questions_wait(store: Store) -> None:
    """Neither answered, ended nor over, nor an older revision; those of the tenant, soonest first."""
    for name, fields in {
        "late": {"timeout": 7200.0}, "open": {}, "half": {"quorum": 2, "timeout": 5400.0}, "answered": {}, "ended": {},
        "over": {"timeout": 0.0}, "again": {"timeout": 9000.0}, "elsewhere": {"tenant": "other"},
    }.items():  # fmt: skip
        await put(store, question(f"main.s.t.{name}", **fields))
    assert await take(store, "ana", approval="main.s.t.answered")
    assert await take(store, "ana", approval="main.s.t.half")
    await Questions(store).end("main.s.t.ended", 1, "cancelled")
    await put(store, question("main.s.t.again", timeout=9000.0, note="asked again"))
    waiting = await Questions(store).list_waiting("main")
    assert [(each.id.rpartition(".")[2], each.revision) for each in waiting] == [
        ("open", 1), ("half", 1), ("late", 1), ("again", 2),
    ]  # fmt: skip
    assert [len(each.votes) for each in waiting] == [0, 1, 0, 0]


async def test_a_list_reads_only_what_may_concern_its_reader(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked, who is asked and who is asked later; no entry is taken for another; in pieces, none twice or left out.

    Questions of which that is not written down are read by all.
    """
    monkeypatch.setattr("signoff.store.questions.PIECE", 2)
    for name, fields in {
        "own": {"requester": Principal(user="ana")}, "asked": {"approvers": ("role:a_b", "user:ana")},
        "later": {"escalate_to": ("role:a_b",)}, "other": {"approvers": ("role:axb", "user:anabel", "user:a%")},
        "more": {"approvers": ("user:x", "user:ana", "user:y"), "timeout": 7200.0}, "old": {"timeout": 9000.0},
    }.items():  # fmt: skip
        await put(store, question(f"main.s.{name}.c1.1", turn=name, **fields))
    unknown = update(QUESTIONS).where(QUESTIONS.c.turn == "old").values(readers=None)
    await store.run(lambda connection: connection.execute(unknown).close())

    async def listed(*readers: str) -> list[str]:
        pieces = Questions(store).iterate_waiting("main", readers=readers)
        return [each.turn async for piece in pieces for each in piece]

    assert sorted(await listed("user:ana")) == ["asked", "more", "old", "own"]
    assert sorted(await listed("role:a_b", "user:zoe")) == ["asked", "later", "old"]
    assert await listed() == await listed("user:an", "na") == ["old"]
    assert len(await Questions(store).list_waiting("main")) == 6
    assert await listed(*(f"role:{number}" for number in range(200)), "user:ana") == [
        each.turn for each in await Questions(store).list_waiting("main")
    ]
    keys = [TurnKey("main", "s", name) for name in ("own", "other", "later", "none")]
    found = await Questions(store).of_turns(keys, readers=("user:ana",))
    assert {key.turn: len(asked) for key, asked in found.items()} == {"own": 1, "other": 0, "later": 0}


@pytest.mark.parametrize("body", ['{"id": "x"}', "null"])
async def test_a_row_that_holds_no_question_hides_no_other(store: Store, body: str) -> None:
    """Who can write rows must not take the list of everybody away; seen to, while one row failed them all."""
    await put(store, question("main.s.t.bad"))
    change = update(QUESTIONS).values(body=body)
    await store.run(lambda connection: connection.execute(change).close())
    good = await put(store)
    assert [each.id for each in await Questions(store).list_waiting("main")] == [good.id]


async def test_an_answer_is_owed_until_its_turn_has_it(store: Store) -> None:
    """What no worker took is handed over later; once it has, no more."""
    first = await put(store)
    await take(store, "ana")
    assert await Questions(store).list_owed(60.0, 10) == []
    owed = await Questions(store).list_owed(0.0, 10)
    assert [(each.approval, each.number, each.vote.subject) for each in owed] == [(first.id, 1, "ana")]
    await Questions(store).hand_over(first.id, "ana")
    assert await Questions(store).list_owed(0.0, 10) == []


@pytest.mark.parametrize(
    ("key", "nonce", "doubt_of", "stands"),
    [
        ("", "", 0, False),
        ("d" * 64, "", 0, True),
        ("e" * 64, "", 0, True),
        ("d" * 64, "another", 0, False),
        ("d" * 64, "", 1, False),
        (f"{'d' * 64}/2", "", 1, True),
    ],
)
async def test_a_yes_is_neither_void_nor_lapsed_once_its_call_has_begun(
    store: Store, key: str, nonce: str, doubt_of: int, stands: bool
) -> None:
    """A ticket of its call in that turn, whatever the arguments; of a call in doubt one of a later try."""
    first = await put(store, question(doubt_of=doubt_of))
    await take(store, "ana")
    if key:
        await store.claim(key, workflow=TurnKey("main", "s", "t").workflow_id, call="c1.1", tool="pay", nonce=nonce)
    questions = Questions(store)
    if stands:
        assert not await store.run(lambda connection: end_by_turn(connection, first.id, 1, "lapsed"))
    assert await questions.void(first.id, "ana") is not stands
    rows = await questions.read(first.id)
    assert rows is not None
    assert rows.request(rows.latest).state == ("approved" if stands else "pending")


async def race(stores: list[Store], settings: int) -> tuple[list[bool], float]:
    """Fifty people answer at once, turn and turn about by each store; who was taken, and the seconds it took."""
    began = time.monotonic()
    verdicts = ("approved", "denied")
    taken = await asyncio.gather(
        *(take(stores[number % len(stores)], f"p{number}", verdicts[number % settings]) for number in range(DECIDERS))
    )
    return list(taken), time.monotonic() - began


@pytest.mark.parametrize("verdicts", [1, 2])
async def test_of_fifty_who_race_exactly_one_settles(store: Store, store_url: str, verdicts: int) -> None:
    """Two gateways on one store: one answer is taken, all others find it there, and no yes stands beside a no."""
    await put(store)
    async with open_store(store_url) as second:
        taken, seconds = await race([store, second], verdicts)
    assert taken.count(True) == 1
    rows = await Questions(store).read("main.s.t.c1.1")
    assert rows is not None
    assert [each.number for each in rows.answers] == [1]
    assert rows.request(rows.latest).state in ("approved", "denied")
    # Each of them has waited for those before: the whole race is the longest that one of them waits for the lock.
    assert seconds < 20.0


async def test_a_race_for_a_quorum_takes_as_many_as_it_needs(store: Store, store_url: str) -> None:
    """Three are wanted, fifty come: three are taken, in an order without a gap."""
    await put(store, question(quorum=3))
    async with open_store(store_url) as second:
        taken, _ = await race([store, second], 1)
    assert taken.count(True) == 3
    rows = await Questions(store).read("main.s.t.c1.1")
    assert rows is not None
    assert [each.number for each in rows.answers] == [1, 2, 3]
    assert rows.request(rows.latest, datetime.now(UTC)).state == "approved"
