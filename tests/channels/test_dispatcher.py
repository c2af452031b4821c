import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import update

from signoff.approvals.request_thread import hash_thread
from signoff.channels.asked_revision import revision_shown
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import ClosedCard, OutboundCard
from signoff.channels.outbound import sender as sender_module
from signoff.channels.outbound.dispatcher import ASIDE, Dispatcher
from signoff.channels.outbound.sender import LONGEST_PAUSE, SenderDeps
from signoff.contracts.approval import ApprovalRequest, Card, RequestMessage, Vote
from signoff.contracts.audit import AuditEntry
from signoff.contracts.decision import Decision
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.person import Absence, ContactPreferences, Person
from signoff.formats.replace import replace
from signoff.keys.secrets import SecretProvider
from signoff.people.directory import FixedDirectory
from signoff.people.on_call import KEPT, OnCallDirectory, Rotas, Shift
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.registry.manifest.room_sections import TeamRoom
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow
from signoff.store.messages.own_messages import OwnMessages
from signoff.store.store import Store
from signoff.store.tables import DELIVERIES
from signoff.testing import a_request
from signoff.testing.builders import a_person
from signoff.testing.recording_channel import RecordingChannel, recording_channel
from signoff.testing.rig import ScriptedEvents

NOW = datetime.now(UTC)


def request(call: str = "c1.1", **changes: Any) -> ApprovalRequest:
    given = {"approvers": ("role:approvers",), "notify": ("chat", "mail"), "card": Card(effect="Pay 3")}
    return a_request(**given | {"call": call, "opened_at": NOW, "expires_at": NOW + timedelta(days=1)} | changes)


ANA = a_person("ana", identities={"slack": ("T1:ana",), "email": ("ana@example.com",)})
BO = a_person("bo", identities={"email": ("bo@example.com",)})
CY = Person(id="cy", roles=("chief",), identities={"slack": ("T1:cy",)})


@dataclass
class Rig:
    store: Store
    people: tuple[Person, ...] = (ANA, BO, CY)
    rules: RoutingRules = field(default_factory=RoutingRules)
    chat: RecordingChannel = field(default_factory=lambda: recording_channel("chat", identity="slack"))
    mail: RecordingChannel = field(default_factory=lambda: recording_channel("mail", identity="email"))
    seen: list[AuditEntry] = field(default_factory=list)
    ahead: timedelta = timedelta()
    secrets: SecretProvider = field(default_factory=SecretProvider)
    absences: Callable[[str], Awaitable[Sequence[Absence]]] | None = None
    rooms: dict[str, tuple[TeamRoom, ...]] = field(default_factory=dict)
    rotas: Rotas = field(default_factory=Rotas)

    def __post_init__(self) -> None:
        self.cards = DeliveryQueue(self.store)
        self.happened = ScriptedEvents()
        self.dispatcher = self.another()

    def another(self) -> Dispatcher:
        deps = SenderDeps(
            deliveries=self.cards,
            own_messages=OwnMessages(self.store),
            people=OnCallDirectory(FixedDirectory(self.people), self.rotas, {"payments": "main"}),
            links=self._link,
            record=self._record,
            clock=lambda: datetime.now(UTC) + self.ahead,
            digest_over=self.rules.digest_over,
            secrets=self.secrets,
            absences=self.absences,
            rooms=self.rooms,
        )
        return Dispatcher(self.happened, {"chat": self.chat, "mail": self.mail}, self.rules, deps)

    async def tell(self, kind: Any, what: ApprovalRequest) -> None:
        self.happened.add(kind, what)

    async def told(self, kind: Any, *what: ApprovalRequest) -> None:
        for each in what:
            await self.tell(kind, each)
        await self.settle()

    async def asked(self, call: str = "c1.1", **changes: Any) -> ApprovalRequest:
        asks = request(call, **changes)
        await self.told("opened", asks)
        return asks

    async def rows(self, what: ApprovalRequest) -> dict[tuple[str, str], DeliveryRow]:
        return {(row.person, row.channel): row for row in await self.cards.of_request(what.id, what.revision)}

    async def settle(self) -> None:
        while await self.dispatcher.step():
            pass

    def events(self) -> list[tuple[str, str, str]]:
        return [(each.data["event"], each.data["person"], each.data["channel"]) for each in self.seen]

    async def _link(self, row: DeliveryRow) -> str:
        return f"https://signoff.example/link/{row.token}"

    async def _record(self, entries: Sequence[AuditEntry]) -> None:
        self.seen += entries


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig(store)


def summary(channel: RecordingChannel) -> list[tuple[str, str]]:
    return [(card.person.id, card.kind) for card, _ in channel.cards]


def refuses(code: str, *, again: bool, after: float = 0.0) -> Callable[[OutboundCard | ClosedCard], None]:
    def fail(what: OutboundCard | ClosedCard) -> None:
        raise NotDelivered("no", code=code, again=again, after=after)

    return fail


