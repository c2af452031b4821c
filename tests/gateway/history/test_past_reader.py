import dataclasses
import json
from datetime import timedelta
from functools import partial

import pytest
from history_rig import SECRET, HistoryRig, history_catalog
from sqlalchemy import Connection, select, update

from signoff.audit.log import AuditLog
from signoff.audit.retention import retire
from signoff.contracts.audit import AuditEntry
from signoff.contracts.decision import Verdict
from signoff.contracts.errors import BadRequest
from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace
from signoff.gateway.history.past_reader import TEXT_WORDS, PastFilter
from signoff.gateway.history.request_indexer import RequestIndexer
from signoff.store.old_turns import remove_turn
from signoff.store.questions.answers import Answers
from signoff.store.questions.questions import Questions
from signoff.store.request_reader import LoadedRequest
from signoff.store.store import Store
from signoff.store.tables import PAST_REQUESTS, QUESTIONS, UNINDEXED_REQUESTS

EVERY_WORD = ("", "Zoe", "pay", "order", "guest", "desk", "approved")


@pytest.fixture
async def rig(store: Store) -> HistoryRig:
    return HistoryRig(store)


async def settle(rig: HistoryRig) -> None:
    while await rig.index():
        pass


async def test_request_is_neither_found_nor_counted_without_the_right_to_read_it(rig: HistoryRig) -> None:
    await rig.decided({"amount": 20, "to": "Zoe"}, by="ana")
    await rig.decided({"amount": 30, "to": "Zoe"}, tool="order", by="eve", user="bo")
    await rig.decided({"amount": 40, "to": "Zoe"}, tool="gift", by="eve")
    await settle(rig)
    readable = {
        "ana": ["t3", "t1"], "bo": ["t3", "t2", "t1"], "eve": ["t3", "t2"], "guest": ["t3", "t1"],
        "oz": ["t3", "t2", "t1"], "gone": [],
    }  # fmt: skip
    for person, turns in readable.items():
        for text in EVERY_WORD:
            page = await rig.find(person, text)
            assert {each.id.split(".")[2] for each in page.decisions} <= set(turns)
            assert page.count == len(page.decisions)
        assert await rig.found(person, "zoe") == turns


async def test_reader_of_another_tenant_finds_nothing(rig: HistoryRig) -> None:
    await rig.decided({"amount": 20, "to": "Zoe"})
    await settle(rig)
    reader = rig.reader("oz")
    reader._tenant = "other"
    assert (await reader.find(PastFilter("zoe"))).count == 0
    assert (await reader.find(PastFilter())).count == 0


async def test_row_with_forged_marks_is_not_shown(rig: HistoryRig) -> None:
    await rig.decided({"amount": 20, "to": "Zoe"})
    await settle(rig)
    change = update(PAST_REQUESTS).values(readers='{"askers": [], "asked": ["role:stock"]}')
    await rig.store.run(lambda connection: connection.execute(change).close())
    assert (await rig.find("ana")).decisions == ()


async def test_secrets_are_in_neither_rows_nor_words(rig: HistoryRig) -> None:
    await rig.decided({"amount": 20, "to": "Zoe", "note": f"the pin is {SECRET}", "pin": SECRET})
    await settle(rig)
    (found,) = (await rig.find("ana", "zoe")).decisions
    assert SECRET not in found.model_dump_json()
    assert await rig.found("ana", SECRET) == []
    rows = await rig.store.read(lambda connection: connection.execute(select(PAST_REQUESTS)).all())
    assert SECRET not in str(rows)


async def test_filters_combine_with_each_other_and_with_rights(rig: HistoryRig) -> None:
    await rig.decided({"amount": 20, "to": "Zoe"}, by="ana")
    await rig.decided({"amount": 21, "to": "Zoe"}, by="bo", verdict="denied")
    await rig.decided({"amount": 22, "to": "Max"}, by="bo", tool="gift")
    await rig.decided({"amount": 23, "to": "Max"}, by="eve", tool="gift", user="ana")
    await settle(rig)
    for fields, turns in (
        ({"scope": "mine"}, ["t3", "t2"]), ({"scope": "team"}, ["t4", "t3", "t2", "t1"]),
        ({"tool": "gift"}, ["t4", "t3"]),
        ({"actor": "desk", "text": "max"}, ["t4", "t3"]), ({"actor": "other"}, []), ({"person": "eve"}, ["t4"]),
        ({"person": "ana"}, ["t4", "t1"]), ({"state": "denied"}, ["t2"]), ({"channel": "slack"}, ["t3", "t2"]),
        ({"scope": "mine", "state": "approved", "text": "MÁX 22"}, ["t3"]), ({"text": "!!"}, []),
        ({"tool": "' | 'x"}, []),
    ):  # fmt: skip
        assert await rig.found("bo", **fields) == turns, fields
    assert await rig.found("eve", scope="team") == []
    assert await rig.found("guest", scope="team") == []
    assert await rig.found("eve", scope="mine") == ["t4"]


