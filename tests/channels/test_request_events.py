import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import insert, update
from turn_fixtures import GUEST, Ledger, catalog_of, pay_tool

from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals import request_state
from signoff.approvals.notifications import RequestEvent
from signoff.approvals.request_thread import hash_thread
from signoff.channels.outbound.request_events import RequestEvents
from signoff.contracts.approval import ApprovalRequest, Question, RequestMessage
from signoff.contracts.call import CallContext
from signoff.contracts.decision import Decision, Verdict
from signoff.contracts.errors import StoreUnavailable
from signoff.keys.signatures import Verifier
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.manifest.channel_sections import DeclaredChannel
from signoff.store.questions.questions import Questions
from signoff.store.questions.request_messages import add_message
from signoff.store.request_reader import LoadedRequest, RequestReader
from signoff.store.store import Store
from signoff.store.tables import QUESTIONS, REQUEST_MESSAGES
from signoff.testing.questions import answer, ask

ROUTED = ("chat",)


class Asking:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.questions = Questions(store)

    async def ask(self, number: int = 1, amount: int = 20, **policy: Any) -> ApprovalRequest:
        given = {"notify": ROUTED, "approvers": ("role:approvers",)} | policy
        tool = pay_tool(Ledger(), ApprovalPolicy(**given))
        chat = DeclaredChannel("chat", "signoff.testing.recording_channel")
        catalog = catalog_of([tool], channels=[chat])
        deps = WorkerDeps(catalog=catalog, store=self.store, people=catalog.people, drivers={}, mark_key=b"k" * 32)
        ctx = CallContext(actor="desk", session="s", turn="t", tenant="main", user=GUEST)
        return await ask(deps, ctx, tool, {"amount": amount, "to": "Ana"}, call=f"c{number}.1")

    async def answer(self, request: ApprovalRequest, verdict: Verdict = "approved", **fields: Any) -> None:
        given = Decision(
            approval_id=request.id,
            revision=request.revision,
            question_hash=request.question_hash,
            verdict=verdict,
            subject="approver",
            **({"delivery_id": request.id} | fields),
        )
        await answer(self.store, given)

    def events(self, requests: RequestReader | None = None) -> RequestEvents:
        reader = requests or RequestReader(self.store, Verifier, development=True)
        return RequestEvents(self.questions, reader, lambda: datetime.now(UTC))


@pytest.fixture
def asking(store: Store) -> Asking:
    return Asking(store)


def summary(events: list[RequestEvent]) -> list[tuple[str, str, int, str]]:
    return [(each.kind, each.request.call, each.request.revision, each.request.state) for each in events]


async def following(events: RequestEvents, many: int) -> list[RequestEvent]:
    found: list[RequestEvent] = []
    async with asyncio.timeout(60):
        while len(found) < many:
            found += await events.poll()
            await asyncio.sleep(0.02)
    return found


async def test_new_request_is_reported_once_with_its_card(asking: Asking) -> None:
    request, events = await asking.ask(), asking.events()
    [opened] = await events.poll()
    assert (opened.kind, opened.request.id, opened.request.code) == ("opened", request.id, request.code)
    assert (opened.request.card.effect, opened.request.notify) == ("Pay 20 to Ana", ROUTED)
    assert opened.request.question_hash == request.question_hash
    assert [await events.poll() for _ in range(3)] == [[], [], []]


async def test_request_without_a_channel_is_not_reported(asking: Asking) -> None:
    request, events = await asking.ask(notify=()), asking.events()
    assert await events.poll() == []
    await asking.answer(request)
    assert await events.poll() == []


async def test_time_reminds_escalates_and_closes(asking: Asking) -> None:
    times = {"timeout": 0.9, "remind_after": 0.2, "escalate_after": 0.5, "escalate_to": ("role:chief",)}
    await asking.ask(**times)
    found = await following(asking.events(), 4)
    assert summary(found) == [
        ("opened", "c1.1", 1, "pending"),
        ("reminded", "c1.1", 1, "pending"),
        ("escalated", "c1.1", 1, "pending"),
        ("closed", "c1.1", 1, "timed_out"),
    ]
    assert found[2].request.approvers == ("role:approvers", "role:chief")


