"""Writes cards as Slack's Block Kit, with models' words in plain text."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from signoff.channels.card_text import CardLimits, CardWords, card_words
from signoff.channels.envelopes import ClosedCard, OutboundCard, RoomAct, RoomCard
from signoff.channels.outbound.receipt_text import closing_text
from signoff.formats.replace import replace
from signoff.languages.catalogue import text
from signoff.texts.endings import closing_words
from signoff.texts.formatter import Formatter

Block: TypeAlias = dict[str, Any]

TEXT_CHARS: Final = 3_000
"""The limit of a section."""
HEADER_CHARS: Final = 150
BUTTON_CHARS: Final = 75
FALLBACK_CHARS: Final = 3_000
"""The limit of the text for notifications and screen readers."""
REASON_CHARS: Final = 1_000
TITLE_CHARS: Final = 24
APPROVE: Final = "signoff.approve"
DENY: Final = "signoff.deny"
OPEN: Final = "signoff.open"
CHANGE: Final = "signoff.change"
ASK: Final = "signoff.ask"
REASON: Final = "signoff.reason"
"""Action ids of buttons and of the dialogs' field."""
ROOM_ACTS: Final[Mapping[str, RoomAct]] = {
    "signoff.take": "take",
    "signoff.release": "release",
    "signoff.show": "show",
}
"""The buttons of cards in channels, by action id."""
LIMITS: Final = CardLimits(whole=9_000, value=400, says=800, rows=40)


def card_blocks(card: OutboundCard, formatter: Formatter, public_url: str) -> tuple[str, list[Block]]:
    """Reminders and lists have no buttons that decide. Edits are made in the inbox at `public_url`, after a sign-in."""
    words = card_words(card, formatter, how="buttons", limits=LIMITS)
    decides = words.decides and card.kind == "ask"
    several = card.kind == "digest"
    # People must read the effect first. A list begins with the number of its requests.
    first, second = (words.heading, words.effect) if several else (words.effect, words.heading)
    blocks: list[Block] = [_header(first), _section(f"{second}\n{words.code}")]
    # Slack limits the header, so it is cut. Repeat the whole text below it.
    if len(first) > HEADER_CHARS:
        blocks.append(_section(first))
    blocks += [_section(each) for each in _paragraphs(words)]
    buttons = _decisions(card.token, words) if decides else []
    if decides and card.asks:
        buttons.append(_button(ASK, text("ask.send", formatter.language), value=card.token))
    if card.link:
        label = text("button.open", formatter.language)
        buttons.append(_button(OPEN, label, url=card.link))
    if decides and card.request.edit != "off":
        edit = f"{public_url}/approvals/{card.request.id}/edit"
        buttons.append(_button(CHANGE, text("button.change", formatter.language), url=edit))
    if buttons:
        blocks.append({"type": "actions", "block_id": f"signoff.{card.token}", "elements": buttons})
    return escape(words.text)[:FALLBACK_CHARS], blocks


def closed_blocks(closed: ClosedCard, formatter: Formatter) -> tuple[str, list[Block]]:
    """Its only button is the link."""
    message = closing_text(closed, formatter)
    # Leave out the address: it has a button here.
    without_link = closing_text(replace(closed, link=""), formatter)
    blocks: list[Block] = [_section(each) for each in _cut_sections(without_link)]
    if closed.link:
        button = _button(OPEN, text("button.open", formatter.language), url=closed.link)
        # Slack requires a new block id when a message changes.
        blocks.append({"type": "actions", "block_id": f"signoff.{closed.token}.over", "elements": [button]})
    return escape(message)[:FALLBACK_CHARS] or closing_words(closed.request, formatter), blocks


def room_blocks(card: RoomCard) -> tuple[str, list[Block]]:
    """All members of the channel read this."""
    blocks = [_header(card.heading), *(_section(each) for each in card.lines)]
    ids = {act: name for name, act in ROOM_ACTS.items()}
    if card.buttons:
        elements = [_button(ids[act], label, value=card.token) for act, label in card.buttons]
        # Slack requires a new block id when a message changes.
        number = len(card.buttons)
        blocks.append({"type": "actions", "block_id": f"signoff.{card.token}.room{number}", "elements": elements})
    return escape(card.text)[:FALLBACK_CHARS], blocks