async def test_each_approver_gets_a_card_on_their_first_channel(rig: Rig) -> None:
    asks = await rig.asked()
    await rig.told("opened", asks)
    assert summary(rig.chat) == [("ana", "ask")]
    assert summary(rig.mail) == [("bo", "ask")]
    rows = await rig.rows(asks)
    assert {pair: row.state for pair, row in rows.items()} == {
        ("ana", "chat"): "sent",
        ("ana", "mail"): "planned",
        ("bo", "mail"): "sent",
    }
    card, before = rig.chat.cards[0]
    assert before is None
    assert (card.token, card.address) == (rows[("ana", "chat")].token, "T1:ana")
    assert card.link == f"https://signoff.example/link/{card.token}"
    assert rows[("ana", "chat")].vendor_id == "chat-1"
    assert sorted(rig.events()) == [("sent", "ana", "chat"), ("sent", "bo", "mail")]


async def test_unreachable_person_gets_the_next_channel_at_once(rig: Rig) -> None:
    rig.chat.failing = refuses("channel_not_found", again=False)
    asks = await rig.asked()
    assert sorted(summary(rig.mail)) == [("ana", "ask"), ("bo", "ask")]
    row = (await rig.rows(asks))[("ana", "chat")]
    assert (row.state, row.code, row.message) == ("failed", "channel_not_found", "no")
    assert ("failed", "ana", "chat") in rig.events()


async def test_vendor_message_is_stored_without_secrets(store: Store) -> None:
    rig = Rig(store, secrets=SecretProvider(environment={"TOKEN": "12:bot-token"}))
    token = await rig.secrets.read("env:TOKEN")

    def fail(what: OutboundCard | ClosedCard) -> None:
        raise NotDelivered(f"no bot at /bot{quote(token, safe='')}/send", code="404", again=False)

    rig.chat.failing, asks = fail, request()
    await rig.told("opened", asks)
    assert (await rig.rows(asks))[("ana", "chat")].message == "no bot at /bot[hidden]/send"
    assert [entry.data["message"] for entry in rig.seen if "message" in entry.data] == ["no bot at /bot[hidden]/send"]


async def test_outage_of_one_channel_delays_no_other(rig: Rig) -> None:
    rig.chat.failing = refuses("503", again=True)
    asks = await rig.asked()
    row = (await rig.rows(asks))[("ana", "chat")]
    assert (row.state, row.attempts) == ("planned", 1)
    assert row.due_at > datetime.now(UTC)
    assert summary(rig.mail) == [("bo", "ask")]
    rig.chat.failing = None
    await rig.cards.expedite(row.token)
    await rig.settle()
    assert [card.token for card, _ in rig.chat.cards] == [row.token]


async def test_vendors_retry_after_is_respected(rig: Rig) -> None:
    rig.chat.failing = refuses("429", again=True, after=120)
    await rig.asked()
    rig.chat.failing = None
    await rig.asked("c1.2")
    assert rig.chat.cards == []
    rig.ahead = timedelta(seconds=121)
    await rig.settle()
    assert [card.request.call for card, _ in rig.chat.cards] == ["c1.2"]


async def test_retry_after_the_deadline_is_skipped(rig: Rig) -> None:
    rig.chat.failing = refuses("503", again=True, after=300)
    asks = request(expires_at=datetime.now(UTC) + timedelta(seconds=200))
    assert asks.expires_at is not None
    await rig.told("opened", asks)
    assert (await rig.rows(asks))[("ana", "chat")].due_at > asks.expires_at
    assert ("failed", "ana", "chat") in rig.events()
    assert ("ana", "ask") in summary(rig.mail)


async def test_read_card_prevents_a_card_on_the_next_channel(rig: Rig) -> None:
    asks = await rig.asked()
    rows = await rig.rows(asks)
    await rig.cards.state("chat", "chat-1", "read")
    await rig.cards.expedite(rows[("ana", "mail")].token)
    await rig.settle()
    assert summary(rig.mail) == [("bo", "ask")]
    assert (await rig.rows(asks))[("ana", "mail")].state == "dropped"


async def test_unread_card_is_followed_by_the_next_channel(rig: Rig) -> None:
    asks = await rig.asked()
    await rig.cards.state("chat", "chat-1", "delivered")
    await rig.cards.expedite((await rig.rows(asks))[("ana", "mail")].token)
    await rig.settle()
    assert ("ana", "ask") in summary(rig.mail)


async def test_cards_of_a_decided_request_are_closed_and_none_is_sent(rig: Rig) -> None:
    asks = await rig.asked()
    over = replace(asks, state="approved", decided_by="bo", decided_channel="mail")
    await rig.told("closed", over)
    assert [(sent.vendor_id, closed.request.decided_by) for sent, closed in rig.chat.closings] == [("chat-1", "bo")]
    assert [closed.person.id for _, closed in rig.mail.closings] == ["bo"]
    assert {row.state for row in (await rig.rows(asks)).values()} == {"closed", "dropped"}
    assert sorted(rig.events())[:2] == [("closed", "ana", "chat"), ("closed", "bo", "mail")]


