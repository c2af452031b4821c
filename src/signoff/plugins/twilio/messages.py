"""Writes what is sent through Twilio: cards and answers as text, and cards as a template with two buttons.

Twilio cuts a text off at 1,600 characters. How it counts them it does not say: what fits here fits as UTF-16 too.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from signoff.channels import (
    Assurance,
    CardLimits,
    CardWords,
    ClosedCard,
    Formatter,
    OutboundCard,
    card_words,
    closing_text,
)
from signoff.channels.whatsapp import plain, template_message, template_words, units
from signoff.formats.visible_text import ELLIPSIS
from signoff.plugins.twilio.gsm import plain_quotes

Via: TypeAlias = Literal["whatsapp", "sms"]
Fields: TypeAlias = dict[str, str]

BODY_UNITS: Final = 1_600
PREFIX: Final[Mapping[Via, str]] = {"whatsapp": "whatsapp:", "sms": ""}
"""What stands before an address on the wire, and so in the directory."""
_NUMBER: Final = re.compile(r"\+[1-9][0-9]{4,17}\Z")
_WHATSAPP: Final = re.compile(r"whatsapp:(?:\+[1-9][0-9]{4,17}|[A-Z]{2}\.(?:ENT\.)?[A-Za-z0-9]{1,128})\Z")


def is_address(address: str, via: Via) -> bool:
    """Returns whether it is an address there: `+351...`, `whatsapp:+351...`, `whatsapp:PT.1349...`."""
    return bool((_WHATSAPP if via == "whatsapp" else _NUMBER).match(address))


def card_fields(card: OutboundCard, formatter: Formatter, assurance: Assurance, via: Via) -> Fields:
    """Writes a card as text, which says how to answer with its code."""
    return text_fields(_fit(card, formatter, assurance).text, via)


def fields_draw_whole(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> bool:
    """Returns whether a card gives every value, in whichever form it is sent."""
    return _fit(card, formatter, assurance).whole and template_words(card, formatter, assurance).whole


def _fit(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> CardWords:
    """Returns the card's words, few enough to fit."""
    for whole in (BODY_UNITS, BODY_UNITS * 3 // 4, BODY_UNITS // 2):
        limits = CardLimits(whole=whole, value=300, says=300, rows=40)
        words = card_words(card, formatter, how="text", assurance=assurance, limits=limits)
        if units(words.text) <= BODY_UNITS:
            break
    return words


def template_fields(card: OutboundCard, formatter: Formatter, assurance: Assurance, content: str) -> Fields:
    """Writes the card as a template: four variables as in the one for Meta itself, and the token, which its buttons
    send.
    """
    message = template_message(card, formatter, assurance, "", "")
    values = [each["text"] for each in message["template"]["components"][0]["parameters"]]
    # The fifth is the token, which the buttons' ids hold: see `ACTIONS` in `templates.py`.
    variables = {str(number): value for number, value in enumerate((*values, card.token), 1)}
    return {"ContentSid": content, "ContentVariables": json.dumps(variables)}


def closed_fields(closed: ClosedCard, formatter: Formatter, via: Via) -> Fields:
    """Writes that a request ended, as a text of its own."""
    return text_fields(closing_text(closed, formatter), via)


def text_fields(words: str, via: Via) -> Fields:
    """Writes words, cut where they are longer than a message may be."""
    shown = plain(words) if via == "whatsapp" else plain_quotes(words)
    while units(shown) > BODY_UNITS:
        over = units(shown) - BODY_UNITS
        shown = shown[: -max(over // 2, 1) - 1] + ELLIPSIS
    return {"Body": shown}
