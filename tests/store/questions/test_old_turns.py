import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import asyncpg
import pytest
from question_kit import put, question, take
from sqlalchemy import BigInteger, Connection, Table, event, func, select, text, update

from signoff.approvals.digest import question_hash
from signoff.approvals.notifications import Notice, NoticeKind
from signoff.contracts.approval import RequestMessage
from signoff.contracts.call import REQUIRES_APPROVAL, CallOutcome
from signoff.contracts.decision import GrantRequest
from signoff.contracts.grant import GrantScope
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.usage import LONGEST, LimitedUse, UsageLimit
from signoff.formats.replace import replace
from signoff.store import old_turns
from signoff.store.claim_conditions import try_hold_blob
from signoff.store.delivery_queue import DeliveryQueue, NewDelivery
from signoff.store.grants import Grants, write_grant
from signoff.store.messages.notices import NewNotice, Notices
from signoff.store.old_turns import RemovedRows, is_old, remove_blobs, remove_grants, remove_turn, remove_uses
from signoff.store.questions.opened_values import OpenedValues
from signoff.store.questions.request_messages import add_message
from signoff.store.store import Store, open_store
from signoff.store.tables import (
    ANSWERS,
    BLOB_SESSIONS,
    BLOBS,
    DELIVERIES,
    GRANTS,
    METADATA,
    OPENED_VALUES,
    QUESTIONS,
    REQUEST_MESSAGES,
    TICKETS,
    USES,
    StoreClock,
)
from signoff.testing import a_request

TURN, OTHER = TurnKey("main", "s", "t"), TurnKey("main", "s", "u")
HERE, THERE = SessionKey("main", "s"), SessionKey("main", "r")
DAY = 86_400_000
LIMIT = LimitedUse(UsageLimit(count=9, per="tenant", period=60.0), "main", "pay", "rui", "s", "t", "c1.1")
LIKE = GrantScope(
    tenant="main", tool="pay", definition="d" * 64, where="args.amount < 5.0", rule=REQUIRES_APPROVAL, policy_hash="p"
)


async def age(store: Store, days: float) -> None:
    def shift(connection: Connection) -> None:
        for table in METADATA.sorted_tables:
            times = [
                each
                for each in table.columns
                if each.computed is None and isinstance(each.type, BigInteger) and _is_time(each.name)
            ]
            if times:
                connection.execute(update(table).values({each.name: each - round(days * DAY) for each in times}))

    await store.run(shift)


def _is_time(name: str) -> bool:
    return name.endswith(("_at", "_until")) or name in ("until", "at")


async def before(store: Store) -> int:
    return await store.run(lambda connection: connection.execute(select(StoreClock())).scalar_one()) - DAY


async def count(store: Store, table: Table) -> int:
    return await store.run(lambda connection: connection.scalar(select(func.count()).select_from(table)) or 0)


async def settled(store: Store, turn: TurnKey = TURN) -> None:
    approval = ".".join((*turn, "c1.1"))
    asked = await put(store, question(approval, session=turn.session, turn=turn.turn))
    assert await take(store, "ana", approval=approval)
    cards = DeliveryQueue(store)
    request = replace(a_request(), id=approval)
    await cards.plan([NewDelivery(request=request, person="ana", channel="chat", address="ana")])
    for card in await cards.of_request(approval):
        await cards.drop(card.token)
    await OpenedValues(store).add(question_hash(asked), "main", "ana", 1)
    message = RequestMessage(number=0, by="approver", text="Why?", revision=1)
    await store.run(partial(add_message, approval=approval, message=message))
    key = f"key-{turn.turn}"
    use = LIMIT._replace(turn=turn.turn)
    claim = await store.claim(key, workflow=turn.workflow_id, call="c1.1", tool="pay", nonce="n", use=use)
    assert claim.kind == "fresh"
    await store.record(key, CallOutcome(call="c1.1", tool="pay", code="ok"))


