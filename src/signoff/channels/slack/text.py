"""Reads what somebody wrote in Slack as plain text: escapes undone, shortcodes as pictures, struck and quoted parts
marked.

Slack escapes three characters in every text (docs.slack.dev, Formatting message text), and marks up the rest.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_ESCAPES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
"""In this order, or what somebody wrote as `&lt;` would become another sign."""
_PICTURES: Final[Mapping[str, str]] = {
    "+1": "👍",
    "thumbsup": "👍",
    "-1": "👎",
    "thumbsdown": "👎",
    "white_check_mark": "✅",
    "heavy_check_mark": "✔",
    "ballot_box_with_check": "☑",
    "ok": "🆗",
    "ok_hand": "👌",
    "pray": "🙏",
    "slightly_smiling_face": "🙂",
    "blush": "😊",
    "smile": "😄",
    "grinning": "😀",
    "smiley": "😃",
    "grin": "😁",
    "tada": "🎉",
    "100": "💯",
    "raised_hands": "🙌",
    "clap": "👏",
    "handshake": "🤝",
    "heart": "❤",
    "x": "❌",
    "no_entry": "⛔",
    "no_entry_sign": "🚫",
    "octagonal_sign": "🛑",
    "no_good": "🙅",
}
_SHORTCODE: Final = re.compile(r":([a-z0-9_+-]{1,40}):(?::skin-tone-[2-6]:)?")
_DEEPEST: Final = 20


def unescape(text: str) -> str:
    """Undoes Slack's three escapes in a text."""
    for escaped, plain in _ESCAPES:
        text = text.replace(escaped, plain)
    return text


def written_text(message: Mapping[str, Any]) -> str:
    """Returns the text of a message, from its event.

    A client may send what is struck out or quoted as such in `blocks` alone: it is then marked here.
    """
    found = message.get("text")
    text = unescape(found) if isinstance(found, str) else ""
    # A picture that is not listed keeps its name, which is no word of an answer.
    text = _SHORTCODE.sub(lambda code: _PICTURES.get(code[1], code[0]), text)
    marks = set(_marks(message.get("blocks"), 0))
    for mark in sorted(marks):
        if mark not in text:
            text = f"{mark}{text}"
    return text


def _marks(part: Any, depth: int) -> Iterator[str]:
    """Yields the marks that a rich text should show: `~` for what is struck out, `>` for quotes, `` ` `` for code."""
    if depth > _DEEPEST:
        yield "~"
    elif isinstance(part, list):
        for each in part:
            yield from _marks(each, depth + 1)
    elif isinstance(part, dict):
        style = part.get("style")
        if isinstance(style, dict) and style.get("strike"):
            yield "~"
        if isinstance(style, dict) and style.get("code"):
            yield "`"
        kind = part.get("type")
        yield from {"rich_text_quote": ">", "rich_text_preformatted": "`"}.get(str(kind), "")
        yield from _marks(part.get("elements"), depth + 1)