async def test_new_revision_closes_the_old_one_and_opens(asking: Asking) -> None:
    first, events = await asking.ask(), asking.events()
    await events.poll()
    second = await asking.ask(amount=30)
    closed, opened = await events.poll()
    assert summary([closed, opened]) == [("closed", "c1.1", 1, "cancelled"), ("opened", "c1.1", 2, "pending")]
    assert (closed.request.question_hash, closed.request.reason) == (
        first.question_hash,
        "A newer revision of this request is waiting.",
    )
    assert (opened.request.question_hash, opened.request.card.effect) == (second.question_hash, "Pay 30 to Ana")
    assert await events.poll() == []


@pytest.mark.parametrize("verdict", ["approved", "denied"])
async def test_decision_closes_the_request(asking: Asking, verdict: Verdict) -> None:
    request, events = await asking.ask(), asking.events()
    await events.poll()
    await asking.answer(request, verdict)
    [closed] = await events.poll()
    assert summary([closed]) == [("closed", "c1.1", 1, verdict)]
    assert closed.request.decided_by == "approver"
    assert await events.poll() == []


async def test_vote_below_the_quorum_is_not_reported(asking: Asking) -> None:
    request, events = await asking.ask(quorum=2), asking.events()
    await events.poll()
    await asking.answer(request)
    assert await events.poll() == []


async def test_end_of_a_turn_closes_its_request(asking: Asking) -> None:
    request, events = await asking.ask(), asking.events()
    await events.poll()
    await asking.questions.end(request.id, 1, "cancelled")
    assert summary(await events.poll()) == [("closed", "c1.1", 1, "cancelled")]


async def test_first_poll_reports_open_requests_only(asking: Asking) -> None:
    over = await asking.ask(1)
    await asking.answer(over)
    ended = await asking.ask(2)
    await asking.questions.end(ended.id, 1, "cancelled")
    for number in (3, 4):
        await asking.ask(number)
    found = sorted(summary(await asking.events().poll()))
    assert found == [("opened", "c3.1", 1, "pending"), ("opened", "c4.1", 1, "pending")]


async def test_second_reader_gets_the_same_events(asking: Asking) -> None:
    first, second = asking.events(), asking.events()
    request = await asking.ask()
    seen = [summary(await each.poll()) for each in (first, second)]
    await asking.answer(request)
    seen += [summary(await each.poll()) for each in (first, second)]
    assert seen == [[("opened", "c1.1", 1, "pending")]] * 2 + [[("closed", "c1.1", 1, "approved")]] * 2