async def test_old_turn_is_removed_whole_and_its_neighbor_stays(store: Store) -> None:
    await settled(store)
    await settled(store, OTHER)
    await age(store, 2)
    limit = await before(store)
    removed = await store.run(partial(remove_turn, turn=TURN, before=limit))
    assert removed == RemovedRows(questions=1, answers=1, cards=1, tickets=1)
    tables = (QUESTIONS, ANSWERS, DELIVERIES, OPENED_VALUES, REQUEST_MESSAGES, TICKETS)
    assert [await count(store, table) for table in tables] == [1] * len(tables)
    assert [each.key for each in await store.tickets_of_turn(OTHER.workflow_id)] == ["key-u"]
    # A use counts against the limit even if its turn is removed.
    assert await count(store, USES) == 2
    assert await store.run(partial(remove_turn, turn=TURN, before=limit)) == RemovedRows()


async def test_old_turn_is_removed_with_its_notices(store: Store) -> None:
    await settled(store)
    notices, request = Notices(store), replace(a_request(), id="main.s.t.c1.1")
    kinds: tuple[NoticeKind, ...] = ("waiting", "decided", "failed")
    for kind in kinds:
        notice = Notice(kind=kind, about=request.id, at=datetime.now(UTC), request=request)
        row = NewNotice(notice=notice, tenant="main", person="ana", channel="chat", address="ana")
        await notices.plan([row])
    planned = await notices.of_request(request.id)
    await age(store, 2)
    limit = await before(store)
    assert await store.run(partial(remove_turn, turn=TURN, before=limit)) == RemovedRows()
    for each in planned:
        await notices.drop(each.token)
    await age(store, 2)
    assert (await store.run(partial(remove_turn, turn=TURN, before=limit))).cards == 1 + len(planned) == 4
    assert await count(store, DELIVERIES) == 0


async def test_old_turn_is_removed_with_its_replaced_cards(store: Store) -> None:
    await settled(store)
    cards, request = DeliveryQueue(store), replace(a_request(), id="main.s.t.c1.1")
    await cards.plan([NewDelivery(request=request, person="bo", channel="chat", address="bo")])
    asked = RequestMessage(number=1, by="approver", text="Why?", revision=1)
    said = RequestMessage(number=2, by="agent", text="It is due.", revision=1)
    assert await cards.replace_old(replace(request, messages=(asked, said)), {"bo"}) == 1
    for card in await cards.of_request(request.id):
        await cards.drop(card.token)
    await age(store, 2)
    limit = await before(store)
    assert (await store.run(partial(remove_turn, turn=TURN, before=limit))).cards == 3
    assert await count(store, DELIVERIES) == 0


async def _asked_now(store: Store) -> None:
    await put(store, question("main.s.t.c2.1", call="c2.1"))


async def _answered_now(store: Store) -> None:
    await store.run(lambda connection: connection.execute(update(ANSWERS).values(voided_at=StoreClock())).close())


async def _seen_now(store: Store) -> None:
    await store.run(lambda connection: connection.execute(update(TICKETS).values(seen_at=StoreClock())).close())


async def _card_is_out(store: Store) -> None:
    await store.run(lambda connection: connection.execute(update(DELIVERIES).values(state="sent")).close())


async def _waits(store: Store) -> None:
    # An approval that its turn did not take settles nothing.
    old = update(ANSWERS).values(voided_at=StoreClock() - 2 * DAY)
    await store.run(lambda connection: connection.execute(old).close())
    ends = {"ended_at": None, "ended_as": None, "last_at": StoreClock() + DAY}
    await store.run(lambda connection: connection.execute(update(QUESTIONS).values(ends)).close())


async def _remembered(store: Store) -> None:
    given: dict[str, Any] = {"people": ("ana",), "approval_id": "main.s.t.c1.1", "requester": "rui"}
    wish = GrantRequest(seconds=60, uses=3)
    await store.run(lambda connection: write_grant(connection, "g", "approved", LIKE, wish, **given))


