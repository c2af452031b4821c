"""How requests end, and what became of answers, in sentences for those who asked, answered or were asked."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from signoff.channels.envelopes import Closed
from signoff.channels.outbound.card_text import How, how_words
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import show_code
from signoff.contracts.limits import EFFECT_CHARS
from signoff.contracts.receipt import Receipt
from signoff.formats.visible_text import MISSING, one_line
from signoff.texts.catalogue import has_text, text
from signoff.texts.formatter import NAME_CHARS, Voice, moment_words, shown_again, where_words

REASON_CHARS: Final = 300
UNREAD_CHARS: Final = 200
_READ_ON: Final = frozenset(("stale", "assurance", "malformed", "unavailable", "already_decided"))


def closing_words(request: ApprovalRequest, voice: Voice) -> str:
    """How a request ended, in one sentence without a period: `Approved by Ana by e-mail, 14:02 UTC`.

    A request that waits is one that was asked again: what an older card of it says.
    """
    state = "replaced" if request.state == "pending" else request.state
    doubt = request.kind == "in_doubt"
    who = request.decided_name or request.decided_by
    return _ending(state, who, request.decided_channel, request.decided_at, voice, doubt=doubt)


def closing_text(closed: Closed, voice: Voice) -> str:
    """What a card says once it is over: the ending and the reason, what it was about, and the link."""
    request = closed.request
    first = [f"{closing_words(request, voice)}."]
    if request.reason:
        first.append(text("end.reason", voice.language, reason=one_line(request.reason, REASON_CHARS).text))
    about = f"{shown_again(request.card.effect, EFFECT_CHARS)} ({show_code(request.code)})"
    opened = [text("reply.see", voice.language, link=closed.link)] if closed.link else []
    return "\n\n".join(("\n".join(first), about, *opened))


def receipt_words(receipt: Receipt, voice: Voice, link: str = "", *, code: str = "") -> str:
    """What became of somebody's answer, in one line, with the request's code; and the link where reading on helps."""
    sentences = [_receipt(receipt, voice)]
    if link and receipt.code in _READ_ON:
        sentences.append(text("reply.see", voice.language, link=link))
    return (f"{show_code(code)}: " if code else "") + " ".join(sentences)


def not_understood(
    request: ApprovalRequest,
    voice: Voice,
    link: str = "",
    how: How = "text",
    *,
    unread: str = "",
    footer: bool = False,
) -> str:
    """That an answer held no decision, and how to give one.

    `unread` is the line that could have been anything; `footer` says that it will be known after a clear answer.
    """
    language = voice.language
    told = [text("reply.not_understood", language)]
    if unread:
        told.append(text("reply.unread", language, line=one_line(unread, UNREAD_CHARS).text))
    told.append(how_words(how, request, voice, link))
    if footer:
        told.append(text("reply.footer", language))
    if link and how != "link":
        told.append(text("card.open", language, link=link))
    return "\n".join(told)


def which_one(requests: Sequence[ApprovalRequest], voice: Voice) -> str:
    """Asks which of several requests an answer meant: each with its code, and how to name one."""
    each = [f"- {show_code(request.code)}: {shown_again(request.card.effect, EFFECT_CHARS)}" for request in requests]
    language = voice.language
    # The word for a code stands where one would: a real one, as the example, is what people would copy.
    words = {"approve": text("word.approve", language), "deny": text("word.deny", language)}
    how = text("card.how.text", language, **words, code=text("word.code", language))
    return "\n".join((text("reply.which", language), *each, how))


def _ending(state: str, who: str, channel: str, at: datetime | None, voice: Voice, *, doubt: bool) -> str:
    named = one_line(who, NAME_CHARS).text
    key = f"end.doubt.{state}" if doubt and has_text(f"end.doubt.{state}") else f"end.{state}"
    if state == "cancelled" and named and at is not None:
        key = "end.cancelled_by"
    values = {
        "who": named or text("end.somebody", voice.language),
        "where": where_words(channel, voice.language),
        "when": moment_words(at, voice) if at is not None else MISSING,
    }
    return text(key, voice.language, **values)


def _receipt(receipt: Receipt, voice: Voice) -> str:
    language = voice.language
    if receipt.status == "accepted":
        return text(f"receipt.accepted.{receipt.verdict or receipt.state}", language)
    if receipt.status == "counted":
        return text("receipt.counted", language, n=receipt.votes, of=receipt.needed)
    if receipt.status == "pending":
        return text("receipt.pending", language)
    if receipt.code == "already_decided":
        at, channel = receipt.decided_at, receipt.channel
        who = receipt.decided_name or receipt.decided_by
        if receipt.state == "pending":
            # What it asks about has begun, by whose word is not known here.
            ending = one_line(receipt.message, REASON_CHARS).text
        else:
            ending = _ending(receipt.verdict or receipt.state, who, channel, at, voice, doubt=False)
        if receipt.reason:
            # Theirs, so before the sentence about whoever came later.
            why = text("end.reason", language, reason=one_line(receipt.reason, REASON_CHARS).text)
            ending = f"{ending}. {why.removesuffix('.')}"
        return text("receipt.already_decided", language, ending=ending)
    # It may quote names and rules that somebody wrote, and stands among our own sentences.
    why = one_line(receipt.message, REASON_CHARS).text
    return text(f"receipt.{receipt.code or 'malformed'}", language, why=why)
