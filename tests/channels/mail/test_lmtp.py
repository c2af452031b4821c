import asyncio
import smtplib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from mail_kit import judged, published, written
from tables import table

from signoff.channels.base import ChannelContext
from signoff.channels.envelopes import InboundBatch, InboundRequest
from signoff.channels.mail.email import EmailChannel
from signoff.channels.mail.raw_mail import FetchedMail
from signoff.contracts.errors import StoreUnavailable, Unavailable
from signoff.temporal.embedded_server import free_port

OURS = "approvals@signoff.example"


def channel(protocol: str, port: int) -> EmailChannel:
    options: dict[str, Any] = {
        "smtp": {"host": "127.0.0.1", "port": 9, "tls": "none"},
        "sender": OURS,
        "authserv_id": "mx.signoff.example",
        "inbound": {"lmtp": {"port": port, "protocol": protocol}},
    }
    return EmailChannel(
        ChannelContext("email", options, "https://signoff.example", lambda: datetime.now(UTC), b"k" * 32), published
    )


class Kept:
    def __init__(self, made: EmailChannel) -> None:
        self.raws: list[FetchedMail] = []
        self.failure: Exception | None = None
        self._channel = made

    async def take(self, raw: InboundRequest) -> InboundBatch:
        if self.failure is not None:
            raise self.failure
        assert isinstance(raw, FetchedMail)
        self.raws.append(raw)
        return self._channel.receive(raw)


async def listening(port: int) -> None:
    while True:
        with suppress(ConnectionRefusedError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.01)


@asynccontextmanager
async def served(protocol: str) -> AsyncIterator[tuple[int, Kept]]:
    port = free_port()
    made = channel(protocol, port)
    kept = Kept(made)
    task = asyncio.create_task(made.listen(kept.take))
    await listening(port)
    try:
        yield port, kept
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def spoken(protocol: str, port: int, talk: Callable[[smtplib.SMTP], Any]) -> Any:
    def speak() -> Any:
        with (smtplib.LMTP if protocol == "lmtp" else smtplib.SMTP)("127.0.0.1", port, timeout=90) as talking:
            return talk(talking)

    return await asyncio.to_thread(speak)


def mail() -> bytes:
    return judged(written("ana@people.example", OURS, "approve K7Q-2FM"))


@table("protocol", "lmtp", "smtp")
async def test_stored_email_is_acknowledged_for_each_recipient(protocol: str) -> None:
    both = [OURS, "approvals+token.proof@signoff.example"]

    def talk(talking: smtplib.SMTP) -> list[int]:
        talking.ehlo_or_helo_if_needed()
        talking.mail("ana@people.example")
        for each in both:
            talking.rcpt(each)
        first, _ = talking.data(mail())
        return [first, talking.getreply()[0]] if protocol == "lmtp" else [first]

    async with served(protocol) as (port, kept):
        assert set(await spoken(protocol, port, talk)) == {250}
    [raw] = kept.raws
    assert raw.recipients == tuple(both)
    assert b"\r\nAuthentication-Results: mx.signoff.example;" in raw.body


@table("protocol", "lmtp", "smtp")
async def test_foreign_recipient_is_refused(protocol: str) -> None:
    async with served(protocol) as (port, kept):
        for other in ("ana@people.example", "approvals@else.example", "approval@signoff.example"):
            with pytest.raises(smtplib.SMTPRecipientsRefused) as caught:
                await spoken(protocol, port, lambda talk, to=other: talk.sendmail("a@people.example", [to], mail()))
            assert caught.value.recipients[other][0] == 550
    assert kept.raws == []


@pytest.mark.parametrize("protocol", ["lmtp", "smtp"])
async def test_email_is_retried_after_a_store_failure_and_refused_if_malformed(protocol: str) -> None:
    async with served(protocol) as (port, kept):
        kept.failure = StoreUnavailable("the store does not answer")
        assert await refused(protocol, port, mail()) == 451
        kept.failure = None
        assert await refused(protocol, port, b"\r\nno header\r\n") == 554
        assert await refused(protocol, port, mail() + b"%b\r\n" % (b"On" * 400) * 13_800) == 552
        assert await spoken(protocol, port, lambda talk: talk.sendmail("a@people.example", [OURS], mail())) == {}


async def refused(protocol: str, port: int, raw: bytes) -> int:
    def talk(talking: smtplib.SMTP) -> int:
        talking.ehlo_or_helo_if_needed()
        talking.mail("ana@people.example")
        talking.rcpt(OURS)
        return talking.data(raw)[0]

    return int(await spoken(protocol, port, talk))


async def test_port_in_use_is_reported() -> None:
    async with served("lmtp") as (port, _):
        with pytest.raises(Unavailable, match=f"`127.0.0.1:{port}` cannot be listened on"):
            await channel("lmtp", port).listen(Kept(channel("lmtp", port)).take)


async def test_trusted_port_open_to_others_is_warned_about() -> None:
    for host, ok in (("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False), ("signoff.example", False)):
        made = channel("lmtp", 24)
        lmtp = {**made.context.options["inbound"]["lmtp"], "host": host}
        options = {**made.context.options, "inbound": {"lmtp": lmtp}}
        context = ChannelContext("email", options, "https://signoff.example", lambda: datetime.now(UTC), b"k" * 32)
        found = (await EmailChannel(context, published).check())[-1]
        assert (found.ok, "authserv_id" in found.remedy) == (ok, not ok), host
        unsigned = {**options, "authserv_id": ""}
        assert (await EmailChannel(replace(context, options=unsigned), published).check())[-1].ok
