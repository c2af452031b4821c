"""Reads the text of people's messages, whose marks are only in Teams' HTML."""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HTML_CHARS: Final = 100_000
"""Teams' messages are shorter."""
# Adjacent parts share no characters, so that no text takes quadratic time.
_TAG: Final = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)((?:[\s/][^<>]*)?)>")
_ATTRIBUTE: Final = re.compile(r"""(?<![a-z])([a-z]{1,20})\s?=\s?(?:"([^"<>]*)"|'([^'<>]*)')""")
_REPLY: Final = "http://schema.skype.com/Reply"
_EMOJI: Final = "http://schema.skype.com/Emoji"
_MARKS: Final[Mapping[str, str]] = {"s": "~", "strike": "~", "del": "~", "code": "`", "pre": "`"}
_LINES: Final = frozenset({"p", "div", "br", "li", "ul", "ol", "tr", "table"})
_QUOTE: Final = "blockquote"


@dataclass
class MessageText:
    """The new text of a message, with marks for struck-out text, quotes and code."""

    text: str = ""
    about: str = ""
    """The id of the message that it replies to."""


def read_html(content: str) -> MessageText:
    """Leave out the quoted message of a reply. Takes linear time."""
    message, pieces, end = MessageText(), list[str](), 0
    # The depth of quotes at which a quoted message began, 0 outside of one.
    depth = reply_depth = 0
    for tag in _TAG.finditer(content):
        if not reply_depth:
            pieces.append(html.unescape(content[end : tag.start()]))
        end = tag.end()
        closes, name, attributes = bool(tag[1]), tag[2].lower(), _attributes(tag[3])
        if name == _QUOTE:
            depth += -1 if closes else 1
            if not closes and not reply_depth and attributes.get("itemtype") == _REPLY:
                message.about, reply_depth = attributes.get("itemid", ""), depth
                continue
            if closes and reply_depth and depth < reply_depth:
                reply_depth = 0
                continue
        if not reply_depth:
            pieces.append(_shown(name, attributes, closes=closes))
    if not reply_depth:
        pieces.append(html.unescape(content[end:]))
    message.text = "".join(pieces).replace("\xa0", " ").strip()
    return message


def _shown(name: str, attributes: Mapping[str, str], *, closes: bool) -> str:
    if name in _MARKS:
        return _MARKS[name]
    if name == _QUOTE:
        return "\n" if closes else "\n> "
    if name in _LINES:
        return "\n"
    if name == "emoji" or (name == "img" and attributes.get("itemtype") == _EMOJI):
        return "" if closes else attributes.get("alt", "[]")
    # A picture may show a condition.
    return "[]" if name == "img" else ""


def _attributes(written: str) -> dict[str, str]:
    return {each[1]: html.unescape(each[2] or each[3] or "") for each in _ATTRIBUTE.finditer(written)}