async def test_unverified_row_is_not_reported(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    false, true = await asking.ask(1), await asking.ask(2)
    body = false.model_dump_json(include=set(Question.model_fields))
    change = (
        update(QUESTIONS).where(QUESTIONS.c.approval == false.id).values(body=body.replace('"amount":20', '"amount":9'))
    )
    await asking.store.run(lambda connection: connection.execute(change).close())
    events = asking.events()
    assert summary(await events.poll()) == [("opened", true.call, 1, "pending")]
    assert f"the request {false.id!r} is not shown" in caplog.text


class Broken(RequestReader):
    """Fails for one request, as for a row that no check expects."""

    broken = ""

    async def load(self, approval: str, revision: int | None = None) -> LoadedRequest:
        if approval == self.broken:
            raise KeyError("secrets")
        return await super().load(approval, revision)


async def test_request_that_cannot_be_drawn_does_not_stop_the_others(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Broken(asking.store, Verifier, development=True)
    broken, sound = await asking.ask(1), await asking.ask(2)
    reader.broken, events = broken.id, asking.events(reader)
    assert summary(await events.poll()) == [("opened", sound.call, 1, "pending")]
    assert await events.ending(broken) is None
    assert f"{broken.id} cannot be read" in caplog.text
    later = await asking.ask(3)
    assert summary(await events.poll()) == [("opened", later.call, 1, "pending")]


async def test_unreadable_row_does_not_stop_the_other_requests(asking: Asking) -> None:
    broken, sound = await asking.ask(1), await asking.ask(2)
    change = update(QUESTIONS).where(QUESTIONS.c.approval == broken.id).values(body="x")
    await asking.store.run(lambda connection: connection.execute(change).close())
    events = asking.events()
    assert summary(await events.poll()) == [("opened", sound.call, 1, "pending")]


async def test_events_of_a_failed_poll_are_reported_later(asking: Asking) -> None:
    """Before the fix, each request was remembered as soon as it was read, and two of three were never reported."""

    class Failing(RequestReader):
        away: frozenset[str] = frozenset()

        async def load(self, approval: str, revision: int | None = None) -> LoadedRequest:
            if approval in self.away:
                raise StoreUnavailable("the store did not answer")
            return await super().load(approval, revision)

    reader = Failing(asking.store, Verifier, development=True)
    events = asking.events(reader)
    first = await asking.ask(1)
    await events.poll()
    await asking.answer(first)
    others = [await asking.ask(number) for number in (2, 3)]
    for away in (others[0].id, others[1].id, first.id):
        reader.away = frozenset({away})
        with pytest.raises(StoreUnavailable):
            await events.poll()
    reader.away = frozenset()
    assert sorted(summary(await events.poll())) == [
        ("closed", "c1.1", 1, "approved"),
        ("opened", "c2.1", 1, "pending"),
        ("opened", "c3.1", 1, "pending"),
    ]


async def test_late_planner_learns_the_end_of_a_request(asking: Asking) -> None:
    """A card's request may already be over or renewed when the card is planned."""
    request, events = await asking.ask(), asking.events()
    assert await events.ending(request) is None
    await asking.ask(amount=30)
    again = await events.ending(request)
    assert again is not None
    assert (again.revision, again.state) == (1, "cancelled")


async def test_card_stays_open_during_the_undo_period(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    events, request = asking.events(), await asking.ask()
    assert [(each.kind, each.request.id) for each in await events.poll()] == [("opened", request.id)]
    monkeypatch.setattr(request_state, "UNDO_SECONDS", 60.0)
    await asking.answer(request, "denied", channel="inbox", delivery_id="a/undo/b")
    assert await events.poll() == []
    assert await events.ending(request) is None
    monkeypatch.setattr(request_state, "UNDO_SECONDS", 0.001)
    ended = await events.ending(request)
    assert ended is not None
    assert [(each.kind, each.request.state) for each in await events.poll()] == [("closed", "denied")]
    assert ended.state == "denied"


async def test_agents_answer_is_reported_with_the_thread_and_a_question_alone_is_not(asking: Asking) -> None:
    request, events = await asking.ask(), asking.events()
    await events.poll()

    async def add(message: RequestMessage) -> None:
        await asking.questions.run_locked(
            request.id, lambda connection, rows: add_message(connection, request.id, message)
        )

    await add(RequestMessage(number=0, by="approver", text="Why?", revision=1))
    assert await events.poll() == []
    await add(RequestMessage(number=0, by="agent", text="It is due.", revision=1))
    [told] = await events.poll()
    assert (told.kind, told.request.state) == ("told", "pending")
    assert [each.text for each in told.request.messages] == ["Why?", "It is due."]
    assert told.request.thread == hash_thread(told.request.messages)
    assert await events.poll() == []


async def test_forged_message_about_one_request_holds_up_no_other(asking: Asking) -> None:
    forged, events = await asking.ask(), asking.events()
    await events.poll()
    row = {"approval": forged.id, "number": 1, "author": "agent", "body": "{}"}
    await asking.store.run(lambda connection: connection.execute(insert(REQUEST_MESSAGES), row).close())
    await asking.ask(2)
    assert summary(await events.poll()) == [("opened", "c2.1", 1, "pending")]
    assert await events.ending(forged) is None
