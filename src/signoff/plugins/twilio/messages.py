"""Writes Twilio's messages: cards and replies as text, and cards as a template with two buttons.

Twilio limits a text to 1,600 characters. It does not document how it counts them, so the limit here counts UTF-16
units.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from signoff.channels import (
    Assurance,
    CardLimits,
    CardWords,
    CheckFinding,
    ClosedCard,
    Formatter,
    OutboundCard,
    card_words,
    closing_text,
)
from signoff.channels.whatsapp import PARAMETERS, plain, template_message, template_words, units
from signoff.formats.visible_text import ELLIPSIS, one_line

Via: TypeAlias = Literal["whatsapp", "sms"]
Fields: TypeAlias = dict[str, str]

BODY_UNITS: Final = 1_600
PREFIX: Final[Mapping[Via, str]] = {"whatsapp": "whatsapp:", "sms": ""}
"""The prefix of an address on the wire, and therefore in the directory."""
_NUMBER: Final = re.compile(r"\+[1-9][0-9]{4,17}\Z")
_WHATSAPP: Final = re.compile(r"whatsapp:(?:\+[1-9][0-9]{4,17}|[A-Z]{2}\.(?:ENT\.)?[A-Za-z0-9]{1,128})\Z")
EXTENDED: Final = frozenset("\f^{}\\[~]|€")
"""Characters of the GSM 7-bit alphabet that count as two."""
GSM: Final = EXTENDED | frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
"""The GSM 7-bit alphabet of SMS. Each of several segments has 153 characters of it, or 67 of UCS-2."""
# Leave out the marks of `visible_text` and dashes: otherwise a value could look like a missing one.
_PLAIN: Final = str.maketrans(
    {
        **dict.fromkeys("“”„‟«»", '"'),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u00a0\u2009\u202f", " "),
        "…": "...",
        "•": "-",
    }
)
ACTIONS: Final = ("signoff.approve.{{5}}", "signoff.deny.{{5}}")
"""The ids of the two buttons, which Twilio sends after a press."""
_PLACE: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_SHOWN: Final = 60


def is_address(address: str, via: Via) -> bool:
    """Accept `+351...`, `whatsapp:+351...`, `whatsapp:PT.1349...`."""
    return bool((_WHATSAPP if via == "whatsapp" else _NUMBER).match(address))


def card_fields(card: OutboundCard, formatter: Formatter, assurance: Assurance, via: Via) -> Fields:
    """Explain how to answer with the card's code."""
    return text_fields(_fit(card, formatter, assurance).text, via)


def fields_draw_whole(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> bool:
    """Check both the text and the template."""
    return _fit(card, formatter, assurance).whole and template_words(card, formatter, assurance).whole


def _fit(card: OutboundCard, formatter: Formatter, assurance: Assurance) -> CardWords:
    for whole in (BODY_UNITS, BODY_UNITS * 3 // 4, BODY_UNITS // 2):
        limits = CardLimits(whole=whole, value=300, says=300, rows=40)
        words = card_words(card, formatter, how="text", assurance=assurance, limits=limits)
        if units(words.text) <= BODY_UNITS:
            break
    return words


def template_fields(card: OutboundCard, formatter: Formatter, assurance: Assurance, content: str) -> Fields:
    message = template_message(card, formatter, assurance, "", "")
    values = [each["text"] for each in message["template"]["components"][0]["parameters"]]
    # The fifth is the token, which is in the buttons' ids: see `ACTIONS`.
    variables = {str(number): value for number, value in enumerate((*values, card.token), 1)}
    return {"ContentSid": content, "ContentVariables": json.dumps(variables)}


def closed_fields(closed: ClosedCard, formatter: Formatter, via: Via) -> Fields:
    """The text is a separate message."""
    return text_fields(closing_text(closed, formatter), via)


def text_fields(words: str, via: Via) -> Fields:
    """Cut text at the limit."""
    shown = plain(words) if via == "whatsapp" else plain_quotes(words)
    while units(shown) > BODY_UNITS:
        over = units(shown) - BODY_UNITS
        shown = shown[: -max(over // 2, 1) - 1] + ELLIPSIS
    return {"Body": shown}


def plain_quotes(words: str) -> str:
    """Use plain quotes and spaces only if the alphabet then has every character."""
    plain = words.translate(_PLAIN)
    return plain if set(plain) <= GSM else words


def check_template(content: str, template: Mapping[str, Any], approval: Mapping[str, Any]) -> CheckFinding:
    what = f"the template {content}"
    reply = _map(_map(template, "types"), "twilio/quick-reply")
    actions = reply.get("actions")
    ids = tuple(each.get("id") for each in actions if isinstance(each, dict)) if isinstance(actions, list) else ()
    places = set(_PLACE.findall(str(reply.get("body", ""))))
    if ids != ACTIONS or places != {str(number) for number in range(1, PARAMETERS + 1)}:
        remedy = f"make it a quick reply with {{{{1}}}} to {{{{{PARAMETERS}}}}} in its body, and the ids {ACTIONS}"
        return CheckFinding(False, f"{what} has another form", remedy)
    status = _map(approval, "whatsapp").get("status")
    if status != "approved":
        shown = one_line(str(status), _SHOWN).text
        return CheckFinding(False, f"{what} is not approved: {shown}", "see the Content Template Builder of Twilio")
    return CheckFinding(True, f"{what} is approved")


def _map(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}
