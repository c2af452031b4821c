"""Sends and receives email: cards for any email client, each with its reminders and end in one thread.

An email decides only if DMARC proves its sender and its new text is wholly an answer. It must also go to the card's
address or have the card's code. Links only show the request.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, ClassVar, Final

import aiosmtplib
from aiosmtpd.lmtp import LMTP
from aiosmtpd.smtp import SMTP, Envelope, Session

from signoff.channels.base import Channel, ChannelContext, ChannelOptions, Receive
from signoff.channels.channel_errors import Forged, Malformed, NotDelivered
from signoff.channels.envelopes import (
    SENT,
    ChannelReply,
    CheckFinding,
    ClosedCard,
    InboundBatch,
    InboundRequest,
    OutboundCard,
    OutboundNotice,
    SentCard,
)
from signoff.channels.mail.answer import MailReceiver, UnprovedMail
from signoff.channels.mail.authentication.authentication_results import ResultsServer
from signoff.channels.mail.authentication.dns_names import DnsNames, TxtLookup, lookup_txt, txt_lookup_of
from signoff.channels.mail.authentication.verification_queue import MailQueue
from signoff.channels.mail.imap import fetch, try_mailbox
from signoff.channels.mail.letter import Letter, LetterSender
from signoff.channels.mail.options import EmailOptions, InboundOptions, LmtpOptions, SmtpOptions, is_here
from signoff.channels.mail.provider_requests import MailFormat, mail_shape
from signoff.channels.mail.raw_mail import ArrivedMail, FetchedMail
from signoff.channels.mail.reply_addresses import ReplyAddresses
from signoff.channels.mail.reply_reader import MAX_MAIL
from signoff.channels.mail.sns import NOTICE_BYTES
from signoff.contracts.errors import Unavailable
from signoff.contracts.limits import MIB
from signoff.formats.replace import replace
from signoff.languages.catalogue import ENGLISH, text

TakeMail = Callable[[bytes, tuple[str, ...]], Awaitable[object]]
"""Stores an email for the recipients of its envelope. Raises `Forged`, `Malformed`, `Unavailable`."""
_IDLE_SECONDS: Final = 60.0
# RFC 5321 requires room for 100, and 452 for the next: the sender then sends the email again for the rest.
_MAX_RECIPIENTS: Final = 100

_PAUSE_SECONDS: Final = 30.0
"""The pause after a server reports its own trouble."""
# The service is closing (RFC 5321); signing in or TLS is temporarily unavailable (RFC 4954, RFC 3207).
_CLOSING, _TROUBLE = 421, 454
_SHOWN_CHARS: Final = 200

_REMEMBERED: Final = 10_000
"""Replies in memory, so that none is sent twice."""


class EmailChannel(Channel):
    """See the module. `txt` looks up names for DKIM."""

    kind: ClassVar[str] = "email"
    identity: ClassVar[str] = "email"
    options: ClassVar[type[ChannelOptions]] = EmailOptions
    max_bytes: int = MAX_MAIL * 4 // 3 + MIB
    """The longest accepted email, as Base64 in a provider's JSON."""

    def __init__(self, context: ChannelContext, txt: TxtLookup = lookup_txt) -> None:
        super().__init__(context)
        options = EmailOptions.model_validate(context.options)
        self._smtp = options.smtp
        # Skip the validation, which requires a declared `inbound` to name one way.
        self._inbound = options.inbound or InboundOptions.model_construct()
        self._replies = ReplyAddresses(options.answered_at, context.secret)
        self._letters = LetterSender(
            options.address,
            options.sender_name,
            self._replies,
            answers=options.inbound is not None,
            bounces=options.bounces_come_back,
        )
        named = options.authserv_id
        self._server = ResultsServer(named, options.received_by) if named else None
        self._receiver = MailReceiver(self._replies, options.address, self._server, keeps_ids=options.smtp.keeps_ids)
        self._names = DnsNames(txt)
        self._queue = MailQueue()
        webhook = self._inbound.webhook
        self._shape: MailFormat | None = None if webhook is None else mail_shape(webhook)
        if webhook is not None and webhook.shape == "ses":
            # The signature of SNS is inside the JSON, so even a stranger's must be parsed. Use the limit of SNS.
            self.max_bytes = NOTICE_BYTES
        self._answered: OrderedDict[tuple[str, ...], None] = OrderedDict()

    async def deliver(self, card: OutboundCard, before: SentCard | None) -> SentCard:
        letter = self._letters.card(card, before, self.context.clock())
        await self._send(letter)
        # A reminder does not replace the card: the notice of the end joins the thread of the first email.
        if before is not None:
            return replace(before, handle={**before.handle, SENT: letter.words})
        handle = {"to": letter.to, "subject": letter.subject, SENT: letter.words}
        return SentCard(vendor_id=letter.message_id, handle=handle)

    async def close(self, sent: SentCard, closed: ClosedCard) -> None:
        """Sends one email in the thread."""
        to = str(sent.handle.get("to", closed.address))
        await self._send(self._letters.closing(sent, closed, to, self.context.clock()))

    async def notify(self, notice: OutboundNotice) -> SentCard:
        letter = self._letters.notice(notice, self.context.clock())
        await self._send(letter)
        return SentCard(vendor_id=letter.message_id, handle={SENT: letter.words})

    async def answer(self, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
        """Replies once per card that nothing was decided: two machines must not write forever."""
        if where.get("unproved"):
            link = self.context.public_url
            # Reveal nothing about a card: the sender may be forged.
            reply = ChannelReply(id=reply.id, text=text("mail.unproved", ENGLISH, link=link))
        once = self._about(where, reply)
        if not where.get("to") or once in self._answered:
            return None
        letter = self._letters.answer(where, reply, self.context.clock())
        await self._send(letter)
        # Note it only after sending, so that a failed reply is tried again.
        if once:
            self._answered[once] = None
        if len(self._answered) > _REMEMBERED:
            self._answered.popitem(last=False)
        return SentCard(vendor_id=letter.message_id, handle={SENT: letter.words})

    def _about(self, where: Mapping[str, Any], reply: ChannelReply) -> tuple[str, ...]:
        """Return the key of a reply that is sent only once, empty for the reply to a decision that counted.

        The same words about no card have a new key each day.
        """
        receipt = reply.receipt
        if receipt is not None and receipt.status in ("accepted", "counted"):
            return ()
        parts = ("asked",) if receipt is None else (receipt.approval_id, receipt.status, receipt.code)
        token = str(where.get("token", ""))
        about = (token,) if token else (f"{self.context.clock():%Y-%m-%d}", reply.text)
        return (str(where.get("to", "")), *about, *parts)

    def verify(self, raw: InboundRequest) -> None:
        # HTTP requests never become a `FetchedMail`. Its sender is proved later, like that of every email.
        if isinstance(raw, FetchedMail):
            return
        if self._shape is None:
            raise Forged("this channel takes no email by HTTP")
        self._shape.verify(raw, self.context.clock())

    def parse(self, raw: InboundRequest) -> InboundBatch:
        """An email that needs DKIM stays unproved here: only `read` looks up keys."""
        examined = self._examine(raw)
        return examined if isinstance(examined, InboundBatch) else self._receiver.conclude(examined, txt_lookup_of({}))

    async def read(self, raw: InboundRequest, threads: Executor) -> InboundBatch:
        """Queries the DNS between parsing and proving an email, while no thread waits."""
        loop = asyncio.get_running_loop()
        examined = await loop.run_in_executor(threads, self._verify, raw)
        if isinstance(examined, InboundBatch):
            return examined
        evidence = examined.evidence
        if not evidence.names:
            return self._receiver.conclude(examined, txt_lookup_of({}))
        async with self._queue.turn(evidence.domain, examined.size):
            records = await self._names.find(evidence.names)
            received = await loop.run_in_executor(threads, self._receiver.conclude, examined, txt_lookup_of(records))
            proved = received.actions[0].where.get("unproved") is None
            self._queue.note(evidence.domain, proved=proved, silent=None in records.values())
        return received

    def _verify(self, raw: InboundRequest) -> UnprovedMail | InboundBatch:
        self.verify(raw)
        return self._examine(raw)

    def _examine(self, raw: InboundRequest) -> UnprovedMail | InboundBatch:
        if isinstance(raw, FetchedMail):
            return self._receiver.examine(ArrivedMail(raw.body, raw.recipients))
        if self._shape is None:
            raise Malformed("this channel takes no email by HTTP")
        arrived = self._shape.mail(raw)
        return InboundBatch() if arrived is None else self._receiver.examine(arrived)

    async def listen(self, take: Receive) -> None:
        """Reads the mailbox, or opens the port for our mail server."""

        async def keep(raw: bytes, recipients: tuple[str, ...] = ()) -> InboundBatch:
            return await take(FetchedMail(raw, at=self.context.clock(), recipients=recipients))

        if self._inbound.imap is not None:
            await fetch(self._inbound.imap, MAX_MAIL, keep, self._queue.proved)
        elif self._inbound.lmtp is not None:
            await _serve(self._inbound.lmtp, MAX_MAIL, self._replies.is_ours, keep)

    async def check(self) -> list[CheckFinding]:
        server = f"{self._smtp.host}:{self._smtp.port} "
        trouble = await knock(self._smtp, self._replies.domain)
        findings = [
            CheckFinding(False, f"{server}does not take our mail: {trouble}", "check `smtp`")
            if trouble
            else CheckFinding(True, f"{server}takes our mail")
        ]
        return [*findings, *await self._check_inbound()]

    async def _check_inbound(self) -> list[CheckFinding]:
        imap, lmtp, webhook = self._inbound.imap, self._inbound.lmtp, self._inbound.webhook
        if imap is not None:
            trouble = await asyncio.get_running_loop().run_in_executor(None, partial(try_mailbox, imap))
            place = f"the folder `{imap.folder}` of `{imap.user}` "
            if trouble:
                return [CheckFinding(False, f"{place}cannot be read: {trouble}", "check `inbound.imap`")]
            return [CheckFinding(True, f"{place}can be read")]
        if lmtp is not None:
            place = f"answers are expected at {lmtp.host}:{lmtp.port} by {lmtp.protocol}"
            if self._server is not None and not is_here(lmtp.host):
                remedy = "let only your mail server reach that port, best on 127.0.0.1, or leave out `authserv_id`"
                return [CheckFinding(False, f"{place}, where any client can pose as any person", remedy)]
            return [CheckFinding(True, place)]
        if webhook is not None:
            url = f"{self.context.public_url}/channels/{self.name}"
            if url.startswith("https://"):
                return [CheckFinding(True, f"answers are expected at {url}, as {webhook.shape}")]
            return [CheckFinding(False, f"{url} is reached without TLS", "set the public address to one with https")]
        return [CheckFinding(True, "no `inbound`: approvers decide through the link in the email")]

    async def _send(self, letter: Letter) -> None:
        await send(self._smtp, letter, self._replies.domain)


async def send(options: SmtpOptions, letter: Letter, helo: str) -> str:
    """Submit an email and return the server's response. Raises `NotDelivered`."""
    try:
        async with _client(options, helo) as client:
            _, response = await client.sendmail(letter.sender, [letter.to], letter.content)
    except aiosmtplib.SMTPRecipientsRefused as error:
        refused = error.recipients[0]
        raise _refuse(refused.code, refused.message) from None
    except aiosmtplib.SMTPAuthenticationError as error:
        # Catch this before the other codes, where 535 would be final. The email is right, and the password may be
        # corrected.
        raise NotDelivered(
            "the mail server does not let us sign in: check `smtp.user` and `smtp.password`",
            code=str(error.code),
            again=True,
            after=_PAUSE_SECONDS,
        ) from None
    except aiosmtplib.SMTPResponseException as error:
        raise _refuse(error.code, error.message) from None
    except (aiosmtplib.SMTPTimeoutError, TimeoutError):
        # The server may have accepted it. A second copy has the same id.
        raise NotDelivered("the mail server did not answer in time", code="timeout", again=True) from None
    except (aiosmtplib.SMTPException, OSError) as error:
        why = type(error).__name__
        raise NotDelivered(f"the mail server cannot be reached: {why}", code="connection", again=True) from None
    return response[:_SHOWN_CHARS]


async def knock(options: SmtpOptions, helo: str) -> str:
    """Connect and sign in without sending anything. Returns the problem, or ""."""
    try:
        async with _client(options, helo) as client:
            await client.noop()
    except (aiosmtplib.SMTPException, OSError) as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0][:_SHOWN_CHARS]
    return ""


