"""Strangers at several addresses reach each limit: health still answers, at the machine's speed.

One address alone has a share (`SENDER_SHARE`), so a whole limit is reached from `SENDER_SHARE` of them.
"""

import asyncio
import contextlib
import hashlib
import hmac
import sys
import time
from collections.abc import AsyncIterator
from email.message import EmailMessage
from urllib.parse import urlencode, urlsplit

import pytest
from attack_site import AttackSite, until
from bounds_kit import bearable
from mail_kit import signed, written
from starlette.types import Message, Receive, Scope, Send
from stranger import MAIL_SECRET, Line, head

from signoff.channels.mail.reply_reader import MAX_MAIL
from signoff.contracts import limits
from signoff.gateway.transport import body_limit

ADDRESSES = tuple(f"127.0.0.{number}" for number in range(11, 11 + limits.SENDER_SHARE))
ANOTHER = "127.0.0.99"
FORM = "application/x-www-form-urlencoded"
SECONDS = 0.5
"""Instead of 30 seconds for a body."""

only_here = pytest.mark.skipif(sys.platform != "linux", reason="one machine has one loopback address elsewhere")


@contextlib.asynccontextmanager
async def dialled_from(url: str, address: str) -> AsyncIterator[Line]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, local_addr=(address, 0))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, OSError):
            await writer.wait_closed()


async def answered(url: str, address: str, size: int = 1_000) -> int:
    async with dialled_from(url, address) as line:
        await line.send(head(url, "POST", "/login", content_type=FORM, content_length=str(size)) + b"x" * size)
        return (await line.answer())[0]


