"""Writes emails, each as equivalent text and HTML.

Every header consists of our own or checked text, so that another person's text cannot begin a field.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from email.header import Header
from email.headerregistry import Address, BaseHeader, HeaderRegistry, UnstructuredHeader
from email.message import EmailMessage
from email.policy import SMTP, Policy
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from signoff.channels.answer_text.quotes import END, MARK
from signoff.channels.answer_text.sent_words import sent_words
from signoff.channels.card_text import card_words
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import ChannelReply, ClosedCard, OutboundCard, OutboundNotice, SentCard
from signoff.channels.mail.html_text import html_lines
from signoff.channels.mail.reply_addresses import ReplyAddresses
from signoff.channels.outbound.receipt_text import closing_text
from signoff.formats.mail_address import plain_address
from signoff.formats.visible_text import cut_visible, one_line
from signoff.languages.catalogue import text
from signoff.texts.endings import closing_words
from signoff.texts.formatter import formatter_for

SUBJECT_CHARS: Final = 180
_REFERENCES: Final = 20
# Some ids are strangers'. Without blanks and angle brackets inside, each stays one id and fits a line of at most 998
# characters (RFC 5322).
_ID: Final = re.compile(r"<[!-;=?-~]{1,250}>")
_REPLIES: Final = ("re:", "aw:", "sv:", "antw:", "rif:", "res:")


class _Ids(UnstructuredHeader, BaseHeader):
    """Writes message ids, one per line: the standard library turns long ones into encoded words, which are useless."""

    def fold(self, *, policy: Policy) -> str:
        return f"{self.name}: {f'{policy.linesep} '.join(str(self).split())}{policy.linesep}"


class _Line(UnstructuredHeader, BaseHeader):
    """Writes a line of text: the standard library's newer writer loses blanks between non-ASCII words."""

    def fold(self, *, policy: Policy) -> str:
        charset = "us-ascii" if self.isascii() else "utf-8"
        written = Header(str(self), charset, maxlinelen=76, header_name=self.name)
        return f"{self.name}: {written.encode(linesep=policy.linesep)}{policy.linesep}"


def _registry() -> HeaderRegistry:
    registry = HeaderRegistry()
    registry.map_to_type("subject", _Line)
    for name in ("message-id", "in-reply-to", "references"):
        registry.map_to_type(name, _Ids)
    return registry


_POLICY: Final = SMTP.clone(header_factory=_registry())
_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class Letter:
    """One email that is ready to send."""

    sender: str
    to: str
    message_id: str
    subject: str
    content: bytes
    words: tuple[str, ...] = ()
    """The words of the text and of the HTML; see `sent_words`."""


