"""Fakes an email server for both directions, and the approver's mail client: real SMTP, on this machine only.

Incoming mail has the header of a server that has checked SPF and DMARC.
"""

import asyncio
import smtplib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import make_msgid
from functools import partial
from typing import Any, Final, Literal

from aiosmtpd.smtp import SMTP, Envelope, Session

OWN_SERVER: Final = "mx.signoff.example"
"""The name under which it signs its verdicts."""
APPROVALS: Final = "approvals@signoff.example"


@dataclass
class FakeMail:
    """Sent email is in `taken`, in order. Replies go to `inbound`, a port of the channel."""

    inbound: int
    port: int = 0
    taken: list[EmailMessage] = field(default_factory=list)

    @property
    def options(self) -> Mapping[str, Any]:
        return {
            "smtp": {"host": "127.0.0.1", "port": self.port, "tls": "none"},
            "sender": f"Signoff <{APPROVALS}>",
            "authserv_id": OWN_SERVER,
            "inbound": {"lmtp": {"port": self.inbound, "protocol": "smtp"}},
        }

    def mails(self, address: str) -> list[EmailMessage]:
        return [mail for mail in self.taken if address in str(mail["To"])]

    async def reply(self, to: EmailMessage, sender: str, words: str, verdict: Literal["pass", "fail"] = "pass") -> None:
        """Quote the email in the reply. Raises `OSError` and the errors of `smtplib`."""
        mail = EmailMessage(policy.SMTP)
        mail["From"], mail["To"], mail["Subject"] = sender, str(to["Reply-To"]), f"Re: {to['Subject']}"
        mail["Message-ID"] = make_msgid(domain=sender.partition("@")[2])
        mail["In-Reply-To"] = str(to["Message-ID"])
        quoted = "\n".join(f"> {line}" for line in text_of(to).splitlines())
        mail.set_content(f"{words}\n\nOn {to['Date']}, Signoff wrote:\n{quoted}\n")
        domain = sender.partition("@")[2]
        seen = f"spf={verdict} smtp.mailfrom={sender}; dmarc={verdict} header.from={domain}"
        # The format of Postfix: its results count above its own `Received` line.
        taken = f"Received: from {domain} by {OWN_SERVER} with ESMTPS; {to['Date']}\r\n"
        judged = f"Authentication-Results: {OWN_SERVER}; {seen}\r\n{taken}".encode()
        # Use a thread: `smtplib` blocks, and the channel may listen in this event loop.
        given = partial(_hand_in, self.inbound, sender, str(to["Reply-To"]), judged + mail.as_bytes())
        await asyncio.get_running_loop().run_in_executor(None, given)

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Sequence[Any]
    ) -> str:
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        mail = message_from_bytes(bytes(envelope.original_content or b""), policy=policy.default)
        if not isinstance(mail, EmailMessage):
            return "554 this is no mail"
        self.taken.append(mail)
        return "250 OK queued"


def text_of(mail: EmailMessage) -> str:
    part = mail.get_body(("plain",))
    return "" if part is None else str(part.get_content())


@asynccontextmanager
async def fake_mail(inbound: int) -> AsyncIterator[FakeMail]:
    loop, made = asyncio.get_running_loop(), FakeMail(inbound)

    def speak() -> asyncio.Protocol:
        return SMTP(made, hostname=OWN_SERVER, loop=loop)

    async with await loop.create_server(speak, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


def _hand_in(port: int, sender: str, recipient: str, mail: bytes) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=30) as server:
        server.sendmail(sender, [recipient], mail)