@only_here
async def test_bodies_over_the_concurrency_limit_are_refused(channel_site: AttackSite) -> None:
    # `BODIES_AT_ONCE`: the next sender from any address is `busy`, until those bodies time out. Without the check of
    # `BODIES_AT_ONCE` in `BodyQuota.begin` no sender was `busy`.
    url = channel_site.url
    begins = head(url, "POST", "/login", content_type=FORM, content_length="1000")
    async with bearable(channel_site), contextlib.AsyncExitStack() as stack:
        for address in ADDRESSES:
            for _ in range(limits.BODIES_AT_ONCE // limits.SENDER_SHARE):
                line = await stack.enter_async_context(dialled_from(url, address))
                await line.send(begins)

        async def busy() -> bool:
            return await answered(url, ANOTHER) == 503

        assert await until(busy, seconds=limits.BODY_GRACE_SECONDS)
        await stack.aclose()

        async def free() -> bool:
            return await answered(url, ANOTHER) != 503

        assert await until(free)


@only_here
async def test_bodies_over_the_byte_limit_are_refused(channel_site: AttackSite) -> None:
    # `BODY_BYTES_AT_ONCE`: as many large emails as all addresses together may hold; the next one is `busy`. Without the
    # check of `BODY_BYTES_AT_ONCE` in `BodyQuota.hold` the next one was received whole, and answered 401.
    url, size, kept = channel_site.url, 10 * limits.MIB, limits.MIB
    each = limits.BODY_BYTES_AT_ONCE // limits.SENDER_SHARE // size
    begins = head(url, "POST", "/channels/mail", content_type=FORM, content_length=str(size + kept))
    async with bearable(channel_site), contextlib.AsyncExitStack() as stack:
        lines = [
            await stack.enter_async_context(dialled_from(url, address)) for address in ADDRESSES for _ in range(each)
        ]

        async def poured(line: Line) -> None:
            await line.send(begins)
            for _ in range(size // limits.MIB):
                await line.send(b"x" * limits.MIB)

        await asyncio.gather(*(poured(line) for line in lines))
        async with dialled_from(url, ANOTHER) as last:
            await poured(last)
            await last.send(b"x" * kept)
            # Closed before the answer is read, if the sender was still sending.
            assert (await last.answer())[0] in (503, 0)
        for line in lines:
            await line.send(b"x" * kept)
        assert {(await line.answer())[0] for line in lines} <= {401, 503, 0}


@only_here
async def test_slow_body_is_refused_and_a_faster_one_received(channel_site: AttackSite) -> None:
    # `BODY_BYTES_PER_SECOND`: a quarter of it is `too_slow` after its grace period; a quarter more is received. With
    # `BODY_SECONDS` for every body in `_whole` of `body_limit.py` the slow one was received for all 30 seconds.
    url, size = channel_site.url, limits.STRANGER_BODY_BYTES
    begins = head(url, "POST", "/login", content_type=FORM, content_length=str(size))

    async def paced(address: str, rate: float) -> tuple[int, float]:
        begun = time.monotonic()
        async with dialled_from(url, address) as line:
            await line.send(begins)
            sent = piece = 0
            # By the clock, because a busy machine lengthens pauses.
            while sent < size and await line.send(b"x" * piece):
                sent += piece
                await asyncio.sleep(0.1)
                piece = min(size, int(rate * (time.monotonic() - begun))) - sent
            return (await line.answer())[0], time.monotonic() - begun

    rate = limits.BODY_BYTES_PER_SECOND
    async with bearable(channel_site):
        slow, fast = await asyncio.gather(paced(ADDRESSES[0], 0.25 * rate), paced(ADDRESSES[1], 1.25 * rate))
    assert (slow[0] in (408, 0), fast[0]) == (True, 403)
    assert limits.BODY_GRACE_SECONDS - 1 < slow[1] < limits.BODY_SECONDS


async def test_endless_body_is_refused_after_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # `BODY_SECONDS`, half a second here: a body that is fast enough at every moment still times out. Without
    # `BODY_SECONDS` in `_whole` of `body_limit.py` it was received until it was too large (413).
    monkeypatch.setattr(body_limit, "BODY_SECONDS", SECONDS)
    kinds: list[str] = []
    answers: list[Message] = []

    async def nobody(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("an endless body came to its end")

    async def endless() -> Message:
        await asyncio.sleep(SECONDS / 20)
        return {"type": "http.request", "body": b"x" * limits.BODY_BYTES_PER_SECOND, "more_body": True}

    async def send(message: Message) -> None:
        answers.append(message)

    limited = body_limit.BodyLimit(nobody, lambda path: limits.REQUEST_BODY_BYTES, kinds.append)
    scope = {"type": "http", "method": "POST", "path": "/v1/turns", "headers": [], "client": (ANOTHER, 1)}
    begun = time.monotonic()
    await limited(scope, endless, send)
    assert (answers[0]["status"], kinds) == (408, ["too_slow"])
    assert time.monotonic() - begun >= SECONDS


def mailed(raw: bytes) -> bytes:
    moment, token = str(int(time.time())), hashlib.sha256(raw).hexdigest()[:50]
    mark = hmac.new(MAIL_SECRET.encode(), (moment + token).encode(), hashlib.sha256).hexdigest()
    fields = {"timestamp": moment, "token": token, "signature": mark, "body-mime": raw.decode("latin-1")}
    return urlencode(fields, encoding="latin-1").encode()


def claimed(number: int, body: bytes) -> bytes:
    sender = f"eve@a.b.mute{number}.invalid"
    mail: EmailMessage | bytes = written(sender, "approvals@example.com", "approve K7Q-2FM")
    for selector in range(2 * limits.MAIL_SIGNATURES_TRIED):
        mail = signed(mail, selector=f"s{selector}", domain=f"mute{number}.invalid")
    assert isinstance(mail, bytes)
    # Every other one claims the other form of the body.
    head, *others = mail.split(b"c=relaxed/simple;")
    forms = (b"c=relaxed/simple;", b"c=relaxed/relaxed;") * limits.MAIL_SIGNATURES_TRIED
    mail = head + b"".join(form + other for form, other in zip(forms, others, strict=True))
    return mail.rstrip(b"\r\n") + b"\r\n" + body


async def test_longest_emails_do_not_delay_health(channel_site: AttackSite) -> None:
    # `MAIL_HASHED_BYTES`, `MAIL_SIGNATURES_TRIED`, `MAIL_LOOKUP_SECONDS`: the longest emails, several at once. With
    # emails read on the event loop in `EmailChannel.read` instead of a thread, a health answer took 16 seconds; with
    # only the limits of hashes and signatures removed health answered in time. Blanks are work for the relaxed form,
    # and line ends are few because they triple in a form.
    line = b" a" * 450 + b"\r\n"
    body = line * ((MAX_MAIL - limits.MIB // 4) // len(line))
    assert 2 * len(body) > 0.9 * limits.MAIL_HASHED_BYTES
    bodies = [mailed(claimed(number, body)) for number in range(limits.SENDER_SHARE)]

    async def brought(address: str, content: bytes) -> int:
        async with dialled_from(channel_site.url, address) as line:
            length = str(len(content))
            await line.send(
                head(channel_site.url, "POST", "/channels/mail", content_type=FORM, content_length=length) + content
            )
            return (await line.answer())[0]

    addresses = ADDRESSES if sys.platform == "linux" else ("127.0.0.1",) * len(ADDRESSES)
    async with bearable(channel_site):
        found = await asyncio.gather(*map(brought, addresses, bodies))
    assert set(found) <= {200, 503}
    assert 200 in found
