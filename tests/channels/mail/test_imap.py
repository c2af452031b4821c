import asyncio
import imaplib
import smtplib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dovecot import PASSWORD, Dovecot, dovecot
from imap_tools.idle import IdleManager
from mail_kit import judged, relay
from mail_post import Post

from signoff.channels.base import Channel, Receive
from signoff.channels.envelopes import InboundBatch, InboundRequest
from signoff.channels.mail import imap
from signoff.channels.mail.imap import LOOK_SECONDS
from signoff.contracts.errors import StoreUnavailable, Unavailable
from signoff.testing.channel_cards import open_rig
from signoff.testing.channels import ChannelSuite
from signoff.testing.rig import ChannelRig
from signoff.testing.vendor import Vendor

pytestmark = pytest.mark.dovecot


class MailboxPost(Post):
    def __init__(self, server: Any, box: Dovecot, password: str = PASSWORD) -> None:
        super().__init__(server)
        self._box = box
        self._password = password

    @property
    def options(self) -> Mapping[str, Any]:
        imap = {"host": "127.0.0.1", "port": self._box.imap, "tls": "none", "user": "approvals"}
        return {**super().options, "inbound": {"imap": imap | {"password": "env:MAIL_PASSWORD"}}}

    @property
    def environment(self) -> Mapping[str, str]:
        return {"MAIL_PASSWORD": self._password}

    def deliver(self, raw: bytes, to: str = "approvals@signoff.example") -> None:
        with smtplib.LMTP("127.0.0.1", self._box.lmtp, timeout=90) as lmtp:
            lmtp.sendmail("somebody@people.example", [to], raw)

    def unread(self) -> int:
        return self.found("UNSEEN")

    def found(self, what: str) -> int:
        with imaplib.IMAP4("127.0.0.1", self._box.imap, timeout=90) as box:
            box.login("approvals", PASSWORD)
            box.select(readonly=True)
            _, found = box.search(None, what)
        return len(found[0].split())

    def remove(self, subject: str) -> None:
        with imaplib.IMAP4("127.0.0.1", self._box.imap, timeout=90) as box:
            box.login("approvals", PASSWORD)
            box.select()
            _, found = box.search(None, "SUBJECT", subject)
            box.store(found[0].decode(), "+FLAGS", "\\Deleted")
            box.expunge()


@pytest.fixture(scope="module")
def server() -> Iterator[Dovecot]:
    with dovecot() as made:
        yield made


def suite(server: Dovecot) -> ChannelSuite:
    class Suite(ChannelSuite):
        @asynccontextmanager
        async def vendor(self) -> AsyncIterator[Vendor]:
            async with relay() as smtp:
                yield MailboxPost(smtp, server)

    return Suite()


@pytest.fixture
async def rig(server: Dovecot, tmp_path: Path) -> AsyncIterator[ChannelRig]:
    with imaplib.IMAP4("127.0.0.1", server.imap, timeout=90) as box:
        box.login("approvals", PASSWORD)
        _, count = box.select()
        if count != [b"0"]:
            box.store("1:*", "+FLAGS", "\\Deleted")
            box.expunge()
    async with open_rig(suite(server), tmp_path) as made:
        yield made


@dataclass
class Watch:
    """Counts searches of the mailbox without a result, and the IDLE commands after them."""

    looks: int = 0
    listened: int = 0

    async def again(self) -> None:
        before = self.listened
        while self.listened == before:
            await asyncio.sleep(0.01)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch, wait, poll = Watch(), imap._wait, IdleManager.poll

    def waiting(*given: Any) -> None:
        watch.looks += 1
        wait(*given)

    def polled(idle: IdleManager, timeout: float | None) -> list[bytes]:
        watch.listened += 1
        return poll(idle, timeout)

    monkeypatch.setattr(imap, "_wait", waiting)
    monkeypatch.setattr(IdleManager, "poll", polled)
    return watch


@asynccontextmanager
async def listening(rig: ChannelRig, take: Receive | None = None) -> AsyncIterator[None]:
    task = asyncio.create_task(rig.channel.listen(take or partial(rig.receiver.take, rig.channel.name)))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(rig: ChannelRig, approval: str, state: str) -> None:
    async with asyncio.timeout(LOOK_SECONDS / 2):
        while rig.request(approval).state != state:
            await rig.process_inbound()
            await asyncio.sleep(0.05)


def post(rig: ChannelRig) -> MailboxPost:
    assert isinstance(rig.vendor, MailboxPost)
    return rig.vendor


