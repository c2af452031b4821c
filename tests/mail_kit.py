import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.utils import make_msgid
from functools import cache
from typing import Any, Literal

import dkim
from aiosmtpd.smtp import SMTP, Envelope, Session
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

OWN_SERVER = "mx.signoff.example"
"""The authserv-id of our own mail server."""
SELECTOR = "s1"


@dataclass(frozen=True)
class Delivered:
    sender: str
    to: tuple[str, ...]
    content: bytes

    @property
    def mail(self) -> EmailMessage:
        found = message_from_bytes(self.content, policy=policy.default)
        assert isinstance(found, EmailMessage)
        return found

    @property
    def plain(self) -> str:
        return self._part("plain").replace("\r\n", "\n")

    @property
    def html(self) -> str:
        return self._part("html")

    def _part(self, kind: str) -> str:
        part = self.mail.get_body((kind,))
        assert part is not None
        return str(part.get_content())


@dataclass
class Relay:
    """`trouble` is its misbehaviour, or its answer to a recipient."""

    port: int = 0
    taken: list[Delivered] = field(default_factory=list)
    trouble: str = ""

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Sequence[Any]
    ) -> str:
        if self.trouble[:1].isdigit():
            return self.trouble
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        content = bytes(envelope.original_content or b"")
        assert all(len(line) <= 998 for line in content.split(b"\r\n"))
        self.taken.append(Delivered((envelope.mail_from or "").strip("<>"), tuple(envelope.rcpt_tos), content))
        return "250 OK queued"


class _Dead(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@asynccontextmanager
async def relay() -> AsyncIterator[Relay]:
    """Refuses connections while its `trouble` is `down`."""
    loop = asyncio.get_running_loop()
    made = Relay()

    def speak() -> asyncio.Protocol:
        return _Dead() if made.trouble == "down" else SMTP(made, hostname="relay", loop=loop, timeout=90)

    async with await loop.create_server(speak, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


def replied(
    card: Delivered, sender: str, words: str, *, to: str = "", headers: Mapping[str, str] | None = None
) -> EmailMessage:
    original = card.mail
    quoted = "\n".join(f"> {line}" for line in card.plain.split("\n"))
    mail = written(
        sender, to or str(original["Reply-To"]), f"{words}\n\nOn Sun, 22 Nov 2026, Signoff wrote:\n{quoted}\n"
    )
    del mail["Subject"]
    mail["Subject"] = f"Re: {original['Subject']}"
    mail["In-Reply-To"] = str(original["Message-ID"])
    mail["References"] = str(original["Message-ID"])
    for name, value in (headers or {}).items():
        del mail[name]
        mail[name] = value
    return mail


def written(sender: str, to: str, words: str) -> EmailMessage:
    mail = EmailMessage(policy.SMTP.clone(max_line_length=998))
    mail["From"] = f"Somebody <{sender}>"
    mail["To"] = to
    mail["Subject"] = "Approvals"
    mail["Date"] = "Sun, 22 Nov 2026 14:00:00 +0000"
    mail["Message-ID"] = make_msgid(domain=sender.partition("@")[2])
    mail.set_content(words)
    return mail


def judged(mail: EmailMessage, *, result: Literal["pass", "fail"] = "pass", by: str = OWN_SERVER) -> bytes:
    """Add the field of a mail server that checked SPF and DMARC."""
    address = str(mail["From"]).partition("<")[2].rstrip(">")
    domain = address.partition("@")[2]
    verdict = f"{by}; spf={result} smtp.mailfrom={address}; dmarc={result} header.from={domain}"
    return received(f"Authentication-Results: {verdict}\r\n".encode() + mail.as_bytes())


def received(raw: bytes, by: str = OWN_SERVER) -> bytes:
    at = "Sun, 22 Nov 2026 14:00:00 +0000"
    return (
        f"Received: from out.people.example (out.people.example [192.0.2.7]) by {by} with ESMTPS; {at}\r\n".encode()
        + raw
    )


def signed(
    mail: EmailMessage | bytes,
    *,
    leaving_out: Sequence[bytes] = (),
    domain: str = "",
    signer: str = "",
    selector: str = SELECTOR,
) -> bytes:
    """The signature covers all fields except the omitted ones. `signer` is the named signer (`i=`). Existing signatures
    are not covered.
    """
    raw = mail if isinstance(mail, bytes) else mail.as_bytes()
    read = BytesHeaderParser().parsebytes(raw)
    by = (domain or str(read["From"]).partition("@")[2].rstrip(">")).encode()
    apart = (*leaving_out, b"dkim-signature")
    names = [name.lower().encode() for name in read.keys() if name.lower().encode() not in apart]  # noqa: SIM118
    who = signer.encode() or None
    return bytes(dkim.sign(raw, selector.encode(), by, _key()[0], identity=who, include_headers=names)) + raw


def key_record(more: str = "") -> str:
    return f"v=DKIM1; {more}k=rsa; p={_key()[1]}"


async def published(name: str) -> list[str]:
    """The DNS, with the same key for every domain."""
    return [key_record()] if name.startswith(f"{SELECTOR}._domainkey.") else []


@cache
def _key() -> tuple[bytes, str]:
    made = rsa.generate_private_key(65_537, 2_048)
    private = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = made.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, base64.b64encode(public).decode()