def _client(options: SmtpOptions, helo: str) -> aiosmtplib.SMTP:
    return aiosmtplib.SMTP(
        hostname=options.host,
        port=options.port,
        username=options.user or None,
        password=options.password if options.user else None,
        local_hostname=helo,
        timeout=options.timeout_seconds,
        use_tls=options.tls == "tls",
        start_tls=options.tls == "starttls",
    )


def _refuse(code: int, response: str) -> NotDelivered:
    words = " ".join(response.split())[:_SHOWN_CHARS]
    if code in (_CLOSING, _TROUBLE):
        message = f"the mail server has trouble itself: {code} {words}"
        return NotDelivered(message, code=str(code), again=True, after=_PAUSE_SECONDS)
    return NotDelivered(f"the mail server refused: {code} {words}", code=str(code), again=code < 500)


async def _serve(options: LmtpOptions, max_bytes: int, ours: Callable[[str], bool], take: TakeMail) -> None:
    """Accept email of at most `max_bytes` for addresses that are `ours`, until cancelled. Raises `Unavailable`."""
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
    """Handles the commands of one SMTP or LMTP session. Names are aiosmtpd's."""

    def __init__(self, ours: Callable[[str], bool], take: TakeMail, *, each: bool) -> None:
        self._ours = ours
        self._take = take
        self._each = each

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Sequence[Any]
    ) -> str:
        """Accept only our own recipients: the port relays nothing."""
        if not self._ours(address):
            return "550 5.1.1 there is no such address here"
        if len(envelope.rcpt_tos) >= _MAX_RECIPIENTS:
            return "452 4.5.3 too many recipients"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Accept an email, refuse it finally, or ask for a retry. LMTP responds once per recipient (RFC 2033)."""
        # `content` may be decoded text, but a DKIM signature covers the received bytes.
        answer = await self._answer(bytes(envelope.original_content or b""), tuple(envelope.rcpt_tos))
        return "\r\n".join([answer] * (len(envelope.rcpt_tos) if self._each else 1))

    async def _answer(self, raw: bytes, recipients: tuple[str, ...]) -> str:
        try:
            await self._take(raw, recipients)
        except (Forged, Malformed):
            # Refuse finally: after a 4xx the mail server would send the same bytes again and again.
            return "554 5.6.0 the mail cannot be read"
        except Unavailable:
            return "451 4.3.0 it cannot be kept now"
        return "250 2.0.0 OK"


CHANNEL = EmailChannel
