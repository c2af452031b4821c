"""Listens on a port where our own mail server hands answers in, each acknowledged once it is kept."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from aiosmtpd.lmtp import LMTP
from aiosmtpd.smtp import SMTP, Envelope, Session

from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.mail.options import LmtpOptions
from signoff.contracts.errors import Unavailable

TakeMail = Callable[[bytes, tuple[str, ...]], Awaitable[object]]
"""Keeps a mail for the recipients of its envelope. Raises `Forged`, `Malformed`, `Unavailable`."""
_IDLE_SECONDS: Final = 60.0
# RFC 5321 wants room for 100, and 452 for the next: the sender then brings the mail for the rest by itself.
_MAX_RECIPIENTS: Final = 100
_log = logging.getLogger(__name__)


async def serve(options: LmtpOptions, max_bytes: int, ours: Callable[[str], bool], take: TakeMail) -> None:
    """Takes mail for addresses that are `ours`, of at most `max_bytes`, until cancelled. Raises `Unavailable`."""
    loop = asyncio.get_running_loop()
    spoken: type[SMTP] = LMTP if options.protocol == "lmtp" else SMTP

    def speak() -> SMTP:
        handler = _MailHandler(ours, take, each=options.protocol == "lmtp")
        return spoken(
            handler, data_size_limit=max_bytes, hostname="signoff", ident="Signoff", timeout=_IDLE_SECONDS, loop=loop
        )

    try:
        server = await loop.create_server(speak, options.host, options.port)
    except OSError as error:
        raise Unavailable(f"`{options.host}:{options.port}` cannot be listened on: {error.strerror}") from None
    async with server:
        await server.serve_forever()


class _MailHandler:
    """What a conversation asks for. Names are aiosmtpd's."""

    def __init__(self, ours: Callable[[str], bool], take: TakeMail, *, each: bool) -> None:
        self._ours = ours
        self._take = take
        self._each = each

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Sequence[Any]
    ) -> str:
        """Takes recipients of ours alone: we pass nothing on."""
        if not self._ours(address):
            return "550 5.1.1 there is no such address here"
        if len(envelope.rcpt_tos) >= _MAX_RECIPIENTS:
            return "452 4.5.3 too many recipients"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Takes a mail, refuses it for good, or has it brought again. LMTP answers for each recipient (RFC 2033)."""
        # `content` may be decoded text; a DKIM signature is over the bytes as they came.
        answer = await self._answer(bytes(envelope.original_content or b""), tuple(envelope.rcpt_tos))
        return "\r\n".join([answer] * (len(envelope.rcpt_tos) if self._each else 1))

    async def _answer(self, raw: bytes, recipients: tuple[str, ...]) -> str:
        try:
            await self._take(raw, recipients)
        except (Forged, Malformed):
            # For good: after a 4xx the mail server would bring the same bytes again and again, to be refused each time.
            return "554 5.6.0 the mail cannot be read"
        except Unavailable:
            return "451 4.3.0 it cannot be kept now"
        return "250 2.0.0 OK"