async def test_request_that_ended_before_its_opening_sends_no_card(rig: Rig) -> None:
    asks = request()
    over = replace(asks, state="approved")
    await rig.told("closed", over)
    await rig.told("opened", asks)
    assert rig.chat.cards == []
    assert rig.mail.cards == []


async def test_card_in_delivery_at_the_end_is_closed_afterwards(rig: Rig) -> None:
    asks = request()

    def meanwhile(what: OutboundCard | ClosedCard) -> None:
        if isinstance(what, OutboundCard):
            ending.append(asyncio.ensure_future(rig.cards.end(asks.id, asks.revision, over)))

    ending: list[asyncio.Future[int]] = []
    over = replace(asks, state="denied", decided_by="bo")
    rig.chat.failing = meanwhile
    await rig.tell("opened", asks)
    await rig.dispatcher.read()
    real = rig.chat.deliver

    async def slow(card: OutboundCard, before: Any) -> Any:
        sent = await real(card, before)
        await asyncio.gather(*ending)
        return sent

    rig.chat.deliver = slow  # type: ignore[method-assign]
    await rig.settle()
    assert [closed.request.state for _, closed in rig.chat.closings] == ["denied"]


async def test_unacknowledged_card_is_followed_by_the_outcome(rig: Rig) -> None:
    asks = request(notify=("chat",))
    rig.chat.failing = refuses("timeout", again=True)
    await rig.told("opened", asks)
    rig.chat.failing = None
    await rig.tell("closed", replace(asks, state="approved", decided_by="bo"))
    await hurried(rig)
    await rig.settle()
    closings = {(sent.vendor_id, closed.person.id, bool(closed.address)) for sent, closed in rig.chat.closings}
    assert ("", "ana", True) in closings
    assert rig.chat.cards == []


async def timed_out(rig: Rig, *asks: ApprovalRequest) -> None:
    rig.chat.failing = rig.mail.failing = refuses("timeout", again=True)
    await rig.told("opened", *asks)
    rig.chat.failing = rig.mail.failing = None


async def end(rig: Rig, *asks: ApprovalRequest) -> None:
    for each in asks:
        await rig.tell("closed", replace(each, state="denied", decided_by="cy"))
    await rig.dispatcher.read()
    await hurried(rig)
    await rig.settle()


def closed_for(channel: RecordingChannel) -> list[tuple[str, str]]:
    return sorted((closed.person.id, closed.request.call) for _, closed in channel.closings)


async def test_card_that_timed_out_near_its_deadline_is_followed_by_the_outcome(rig: Rig) -> None:
    asks = request(notify=("chat",), expires_at=datetime.now(UTC) + timedelta(seconds=1))
    await timed_out(rig, asks)
    await end(rig, asks)
    assert closed_for(rig.chat) == [("ana", "c1.1")]
    assert rig.chat.cards == []


async def test_unacknowledged_digest_is_followed_by_the_outcomes(store: Store) -> None:
    rig = Rig(store, people=(BO,), rules=RoutingRules(digest_over=1))
    deadline = datetime.now(UTC) + timedelta(seconds=1)
    asks = [request(f"c1.{number}", expires_at=deadline) for number in (1, 2)]
    await timed_out(rig, *asks)
    await end(rig, *asks)
    assert closed_for(rig.mail) == [("bo", "c1.1"), ("bo", "c1.2")]
    assert rig.mail.cards == []


async def test_unacknowledged_card_is_closed_after_a_vote_elsewhere(rig: Rig) -> None:
    asks = request(notify=("chat",), quorum=2)
    await timed_out(rig, asks)
    await rig.tell("reminded", replace(asks, reminded=1, votes=(voted("ana"),)))
    await rig.dispatcher.read()
    await hurried(rig)
    await rig.settle()
    await end(rig, asks)
    assert closed_for(rig.chat) == [("ana", "c1.1")]
    assert rig.chat.cards == []


async def test_request_that_ends_between_claim_and_delivery_sends_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = request(notify=("chat",))
    real = rig.cards.claim_due

    async def claim(limit: int, channels: Any) -> Any:
        rows = await real(limit, channels)
        await rig.cards.end(asks.id, asks.revision, replace(asks, state="denied"))
        return rows

    monkeypatch.setattr(rig.cards, "claim_due", claim)
    await rig.told("opened", asks)
    assert (rig.chat.cards, rig.chat.closings) == ([], [])


async def test_reminder_in_delivery_at_the_end_precedes_the_closing_message(rig: Rig) -> None:
    asks = await rig.asked(notify=("chat",))
    real, closed_first = rig.chat.deliver, []

    async def slow(card: OutboundCard, before: Any) -> Any:
        await rig.cards.end(asks.id, asks.revision, replace(asks, state="denied"))
        await rig.dispatcher.step()
        closed_first.extend(rig.chat.closings)
        return await real(card, before)

    rig.chat.deliver = slow  # type: ignore[method-assign]
    await rig.told("reminded", replace(asks, reminded=1))
    assert closed_first == []
    assert summary(rig.chat) == [("ana", "ask"), ("ana", "remind")]
    assert closed_for(rig.chat) == [("ana", "c1.1")]


