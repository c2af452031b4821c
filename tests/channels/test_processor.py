import asyncio
import dataclasses
import itertools
import random
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from signoff.approvals.audit_events import delivery_entry
from signoff.audit.log import AuditLog
from signoff.channels.answer_text.answer_parser import AnswerSender, parse_answer
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.envelopes import ChannelReply, InboundRequest
from signoff.channels.inbound import processor
from signoff.channels.inbound.processor import AT_ONCE, InboundProcessor, backoff
from signoff.channels.inbound.receiver import InboundReceiver
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, StoreUnavailable
from signoff.contracts.ids import new_code, show_code
from signoff.contracts.limits import REFUSALS_A_MINUTE
from signoff.contracts.person import Person, Principal
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.people.directory import FixedDirectory
from signoff.store.delivery_queue import DeliveryKind, DeliveryQueue, NewDelivery, room_person
from signoff.store.inbound_queue import InboundQueue
from signoff.store.store import Store
from signoff.store.tables import ARRIVALS
from signoff.testing import a_request
from signoff.testing.builders import a_person
from signoff.testing.recording_channel import RecordingChannel, recording_channel
from signoff.testing.rig import RecordingDecisions

BO = a_person("bo", name="Bo", identities={"recording": ("bo-1", "bo-2")})
CY = a_person("cy", name="Cy", locale="de", identities={"recording": ("cy-1",)})
ANA = a_person("ana", name="Ana", identities={"recording": ("ana-1",)})
GONE = a_person("gone", active=False, identities={"recording": ("gone-1",)})
FAR = a_person("far", tenant="other", identities={"recording": ("far-1", "bo-1")})

_NUMBERS = itertools.count(100, 10)


class Rig:
    def __init__(self, store: Store, *people: Person) -> None:
        self.ahead = timedelta()
        self.store = store
        self.directory = FixedDirectory(people or (BO, CY, ANA, GONE))
        self.decisions = RecordingDecisions(self.directory, self.now)
        self.channel: RecordingChannel = recording_channel("chat")
        self.cards = DeliveryQueue(store)
        self.arrivals = InboundQueue(store)
        self.processor = self.another()
        self.receiver = InboundReceiver(store, self._channels(), AuditLog(store).append, self.now, self.processor.wake)
        self._said = 0

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def another(self, hold: float = 0.0) -> InboundProcessor:
        log = AuditLog(self.store)
        given = (self.store, self._channels(), self.directory, self.decisions, log.append, self.now)
        return InboundProcessor(*given, hold=hold)

    def _channels(self) -> dict[str, RecordingChannel]:
        return {"chat": self.channel}

    def opened(self, number: int = 1, **fields: Any) -> ApprovalRequest:
        name = f"main.s.t.c{number}.1"
        # A code such as the store issues, the same for the same number.
        code = new_code(random.Random(number).randrange)
        given = {"id": name, "call": f"c{number}.1", "code": code, "question_hash": f"d{number}"}
        return self.decisions.open(
            a_request(**given | {"approvers": ("role:approvers",), "requester": Principal(user="ana")} | fields)
        )

    async def ask(self, number: int = 1, *people: Person, **fields: Any) -> ApprovalRequest:
        request = self.opened(number, **fields)
        for person in people or (BO,):
            await self.tell(request, person)
        return request

    async def tell(
        self, request: ApprovalRequest, person: Person, vendor: str = "", kind: DeliveryKind = "ask", at: int = 0
    ) -> str:
        address = person.identities["recording"][at]
        await self.cards.plan([NewDelivery(request=request, person=person.id, channel="chat", address=address)])
        rows = await self.cards.of_request(request.id, request.revision)
        token = next(row.token for row in rows if row.person == person.id)
        await self.cards.record_sent(token, vendor or f"v-{token}", {}, kind="digest" if kind == "digest" else "ask")
        return token

    async def hear(self, identity: str = "bo-1", **fields: Any) -> ChannelReply | None:
        self._said += 1
        before = len(self.channel.replies)
        given = {"key": f"k{self._said}", "identity": identity} | fields
        await self.receiver.take("chat", self.channel.raw(**given))
        await self.processor.step()
        assert len(self.channel.replies) <= before + 1
        return self.channel.replies[-1][1] if len(self.channel.replies) > before else None

    async def heard(self, identity: str = "bo-1", **fields: Any) -> ChannelReply:
        reply = await self.hear(identity, **fields)
        assert reply is not None
        return reply

    async def receipt(self, identity: str = "bo-1", **fields: Any) -> Receipt:
        receipt = (await self.heard(identity, **fields)).receipt
        assert receipt is not None
        return receipt

    async def token(self, request: ApprovalRequest) -> str:
        return (await self.cards.of_request(request.id))[0].token

    async def go_on(self) -> None:
        await (await self.hurried()).processor.step()

    async def result(self, key: str = "k1") -> dict[str, Any]:
        row = await self.arrivals.read("chat", "action", key)
        assert row is not None
        return {} if row.result is None else {"state": row.state, **row.result}

    async def recorded(self, name: str) -> list[dict[str, Any]]:
        return [r.facts for r in await AuditLog(self.store).stream("admin/main") if r.facts.get("act") == name]

    async def hurried(self) -> Self:
        due = update(ARRIVALS).values(due_at=0, claimed_until=0)
        await self.store.run(lambda connection: connection.execute(due).rowcount)
        return self


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig(store)