async def test_pages_follow_each_other_to_the_last(rig: HistoryRig) -> None:
    for amount in range(5):
        await rig.decided({"amount": amount, "to": "Zoe"})
    await settle(rig)
    after, seen = "", []
    while True:
        page = await rig.find("ana", "zoe", after=after, limit=2)
        seen += [each.id.split(".")[2] for each in page.decisions]
        assert page.count == 5
        after = page.next
        if not after:
            break
    assert seen == ["t5", "t4", "t3", "t2", "t1"]
    assert [each.id async for each in rig.reader("ana").every(PastFilter("zoe"), limit=4)] == [
        f"main.s.t{number}.c1.1" for number in (5, 4, 3, 2)
    ]
    for wrong in ("x", "-1", "1" * 30, "\u0661"):
        with pytest.raises(BadRequest):
            await rig.find("ana", after=wrong)


async def test_search_of_too_many_words_is_refused(rig: HistoryRig) -> None:
    for text in ("x" * 10_000, " ".join(map(str, range(TEXT_WORDS + 1)))):
        with pytest.raises(BadRequest, match="a search has at most"):
            await rig.find("ana", text)


@pytest.mark.parametrize("verdict", ["denied", "withdrawn"])
async def test_waiting_request_is_not_in_the_history_until_it_ends(rig: HistoryRig, verdict: Verdict) -> None:
    request = await rig.asked({"amount": 20, "to": "Zoe"})
    await settle(rig)
    assert await rig.found("ana") == []
    await rig.answer(request, "ana", verdict)
    await settle(rig)
    assert [each.state for each in (await rig.find("ana")).decisions] == [
        "denied" if verdict == "denied" else "cancelled"
    ]


async def test_request_that_ends_without_the_gateway_is_in_the_history(rig: HistoryRig) -> None:
    ended = await rig.asked({"amount": 20, "to": "Zoe"})
    await Questions(rig.store).end(ended.id, 1, "not_asked")
    await settle(rig)
    assert [each.state for each in (await rig.find("ana")).decisions] == ["cancelled"]


async def test_request_past_its_deadline_is_in_the_history(store: Store) -> None:
    rig = HistoryRig(store, catalog=history_catalog(timeout=0.001))
    await rig.asked({"amount": 20, "to": "Zoe"})
    await settle(rig)
    while not (page := await rig.find("ana")).decisions:
        await settle(rig)
    assert [each.state for each in page.decisions] == ["timed_out"]


async def test_void_approval_leaves_the_history(rig: HistoryRig) -> None:
    request = await rig.decided({"amount": 20, "to": "Zoe"})
    await settle(rig)
    assert await rig.found("ana") == ["t1"]
    assert await Answers(rig.store).void(request.id, f"ana-approved-{request.id}")
    await settle(rig)
    assert await rig.found("ana") == []


async def test_approval_that_lapses_changes_its_state_in_the_history(rig: HistoryRig) -> None:
    request = await rig.decided({"amount": 20, "to": "Zoe"})
    await settle(rig)
    await Questions(rig.store).end(request.id, 1, "lapsed")
    await settle(rig)
    assert [each.state for each in (await rig.find("ana")).decisions] == ["lapsed"]
    assert await rig.found("ana", state="approved") == []


