"""WhatsApp's messages: cards with two buttons, texts, and the approved template for people who have not written lately.

Limits and shapes follow Meta's OpenAPI description. Meta does not document how it counts characters, so the limits
count UTF-16 units.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from signoff.channels.card_text import LEAST_CHARS, CardLimits, CardWords, card_words, link_only
from signoff.channels.envelopes import ClosedCard, OutboundCard
from signoff.channels.outbound.receipt_text import closing_text
from signoff.contracts.decision import Assurance, Verdict
from signoff.formats.visible_text import ELLIPSIS
from signoff.texts.formatter import Formatter

Message: TypeAlias = dict[str, Any]

BODY_UNITS: Final = 1_024
"""The limit of a message with buttons, and of a filled-in template."""
TEXT_UNITS: Final = 4_096
PARAMETERS: Final = 4
"""The number of parameters of the template's body: the code, the effect, all other parts, and the link."""
_FIXED_UNITS: Final = 200
"""The room for the template's own words, in any language."""
_APPROVE, _DENY = "signoff.approve.", "signoff.deny."
_VERDICTS: Final[Mapping[str, Verdict]] = {_APPROVE: "approved", _DENY: "denied"}
_TOKEN: Final = re.compile(r"[a-z0-9]{1,32}\Z")
_SCOPED: Final = re.compile(r"[A-Z]{2}\.(?:ENT\.)?[A-Za-z0-9]{1,128}\Z")
_PHONE: Final = re.compile(r"[0-9]{5,20}\Z")
_MARKUP: Final = re.compile(r"(https?://\S+)|`|(?<![A-Za-z0-9])[*_~]|[*_~](?![A-Za-z0-9])")
_LOOK_ALIKE: Final = str.maketrans({"*": "\u2217", "_": "\u02cd", "~": "\u223c", "`": "\u02cb"})
_BETWEEN, _NOT_BETWEEN = "\u25aa", "\u25ab"
"""The separator between parts on a template's line, and its replacement inside a part."""
_MANY_SPACES: Final = re.compile(r" {4,}")


def recipient(address: str) -> Message | None:
    """Return the field of a recipient, None if `address` is neither a business-scoped id nor a number.

    A business-scoped id needs its own field: otherwise Meta takes it for a number and loses the message.
    """
    if _SCOPED.match(address):
        return {"recipient": address}
    return {"to": address} if _PHONE.match(address) else None


def card_message(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> Message:
    """Return a card with its two buttons, or a text with the link if the channel cannot decide it."""
    if not _decides(card, assurance):
        words = _fit(card, formatter, assurance, TEXT_UNITS, _whole)
        return text_message(words.text)
    words = _fit(card, formatter, assurance, BODY_UNITS, _whole)
    deny = _button(_DENY + card.token, words.deny)
    buttons = [_button(_APPROVE + card.token, words.approve), deny] if words.approves else [deny]
    body = {"text": plain(words.text)}
    return {"type": "interactive", "interactive": {"type": "button", "body": body, "action": {"buttons": buttons}}}


def template_message(
    card: OutboundCard, formatter: Formatter, assurance: Assurance, name: str, language: str
) -> Message:
    """Return the card as an approved template, with one line per parameter.

    It has both buttons even if only the link decides, or if it is not whole. A press that does not count gets an
    explanation.
    """
    words = template_words(card, formatter, assurance)
    body = {"type": "body", "parameters": [{"type": "text", "text": _parameter(each)} for each in _values(words)]}
    payloads = (_APPROVE + card.token, _DENY + card.token)
    buttons = [
        {
            "type": "button",
            "sub_type": "quick_reply",
            "index": str(number),
            "parameters": [{"type": "payload", "payload": payload}],
        }
        for number, payload in enumerate(payloads)
    ]
    spoken = {"policy": "deterministic", "code": language}
    return {"type": "template", "template": {"name": name, "language": spoken, "components": [body, *buttons]}}


def template_words(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> CardWords:
    return _fit(card, formatter, assurance, BODY_UNITS - _FIXED_UNITS, lambda words: "".join(_values(words)))


def draws_whole(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> bool:
    """Return whether a card shows every value, both as a free message and as a template."""
    free = _fit(card, formatter, assurance, BODY_UNITS, _whole)
    return free.whole and template_words(card, formatter, assurance).whole


def closed_message(closed: ClosedCard, formatter: Formatter) -> Message:
    return text_message(closing_text(closed, formatter))


def text_message(words: str) -> Message:
    """The text is cut at the limit."""
    shown = plain(words)
    while units(shown) > TEXT_UNITS:
        over = units(shown) - TEXT_UNITS
        shown = shown[: -max(over // 2, 1) - 1] + ELLIPSIS
    return {"type": "text", "text": {"preview_url": False, "body": shown}}


def read_button(payload: str) -> tuple[Verdict, str] | None:
    """Return the verdict and the delivery of one of our buttons. None for others."""
    for prefix, verdict in _VERDICTS.items():
        token = payload.removeprefix(prefix)
        if token != payload and _TOKEN.match(token):
            return verdict, token
    return None


def plain(words: str) -> str:
    """Replace WhatsApp's marks for bold, struck-out text and code with similar characters, except in addresses."""
    return _MARKUP.sub(lambda found: found.group(1) or found.group().translate(_LOOK_ALIKE), words)


def units(words: str) -> int:
    """Return the length in UTF-16 units, which no other way of counting exceeds."""
    return len(words.encode("utf-16-le", "surrogatepass")) // 2


def _decides(card: OutboundCard, assurance: Assurance) -> bool:
    return card.kind != "digest" and not link_only(card.request, assurance)


def _fit(
    card: OutboundCard, formatter: Formatter, assurance: Assurance, max_chars: int, write: Callable[[CardWords], str]
) -> CardWords:
    for whole in (max_chars, max_chars * 3 // 4, max_chars // 2):
        limits = CardLimits(whole=max(whole, LEAST_CHARS), value=300, says=300, rows=40)
        words = card_words(card, formatter, how="buttons", assurance=assurance, limits=limits)
        if units(write(words)) <= max_chars:
            break
    return words


def _whole(words: CardWords) -> str:
    return words.text


def _values(words: CardWords) -> tuple[str, str, str, str]:
    """Return the template's parameters, which must not be empty."""
    says = f"{words.says_lead} “{words.says}”" if words.says else ""
    how = "" if words.approves else words.how
    rows = (row.text for row in words.rows)
    facts = (words.note, words.asked, words.rule, says, words.counted, words.due, words.more, words.incomplete, how)
    # Remove the separator from each part, so that no value looks like two.
    parts = (part.replace(_BETWEEN, _NOT_BETWEEN) for part in (*rows, *facts) if part)
    rest = f" {_BETWEEN} ".join(parts) or words.how
    return words.code, f"{words.heading}: {words.effect}", rest, words.link or ELLIPSIS


def _parameter(words: str) -> str:
    """Return a value as Meta accepts it in a template: without line ends, tabs or more than three spaces in a row."""
    return _MANY_SPACES.sub("   ", plain(words).replace("\n", " ").replace("\t", " "))


def _button(name: str, title: str) -> Message:
    return {"type": "reply", "reply": {"id": name, "title": title}}