async def test_reminder_follows_its_card(rig: Rig) -> None:
    asks = await rig.asked()
    await rig.told("reminded", replace(asks, reminded=1))
    assert summary(rig.chat) == [("ana", "ask"), ("ana", "remind")]
    assert rig.chat.cards[1][1] is not None
    assert rig.chat.cards[1][1].vendor_id == "chat-1"
    assert (await rig.rows(asks))[("ana", "chat")].remind_at is None
    await rig.told("reminded", replace(asks, reminded=2))
    assert [card.request.reminded for card, _ in rig.chat.cards] == [0, 1, 2]
    assert [each.data["attempt"] for each in rig.seen if each.data["event"] == "reminded"][::2] == [1, 2]


async def test_reminder_and_closing_message_are_found_by_their_vendor_ids(rig: Rig) -> None:
    asks = await rig.asked()
    await rig.told("reminded", replace(asks, reminded=1))
    await rig.told("closed", replace(asks, state="denied"))
    for vendor_id in ("chat-2", "chat-ending-1"):
        message = await OwnMessages(rig.store).find("chat", [vendor_id], asks.tenant, "ana")
        assert message is not None
        assert [(each.approval, each.revision) for each in message.subjects] == [(asks.id, 1)]


def voted(by: str) -> Vote:
    return Vote(subject=by, verdict="approved", at=NOW, decision=Decision(approval_id="a", verdict="approved"))


async def test_voter_gets_no_reminder_and_no_card_on_the_next_channel(rig: Rig) -> None:
    asks = await rig.asked(quorum=2)
    await rig.tell("reminded", replace(asks, reminded=1, votes=(voted("ana"),)))
    await rig.dispatcher.read()
    await rig.cards.expedite((await rig.rows(asks))[("ana", "mail")].token)
    await rig.settle()
    assert summary(rig.chat) == [("ana", "ask")]
    assert summary(rig.mail) == [("bo", "ask"), ("bo", "remind")]
    rows = await rig.rows(asks)
    assert rows[("ana", "mail")].state == "dropped"
    assert rows[("ana", "chat")].remind_at is None


def answered(asks: ApprovalRequest, **changes: Any) -> ApprovalRequest:
    asked = RequestMessage(number=1, by="approver", text="Why?", revision=1)
    said = RequestMessage(number=2, by="agent", text="It is due.", revision=1)
    return replace(asks, messages=(asked, said), thread=hash_thread([asked, said]), **changes)


async def test_voter_keeps_the_card_and_gets_the_end_after_an_answer_of_the_agent(rig: Rig) -> None:
    asks = await rig.asked(quorum=2)
    before = await rig.rows(asks)
    told = answered(asks, votes=(voted("ana"),))
    await rig.told("told", told)
    rows = await rig.rows(asks)
    assert rows["ana", "chat"].token == before["ana", "chat"].token
    assert rows["bo", "mail"].token != before["bo", "mail"].token
    assert closed_for(rig.chat) == []
    await rig.told("closed", replace(told, state="approved"))
    assert (await rig.rows(asks))["ana", "chat"].state == "closed"


async def test_former_approver_gets_no_card_in_place_of_the_old_one(rig: Rig) -> None:
    asks = await rig.asked()
    before = await rig.rows(asks)
    rig.people = tuple(replace(each, active=False) if each is ANA else each for each in rig.people)
    rig.dispatcher = rig.another()
    await rig.told("told", answered(asks))
    assert (await rig.rows(asks))["ana", "chat"].token == before["ana", "chat"].token


async def test_new_card_with_an_answer_waits_for_no_end_of_quiet_hours(store: Store) -> None:
    # The old card is closed at once.
    rig = Rig(store)
    asks = await rig.asked()
    assert (await rig.rows(asks))["ana", "chat"].state == "sent"
    begun, ends = NOW - timedelta(hours=1), NOW + timedelta(hours=2)
    resting = ContactPreferences(quiet_from=f"{begun:%H:%M}", quiet_to=f"{ends:%H:%M}")
    rig.people = tuple(replace(each, reach=resting) for each in rig.people)
    rig.dispatcher = rig.another()
    await rig.told("told", answered(asks))
    assert (await rig.rows(asks))["ana", "chat"].state == "sent"


async def test_card_read_elsewhere_follows_on_the_next_channel_with_the_answer(rig: Rig) -> None:
    asks = await rig.asked()
    await rig.cards.state("chat", (await rig.rows(asks))["ana", "chat"].vendor_id, "read")
    await rig.cards.expedite((await rig.rows(asks))["ana", "mail"].token)
    await rig.settle()
    assert (await rig.rows(asks))["ana", "mail"].state == "dropped"
    await rig.told("told", answered(asks))
    rows = await rig.rows(asks)
    assert (rows["ana", "chat"].state, rows["ana", "mail"].state) == ("sent", "planned")
    assert rows["ana", "mail"].due_at > datetime.now(UTC) + timedelta(seconds=30)


