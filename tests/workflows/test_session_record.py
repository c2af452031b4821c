from datetime import UTC, datetime
from typing import Any

from session_rig import Talk, model, talk
from tables import table
from turn_fixtures import ApprovalPolicy, Ledger, RunningTurns, TurnRig, catalog_of, pay_tool

from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.audit.timeline import timeline
from signoff.contracts import names
from signoff.contracts.limits import SESSION_EVENTS_KEPT
from signoff.contracts.person import Principal
from signoff.contracts.session_messages import SessionReceipt
from signoff.contracts.turn import SessionEvent
from signoff.workflows.session_link import SessionLog

AUTO = ApprovalPolicy(auto_approve_if="args.amount < 50.0")
NOW = datetime(2026, 3, 1, tzinfo=UTC)
EVE = (Principal(user="eve", name="Eve"),)


async def records_of(session: Talk, turn: str) -> list[Record]:
    key = session.turn_key(turn)
    return [
        each for each in await AuditLog(session.turns.store).stream(key.workflow_id) if "session_event" in each.facts
    ]


def summary(records: list[Record]) -> list[tuple[str, ...]]:
    return [
        (
            str(record.facts.get("claimed_subject", record.subject)),
            *(str(record.facts.get(name, "")) for name in ("session_event", "id", "status", "code")),
        )
        for record in records
    ]


def paying() -> Any:
    return catalog_of([pay_tool(Ledger(), AUTO)])


async def begun(turns: RunningTurns) -> Talk:
    session = talk(turns)
    await session.say("hello", "a")
    await session.answer("a")
    return session


async def test_refusals_of_a_session_are_recorded_by_its_next_turn(turn_rig: TurnRig) -> None:
    async with turn_rig.running(paying(), model()) as turns:
        session = await begun(turns)
        await session.say("mine now", "b", principals=EVE)
        await session.say("hello", "a")
        await session.say("otherwise", "a")
        await session.add("nobody", "late", "i1")
        await session.handle.signal(names.SAY, {"id": "x y", "principals": [{"user": "mallory"}]})
        await session.handle.signal(names.TURN_ENDED, {"turn": "never", "state": "complete"})
        await session.until(lambda view: view.refusals == 5)
        await session.say("pay", "c")
        await session.answer("c")
        records = await records_of(session, "c")
        assert await records_of(session, "a") == []
    assert summary(records) == [
        ("eve", "message", "b", "refused", "not_allowed"),
        ("guest", "message", "a", "refused", "conflict"),
        ("", "result", "i1", "refused", "unknown"),
        ("mallory", "message", "x y", "refused", "malformed"),
        ("", "report", "never", "refused", "unknown"),
    ]
    assert {record.kind for record in records} == {"attempt"}
    assert {record.facts["session"] for record in records} == {session.key.session}
    assert all(len(record.facts["body"]) == 64 for record in records)
    assert [each.what for each in timeline(records)][:3] == [
        "the turn reports: sent the session a message b: refused (not allowed)",
        "the turn reports: sent the session a message a: refused (conflict)",
        "the turn reports: sent the session a result i1: refused (unknown)",
    ]


async def test_late_result_is_recorded_once(turn_rig: TurnRig) -> None:
    async with turn_rig.running(paying(), model()) as turns:
        session = await begun(turns)
        for _ in range(2):
            await session.add("a", "later still", "i1")
        await session.answer("a-2")
        await session.say("pay", "c")
        await session.answer("c")
        found = summary(await records_of(session, "a-2")) + summary(await records_of(session, "c"))
    assert found == [("", "result", "i1", "accepted", "")]


async def test_terminated_turn_is_recorded_by_the_next_turn(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], model()) as turns:
        session = talk(turns)
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        await turn_rig.client.get_workflow_handle(session.turn_key("a").workflow_id).terminate()
        await session.turn("a", "error")
        await session.say("hello", "b")
        await session.answer("b")
        records = await records_of(session, "b")
    assert summary(records) == [("", "turn", "a", "refused", "stopped")]
    assert [each.what for each in timeline(records)] == [
        "the turn reports: turn a of the session no longer exists: stopped"
    ]


async def test_turn_with_a_taken_id_passes_its_session_events_on(turn_rig: TurnRig) -> None:
    async with turn_rig.running(paying(), model()) as turns:
        session = await begun(turns)
        await turns.start("hello", session_id=session.key.session, turn_id="b")
        await session.say("mine now", "x", principals=EVE)
        await session.say("hello", "b")
        await session.until(lambda view: view.refusals == 2)
        await session.say("pay", "c")
        await session.answer("c")
        found = summary(await records_of(session, "c"))
    assert found == [("eve", "message", "x", "refused", "not_allowed"), ("", "turn", "b", "refused", "conflict")]


async def test_unrecorded_session_events_carry_over_to_the_next_run(turn_rig: TurnRig) -> None:
    async with turn_rig.running(paying(), model()) as turns:
        session = talk(turns)
        await session.begin(events_per_run=20)
        await session.say("hello", "a")
        await session.answer("a")
        runs = await session.runs()
        count = 0
        while await session.runs() == runs:
            await session.say(f"mine {count}", f"x{count}", principals=EVE)
            count += 1
        await session.say("pay", "c")
        await session.answer("c")
        found = summary(await records_of(session, "c"))
    assert found == [("eve", "message", f"x{n}", "refused", "not_allowed") for n in range(count)]


REFUSED = SessionReceipt(status="refused", code="malformed")


@table(
    "envelopes",
    (),
    (1,),
    ({}, {}),
    ({"id": 7, "principals": "eve"},),
    ({"principals": []},),
    ({"principals": ["eve"]},),
    ({"id": "\ud800", "principals": [{"user": "\ud800"}]},),
    ({"id": "x" * 10_000, "principals": [{"user": ["eve"]}]},),
)
def test_any_envelope_can_be_recorded(envelopes: tuple[Any, ...]) -> None:
    log = SessionLog(())
    assert log.record_reply("message", envelopes, REFUSED, NOW) == REFUSED
    (event,) = log.take()
    assert SessionEvent.model_validate_json(event.model_dump_json()) == event
    assert len(event.model_dump_json()) < 700


def test_flood_of_session_events_is_counted() -> None:
    log = SessionLog(())
    for number in range(SESSION_EVENTS_KEPT + 10):
        log.record_reply("message", ({"id": str(number)},), REFUSED, NOW)
    kept = log.take()
    assert (len(kept), kept[-1].more, sum(each.more for each in kept), log.kept) == (SESSION_EVENTS_KEPT, 10, 10, ())
    log.give_back(kept)
    assert log.kept == kept


def test_accepted_message_is_not_recorded_by_the_session() -> None:
    log = SessionLog(())
    for what, code in (("message", ""), ("message", "duplicate"), ("result", "duplicate")):
        log.record_reply(what, ({},), SessionReceipt(status="accepted", code=code), NOW)
    assert log.kept == ()