@pytest.mark.parametrize("happens", [_asked_now, _answered_now, _seen_now, _card_is_out, _waits, _remembered])
async def test_turn_stays_whole_while_any_part_is_needed(store: Store, happens: Callable[[Store], Any]) -> None:
    await settled(store)
    await age(store, 2)
    limit = await before(store)
    assert await store.run(partial(is_old, turn=TURN, before=limit))
    await happens(store)
    there = [await count(store, table) for table in (QUESTIONS, ANSWERS, TICKETS)]
    assert await store.run(partial(remove_turn, turn=TURN, before=limit)) == RemovedRows()
    assert [await count(store, table) for table in (QUESTIONS, ANSWERS, TICKETS)] == there


async def test_removal_waits_for_a_begun_claim_and_keeps_its_turn(store: Store) -> None:
    await settled(store)
    await age(store, 2)
    limit, begun = await before(store), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(connection: Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        if store.dialect == "postgresql":
            connection.execute(text("SELECT pg_sleep(0.5)"))

    # The first ticket is void: otherwise this would be another action.
    await store.run(lambda connection: connection.execute(update(TICKETS).values(state="void")).close())
    claiming = asyncio.create_task(
        store.claim("key-t/2", workflow=TURN.workflow_id, call="c1.1", tool="pay", nonce="n", also=hold)
    )
    await begun.wait()
    removed = await store.run(partial(remove_turn, turn=TURN, before=limit))
    assert (await claiming).kind == "fresh"
    assert removed == RemovedRows()
    assert (await count(store, TICKETS), await count(store, QUESTIONS)) == (2, 1)


async def test_grant_is_removed_after_its_question_and_its_expiry(store: Store) -> None:
    await settled(store)
    await _remembered(store)
    assert await Grants(store).use("g", "key-x")
    await age(store, 0.5)
    assert await store.run(partial(remove_grants, before=await before(store), dry_run=False)) == RemovedRows()
    await age(store, 2)
    limit = await before(store)
    assert await store.run(partial(remove_grants, before=limit, dry_run=False)) == RemovedRows()
    assert (await store.run(partial(remove_turn, turn=TURN, before=limit))).questions == 1
    assert await store.run(partial(remove_grants, before=limit, dry_run=True)) == RemovedRows(grants=1)
    assert await store.run(partial(remove_grants, before=limit, dry_run=False)) == RemovedRows(grants=1)
    assert [await count(store, table) for table in (GRANTS, METADATA.tables["grant_uses"])] == [0, 0]


async def test_uses_are_removed_when_no_limit_counts_them(store: Store) -> None:
    await settled(store)
    await age(store, 300)
    limit = await before(store)
    assert await store.run(partial(remove_uses, before=limit, dry_run=False)) == RemovedRows()
    await age(store, LONGEST / 86_400 - 299)
    assert await store.run(partial(remove_uses, before=limit, dry_run=True)) == RemovedRows(uses=1)
    assert await store.run(partial(remove_uses, before=limit, dry_run=False)) == RemovedRows(uses=1)
    assert await count(store, USES) == 0


async def test_blob_is_removed_with_the_last_session_that_names_it(store: Store) -> None:
    shared = await store.put_blob(b'"shared"', HERE)
    assert (await store.put_blob(b'"shared"', THERE)).sha256 == shared.sha256
    own, again = await store.put_blob(b'"own"', HERE), await store.put_blob(b'"again"', HERE)
    for_good = await store.put_blob(b'"for good"', None)
    assert (await store.put_blob(b'"for good"', HERE)).sha256 == for_good.sha256
    await age(store, 2)
    await store.put_blob(b'"again"', HERE)
    limit = await before(store)
    hashes = await store.run(partial(old_turns.old_blobs, session=HERE, before=limit, after=""))
    assert set(hashes) == {shared.sha256, own.sha256, for_good.sha256}
    asked = [*hashes, again.sha256]
    assert (await store.run(partial(old_turns.count_blobs, session=HERE, hashes=asked, before=limit))).blobs == 1
    assert (await store.run(partial(remove_blobs, session=HERE, hashes=asked, before=limit))).blobs == 1
    assert await store.get_blob(own.sha256) is None
    for kept in (shared, again, for_good):
        assert await store.get_blob(kept.sha256) is not None
    assert (await store.run(partial(remove_blobs, session=THERE, hashes=[shared.sha256], before=limit))).blobs == 1


async def test_blob_kept_during_its_removal_survives(store: Store) -> None:
    for number in range(20):
        body = f'"{number}"'.encode()
        blob = await store.put_blob(body, HERE)
        await age(store, 2)
        limit = await before(store)
        keeping = (store.put_blob(body, SessionKey("main", f"s{each}")) for each in range(5))
        await asyncio.gather(
            store.run(partial(remove_blobs, session=HERE, hashes=[blob.sha256], before=limit)), *keeping
        )
        assert await store.get_blob(blob.sha256) == body


@pytest.mark.postgres
async def test_blob_being_kept_is_skipped_by_the_removal(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        blob = await store.put_blob(b'"x"', HERE)
        keeping = await asyncpg.connect(postgres_url)
        async with keeping.transaction():
            await keeping.execute("SELECT pg_advisory_xact_lock_shared(7310276, hashtext($1))", blob.sha256)
            assert not await store.run(partial(try_hold_blob, sha256=blob.sha256))
        await keeping.close()
        assert await store.run(partial(try_hold_blob, sha256=blob.sha256))


async def test_page_ends_where_the_next_begins(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_turns, "PAGE", 2)
    turns = [TurnKey("main", "s", f"t{number}") for number in range(5)]
    for turn in turns:
        await settled(store, turn)
    await age(store, 2)
    await settled(store, TURN)
    limit = await before(store)
    for table in (QUESTIONS, TICKETS):
        found: list[TurnKey] = []
        place = None
        while True:
            page = await store.run(partial(old_turns.old_turns, table=table, before=limit, after=place))
            found += page.turns
            place = page.end
            if place is None:
                break
        assert set(found) == set(turns)
    assert (await store.run(partial(old_turns.newest_turns, limit=1)))[0] == TURN


async def test_growing_tables_are_never_scanned(store: Store) -> None:
    await settled(store)
    await _remembered(store)
    await store.put_blob(b'"x"', HERE)
    await age(store, 500)
    limit = await before(store)
    statements: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        statements.append((statement, parameters))

    def work(connection: Connection) -> list[str]:
        event.listen(connection, "before_cursor_execute", note)
        old_turns.newest_turns(connection, 5)
        for table in (QUESTIONS, TICKETS):
            old_turns.old_turns(connection, table, limit, (0, ""))
        old_turns.count_turn(connection, TURN)
        remove_turn(connection, TURN, limit)
        remove_uses(connection, limit, dry_run=False)
        remove_grants(connection, limit, dry_run=False)
        old_turns.old_sessions(connection, limit, (0, ""))
        old_turns.has_questions(connection, HERE)
        hashes = old_turns.old_blobs(connection, HERE, limit, "")
        old_turns.count_blobs(connection, HERE, hashes, limit)
        remove_blobs(connection, HERE, hashes, limit)
        event.remove(connection, "before_cursor_execute", note)
        how = "EXPLAIN " if store.dialect == "postgresql" else "EXPLAIN QUERY PLAN "
        if store.dialect == "postgresql":
            # PostgreSQL scans a table of one row regardless of indexes, unless scans are made expensive.
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        found = []
        for statement, parameters in statements:
            if statement.startswith(("SELECT", "DELETE", "UPDATE")) and "FROM" in statement:
                plan = connection.exec_driver_sql(how + statement, parameters).all()
                found += [f"{line[-1]} <- {statement}" for line in plan]
        return found

    plans = await store.run(work)
    assert len(plans) > 30
    whole = [line for line in plans if "Seq Scan" in line or (line.startswith("SCAN") and "INDEX" not in line)]
    assert [line for line in whole if "SCAN CONSTANT" not in line and "SUBQUERY" not in line] == []
    # Only the tool declaration remains.
    assert (await count(store, BLOBS), await count(store, BLOB_SESSIONS), await count(store, TICKETS)) == (1, 1, 0)