def handed_on(by: str, to: str) -> Vote:
    decision = Decision(approval_id="a", verdict="handed_on", to=to, to_name=to.title())
    return Vote(subject=by, name=by.title(), verdict="handed_on", at=NOW, decision=decision)


async def test_hand_on_sends_its_card_again_to_the_new_approver_alone(rig: Rig) -> None:
    asks = await rig.asked()
    after = replace(asks, assignments=(handed_on("ana", "bo"),))
    await rig.told("assigned", after)
    await rig.told("assigned", after)
    await rig.told("reminded", replace(after, reminded=1))
    assert summary(rig.mail) == [("bo", "ask"), ("bo", "remind"), ("bo", "remind")]
    assert summary(rig.chat) == [("ana", "ask")]
    assert [each.request.assignments for each, _ in rig.mail.cards] == [(), after.assignments, after.assignments]
    await rig.cards.expedite((await rig.rows(asks))[("ana", "mail")].token)
    await rig.settle()
    assert (await rig.rows(asks))[("ana", "mail")].state == "dropped"


ON_CALL = ("oncall:payments",)


def read_rota(rig: Rig, *names: str) -> None:
    now = datetime.now(UTC) + rig.ahead
    rig.rotas.keep("payments", tuple(Shift(each, now, now + timedelta(days=1)) for each in names), now)


async def test_gateway_that_cannot_read_a_rota_keeps_the_cards_of_people_on_call(rig: Rig) -> None:
    read_rota(rig, "ana")
    asks = await rig.asked(approvers=ON_CALL)
    assert summary(rig.chat) == [("ana", "ask")]
    rig.ahead = KEPT
    token = (await rig.rows(asks))["ana", "mail"].token
    await rig.cards.expedite(token)
    await rig.told("reminded", replace(asks, reminded=1))
    assert (await rig.rows(asks))["ana", "mail"].state == "planned"
    assert (await rig.rows(asks))["ana", "chat"].remind_at is not None
    assert len(rig.chat.cards) == 1
    assert rig.mail.cards == []
    read_rota(rig, "ana")
    await rig.cards.expedite(token)
    await rig.settle()
    assert summary(rig.mail) == [("ana", "ask")]


async def test_card_of_a_person_off_call_is_dropped(rig: Rig) -> None:
    read_rota(rig, "ana")
    asks = await rig.asked(approvers=ON_CALL)
    read_rota(rig, "bo")
    await rig.cards.expedite((await rig.rows(asks))["ana", "mail"].token)
    await rig.settle()
    assert (await rig.rows(asks))["ana", "mail"].state == "dropped"