async def test_unproved_request_is_not_indexed_and_does_not_block_others(rig: HistoryRig) -> None:
    forged = await rig.decided({"amount": 20, "to": "Zoe"})
    broken = await rig.decided({"amount": 20, "to": "Zoe"})
    await rig.decided({"amount": 20, "to": "Zoe"})

    def write(name: str, body: str, connection: Connection) -> None:
        connection.execute(update(QUESTIONS).where(QUESTIONS.c.approval == name).values(body=body))

    # A worker may store any blob in place of a declaration.
    shapeless = await rig.decided({"amount": 20, "to": "Zoe"})
    blob = await rig.store.put_blob(b"[]", None)
    asker = forged.requester.model_dump(mode="json") | {"user": "eve"}
    body = json.loads(await rig.store.read(lambda c: c.scalar(select(QUESTIONS.c.body)))) | {"requester": asker}
    bodies = (json.dumps(body), "{}", json.dumps(body | {"definition": blob.sha256}))
    for request, written in zip((forged, broken, shapeless), bodies, strict=True):
        await rig.store.run(partial(write, request.id, written))
    await settle(rig)
    assert await rig.found("oz") == ["t3"]
    left = await rig.store.read(lambda connection: connection.scalars(select(UNINDEXED_REQUESTS.c.approval)).all())
    # A declaration that is no object is unproved, like a forged requester. An unreadable row may become readable.
    assert set(left) == {broken.id}


async def test_change_during_indexing_is_not_lost(rig: HistoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    request = await rig.decided({"amount": 20, "to": "Zoe"})
    load = RequestIndexer._load

    async def slow(self: RequestIndexer, approval: str) -> object:
        loaded = await load(self, approval)
        await Questions(rig.store).end(request.id, 1, "lapsed")
        return loaded

    monkeypatch.setattr(RequestIndexer, "_load", slow)
    await rig.index()
    assert await rig.found("ana", state="lapsed") == ["t1"]
    assert await rig.index() == 0


async def test_revision_asked_during_indexing_stays_due(rig: HistoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    request = await rig.decided({"amount": 20, "to": "Zoe"})
    load = RequestIndexer._load

    async def old(self: RequestIndexer, approval: str) -> LoadedRequest | None:
        loaded = await load(self, approval)
        return loaded and dataclasses.replace(loaded, request=replace(loaded.request, revision=2))

    monkeypatch.setattr(RequestIndexer, "_load", old)
    await rig.index()
    assert await rig.found("ana") == []
    monkeypatch.undo()
    await rig.index()
    assert await rig.found("ana") == [request.turn]


async def test_removed_turn_leaves_no_row_of_the_history(rig: HistoryRig) -> None:
    await rig.decided({"amount": 20, "to": "Zoe"})
    await rig.decided({"amount": 20, "to": "Zoe"})
    await settle(rig)
    later = 4_000_000_000_000
    removed = await rig.store.run(lambda connection: remove_turn(connection, TurnKey("main", "s", "t1"), later))
    assert removed.questions == 1
    assert await rig.found("oz") == ["t2"]


@pytest.mark.parametrize("indexed_before", [True, False])
async def test_retired_record_leaves_no_row_of_the_history(rig: HistoryRig, indexed_before: bool) -> None:
    async def is_over(turn: TurnKey) -> bool:
        return turn.turn == "t1"

    for _ in range(2):
        await rig.decided({"amount": 20, "to": "Zoe"})
    if indexed_before:
        await settle(rig)
    now = rig.deps.clock()
    for turn in ("t1", "t2"):
        stream = f"turn/main/s/{turn}"
        await AuditLog(rig.store).append([AuditEntry(stream=stream, key="k", kind="verdict", at=now, tenant="main")])
    gone = await retire(rig.store, rig.signer, now + timedelta(days=1), at=now, is_over=is_over)
    assert [each.turn.turn for each in gone] == ["t1"]
    await settle(rig)
    assert await rig.found("oz") == ["t2"]


async def test_delegate_reads_requests_to_the_delegator_but_not_the_delegators_own(store: Store) -> None:
    rig = HistoryRig(store, catalog=history_catalog())
    await rig.decided({"amount": 20, "to": "Zoe"}, by="ana")
    await rig.decided({"amount": 20, "to": "Zoe"}, by="eve", tool="order", user="ana")
    await settle(rig)
    reader = rig.reader("guest")
    reader._rights = (*reader._rights, "user:ana", "role:finance")
    assert [each.id.split(".")[2] for each in (await reader.find(PastFilter())).decisions] == ["t1"]
