import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from signoff.approvals.notifications import Notice, NoticeKind
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.outbound.dispatcher import Dispatcher
from signoff.channels.outbound.notice_sender import ATTEMPTS_BEFORE_NEXT
from signoff.channels.outbound.sender import SenderDeps
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.audit import AuditEntry
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.people.directory import FixedDirectory
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow
from signoff.store.messages.notices import NewNotice, Notices
from signoff.store.messages.own_messages import OwnMessages
from signoff.store.store import Store
from signoff.store.tables import DELIVERIES
from signoff.testing import a_request
from signoff.testing.recording_channel import RecordingChannel, recording_channel
from signoff.testing.rig import ScriptedEvents

NOW = datetime.now(UTC)
BO = Person(id="bo", locale="de")
REQUEST = a_request(card=Card(effect="Pay 3"), code="K7Q2FM")


@dataclass
class Sending:
    store: Store
    people: tuple[Person, ...] = (BO,)
    readers: tuple[str, ...] = ("bo",)
    chat: RecordingChannel = field(default_factory=lambda: recording_channel("chat"))
    mail: RecordingChannel = field(default_factory=lambda: recording_channel("mail"))
    seen: list[AuditEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = Notices(self.store)
        self.own = OwnMessages(self.store)
        self.dispatcher = self.another()

    def another(self) -> Dispatcher:
        deps = SenderDeps(
            deliveries=DeliveryQueue(self.store),
            own_messages=self.own,
            people=FixedDirectory(self.people),
            links=self._link,
            record=self._record,
            clock=lambda: datetime.now(UTC),
            digest_over=5,
            notices=self.queue,
            may_read=lambda person, request: person.id in self.readers,
        )
        return Dispatcher(ScriptedEvents(), {"chat": self.chat, "mail": self.mail}, RoutingRules(), deps)

    async def plan(self, kind: NoticeKind = "ran", *channels: str, request: ApprovalRequest | None = REQUEST) -> None:
        notice = Notice(kind=kind, about=REQUEST.id, at=NOW, request=request)
        rows = [
            NewNotice(
                notice=notice,
                tenant="main",
                person="bo",
                channel=name,
                address="bo",
                due_at=NOW + timedelta(days=rank) if rank else None,
            )
            for rank, name in enumerate(channels or ("chat",))
        ]
        await self.queue.plan(rows)

    async def settle(self) -> None:
        while await self.dispatcher.step():
            pass

    async def make_due(self) -> None:
        due = update(DELIVERIES).where(DELIVERIES.c.channel == "!chat").values(due_at=0, claimed_until=0)
        await self.store.run(lambda connection: connection.execute(due).rowcount)

    def events(self) -> list[tuple[str, str]]:
        return [(each.data["event"], each.data["channel"]) for each in self.seen]

    async def _link(self, row: DeliveryRow) -> str:
        return row.token

    async def _record(self, entries: Sequence[AuditEntry]) -> None:
        self.seen += entries


@pytest.fixture
def sending(store: Store) -> Sending:
    return Sending(store)


def fails(*, again: bool) -> Callable[[Any], None]:
    def fail(what: Any) -> None:
        raise NotDelivered("no", code="no", again=again)

    return fail


async def test_notice_is_sent_once_in_the_language_of_its_recipient(sending: Sending) -> None:
    await sending.plan()
    await sending.settle()
    await sending.plan()
    await sending.settle()
    (notice,) = sending.chat.notices
    assert notice.text.startswith("Der genehmigte Aufruf wurde ausgeführt.")
    assert "Pay 3 (K7Q-2FM)" in notice.text
    assert notice.text.endswith(f"http://127.0.0.1:8300/approvals/{REQUEST.id}")
    assert (notice.address, notice.kind, notice.approval) == ("bo", "ran", REQUEST.id)
    assert sending.events() == [("notice sent", "chat")]
    assert sending.chat.cards == []


async def test_reply_to_a_notice_is_known_as_one(sending: Sending) -> None:
    await sending.plan()
    await sending.settle()
    message = await sending.own.find("chat", ["chat-notice-1"], "main", "bo")
    assert message is not None
    assert (message.notice, message.subjects) == (True, ())


async def test_sender_that_died_while_sending_does_not_send_again(sending: Sending) -> None:
    def die(what: Any) -> None:
        raise asyncio.CancelledError

    await sending.plan()
    sending.chat.failing = die
    with pytest.raises(asyncio.CancelledError):
        await sending.dispatcher._senders["chat"].notices.send()
    sending.chat.failing = None
    await sending.make_due()
    sending.dispatcher = sending.another()
    await sending.settle()
    assert sending.chat.notices == []
    assert sending.events() == [("notice failed", "chat")]


@pytest.mark.parametrize("changed", ["right", "person", "active"])
async def test_person_who_may_no_longer_read_the_request_gets_no_notice(sending: Sending, changed: str) -> None:
    await sending.plan()
    if changed == "right":
        sending.readers = ()
    else:
        sending.people = () if changed == "person" else (replace(BO, active=False),)
    sending.dispatcher = sending.another()
    await sending.settle()
    assert sending.chat.notices == []
    assert sending.events() == [("notice skipped", "chat")]


async def test_final_failure_moves_to_the_next_channel(sending: Sending) -> None:
    await sending.plan("decided", "chat", "mail")
    sending.chat.failing = fails(again=False)
    await sending.settle()
    await sending.settle()
    assert len(sending.mail.notices) == 1
    assert sorted(sending.events()) == [("notice failed", "chat"), ("notice sent", "mail")]


async def test_passing_failure_is_retried_before_the_next_channel(sending: Sending) -> None:
    await sending.plan("decided", "chat", "mail")
    sending.chat.failing = fails(again=True)
    for _ in range(ATTEMPTS_BEFORE_NEXT - 1):
        await sending.settle()
        await sending.make_due()
    assert sending.events() == []
    sending.chat.failing = None
    await sending.settle()
    assert (len(sending.chat.notices), sending.mail.notices) == (1, [])


async def test_first_channel_that_keeps_failing_gives_way_to_the_next(sending: Sending) -> None:
    await sending.plan("decided", "chat", "mail")
    sending.chat.failing = fails(again=True)
    for _ in range(ATTEMPTS_BEFORE_NEXT):
        await sending.settle()
        await sending.make_due()
    await sending.settle()
    assert len(sending.mail.notices) == 1


async def test_notice_of_a_passkey_has_no_request(sending: Sending) -> None:
    sending.readers = ()
    await sending.plan("passkey", "chat", request=None)
    await sending.settle()
    (notice,) = sending.chat.notices
    assert notice.title == "Neuer Passkey"
    assert notice.text.endswith("/passkeys")
    assert [each.stream for each in sending.seen] == ["admin/main"]
