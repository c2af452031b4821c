"""Writes what is sent on Telegram: cards with two buttons, ends and answers, all of it plain text.

Telegram makes links, names and commands of plain text by itself; nothing else in it means anything.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from signoff.channels import (
    Assurance,
    CardLimits,
    CardWords,
    ClosedCard,
    Formatter,
    OutboundCard,
    Verdict,
    card_words,
    closing_text,
)
from signoff.formats.visible_text import ELLIPSIS

Message: TypeAlias = dict[str, Any]

TEXT_UNITS: Final = 4_096
ALERT_UNITS: Final = 200
"""Of what a press of a button is answered with."""
_VERDICTS: Final[Mapping[str, Verdict]] = {"a": "approved", "d": "denied"}
_PRESSED: Final = re.compile(r"([ad]):([a-z0-9]{1,32})\Z")


def card_message(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> Message:
    """Writes a card. A reminder and a list have no buttons, which nobody would take away: cards have."""
    words = fitting_words(card, formatter, assurance)
    message = text_message(words.text)
    if words.decides and card.kind == "ask":
        deny = _button("d", card.token, words.deny)
        buttons = [_button("a", card.token, words.approve), deny] if words.approves else [deny]
        message["reply_markup"] = {"inline_keyboard": [buttons]}
    return message


def closed_message(closed: ClosedCard, formatter: Formatter) -> Message:
    """Writes a closed card. Without a keyboard of its own the message loses the one that it had."""
    return text_message(closing_text(closed, formatter))


def text_message(words: str) -> Message:
    """Writes words, cut where they are longer than a message may be."""
    # Else Telegram fetches the card's link, and shows whatever it finds there.
    return {"text": cut_words(words, TEXT_UNITS), "link_preview_options": {"is_disabled": True}}


def below(message: int) -> Message:
    """Places a message below the one that it is about, as long as that is there."""
    return {"reply_parameters": {"message_id": message, "allow_sending_without_reply": True}}


def read_button(data: str) -> tuple[Verdict, str] | None:
    """Returns the verdict and delivery of one of our buttons; None for anybody else's."""
    found = _PRESSED.match(data)
    return (_VERDICTS[found[1]], found[2]) if found else None


def cut_words(words: str, limit: int) -> str:
    """Cuts words to `limit`, counted in UTF-16, which no other way of counting exceeds."""
    shown = words
    while _units(shown) > limit:
        over = _units(shown) - limit
        # A character is one unit or two: by half of what is over it loses hardly too much, and the loop does the rest.
        shown = shown[: -max(over // 2, 1) - 1] + ELLIPSIS
    return shown


def fitting_words(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> CardWords:
    """Writes the card's words, few enough to fit."""
    # Limits count characters, of which one has at most two units: half of the room always fits.
    for whole in (TEXT_UNITS, TEXT_UNITS * 3 // 4, TEXT_UNITS // 2):
        limits = CardLimits(whole=whole, value=400, says=600, rows=60)
        words = card_words(card, formatter, how="buttons", assurance=assurance, limits=limits)
        if _units(words.text) <= TEXT_UNITS:
            break
    return words


def _button(does: str, token: str, label: str) -> Message:
    # Telegram takes 64 bytes here: a letter and the token, which says all that is to be looked up.
    return {"text": label, "callback_data": f"{does}:{token}"}


def _units(words: str) -> int:
    return len(words.encode("utf-16-le", "surrogatepass")) // 2