@dataclass(frozen=True)
class LetterSender:
    """Writes the emails of one channel."""

    address: str
    name: str
    replies: ReplyAddresses
    answers: bool
    """Whether the channel receives email at `replies`; otherwise people answer from the cards' links."""
    bounces: bool
    """Whether it also receives bounces there."""

    def card(self, card: OutboundCard, before: SentCard | None, now: datetime) -> Letter:
        """Write a card, or a reminder in its thread. Raises `NotDelivered` for an invalid address."""
        formatter = formatter_for(card.person, now)
        words = card_words(card, formatter, how="reply" if self.answers else "link")
        what = {"ask": "", "remind": f"remind{card.request.reminded}", "digest": "digest"}[card.kind]
        opens = text("button.open", formatter.language)
        page = self._page("mail_card.html", formatter.language, words=words, open=opens)
        subject, thread = cut_visible(words.subject, SUBJECT_CHARS), _ids(())
        if before is not None:
            subject, thread = _reply_subject(str(before.handle.get("subject") or subject)), _ids([before.vendor_id])
        # Use the same id for each attempt: if a failed attempt did arrive, the second is recognisable as its copy.
        draft = _Draft(card.address, self.replies.message_id(card.token, what), subject, thread, now)
        return self._letter(draft, card.token, formatter.language, words.text, page)

    def closing(self, sent: SentCard, closed: ClosedCard, address: str, now: datetime) -> Letter:
        """Write the end of a request, in the thread of its card. Raises `NotDelivered`."""
        formatter = formatter_for(closed.person, now)
        message = closing_text(closed, formatter)
        page = self._page("mail_text.html", formatter.language, message=message)
        subject = _reply_subject(str(sent.handle.get("subject") or closing_words(closed.request, formatter)))
        identity = self.replies.message_id(closed.token, f"closed.{closed.request.revision}")
        draft = _Draft(address, identity, subject, _ids([sent.vendor_id]), now)
        return self._letter(draft, closed.token, formatter.language, message, page)

    def notice(self, notice: OutboundNotice, now: datetime) -> Letter:
        """Write a notice in its own thread, without the address for answers. Raises `NotDelivered`."""
        silent = replace(self, answers=False)
        page = silent._page("mail_text.html", notice.language, message=notice.text)
        subject = cut_visible(notice.title, SUBJECT_CHARS)
        draft = _Draft(notice.address, self.replies.question_id(notice.token), subject, (), now)
        return silent._letter(draft, "", notice.language, notice.text, page)

    def answer(self, where: Mapping[str, Any], reply: ChannelReply, now: datetime) -> Letter:
        """Write a reply to an email, in its thread. Raises `NotDelivered`."""
        token = str(where.get("token", ""))
        thread = _ids([*where.get("references", ()), where.get("message_id", "")])
        what = f"answer.{reply.id}"
        identity = self.replies.message_id(token, what) if token else self.replies.question_id(reply.id)
        subject = _reply_subject(one_line(str(where.get("subject", "")) or "Signoff", SUBJECT_CHARS).text)
        page = self._page("mail_text.html", reply.language, message=reply.text)
        draft = _Draft(str(where["to"]), identity, subject, thread, now)
        return self._letter(draft, token, reply.language, reply.text, page, automatic="auto-replied")

    def _letter(
        self, draft: "_Draft", token: str, language: str, message: str, page: str, automatic: str = "auto-generated"
    ) -> Letter:
        to = plain_address(draft.to)
        if not to:
            raise NotDelivered("the address is none that mail can be sent to", code="address", again=False)
        mail = EmailMessage(_POLICY)
        mail["From"] = Address(self.name, addr_spec=self.address)
        mail["To"] = Address(addr_spec=to)
        back = self.replies.address(token) if token else ""
        if self.answers and back:
            mail["Reply-To"] = Address(addr_spec=back)
        # Break up encoded words in another person's text: clients would decode them.
        subject = draft.subject.replace("=?", "= ?")
        mail["Subject"] = subject
        mail["Date"] = draft.now
        mail["Message-ID"] = draft.message_id
        if draft.thread:
            mail["In-Reply-To"] = draft.thread[-1]
            mail["References"] = " ".join(draft.thread)
        mail["Auto-Submitted"] = automatic
        # Not `All`: that would also suppress bounces, which report undelivered cards.
        mail["X-Auto-Response-Suppress"] = "OOF, AutoReply"
        whole = "\n\n".join(filter(None, (self._above(language), message, self._end())))
        mail.set_content(f"{whole}\n", cte="quoted-printable")
        mail.add_alternative(page, subtype="html", cte="quoted-printable")
        # With the token in the envelope's sender, the recipient of a bounce identifies the card.
        bounced_to = back if self.bounces and self.answers else self.address
        # A reply has an empty envelope sender, so that two machines cannot answer each other without end (RFC 3834).
        sender = "" if automatic == "auto-replied" else bounced_to
        words = dict.fromkeys((sent_words(whole.split("\n")), sent_words(html_lines(page))))
        return Letter(sender, to, draft.message_id, subject, mail.as_bytes(), tuple(words))

    def _page(self, template: str, language: str, **context: Any) -> str:
        return _page(template, language, above=self._above(language), end=self._end(), **context)

    def _end(self) -> str:
        """Return our last line: text below it is another writer's."""
        return END if self.answers else ""

    def _above(self, language: str) -> str:
        """Return the line at which the new text of a reply ends: text below it is ours, in any form of quote."""
        return f"{MARK} {text('mail.above', language)} {MARK[::-1]}" if self.answers else ""


@dataclass(frozen=True)
class _Draft:
    to: str
    message_id: str
    subject: str
    thread: Sequence[str]
    now: datetime


def _page(template: str, language: str, **context: Any) -> str:
    return _TEMPLATES.get_template(template).render(language=language, **context)


def _ids(written: Sequence[Any]) -> tuple[str, ...]:
    good = [each for each in written if isinstance(each, str) and _ID.fullmatch(each)]
    return tuple(dict.fromkeys(good))[-_REFERENCES:]


def _reply_subject(subject: str) -> str:
    return subject if subject.lower().startswith(_REPLIES) else f"Re: {subject}"