def card_view(card: OutboundCard, formatter: Formatter, public_url: str) -> Block:
    """Return a dialog with a whole card, for one person."""
    _, blocks = card_blocks(card, formatter, public_url)
    return _view(blocks, formatter.language)


def words_view(words: str, language: str) -> Block:
    """Return the dialog that replaces a card after an answer."""
    return _view([_section(each) for each in _cut_sections(words)], language)


def _view(blocks: list[Block], language: str) -> Block:
    return {
        "type": "modal",
        "callback_id": OPEN,
        "title": _plain(text("room.view", language), TITLE_CHARS),
        "close": _plain(text("button.back", language), TITLE_CHARS),
        "blocks": blocks,
    }


def reason_view(token: str, where: dict[str, Any], language: str, *, required: bool) -> Block:
    """Return the dialog that asks for the reason of a denial. Slack returns `token` and `where` with the submission."""
    label, words = text("button.why", language), text("button.deny", language)
    return _field_view(DENY, {"token": token, **where}, language, label, words, required=required)


def question_view(token: str, where: dict[str, Any], language: str) -> Block:
    """Return the dialog for a question to the agent. Slack returns `token` and `where` with the submission."""
    label, words = text("ask.title", language), text("ask.send", language)
    return _field_view(ASK, {"token": token, **where}, language, label, words, required=True)


def _field_view(name: str, data: dict[str, Any], language: str, label: str, words: str, *, required: bool) -> Block:
    element = {"type": "plain_text_input", "action_id": REASON, "multiline": True, "max_length": REASON_CHARS}
    return {
        "type": "modal",
        "callback_id": name,
        "private_metadata": json.dumps(data),
        "title": _plain(words, TITLE_CHARS),
        "submit": _plain(words, TITLE_CHARS),
        "close": _plain(text("button.back", language), TITLE_CHARS),
        "blocks": [
            {
                "type": "input",
                "block_id": REASON,
                "optional": not required,
                "label": _plain(label, BUTTON_CHARS),
                "element": element,
            },
        ],
    }


def escape(words: str) -> str:
    # `<!channel>` in an argument would notify a whole channel, and `<https://...|here>` would hide the link's target.
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _paragraphs(words: CardWords) -> Iterator[str]:
    yield from _cut_sections("\n".join(f"{row.text}" for row in words.rows))
    yield from _cut_sections("\n".join(filter(None, (words.note, words.asked, words.rule))))
    if words.says:
        yield from _cut_sections(f"{words.says_lead}\n“{words.says}”")
    elsewhere = "" if words.approves else words.how
    yield from _cut_sections(
        "\n".join(filter(None, (words.counted, words.due, words.more, words.incomplete, elsewhere)))
    )


def _cut_sections(words: str) -> Iterator[str]:
    """Split text into sections at line ends: the rest of a cut value at the start of one would look like our own words.

    A line longer than a section becomes its own section, which is cut with a mark.
    """
    section = ""
    for line in words.split("\n"):
        longer = f"{section}\n{line}" if section else line
        if section and len(longer) > TEXT_CHARS:
            yield section
            longer = line
        section = longer
    if section:
        yield section


def _decisions(token: str, words: CardWords) -> list[Block]:
    deny = _button(DENY, words.deny, value=token, style="danger")
    return [_button(APPROVE, words.approve, value=token, style="primary"), deny] if words.approves else [deny]


def _button(action: str, label: str, **more: str) -> Block:
    return {"type": "button", "action_id": action, "text": _plain(label, BUTTON_CHARS), **more}


def _header(words: str) -> Block:
    return {"type": "header", "text": _plain(words, HEADER_CHARS)}


def _section(words: str) -> Block:
    return {"type": "section", "text": _plain(words, TEXT_CHARS)}


def _plain(words: str, chars: int) -> Block:
    shown = words if len(words) <= chars else words[: chars - 1] + "…"
    # With `emoji` on, `:white_check_mark:` in an argument would look like our own sign.
    return {"type": "plain_text", "text": shown or "…", "emoji": False}