async def test_button_decides_its_cards_request(rig: Rig) -> None:
    request = await rig.ask()
    token = await rig.token(request)
    reply = await rig.heard(token=token, verdict="approved", reason="fine", where={"to": "bo-1"})
    assert reply.receipt is not None
    assert (reply.receipt.status, reply.receipt.state) == ("accepted", "approved")
    assert reply.text.startswith(show_code(request.code))
    draft, author = rig.decisions.answers[0]
    assert (draft.revision, draft.question_hash) == (1, "d1")
    assert (author.person.id, author.channel, author.assurance, draft.reason) == (
        "bo",
        "recording",
        "channel",
        "fine",
    )
    assert rig.channel.replies[0][0] == {"to": "bo-1"}
    found = {"what": "decided", "person": "bo", "approval": request.id, "status": "accepted", "answered": True}
    assert await rig.result() == {"state": "done", **found}


@pytest.mark.parametrize("about", [{"vendor_ids": ["of something else"]}, {"token": "a" * 26}])
async def test_reply_to_an_unknown_message_decides_nothing(rig: Rig, about: dict[str, Any]) -> None:
    request = await rig.ask()
    reply = await rig.heard(text="yes", **about)
    assert reply.receipt is None
    assert rig.decisions.answers == []
    # A missing card is not mistaken for another one.
    assert list(reply.choices) == ([] if "token" in about else [show_code(request.code)])


async def test_code_that_contradicts_the_card_decides_nothing(rig: Rig) -> None:
    first, second = await rig.ask(1), await rig.ask(2)
    token = await rig.token(first)
    reply = await rig.heard(text=f"approve {second.code}", token=token)
    assert set(reply.choices) == {show_code(first.code), show_code(second.code)}
    await rig.hear(text="yes A1A-2BB", token=token)
    assert rig.decisions.answers == []


async def test_digest_is_answered_by_code_only(rig: Rig) -> None:
    requests = [rig.opened(number) for number in (1, 2, 3)]
    tokens = [await rig.tell(each, BO, vendor="list", kind="digest") for each in requests]
    await rig.hear(text=f"deny {requests[0].code} no", token=tokens[0])
    over = rig.decisions.request(requests[0].id)
    assert over.state == "denied"
    await rig.cards.end(over.id, 1, over)
    reply = await rig.heard(text="yes", token=tokens[0])
    assert set(reply.choices) == {show_code(each.code) for each in requests[1:]}
    late = await rig.heard(text=f"approve {requests[0].code}", token=tokens[0])
    assert late.receipt is not None
    assert late.receipt.code == "already_decided"
    assert len(rig.decisions.answers) == 2


async def test_bare_word_between_two_revisions_decides_nothing(rig: Rig) -> None:
    request = await rig.ask()
    again = rig.decisions.open(replace(request, revision=2, question_hash="changed"))
    await rig.tell(again, BO)
    reply = await rig.heard(text="yes")
    assert reply.choices == (show_code(request.code),)
    assert rig.decisions.answers == []
    await rig.hear(text=f"yes {request.code}")
    assert rig.decisions.answers[0][0].revision == 2
    assert rig.decisions.request(request.id).state == "approved"


