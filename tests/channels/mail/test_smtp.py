import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult
from certificates import certified
from mail_kit import Relay, relay
from tables import table

from signoff.channels.channel_errors import NotDelivered
from signoff.channels.mail.email import knock, send
from signoff.channels.mail.letter import Letter
from signoff.channels.mail.options import SmtpOptions

LETTER = Letter("back@signoff.example", "bo@people.example", "<1@signoff.example>", "S", b"Subject: S\r\n\r\nhi\r\n")


def options(port: int, **given: Any) -> SmtpOptions:
    return SmtpOptions(**{"host": "127.0.0.1", "port": port, "tls": "none", **given})


async def refusal(given: SmtpOptions) -> NotDelivered:
    with pytest.raises(NotDelivered) as caught:
        await send(given, LETTER, "signoff.example")
    return caught.value


async def test_letter_is_sent_unchanged_to_one_recipient() -> None:
    async with relay() as server:
        assert "queued" in await send(options(server.port), LETTER, "signoff.example")
    [taken] = server.taken
    assert (taken.sender, taken.to, taken.content) == (LETTER.sender, (LETTER.to,), LETTER.content)


async def test_reply_has_an_empty_envelope_sender() -> None:
    async with relay() as server:
        await send(options(server.port), Letter("", *list(vars(LETTER).values())[1:]), "signoff.example")
    assert server.taken[0].sender == ""


@table(
    ("expected", "code", "again", "after"),
    ("550 5.1.1 no such user", "550", False, 0),
    ("553 5.7.1 not from here", "553", False, 0),
    ("450 4.2.0 greylisted", "450", True, 0),
    ("452 4.3.1 no room", "452", True, 0),
    ("421 4.7.0 too many", "421", True, 30),
)
async def test_smtp_errors_are_classified(expected: str, code: str, again: bool, after: float) -> None:
    async with relay() as server:
        server.trouble = expected
        error = await refusal(options(server.port))
    assert (error.code, error.again, error.after) == (code, again, after)
    assert expected[4:] in error.message


async def test_unavailable_server_is_retried() -> None:
    async with relay() as server:
        server.trouble = "down"
        error = await refusal(options(server.port))
        assert (error.code, error.again) == ("connection", True)
        assert await knock(options(server.port), "signoff.example")
        gone = server.port
    error = await refusal(options(gone))
    assert (error.code, error.again) == ("connection", True)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = await refusal(options(silent.getsockname()[1], timeout_seconds=0.2))
    assert (error.code, error.again) == ("timeout", True)


async def test_missing_required_tls_prevents_sending() -> None:
    async with relay() as server:
        error = await refusal(options(server.port, tls="starttls"))
        assert error.again
        assert await knock(options(server.port, tls="starttls"), "signoff.example")
    assert server.taken == []


@asynccontextmanager
async def guarded() -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    kept = Relay()

    def known(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        return AuthResult(success=data.login == b"signoff" and data.password == b"right", handled=False)

    def speak() -> asyncio.Protocol:
        return SMTP(kept, hostname="relay", loop=loop, authenticator=known, auth_require_tls=False, timeout=90)

    async with await loop.create_server(speak, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_wrong_password_is_a_retryable_error_without_the_password() -> None:
    async with guarded() as port:
        await send(options(port, user="signoff", password="right"), LETTER, "signoff.example")
        assert await knock(options(port, user="signoff", password="right"), "signoff.example") == ""
        error = await refusal(options(port, user="signoff", password="wrong-one"))
        found = await knock(options(port, user="signoff", password="wrong-one"), "signoff.example")
    assert (error.code, error.again, error.after) == ("535", True, 30)
    assert found
    assert "wrong-one" not in error.message + found


@asynccontextmanager
async def secret(kept: Relay, file: Path, *, at_once: bool) -> AsyncIterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    loop = asyncio.get_running_loop()

    def speak() -> asyncio.Protocol:
        later = None if at_once else context
        return SMTP(kept, hostname="relay", loop=loop, timeout=90, tls_context=later, require_starttls=not at_once)

    async with await loop.create_server(speak, "127.0.0.1", 0, ssl=context if at_once else None) as server:
        yield server.sockets[0].getsockname()[1]


@table("way", "tls", "starttls")
async def test_certificate_of_the_server_is_verified(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Relay()
    good, other = certified(tmp_path), certified(tmp_path, "127.0.0.9")
    async with secret(kept, good, at_once=way == "tls") as port:
        assert (await refusal(options(port, tls=way))).again
        monkeypatch.setenv("SSL_CERT_FILE", str(good))
        await send(options(port, tls=way), LETTER, "signoff.example")
    async with secret(kept, other, at_once=way == "tls") as port:
        monkeypatch.setenv("SSL_CERT_FILE", str(other))
        assert (await refusal(options(port, tls=way))).again
    assert len(kept.taken) == 1