def answer(rig: ChannelRig, words: str) -> bytes:
    raw = rig.vendor.reply(rig.card(rig.bo), rig.bo, words)
    assert raw is not None
    return raw.body


async def test_answer_is_read_as_soon_as_it_arrives(rig: ChannelRig, watch: Watch) -> None:
    request = await rig.ask()
    async with listening(rig):
        await watch.again()
        await asyncio.to_thread(post(rig).deliver, answer(rig, "approve"))
        await until(rig, request.id, "approved")
    assert rig.request(request.id).decided_by == "bo"
    assert "Approved" in rig.text_read_by(rig.bo)
    assert post(rig).unread() == 0
    async with listening(rig):
        await watch.again()
    assert len(rig.decisions.answers) == 1


async def test_email_between_search_and_idle_is_read_at_once(
    rig: ChannelRig, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dovecot reports it directly after its reply to IDLE, where polling the socket no longer finds it."""
    request, wait = await rig.ask(), imap._wait

    def waiting(*given: Any) -> None:
        if watch.looks == 0:
            post(rig).deliver(answer(rig, "approve"))
        wait(*given)

    monkeypatch.setattr(imap, "_wait", waiting)
    async with listening(rig):
        await until(rig, request.id, "approved")
    assert rig.request(request.id).decided_by == "bo"
    assert watch.looks == 2


async def test_email_that_arrives_during_another_is_read_at_once(rig: ChannelRig, watch: Watch) -> None:
    """Dovecot reports it in its reply to the first email's mark, and IDLE does not repeat it."""
    request = await rig.ask()
    post(rig).deliver(b"Subject: first\r\n\r\nhi")

    async def take(raw: InboundRequest) -> InboundBatch:
        if b"Subject: first" in raw.body:
            await asyncio.to_thread(post(rig).deliver, answer(rig, "approve"))
        return await rig.receiver.take(rig.channel.name, raw)

    async with listening(rig, take):
        await until(rig, request.id, "approved")
    assert rig.request(request.id).decided_by == "bo"


@pytest.mark.parametrize(
    ("expected", "new"),
    [
        ([([b"3"], 0)], [True]),
        ([([b"3"], 0), ([b"3"], 0), ([b"4"], 0)], [True, False, True]),
        ([([b"3"], 0), ([], 1), ([b"3"], 0)], [True, False, True]),
        ([([b"3"], 0), ([b"3"], 1), ([b"3"], 0), ([b"3"], 0)], [True, True, True, False]),
    ],
)
def test_repeated_message_count_is_no_new_email(expected: list[tuple[list[bytes], int]], new: list[bool]) -> None:
    count = imap._Count()
    assert [count.grew(*each) for each in expected] == new


async def test_older_answers_are_read_and_unreadable_emails_skipped(rig: ChannelRig) -> None:
    request = await rig.ask()
    away = judged(post(rig)._reply(rig.card(rig.bo), rig.bo, "approve"))
    post(rig).deliver(b"Auto-Submitted: auto-replied\r\n" + away)
    post(rig).deliver(b"\r\nno header\r\n")
    post(rig).deliver(judged(post(rig)._reply(rig.card(rig.bo), rig.bo, "approve")) + b"On \r\n" * 2_200_000)
    post(rig).deliver(answer(rig, "deny\ntoo expensive"))
    async with listening(rig):
        await until(rig, request.id, "denied")
    assert rig.request(request.id).reason == "too expensive"
    assert post(rig).unread() == 0


async def test_reply_to_a_cards_own_address_arrives_in_the_same_mailbox(rig: ChannelRig) -> None:
    """Dovecot sorts `approvals+anything` to `approvals`."""
    request = await rig.ask()
    own_address = str(post(rig)._card(rig.card(rig.bo)).mail["Reply-To"])
    post(rig).deliver(answer(rig, "approve"), own_address)
    async with listening(rig):
        await until(rig, request.id, "approved")
    assert rig.request(request.id).decided_by == "bo"


async def test_email_that_cannot_be_stored_stays_unread(rig: ChannelRig) -> None:
    request = await rig.ask()
    post(rig).deliver(answer(rig, "approve"))

    async def full(raw: InboundRequest) -> InboundBatch:
        raise StoreUnavailable("the store does not answer")

    with pytest.raises(Unavailable, match="does not answer"):
        await rig.channel.listen(full)
    assert post(rig).unread() == 1
    async with listening(rig):
        await until(rig, request.id, "approved")


async def test_slow_email_delays_no_other(rig: ChannelRig, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imap, "_HAND_SECONDS", 2.0)
    monkeypatch.setattr(imap, "LOOK_SECONDS", 1)
    request = await rig.ask()
    slow = b"Subject: slow\r\n\r\nhi"
    post(rig).deliver(slow)
    post(rig).deliver(answer(rig, "approve"))
    tried = []

    async def take(raw: InboundRequest) -> InboundBatch:
        if b"Subject: slow" in raw.body:
            tried.append(raw)
            await asyncio.Event().wait()
        return await rig.receiver.take(rig.channel.name, raw)

    async with listening(rig, take):
        await until(rig, request.id, "approved")
        async with asyncio.timeout(LOOK_SECONDS / 2):
            while post(rig).found("FLAGGED") == 0:
                await asyncio.sleep(0.1)
        before = watch.looks
        while watch.looks < before + 2:
            await asyncio.sleep(0.05)
    assert (len(tried), post(rig).unread()) == (2, 0)


async def test_emails_of_several_domains_run_concurrently_and_one_domains_in_order(rig: ChannelRig) -> None:
    request = await rig.ask()
    for number in range(4):
        slow = f"From: eve@slow.example\r\nSubject: slow {number}\r\n\r\nhi"
        post(rig).deliver(slow.encode())
    post(rig).deliver(answer(rig, "approve"))
    taken: list[bytes] = []
    go_on = asyncio.Event()

    async def take(raw: InboundRequest) -> InboundBatch:
        taken.append(raw.body)
        if b"Subject: slow" in raw.body:
            await go_on.wait()
        return await rig.receiver.take(rig.channel.name, raw)

    async with listening(rig, take):
        await until(rig, request.id, "approved")
        assert sum(b"Subject: slow" in each for each in taken) == 1
        go_on.set()
        async with asyncio.timeout(LOOK_SECONDS / 2):
            while post(rig).unread():
                await asyncio.sleep(0.05)
    slow_ones = [each for each in taken if b"Subject: slow" in each]
    assert [b"slow %d" % number in each for number, each in enumerate(slow_ones)] == [True] * 4


async def test_email_removed_during_processing_delays_no_other(rig: ChannelRig) -> None:
    request = await rig.ask()
    post(rig).deliver(b"Subject: first\r\n\r\nhi")
    post(rig).deliver(b"Subject: second\r\n\r\nhi")
    post(rig).deliver(answer(rig, "approve"))
    taken: list[bytes] = []

    async def take(raw: InboundRequest) -> InboundBatch:
        taken.append(raw.body)
        if b"Subject: first" in raw.body:
            await asyncio.to_thread(post(rig).remove, "second")
        return await rig.receiver.take(rig.channel.name, raw)

    async with listening(rig, take):
        await until(rig, request.id, "approved")
    assert not any(b"second" in each for each in taken)


async def test_server_without_idle_is_polled(tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imap, "DEAF_SECONDS", 0.2)
    with dovecot("IMAP4rev1") as deaf:
        async with open_rig(suite(deaf), tmp_path) as rig:
            request = await rig.ask()
            async with listening(rig):
                while not watch.looks:
                    await asyncio.sleep(0.05)
                await asyncio.to_thread(post(rig).deliver, answer(rig, "approve"))
                await until(rig, request.id, "approved")
            assert (rig.request(request.id).decided_by, watch.listened) == ("bo", 0)


async def test_mailbox_is_released_at_once(rig: ChannelRig, watch: Watch) -> None:
    async with asyncio.timeout(LOOK_SECONDS / 4) as bounded:
        async with listening(rig):
            await watch.again()
    assert not bounded.expired()


async def test_unavailable_mailbox_is_reported(rig: ChannelRig, server: Dovecot) -> None:
    channel = remade(rig.channel, MailboxPost(post(rig)._server, server, password="another"))
    with pytest.raises(Unavailable, match="the mailbox cannot be opened") as caught:
        await channel.listen(partial(rig.receiver.take, channel.name))
    assert "another" not in str(caught.value)
    assert [(each.ok, each.remedy) for each in await channel.check()] == [(True, ""), (False, "check `inbound.imap`")]
    assert [each.ok for each in await rig.channel.check()] == [True, True]


def remade(channel: Channel, vendor: MailboxPost) -> Channel:
    options = vendor.options
    options["inbound"]["imap"]["password"] = vendor.environment["MAIL_PASSWORD"]
    context = channel.context
    return type(channel)(type(context)(context.name, options, context.public_url, context.clock, context.secret))