async def test_approval_by_code_without_a_sent_card_gets_the_link(rig: Rig) -> None:
    """The code may come from a room, which shows no arguments, or from a colleague."""
    request = rig.opened()
    room = NewDelivery(request=request, person=room_person("C1"), channel="chat", address="C1", kind="room")
    await rig.cards.plan([room])
    # A colleague has a card. The author's card is not due yet.
    await rig.tell(request, CY)
    later = datetime.now(UTC) + timedelta(hours=9)
    await rig.cards.plan([NewDelivery(request=request, person="bo", channel="chat", address="bo-1", due_at=later)])
    asked = await rig.heard(text=f"approve {request.code}")
    assert (asked.receipt, f"/requests/{request.id}" in asked.text) == (None, True)
    assert rig.decisions.answers == []
    # The reply is no card either.
    await rig.tell(request, BO, vendor="own")
    assert (await rig.receipt(text=f"approve {request.code}")).status == "accepted"


async def test_approval_by_code_after_a_list_gets_the_link(rig: Rig) -> None:
    """A list shows no arguments."""
    request = rig.opened()
    token = await rig.tell(request, BO, vendor="list", kind="digest")
    ways: tuple[dict[str, Any], ...] = ({}, {"token": token}, {"vendor_ids": ("list",)})
    for named in ways:
        asked = await rig.heard(text=f"approve {request.code}", **named)
        assert (asked.receipt, f"/requests/{request.id}" in asked.text) == (None, True)
    assert rig.decisions.answers == []


async def test_denial_by_code_without_a_card_means_the_first_revision(rig: Rig) -> None:
    first = rig.decisions.open(a_request(approvers=("role:approvers",)))
    reply = await rig.receipt(text=f"deny {first.code}")
    assert reply.status == "accepted"
    second = a_request(id="main.s.t.c2.1", code="A1B2C3", approvers=("role:approvers",), revision=2, question_hash="e")
    rig.decisions.open(second)
    stale = await rig.heard(text="deny A1B-2C3")
    assert stale.receipt is not None
    assert stale.receipt.code == "stale"


async def test_person_without_open_requests_gets_no_choices(rig: Rig) -> None:
    request = await rig.ask(1, CY)
    reply = await rig.heard(text="yes")
    assert reply.choices == ()
    assert request.code not in reply.text.replace("-", "")
    await rig.heard(text="approve Z9Z-9ZZ")
    assert rig.decisions.answers == []


async def test_requester_cannot_decide_by_another_persons_card(rig: Rig) -> None:
    request = await rig.ask(1, BO)
    token = await rig.token(request)
    reply = await rig.receipt("ana-1", token=token, verdict="approved")
    assert reply.code == "self_approval"
    assert rig.decisions.request(request.id).state == "pending"


async def test_forwarded_card_counts_for_its_responder(rig: Rig) -> None:
    for number, answer in enumerate(({"verdict": "approved"}, {"text": "ja {code}"})):
        request = await rig.ask(number, BO)
        token = await rig.token(request)
        words = {name: text.format(code=request.code) for name, text in answer.items()}
        await rig.hear("cy-1", token=token, **words)
        assert rig.decisions.request(request.id).decided_by == "cy", answer


async def test_bare_word_on_another_persons_card_is_asked_back(rig: Rig) -> None:
    request = await rig.ask(1, BO)
    card = (await rig.cards.of_request(request.id))[0]
    for named in ({"token": card.token}, {"vendor_ids": (card.vendor_id,)}):
        reply = await rig.heard("cy-1", text="ja", **named)
        assert (reply.choices, "Welche meinen Sie" in reply.text) == ((show_code(request.code),), True)
    assert rig.decisions.answers == []


@pytest.mark.parametrize("identity", ["nobody", "gone-1", "", "far-1"])
async def test_stranger_gets_one_reply_a_day_and_nothing_else(rig: Rig, identity: str) -> None:
    request = await rig.ask()
    token = await rig.token(request)
    first = await rig.heard(identity, token=token, verdict="approved")
    assert request.code not in first.text.replace("-", "")
    assert (first.receipt, first.choices) == (None, ())
    assert await rig.hear(identity, text="yes") is None
    assert rig.decisions.answers == []
    assert [facts.get("identity", "") for facts in await rig.recorded("stranger")] == [identity]
    rig.ahead = timedelta(days=1)
    assert await rig.hear(identity, text="yes") is not None


