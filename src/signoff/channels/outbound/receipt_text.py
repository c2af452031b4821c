"""Writes the channels' other texts: closed cards, notices, replies to undecided answers, and questions back."""

from collections.abc import Sequence
from typing import Final, Literal

from signoff.approvals.notifications import Notice
from signoff.channels.card_text import How, how_words
from signoff.channels.envelopes import ClosedCard
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import show_code
from signoff.contracts.limits import EFFECT_CHARS
from signoff.formats.visible_text import cut_visible, one_line
from signoff.languages.catalogue import text
from signoff.texts.endings import REASON_CHARS, closing_words, reason_words
from signoff.texts.formatter import Formatter

UNREAD_CHARS: Final = 200


def closing_text(closed: ClosedCard, formatter: Formatter) -> str:
    """Write the end of a request for its card: decision, reason, effect, code and link."""
    request = closed.request
    first = [f"{closing_words(request, formatter)}."]
    if request.reason:
        first.append(text("end.reason", formatter.language, reason=one_line(request.reason, REASON_CHARS).text))
    about = f"{cut_visible(request.card.effect, EFFECT_CHARS)} ({show_code(request.code)})"
    opened = [text("reply.see", formatter.language, link=closed.link)] if closed.link else []
    return "\n\n".join(("\n".join(first), about, *opened))


def notice_words(notice: Notice, formatter: Formatter, link: str = "") -> tuple[str, str]:
    """Write a notice: its title, and its whole text without a way to answer."""
    language, request = formatter.language, notice.request
    opened = [text("reply.see", language, link=link)] if link else []
    if request is None:
        title = text("notice.passkey.title", language)
        return title, "\n\n".join((text("notice.passkey", language, when=formatter.time(notice.at)), *opened))
    if notice.kind == "decided":
        happened = closing_words(request, formatter)
    else:
        happened = text(f"notice.{notice.kind}", language)
    first = [f"{happened}."]
    if notice.kind == "decided" and request.reason:
        reason = one_line(reason_words(request, language), REASON_CHARS).text
        first.append(text("end.reason", language, reason=reason))
    effect = cut_visible(request.card.effect, EFFECT_CHARS)
    about = f"{effect} ({show_code(request.code)})"
    return one_line(f"{happened}: {effect}", EFFECT_CHARS).text, "\n\n".join(("\n".join(first), about, *opened))


def not_understood_text(
    request: ApprovalRequest,
    formatter: Formatter,
    link: str = "",
    how: How = "text",
    *,
    unread: str = "",
    footer: bool = False,
    asks: bool = False,
) -> str:
    """`unread` is the line of unknown meaning. `footer`: add that the block will be known after a clear answer."""
    language = formatter.language
    lines = [text("reply.not_understood", language)]
    if unread:
        lines.append(text("reply.unread", language, line=one_line(unread, UNREAD_CHARS).text))
    lines.append(how_words(how, request, formatter, link))
    if asks:
        lines.append(_how_to_ask(show_code(request.code), language))
    if footer:
        lines.append(text("reply.footer", language))
    if link and how != "link":
        lines.append(text("card.open", language, link=link))
    return "\n".join(lines)


def doubtful_time_text(
    doubt: Literal["before", "untimed"], requests: Sequence[ApprovalRequest], formatter: Formatter, link: str
) -> str:
    """Names the open requests."""
    lines = [text(f"reply.{doubt}", formatter.language), *_with_codes(requests)]
    if link:
        lines.append(text("card.open", formatter.language, link=link))
    return "\n".join(lines)


def which_request_text(requests: Sequence[ApprovalRequest], formatter: Formatter, *, asks: bool = False) -> str:
    """Names the codes and how to use one."""
    each = _with_codes(requests)
    language = formatter.language
    # Write the word for a code in the example: people would copy a real code.
    if asks:
        return "\n".join((text("reply.which", language), *each, _how_to_ask(text("word.code", language), language)))
    words = {"approve": text("word.approve", language), "deny": text("word.deny", language)}
    how = text("card.how.text", language, **words, code=text("word.code", language))
    return "\n".join((text("reply.which", language), *each, how))


def _how_to_ask(code: str, language: str) -> str:
    return text("card.how.ask", language, ask=text("word.ask", language), code=code)


def _with_codes(requests: Sequence[ApprovalRequest]) -> list[str]:
    return [f"- {show_code(request.code)}: {cut_visible(request.card.effect, EFFECT_CHARS)}" for request in requests]
