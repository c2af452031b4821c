"""Writes Adaptive Cards. All their words are runs of plain text, in which Teams renders no Markdown."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from signoff.channels import (
    Assurance,
    CardLimits,
    CardWords,
    ClosedCard,
    Formatter,
    OutboundCard,
    RoomCard,
    Verdict,
    card_words,
    closing_text,
)
from signoff.formats.replace import replace

Part: TypeAlias = dict[str, Any]

CARD_TYPE: Final = "application/vnd.microsoft.card.adaptive"
SCHEMA: Final = "http://adaptivecards.io/schemas/adaptive-card.json"
VERSION: Final = "1.4"
"""The first version with `Action.Execute`."""
CARD_BYTES: Final = 26_000
"""Below the 28 KB of a message in Teams, with room for the rest of the activity."""
REASON_CHARS: Final = 1_000
VERB: Final = "signoff"
OURS: Final = "signoff"
"""The key of our own data in an action's data. People's input is next to it."""
REASON: Final = "reason"
"""The id of the input for a denial's reason."""
QUESTION: Final = "question"
"""The id of the input for a question to the agent."""
_WHOLE: Final = (12_000, 8_000, 5_000, 3_000)
"""Characters of the card's text, at most: each has at most four bytes, so the last fits."""
# Teams shows `{{DATE(2030-01-01T00:00:00Z)}}` as a date: an approver would read another value than the tool gets.
_FUNCTION: Final = re.compile(r"\{(?=\{(?:DATE|TIME)\()", re.IGNORECASE)


def card_content(card: OutboundCard, formatter: Formatter, assurance: Assurance, public_url: str) -> tuple[str, Part]:
    """Return the text of the notification, without arguments, and the card.

    Reminders and lists have no buttons that decide. Edits are made in the inbox at `public_url`, after a sign-in.
    """
    words, content = _fit(card, formatter, assurance, public_url)
    return f"{words.heading} ({words.code})", content


def draws_whole(card: OutboundCard, formatter: Formatter, assurance: Assurance, public_url: str) -> bool:
    return _fit(card, formatter, assurance, public_url)[0].whole


def closed_content(closed: ClosedCard, formatter: Formatter) -> tuple[str, Part]:
    """Return the text of the notification and the card, whose only button is the link."""
    # The address has a button here.
    words = closing_text(replace(closed, link=""), formatter)
    actions = [_open(closed.link, formatter)] if closed.link else []
    return words.partition("\n")[0], _content(_lines(words), actions)


def room_content(card: RoomCard) -> Part:
    """All members of the channel read this."""
    body = [_block([_run(card.heading, weight="Bolder", size="Medium")]), *_lines("\n".join(card.lines))]
    return _content(body, [_execute(label, {"token": card.token, "room": act}) for act, label in card.buttons])


def text_content(words: str) -> Part:
    return _content(_lines(words), [])


def card_bytes(content: Part) -> int:
    return len(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _fit(card: OutboundCard, formatter: Formatter, assurance: Assurance, public_url: str) -> tuple[CardWords, Part]:
    for whole in _WHOLE:
        limits = CardLimits(whole=whole, value=500, says=800, rows=60)
        words = card_words(card, formatter, how="buttons", assurance=assurance, limits=limits)
        content = _content(list(_body(card, words)), _actions(card, words, formatter, public_url))
        if card_bytes(content) <= CARD_BYTES:
            break
    return words, content


def _body(card: OutboundCard, words: CardWords) -> Iterator[Part]:
    # People must read the effect first. A list begins with the number of its requests.
    several = card.kind == "digest"
    first, second = (words.heading, words.effect) if several else (words.effect, words.heading)
    yield _block([_run(first, weight="Bolder", size="Medium")])
    yield _block([_run(f"{second} ({words.code})")])
    for row in words.rows:
        label = [_run(f"{row.label}: ", weight="Bolder")] if row.label else []
        note = f" ({row.note})" if row.note else ""
        yield _block([*label, _run(f"{row.value}{note}")])
    yield from _lines("\n".join(filter(None, (words.note, words.asked, words.rule))))
    if words.says:
        yield from _lines(f"{words.says_lead}\n“{words.says}”")
    elsewhere = "" if words.approves else words.how
    yield from _lines("\n".join(filter(None, (words.counted, words.due, words.more, words.incomplete, elsewhere))))


def _actions(card: OutboundCard, words: CardWords, formatter: Formatter, public_url: str) -> list[Part]:
    decides = words.decides and card.kind == "ask"
    actions = []
    if decides and words.approves:
        actions.append(_decide(words.approve, card.token, "approved", "positive"))
    if decides:
        actions.append(_deny(card, words, formatter))
    if decides and card.asks:
        actions.append(_ask(card.token, formatter))
    if card.link:
        actions.append(_open(card.link, formatter))
    if decides and card.request.edit != "off":
        url = f"{public_url}/approvals/{card.request.id}/edit"
        actions.append({"type": "Action.OpenUrl", "title": formatter.text("button.change"), "url": url})
    return actions


def _deny(card: OutboundCard, words: CardWords, formatter: Formatter) -> Part:
    """Opens a part of the card with the reason. A part's input is not sent with the approval."""
    required = card.request.require_reason
    label = formatter.text("receipt.reason" if required else "button.why")
    part = _content([_input(REASON, label, required)], [_decide(words.deny, card.token, "denied", "destructive")])
    return {"type": "Action.ShowCard", "title": words.deny, "style": "destructive", "card": part}


def _ask(token: str, formatter: Formatter) -> Part:
    words = formatter.text("ask.send")
    field = _input(QUESTION, formatter.text("ask.title"), required=True)
    part = _content([field], [_execute(words, {"token": token, "asks": "agent"})])
    return {"type": "Action.ShowCard", "title": words, "card": part}


def _input(name: str, label: str, required: bool) -> Part:
    return {
        "type": "Input.Text",
        "id": name,
        "label": label,
        "isMultiline": True,
        "maxLength": REASON_CHARS,
        "isRequired": required,
        "errorMessage": label,
    }


def _decide(title: str, token: str, verdict: Verdict, style: str) -> Part:
    return _execute(title, {"token": token, "verdict": verdict}, style)


def _execute(title: str, ours: dict[str, str], style: str = "default") -> Part:
    # Older clients send the same data as a message.
    submit = {"type": "Action.Submit", "title": title, "style": style, "data": {OURS: ours}}
    return {**submit, "type": "Action.Execute", "verb": VERB, "fallback": submit}


def _open(link: str, formatter: Formatter) -> Part:
    return {"type": "Action.OpenUrl", "title": formatter.text("button.open"), "url": link}


def _content(body: list[Part], actions: list[Part]) -> Part:
    return {"type": "AdaptiveCard", "$schema": SCHEMA, "version": VERSION, "body": body, "actions": actions}


def _lines(words: str) -> list[Part]:
    return [_block([_run(line)]) for line in words.split("\n") if line]


def _block(runs: list[list[Part]]) -> Part:
    return {"type": "RichTextBlock", "spacing": "Small", "inlines": [run for each in runs for run in each]}


def _run(words: str, **style: str) -> list[Part]:
    return [{"type": "TextRun", "text": piece, **style} for piece in _pieces(words) if piece]


def _pieces(words: str) -> Iterator[str]:
    """Divide text inside the braces of Teams' own functions. Teams reads a function within one run alone."""
    begin = 0
    for found in _FUNCTION.finditer(words):
        yield words[begin : found.end()]
        begin = found.end()
    yield words[begin:]