async def test_identity_in_two_tenants_is_resolved_by_the_card_only(store: Store) -> None:
    rig = Rig(store, BO, FAR)
    request = await rig.ask()
    assert (await rig.hear("bo-1", text="yes")) is not None
    assert rig.decisions.answers == []
    assert await rig.recorded("stranger")
    token = await rig.token(request)
    await rig.hear("bo-1", text="yes", token=token)
    assert rig.decisions.request(request.id).decided_by == "bo"


async def test_second_identity_of_a_person_may_answer(rig: Rig) -> None:
    request = await rig.ask()
    await rig.hear("bo-2", text="No\n\ntoo expensive")
    settled = rig.decisions.request(request.id)
    assert (settled.state, settled.reason, settled.decided_by) == ("denied", "too expensive", "bo")


async def test_forged_and_malformed_messages_change_nothing(rig: Rig) -> None:
    raw = rig.channel.raw(key="k", identity="bo-1", text="yes")
    await rig.ask()
    for _ in range(REFUSALS_A_MINUTE + 5):
        with pytest.raises(Forged):
            await rig.receiver.take("chat", dataclasses.replace(raw, headers={"x-recording": "é"}))
    assert len(await rig.recorded("forged message")) == REFUSALS_A_MINUTE
    with pytest.raises(Malformed):
        await rig.receiver.take("chat", rig.channel.raw(key="k"))
    with pytest.raises(NotFound):
        await rig.receiver.take("nothing", raw)
    assert await rig.processor.step() == 0


async def test_repeated_message_counts_once(rig: Rig) -> None:
    request = await rig.ask()
    token = await rig.token(request)
    await rig.receiver.take("chat", rig.channel.raw(key="same", identity="bo-1", token=token, verdict="approved"))
    await rig.hear(key="same", token=token, verdict="approved")
    assert await rig.hear(key="same", token=token, verdict="denied") is None
    assert len(rig.decisions.answers) == 1
    assert rig.decisions.request(request.id).state == "approved"


@pytest.mark.parametrize("fields", [{"confirm": "type"}, {"kind": "in_doubt"}])
async def test_request_that_needs_more_than_a_word_links_to_the_inbox(rig: Rig, fields: dict[str, Any]) -> None:
    request = await rig.ask(**fields)
    reply = await rig.heard(text="yes")
    assert f"/requests/{request.id}" in reply.text
    assert rig.decisions.answers == []


