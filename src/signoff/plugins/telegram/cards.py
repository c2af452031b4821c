"""Writes Telegram's messages in plain text, in which it only recognises links, names and commands."""

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
    RoomAct,
    RoomCard,
    Verdict,
    card_words,
    closing_text,
)
from signoff.formats.visible_text import ELLIPSIS

Message: TypeAlias = dict[str, Any]

TEXT_UNITS: Final = 4_096
ALERT_UNITS: Final = 200
"""The limit of the reply to a button press."""
_VERDICTS: Final[Mapping[str, Verdict]] = {"a": "approved", "d": "denied"}
_ROOM_ACTS: Final[Mapping[str, RoomAct]] = {"t": "take", "r": "release", "s": "show"}
_PRESSED_ROOM: Final = re.compile(r"([trs]):([a-z0-9]{1,32})\Z")
_PRESSED: Final = re.compile(r"([ad]):([a-z0-9]{1,32})\Z")


def card_message(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> Message:
    """Reminders and lists have no buttons: these would never be removed."""
    words = fitting_words(card, formatter, assurance)
    message = text_message(words.text)
    if words.decides and card.kind == "ask":
        deny = _button("d", card.token, words.deny)
        buttons = [_button("a", card.token, words.approve), deny] if words.approves else [deny]
        message["reply_markup"] = {"inline_keyboard": [buttons]}
    return message


def room_message(card: RoomCard) -> Message:
    """All members of the group read this. Without buttons, an edit removes the earlier ones."""
    message = text_message(card.text)
    if card.buttons:
        letters = {act: letter for letter, act in _ROOM_ACTS.items()}
        # One in each row: the labels are long for a phone.
        rows = [[_button(letters[act], card.token, label)] for act, label in card.buttons]
        message["reply_markup"] = {"inline_keyboard": rows}
    return message


def closed_message(closed: ClosedCard, formatter: Formatter) -> Message:
    """The message has no keyboard, so the edit removes the card's."""
    return text_message(closing_text(closed, formatter))


def text_message(words: str) -> Message:
    """Cut text at the limit."""
    # Otherwise Telegram fetches the card's link and shows a preview.
    return {"text": cut_words(words, TEXT_UNITS), "link_preview_options": {"is_disabled": True}}


def below(message: int) -> Message:
    """Place a message below another, if that still exists."""
    return {"reply_parameters": {"message_id": message, "allow_sending_without_reply": True}}


def read_button(data: str) -> tuple[Verdict, str] | None:
    """Return `None` for a button that is not ours."""
    match = _PRESSED.match(data)
    return (_VERDICTS[match[1]], match[2]) if match else None


def read_room_button(data: str) -> tuple[RoomAct, str] | None:
    """Return `None` for a button that is not of a group's card."""
    match = _PRESSED_ROOM.match(data)
    return (_ROOM_ACTS[match[1]], match[2]) if match else None


def cut_words(words: str, limit: int) -> str:
    """Count UTF-16 units, which no other way of counting exceeds."""
    shown = words
    while _units(shown) > limit:
        over = _units(shown) - limit
        # A character has one or two units: cutting half of the excess removes hardly too much, and the loop repeats.
        shown = shown[: -max(over // 2, 1) - 1] + ELLIPSIS
    return shown


def fitting_words(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> CardWords:
    # Limits count characters, and each has at most two units: half of the room always fits.
    for whole in (TEXT_UNITS, TEXT_UNITS * 3 // 4, TEXT_UNITS // 2):
        limits = CardLimits(whole=whole, value=400, says=600, rows=60)
        words = card_words(card, formatter, how="buttons", assurance=assurance, limits=limits)
        if _units(words.text) <= TEXT_UNITS:
            break
    return words


def _button(does: str, token: str, label: str) -> Message:
    # Telegram accepts 64 bytes here: a letter and the token, which is enough to look up the rest.
    return {"text": label, "callback_data": f"{does}:{token}"}


def _units(words: str) -> int:
    return len(words.encode("utf-16-le", "surrogatepass")) // 2