async def test_person_on_call_later_gets_the_card_of_a_request_that_asked_no_person(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    asks = await rig.asked(approvers=ON_CALL)
    for _ in range(2):
        rig.ahead += ASIDE
        await rig.settle()
    assert rig.mail.cards == []
    read_rota(rig, "bo")
    await rig.settle()
    assert rig.mail.cards == []
    rig.ahead += ASIDE
    await rig.settle()
    assert summary(rig.mail) == [("bo", "ask")]
    warned = [each for each in caplog.messages if "asks no person" in each]
    assert warned == [f"{asks.id} asks no person of `oncall:payments` now; cards follow when one is on call"]


async def test_ended_request_that_asked_no_person_on_call_is_not_planned_later(rig: Rig) -> None:
    asks = await rig.asked(approvers=ON_CALL)
    await rig.told("closed", replace(asks, state="denied"))
    read_rota(rig, "bo")
    rig.ahead += ASIDE
    await rig.settle()
    assert await rig.rows(asks) == {}


async def test_quiet_hours_do_not_delay_the_card_of_a_person_on_call(rig: Rig) -> None:
    resting = ContactPreferences(quiet_days=("mon", "tue", "wed", "thu", "fri", "sat"))
    rig.people = tuple(replace(each, reach=resting) for each in rig.people)
    rig.dispatcher = rig.another()
    read_rota(rig, "cy")
    rig.ahead = next(timedelta(day) for day in range(7) if (NOW + timedelta(day)).strftime("%a") == "Mon")
    read_rota(rig, "cy")
    await rig.asked(approvers=(*ON_CALL, "role:approvers"), expires_at=None)
    assert summary(rig.chat) == [("cy", "ask")]
    assert rig.mail.cards == []


def gone(person: str, **fields: Any) -> Absence:
    given = {"since": NOW - timedelta(hours=1), "until": NOW + timedelta(hours=2), "said_at": NOW}
    return Absence(tenant="main", person=person, **given | fields)


async def with_absences(rig: Rig, *absences: Absence) -> None:
    async def found(tenant: str) -> Sequence[Absence]:
        return [each for each in absences if each.tenant == tenant]

    rig.absences = found
    rig.dispatcher = rig.another()


async def test_cards_of_a_person_who_is_away_wait_for_their_return(rig: Rig) -> None:
    await with_absences(rig, gone("ana"))
    asks = await rig.asked()
    assert (summary(rig.chat), summary(rig.mail)) == ([], [("bo", "ask")])
    rows = await rig.rows(asks)
    assert rows[("ana", "chat")].due_at > NOW + timedelta(hours=1)
    short = await rig.asked("c2.1", expires_at=NOW + timedelta(hours=1))
    assert set(await rig.rows(short)) == {("bo", "mail")}


async def test_longest_of_a_persons_absences_decides_their_return(rig: Rig) -> None:
    await with_absences(rig, gone("ana", until=NOW + timedelta(hours=5)), gone("ana"))
    rows = await rig.rows(await rig.asked())
    assert rows[("ana", "chat")].due_at > NOW + timedelta(hours=4)


async def test_absent_person_is_asked_where_they_are_needed(rig: Rig) -> None:
    await with_absences(rig, gone("ana"), gone("bo", tools=("other",)))
    await rig.asked(quorum=2)
    await rig.asked("c2.1", assignments=(handed_on("cy", "ana"),))
    assert summary(rig.chat) == [("ana", "ask"), ("ana", "ask")]


async def test_outdated_reminder_keeps_a_hand_on(rig: Rig) -> None:
    asks = await rig.asked()
    await rig.told("assigned", replace(asks, assignments=(handed_on("ana", "bo"),)))
    await rig.told("reminded", replace(asks, reminded=1))
    assert {len(each.request.assignments) for each in (await rig.rows(asks)).values()} == {1}
    assert summary(rig.chat) == [("ana", "ask")]


async def test_former_approver_gets_no_reminder(rig: Rig) -> None:
    asks = await rig.asked(notify=("mail",))
    rig.people = (ANA, replace(BO, roles=()), CY)
    rig.dispatcher = rig.another()
    await rig.told("reminded", replace(asks, reminded=1))
    assert summary(rig.mail) == [("ana", "ask"), ("bo", "ask"), ("ana", "remind")]
    assert (await rig.rows(asks))[("bo", "mail")].remind_at is None


async def test_digest_with_a_reminder_stays_a_digest(store: Store) -> None:
    rig = Rig(store, people=(BO,), rules=RoutingRules(digest_over=1))
    asks = [request(f"c1.{number}") for number in (1, 2)]
    await rig.told("opened", *asks)
    await rig.told("reminded", replace(asks[0], reminded=1))
    assert summary(rig.mail) == [("bo", "digest"), ("bo", "remind")]
    await rig.told("closed", replace(asks[0], state="approved"))
    assert rig.mail.closings == []
    reminded, listed = [(await rig.rows(each))[("bo", "mail")] for each in asks]
    assert listed.kind == "digest"
    # Only the reminder showed the values.
    assert [revision_shown(row).whole for row in (reminded, listed)] == [True, False]


async def test_escalation_adds_cards_for_new_approvers_only(rig: Rig) -> None:
    asks = await rig.asked()
    await rig.told("escalated", replace(asks, approvers=("role:approvers", "role:chief")))
    assert summary(rig.chat) == [("ana", "ask"), ("cy", "ask")]
    assert summary(rig.mail) == [("bo", "ask")]


async def test_former_approver_gets_no_card(store: Store) -> None:
    rig = Rig(store)
    asks = request()
    await rig.tell("opened", asks)
    await rig.dispatcher.read()
    rig.people = (replace(ANA, active=False), BO, CY)
    rig.dispatcher = rig.another()
    await rig.settle()
    assert rig.chat.cards == []
    assert (await rig.rows(asks))[("ana", "chat")].state == "dropped"


async def test_six_requests_at_once_are_one_digest(store: Store) -> None:
    rig = Rig(store, people=(BO,))
    asks = [request(f"c1.{number}") for number in range(1, 7)]
    await rig.told("opened", *asks)
    assert [(card.kind, card.more) for card, _ in rig.mail.cards] == [("digest", 5)]
    rows = await rig.cards.by_vendor("mail", ["mail-1"])
    assert sorted(row.request.call for row in rows) == [each.call for each in asks]
    await rig.told("closed", replace(asks[0], state="approved"))
    assert rig.mail.closings == []


async def test_five_requests_at_once_are_five_cards(store: Store) -> None:
    rig = Rig(store, people=(BO,))
    for number in range(1, 6):
        await rig.asked(f"c1.{number}")
    assert summary(rig.mail) == [("bo", "ask")] * 5


async def test_two_dispatchers_over_one_store_send_one_card(rig: Rig) -> None:
    for number in range(1, 5):
        await rig.tell("opened", request(f"c1.{number}"))
    other = rig.another()
    for _ in range(6):
        await asyncio.gather(rig.dispatcher.step(), other.step())
    assert sorted(card.request.call for card, _ in rig.chat.cards) == ["c1.1", "c1.2", "c1.3", "c1.4"]


async def test_card_claimed_by_a_killed_dispatcher_is_sent_again_under_the_same_token(rig: Rig) -> None:
    asks = request()
    await rig.tell("opened", asks)
    await rig.dispatcher.read()
    claimed = await rig.cards.claim_due(5, "chat")
    await rig.settle()
    assert rig.chat.cards == []
    lapsed = update(DELIVERIES).where(DELIVERIES.c.token == claimed[0].token).values(claimed_until=0)
    await rig.store.run(lambda connection: connection.execute(lapsed).close())
    await rig.settle()
    assert [card.token for card, _ in rig.chat.cards] == [claimed[0].token]
    assert len(await rig.rows(asks)) == 3


async def test_channel_without_rooms_is_named_at_the_start(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.rooms["role:approvers"] = (TeamRoom("chat", "hall 3"), TeamRoom("gone", "hall 4"))
    rig.dispatcher = rig.another()
    assert [each.getMessage() for each in caplog.records] == [
        "channel `chat` has no rooms, so `rooms` of the manifest cannot use it"
    ]
    asks = await rig.asked()
    assert {row.kind for row in (await rig.rows(asks)).values()} == {"ask"}


async def test_error_in_an_adapter_is_a_failed_delivery(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def broken(what: OutboundCard | ClosedCard) -> None:
        raise KeyError(rig.chat.name)

    rig.chat.failing = broken
    asks = await rig.asked()
    row = (await rig.rows(asks))[("ana", "chat")]
    assert (row.state, row.code) == ("planned", "error")
    assert summary(rig.mail) == [("bo", "ask")]
    assert "channel chat failed: KeyError" in caplog.text
    assert ", in broken" in caplog.text
    assert "KeyError: " not in caplog.text


async def test_card_that_cannot_be_closed_is_given_up(rig: Rig) -> None:
    asks = await rig.asked()
    rig.chat.failing = refuses("message_not_found", again=False)
    await rig.told("closed", replace(asks, state="approved"))
    assert (await rig.rows(asks))[("ana", "chat")].state == "closed"
    assert ("not closed", "ana", "chat") in rig.events()
    assert ("closed", "ana", "chat") not in rig.events()


async def hurried(rig: Rig) -> None:
    due = update(DELIVERIES).values(due_at=0, claimed_until=0)
    await rig.store.run(lambda connection: connection.execute(due).close())


async def test_card_is_closed_after_an_outage_of_hours(rig: Rig) -> None:
    first, second = request("c1.1", notify=("chat",)), request("c1.2", notify=("chat",))
    await rig.told("opened", first, second)
    rig.chat.failing = refuses("503", again=True)
    await rig.tell("closed", replace(first, state="approved"))
    for _ in range(20):
        await rig.dispatcher.step()
        await hurried(rig)
    rig.chat.failing = None
    await rig.settle()
    assert [closed.request.id for _, closed in rig.chat.closings] == [first.id]
    rig.chat.failing = refuses("503", again=True)
    await rig.told("closed", replace(second, state="approved"))
    await hurried(rig)
    rig.ahead = timedelta(hours=25)
    await rig.settle()
    assert (await rig.rows(second))[("ana", "chat")].state == "closed"
    assert [event for event, _, channel in rig.events()][-1] == "not closed"


async def test_vendors_retry_after_is_limited(rig: Rig) -> None:
    rig.chat.failing = refuses("429", again=True, after=9_999_999)
    asks = await rig.asked(expires_at=None)
    due = (await rig.rows(asks))[("ana", "chat")].due_at
    assert due < datetime.now(UTC) + timedelta(seconds=LONGEST_PAUSE + 1)


async def test_closing_does_not_wait_for_slow_cards(store: Store) -> None:
    crowd = tuple(Person(id=f"p{n}", roles=("crowd",), identities={"slack": (f"T1:p{n}",)}) for n in range(20))
    rig = Rig(store, people=(ANA, *crowd))
    rig.chat = recording_channel("chat", identity="slack", per_second=0.5)
    rig.dispatcher = rig.another()
    asks = await rig.asked()
    await rig.tell("opened", request("c1.2", approvers=("role:crowd",)))
    async with running(rig.dispatcher), asyncio.timeout(30):
        while len(rig.chat.cards) < 2:
            await asyncio.sleep(0.02)
        await rig.tell("closed", replace(asks, state="approved"))
        rig.dispatcher.wake()
        while not rig.chat.closings:
            await asyncio.sleep(0.02)
    assert len(rig.chat.cards) < 7


async def test_failing_event_delays_no_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rig.cards.plan

    async def plan(rows: Any) -> int:
        if rows and rows[0].request.call == "c1.1":
            raise KeyError("zone")
        return await real(rows)

    monkeypatch.setattr(rig.cards, "plan", plan)
    for call in ("c1.1", "c1.2"):
        await rig.asked(call)
    assert [card.request.call for card, _ in rig.chat.cards] == ["c1.2"]
    monkeypatch.undo()
    rig.ahead = ASIDE
    await rig.settle()
    assert [card.request.call for card, _ in rig.chat.cards] == ["c1.2", "c1.1"]


@asynccontextmanager
async def running(dispatcher: Dispatcher) -> AsyncIterator[None]:
    task = asyncio.create_task(dispatcher.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_dispatcher_runs_and_survives_an_outage_of_the_store(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failed = rig.happened.poll, asyncio.Event()

    async def poll() -> Any:
        if not failed.is_set():
            failed.set()
            raise StoreUnavailable("gone")
        return await real()

    monkeypatch.setattr(rig.happened, "poll", poll)
    asks = request()
    async with running(rig.dispatcher):
        await failed.wait()
        await rig.tell("opened", asks)
        async with asyncio.timeout(30):
            while not (rig.chat.cards and rig.mail.cards):
                rig.dispatcher.wake()
                await asyncio.sleep(0.02)
            await rig.tell("closed", replace(asks, state="approved"))
            while not (rig.chat.closings and rig.mail.closings):
                await asyncio.sleep(0.02)
    assert [len(found) for found in (rig.chat.cards, rig.mail.cards, rig.chat.closings, rig.mail.closings)] == [1] * 4


async def test_vendor_that_answers_after_the_limit_delays_no_other_card(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "SEND_SECONDS", 0.2)
    real, answer = rig.chat.deliver, asyncio.Event()
    called: list[str] = []

    async def slow(card: OutboundCard, before: Any) -> Any:
        called.append(card.request.call)
        if card.request.call == "c1.1" and called.count("c1.1") == 1:
            await answer.wait()
        return await real(card, before)

    rig.chat.deliver = slow  # type: ignore[method-assign]
    asks = [request(f"c1.{number}", notify=("chat",)) for number in (1, 2, 3)]
    await rig.told("opened", *asks)
    assert [card.request.call for card, _ in rig.chat.cards] == ["c1.2", "c1.3"]
    row = (await rig.rows(asks[0]))[("ana", "chat")]
    assert (row.state, row.code, row.attempts) == ("planned", "timeout", 1)
    await hurried(rig)
    await rig.settle()
    assert sorted(called) == ["c1.1", "c1.1", "c1.2", "c1.3"]
    assert [(await rig.rows(each))[("ana", "chat")].state for each in asks] == ["sent"] * 3


async def test_cards_of_a_fast_vendor_are_sent_together(store: Store) -> None:
    rig = Rig(store, people=(ANA,), rules=RoutingRules(digest_over=100))
    real, all_begun = rig.chat.deliver, asyncio.Barrier(40)

    async def slow(card: OutboundCard, before: Any) -> Any:
        await all_begun.wait()
        return await real(card, before)

    rig.chat.deliver = slow  # type: ignore[method-assign]
    for number in range(all_begun.parties):
        await rig.tell("opened", request(f"c1.{number + 1}", notify=("chat",)))
    await rig.dispatcher.read()
    async with running(rig.dispatcher), asyncio.timeout(60):
        while len(rig.chat.cards) < all_begun.parties:
            await asyncio.sleep(0.02)
    assert len({card.request.call for card, _ in rig.chat.cards}) == all_begun.parties


async def test_card_of_a_slow_store_is_released_before_its_claim_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "SEND_SECONDS", 0.0)
    asks = request(notify=("chat",))
    await rig.tell("opened", asks)
    await rig.dispatcher.read()
    await rig.dispatcher.step()
    assert rig.chat.cards == []
    row = (await rig.rows(asks))[("ana", "chat")]
    assert row.due_at <= datetime.now(UTC) + timedelta(seconds=1)
    monkeypatch.undo()
    await rig.settle()
    assert summary(rig.chat) == [("ana", "ask")]


async def test_dispatcher_killed_while_it_sends_loses_no_card(rig: Rig) -> None:
    asks = [request(f"c1.{number}", notify=("chat",)) for number in range(1, 5)]
    for each in asks:
        await rig.tell("opened", each)
    await rig.dispatcher.read()
    real, killed, begun = rig.chat.deliver, asyncio.Event(), list[str]()

    async def dies(card: OutboundCard, before: Any) -> Any:
        begun.append(card.token)
        await killed.wait()

    rig.chat.deliver = dies  # type: ignore[method-assign]
    dying = asyncio.create_task(rig.dispatcher.step())
    while len(begun) < 4:
        await asyncio.sleep(0.01)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    rig.chat.deliver = real  # type: ignore[method-assign]
    successor = rig.another()
    assert await successor.step() == 0
    await hurried(rig)
    while await successor.step():
        pass
    assert sorted(card.token for card, _ in rig.chat.cards) == sorted(begun)
    assert {(await rig.rows(each))[("ana", "chat")].state for each in asks} == {"sent"}


async def test_failed_write_of_one_card_is_reported_after_the_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        await rig.tell("opened", request(f"c1.{number}", notify=("chat",)))
    await rig.dispatcher.read()

    async def fail(cards: Any) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(rig.cards, "record_all_sent", fail)
    with pytest.raises(StoreUnavailable, match="gone"):
        await rig.another().step()
    assert len(rig.chat.cards) == 2