async def test_each_reply_has_its_own_id_and_keeps_it_on_repetition(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await rig.hear(text="hello"), await rig.hear(text="how are you")
    assert first is not None
    assert second is not None
    assert first.id != second.id

    async def lost(*args: Any, **facts: Any) -> None:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr(InboundQueue, "finish", lost)
        third = await rig.hear(text="good morning")
    await rig.go_on()
    assert third is not None
    assert [reply.id for _, reply in rig.channel.replies] == [first.id, second.id, third.id, third.id]


async def test_answer_waits_for_a_worker_and_counts_once(rig: Rig) -> None:
    request = await rig.ask()
    rig.decisions.worker = False
    kept = await rig.receipt(text="yes")
    assert kept.status == "pending"
    await rig.go_on()
    assert len(rig.channel.replies) == 1
    assert await rig.result() == {}
    rig.decisions.worker = True
    await rig.go_on()
    assert rig.decisions.request(request.id).state == "approved"
    assert [reply.receipt.status for _, reply in rig.channel.replies if reply.receipt] == ["pending", "accepted"]
    assert len({reply.id for _, reply in rig.channel.replies}) == 2
    assert len(rig.decisions.answers) == 1
    assert (await rig.result())["status"] == "accepted"


async def test_failed_reply_does_not_undo_the_decision(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    request = await rig.ask()
    tries = 0

    async def away(where: Any, reply: ChannelReply) -> None:
        nonlocal tries
        tries += 1
        raise NotDelivered("away", code="503", again=True)

    monkeypatch.setattr("signoff.channels.inbound.processor.REPLY_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(rig.channel, "answer", away)
    await rig.hear(text="yes")
    assert tries == 3
    assert rig.decisions.request(request.id).state == "approved"
    assert (await rig.result())["answered"] is False


async def test_two_processors_share_the_work(rig: Rig) -> None:
    requests = [await rig.ask(number) for number in range(1, 9)]
    for number, request in enumerate(requests):
        raw = rig.channel.raw(key=f"k{number}", identity="bo-1", text=f"yes {request.code}")
        await rig.receiver.take("chat", raw)
    await asyncio.gather(rig.processor.step(), rig.another().step())
    assert len(rig.decisions.answers) == len(requests)
    assert {rig.decisions.request(each.id).state for each in requests} == {"approved"}


async def test_message_claimed_by_a_killed_processor_is_processed_after_the_claim_ends(rig: Rig) -> None:
    request = await rig.ask()
    await rig.receiver.take("chat", rig.channel.raw(key="k1", identity="bo-1", text="yes"))
    assert len(await rig.arrivals.claim(10)) == 1
    assert await rig.another().step() == 0
    await (await rig.hurried()).another().step()
    assert rig.decisions.request(request.id).state == "approved"
    assert len(rig.channel.replies) == 1


async def test_decided_but_unrecorded_answer_counts_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    request = await rig.ask(1, BO, quorum=2)

    async def away(*args: Any, **more: Any) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(InboundQueue, "finish", away)
        await rig.hear(text="yes")
    await rig.go_on()
    receipts = [reply.receipt for _, reply in rig.channel.replies]
    assert [(each.status, each.code, each.votes) for each in receipts if each] == [
        ("counted", "", 1),
        ("counted", "duplicate", 1),
    ]
    assert len(rig.decisions.request(request.id).votes) == 1
    assert (await rig.result())["code"] == "duplicate"


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_any_message_decides_at_most_its_own_request(rig: Rig, data: st.DataObject) -> None:
    first = next(_NUMBERS)
    numbers = range(first, first + data.draw(st.integers(1, 3)))
    requests = [await rig.ask(number, BO, approvers=("user:bo",)) for number in numbers]
    rows = [(await rig.cards.of_request(request.id))[0] for request in requests]
    codes = [show_code(request.code) for request in requests]
    pieces = st.sampled_from(["yes", "no", "approve", "deny", "but", "?", "\n", "K7Q-2FM", *codes])
    text = " ".join(data.draw(st.lists(pieces, max_size=4)))
    about = data.draw(st.sampled_from([{}, *({"token": row.token} for row in rows)]))
    before = len(rig.decisions.answers)
    reply = await rig.hear(key=f"{numbers}", text=text, **about)
    assert reply is not None or "unanswered" in await rig.result(f"{numbers}")
    decided = rig.decisions.answers[before:]
    assert len(decided) <= 1
    event(f"decided {len(decided)}")
    hashes = {request.id: request.question_hash for request in requests}
    for draft, _ in decided:
        answer = parse_answer(
            text, AnswerSender("en", effects={request.code: request.card.effect for request in requests})
        )
        assert answer.verdict is not None
        assert (draft.revision, draft.question_hash) == (1, hashes[draft.approval_id])
        named = [row.approval for row in rows if about.get("token") == row.token]
        coded = [request.id for request in requests if answer.code == request.code]
        only = [request.id for request in requests] if len(requests) == 1 and not answer.code else []
        assert [draft.approval_id] == (named or coded or only)
        assert not (named and answer.code) or named == coded
    for request in requests:
        await rig.cards.end(request.id, 1, rig.decisions.request(request.id))


async def test_messages_of_one_person_are_processed_in_order(rig: Rig) -> None:
    request = await rig.ask(1, BO, quorum=2)
    for number, word in enumerate(("no", "yes")):
        await rig.receiver.take("chat", rig.channel.raw(key=f"k{number}", identity="bo-1", text=word))
        await asyncio.sleep(0.005)
    await rig.processor.step()
    assert [draft.verdict for draft, _ in rig.decisions.answers] == ["denied", "approved"]
    assert rig.decisions.request(request.id).state == "denied"


async def test_interrupted_message_is_processed_by_the_next_processor(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = await rig.ask()
    asked = asyncio.Event()
    real = rig.decisions.decide

    async def slow(*args: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(rig.decisions, "decide", slow)
    await rig.receiver.take("chat", rig.channel.raw(key="k", identity="bo-1", text="yes"))
    running = asyncio.create_task(rig.processor.run())
    await asked.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    monkeypatch.setattr(rig.decisions, "decide", real)
    assert await rig.another().step() == 1
    assert rig.decisions.request(request.id).state == "approved"


async def test_running_processor_wakes_at_once(rig: Rig) -> None:
    request = await rig.ask()
    running = asyncio.create_task(rig.processor.run())
    await rig.receiver.take("chat", rig.channel.raw(key="k", identity="bo-1", text="yes"))
    async with asyncio.timeout(60):
        while rig.decisions.request(request.id).state == "pending":
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (rig.decisions.request(request.id).state, len(rig.decisions.answers)) == ("approved", 1)


async def test_repeatedly_failing_message_is_dropped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.ask()
    healthy = await rig.ask(2, CY)

    async def broken(*args: Any) -> Any:
        if args[1].person.id == "bo":
            raise RuntimeError("a bug")
        return await RecordingDecisions.decide(rig.decisions, *args)

    monkeypatch.setattr(rig.decisions, "decide", broken)
    await rig.receiver.take("chat", rig.channel.raw(key="k1", identity="bo-1", text="yes"))
    await rig.receiver.take("chat", rig.channel.raw(key="k2", identity="cy-1", text="ja"))
    for _ in range(12):
        await rig.go_on()
    assert rig.decisions.request(healthy.id).state == "approved"
    assert await rig.result() == {"state": "dropped", "what": "failed", "why": "RuntimeError"}
    assert "could not be heard: RuntimeError" in caplog.text
    assert "RuntimeError: a bug" not in caplog.text


async def test_vendors_delivery_state_is_stored_with_the_card(rig: Rig) -> None:
    request = await rig.ask()
    token = await rig.token(request)
    states = [("s1", "read", ""), ("s2", "delivered", ""), ("s3", "unknown", "teleported")]
    entries = [{"key": key, "vendor_id": f"v-{token}", "state": state, "code": code} for key, state, code in states]
    entries.append({"key": "s4", "vendor_id": "no card of ours", "state": "read", "code": ""})
    await rig.receiver.take("chat", rig.channel.raw(statuses=entries))
    for _ in range(6):
        await rig.go_on()
    card = (await rig.cards.of_request(request.id))[0]
    assert (card.state, card.code) == ("read", "teleported")
    rows = [await rig.arrivals.read("chat", "status", key) for key in ("s1", "s2", "s3", "s4")]
    assert [row.state for row in rows if row] == ["done"] * 4


async def test_retry_pauses_grow_to_five_minutes() -> None:
    assert [backoff(number) for number in (0, 1, 2, 3)] == [1.0, 1.0, 2.0, 4.0]
    assert backoff(10_000) == 300.0


async def test_text_that_no_store_accepts_is_refused(rig: Rig) -> None:
    raw = rig.channel.raw(key="k", identity="bo-1", text="yes", where={"half": "\ud800"})
    with pytest.raises(Malformed):
        await rig.receiver.take("chat", InboundRequest(raw.body, headers=raw.headers))


async def test_pending_answer_stays_with_its_request(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await rig.ask(1)
    real = rig.decisions.decide

    async def slow(*args: Any) -> Receipt:
        await real(*args)
        return Receipt(status="pending", approval_id=first.id)

    with monkeypatch.context() as patch:
        patch.setattr(rig.decisions, "decide", slow)
        await rig.hear(text="yes")
    await rig.cards.end(first.id, 1, rig.decisions.request(first.id))
    second = await rig.ask(2)
    await rig.go_on()
    assert [rig.decisions.request(each.id).state for each in (first, second)] == ["approved", "pending"]
    assert [(draft.approval_id, draft.revision, draft.question_hash) for draft, _ in rig.decisions.answers] == [
        (first.id, 1, "d1")
    ] * 2
    assert (await rig.result())["approval"] == first.id


@pytest.mark.parametrize("words", ["yes", "approve {code}"])
async def test_answer_is_bound_to_the_revision_shown_at_its_arrival(rig: Rig, words: str) -> None:
    request = await rig.ask()
    text = words.format(code=show_code(request.code))
    await rig.receiver.take("chat", rig.channel.raw(key="k1", identity="bo-1", text=text))
    await asyncio.sleep(0.01)
    await rig.cards.end(request.id, 1, request)
    again = rig.decisions.open(replace(request, revision=2, question_hash="changed"))
    await rig.tell(again, BO)
    await rig.processor.step()
    assert [(draft.revision, draft.question_hash) for draft, _ in rig.decisions.answers] == [(1, "d1")]
    assert rig.channel.replies[-1][1].receipt is not None
    assert rig.channel.replies[-1][1].receipt.code == "stale"
    assert rig.decisions.request(request.id).state == "pending"


async def test_older_word_does_not_decide_a_newer_card(rig: Rig) -> None:
    await rig.receiver.take("chat", rig.channel.raw(key="k1", identity="bo-1", text="yes"))
    await asyncio.sleep(0.01)
    request = await rig.ask()
    await rig.processor.step()
    assert rig.decisions.request(request.id).state == "pending"
    result = await rig.result()
    assert (result["state"], result["what"], result["person"], result["answered"]) == ("done", "asked", "bo", True)


async def test_bare_word_does_not_decide_a_digests_request(rig: Rig) -> None:
    first, last = rig.opened(1), rig.opened(2)
    for each in (first, last):
        await rig.tell(each, BO, vendor="list", kind="digest")
    await rig.cards.end(first.id, 1, first)
    reply = await rig.heard(text="yes")
    assert reply.choices == (show_code(last.code),)
    assert rig.decisions.answers == []
    await rig.hear(text=f"no {show_code(last.code)}")
    assert rig.decisions.request(last.id).state == "denied"


async def test_slow_reply_delays_no_other_person(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    people = [a_person(f"p{n}", identities={"recording": (f"p{n}",)}) for n in range(AT_ONCE + 1)]
    crowd = Rig(rig.store, *people)
    request = await crowd.ask(1, people[-1], approvers=("user:p16",))

    async def hangs(where: Any, reply: ChannelReply) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(crowd.channel, "answer", hangs)
    for person in people:
        await crowd.receiver.take("chat", crowd.channel.raw(key=person.id, identity=person.id, text="yes"))
        await asyncio.sleep(0.002)
    running = asyncio.create_task(crowd.processor.run())
    # Less than the timeout of a reply.
    async with asyncio.timeout(processor.TOTAL_SECONDS * 0.8):
        while crowd.decisions.request(request.id).state == "pending":
            await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (crowd.decisions.request(request.id).decided_by, crowd.channel.replies) == (people[-1].id, [])


async def test_undecidable_answer_is_reported_once_and_dropped(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    request = await rig.ask(timeout=3600.0, expires_at=rig.now() + timedelta(hours=1))

    async def unavailable(*args: Any) -> Receipt:
        return Receipt(status="refused", code="unavailable", approval_id=request.id)

    monkeypatch.setattr(rig.decisions, "decide", unavailable)
    found = await rig.receipt(text="yes")
    assert found.status == "pending"
    for ahead in (timedelta(), timedelta(hours=1), timedelta(hours=25)):
        rig.ahead = ahead
        await rig.go_on()
        assert await rig.result() == {}
    assert len(rig.channel.replies) == 1
    rig.ahead = timedelta(hours=27)
    await rig.go_on()
    assert [reply.receipt.code for _, reply in rig.channel.replies if reply.receipt] == ["", "unavailable"]
    given_up = {"what": "given up", "person": "bo", "approval": request.id, "code": "unavailable", "answered": True}
    assert await rig.result() == {"state": "dropped", **given_up}


async def test_failed_delivery_triggers_the_next_channel_at_once(rig: Rig) -> None:
    request, over = await rig.ask(1), await rig.ask(2)
    later = rig.now() + timedelta(hours=1)
    for each in (request, over):
        waits = NewDelivery(request=each, person="bo", channel="mail", address="bo@example.com", due_at=later)
        await rig.cards.plan([waits])
    tokens = [
        next(row.token for row in await rig.cards.of_request(each.id) if row.channel == "chat")
        for each in (request, over)
    ]
    await rig.cards.end(over.id, 1, over)
    entries = [
        {"key": token, "vendor_id": f"v-{token}", "state": "failed", "code": "131026", "message": "nobody"}
        for token in tokens
    ]
    await rig.receiver.take("chat", rig.channel.raw(statuses=entries))
    await rig.processor.step()
    mail = next(row for row in await rig.cards.of_request(request.id) if row.channel == "mail")
    assert mail.due_at < rig.now() + timedelta(minutes=1)
    lines = [
        line.facts
        for line in await AuditLog(rig.store).stream(delivery_entry(request, "", "", later, {}).stream)
        if line.facts.get("event")
    ]
    assert [(each["event"], each["person"], each["channel"], each["code"]) for each in lines] == [
        ("failed", "bo", "chat", "131026")
    ]


@pytest.mark.parametrize("fields", [{}, {"confirm": "type"}])
async def test_person_without_permission_learns_nothing_from_a_cards_token(rig: Rig, fields: dict[str, Any]) -> None:
    no = Person(id="no", identities={"recording": ("no-1",)})
    place = Rig(rig.store, BO, no)
    request = await place.ask(1, BO, **fields)
    other = await place.ask(2, BO)
    tokens = {row.approval: row.token for each in (request, other) for row in await place.cards.of_request(each.id)}
    secret = (show_code(request.code), show_code(other.code), request.card.effect, "http")
    for about in ({"token": tokens[request.id]}, {"vendor_ids": [f"v-{token}" for token in tokens.values()]}):
        reply = await place.heard("no-1", text="hm", where={"to": "no", "trigger_id": "1.2"}, **about)
        assert not [part for part in secret if part in reply.text]
        assert reply.choices == ()
        assert place.channel.replies[-1][0] == {"to": "no"}
    refused = await place.heard("no-1", token=tokens[request.id], verdict="approved")
    assert refused.receipt is not None
    assert refused.receipt.code == "not_allowed"
    assert "http" not in refused.text
    await place.heard(token=tokens[request.id], where={"trigger_id": "1.2"})
    assert place.channel.replies[-1][0] == {"trigger_id": "1.2"}


async def test_stranger_gets_no_window(rig: Rig) -> None:
    request = await rig.ask()
    token = await rig.token(request)
    await rig.hear("nobody", token=token, where={"to": "nobody", "trigger_id": "1.2"})
    assert rig.channel.replies[-1][0] == {"to": "nobody"}


async def test_strangers_cannot_fill_the_store(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.channels.inbound.outcome.AN_HOUR", 2)
    replies = [await rig.hear(f"nobody-{number}", text="yes") for number in range(5)]
    assert [reply is not None for reply in replies] == [True, True, False, False, False]
    kept = [await rig.arrivals.read("chat", "action", f"k{number}") for number in range(1, 6)]
    assert [row is not None for row in kept] == [True, True, False, False, False]
    rig.ahead = timedelta(hours=1)
    assert await rig.hear("nobody-5", text="yes") is not None
    recorded = await rig.recorded("stranger")
    assert [(each["identity"], each.get("more_before")) for each in recorded] == [
        ("nobody-0", None), ("nobody-1", None), ("nobody-5", 3)
    ]  # fmt: skip


async def test_bare_word_decides_nothing_during_another_cards_delivery(rig: Rig) -> None:
    first, second = await rig.ask(1), rig.opened(2)
    await rig.cards.plan([NewDelivery(request=second, person="bo", channel="chat", address="bo-1")])
    (sending,) = await rig.cards.claim_due(9, "chat")
    await rig.cards.record_try([sending.token])
    reply = await rig.heard(text="yes")
    assert set(reply.choices) == {show_code(first.code), show_code(second.code)}
    await rig.hear(text=f"yes {first.code}")
    await rig.cards.end(first.id, 1, rig.decisions.request(first.id))
    assert await rig.hear(text="yes") is not None
    assert [rig.decisions.request(each.id).state for each in (first, second)] == ["approved", "pending"]
    await rig.cards.record_sent(sending.token, "v-2", {})
    await rig.hear(text="yes")
    assert rig.decisions.request(second.id).state == "approved"
