"""With Telegram's entities and Slack's blocks unread, struck-out text approves."""

import json
from pathlib import Path
from typing import Any

import pytest
from answer_rigs import CHATS, Kind, answer_rig, answered, reply
from mail_kit import judged, replied
from mail_post import Post

from signoff.contracts.ids import show_code
from signoff.testing.fake_slack import FakeSlack
from signoff.testing.fake_telegram import FakeTelegram

SIGNS = (
    "yes 🙃",
    "yes 🤔",
    "yes 😉",
    "yes (question mark)",
    "y\u0336e\u0336s\u0336",
    "~yes~",
    "> yes",
    "yes ❓",
    "yes 👎",
    "yes 🏳️",
    "yes…",
)


@pytest.mark.parametrize("kind", ["email", *CHATS])
async def test_approval_with_unknown_signs_is_asked_back(kind: Kind, tmp_path: Path) -> None:
    # Other signs may mean anything, and struck-out text means the opposite. With every unknown sign taken for a pause
    # in `answer_tokens.py` the first of these approved on every channel.
    async with answer_rig(kind, tmp_path) as rig:
        for number, words in enumerate(SIGNS, 1):
            assert await answered(rig, words, number) == "pending", words
        for number, words in enumerate(("yes 👍", "✅ approved 🎉", "Yes 👍🏽 :)"), 50):
            assert await answered(rig, words, number) == "approved", words


@pytest.mark.parametrize("kind", ["strikethrough", "blockquote", "expandable_blockquote", "spoiler", "custom_emoji"])
async def test_telegram_formatting_of_an_approval_counts(kind: str, tmp_path: Path) -> None:
    # Their text is `yes`, and only an entity marks it as struck out. With the entities unread in `telegram_updates.py`
    # each kind of them approved.
    async with answer_rig("telegram", tmp_path) as rig:
        assert isinstance(rig.vendor, FakeTelegram)
        request = await rig.ask()
        update = rig.vendor.message_update(rig.bo, text="👍 yes", entities=[{"type": kind, "offset": 3, "length": 3}])
        await rig.receive(rig.vendor.update_request({"message": update}))
        assert rig.request(request.id).state == "pending"
        bold = rig.vendor.message_update(rig.bo, text="👍 yes", entities=[{"type": "bold", "offset": 3, "length": 3}])
        await rig.receive(rig.vendor.update_request({"message": bold}))
        assert rig.request(request.id).state == "approved"


@pytest.mark.parametrize(
    "element",
    [
        {"type": "rich_text_section", "elements": [{"type": "text", "text": "yes", "style": {"strike": True}}]},
        {"type": "rich_text_quote", "elements": [{"type": "text", "text": "yes"}]},
    ],
)
async def test_slack_blocks_of_an_approval_count(element: dict[str, Any], tmp_path: Path) -> None:
    # Its plain text is just `yes`. With the blocks unread in `slack_text.py` both approved.
    async with answer_rig("slack", tmp_path) as rig:
        assert isinstance(rig.vendor, FakeSlack)
        request = await rig.ask()
        raw = rig.vendor.write(rig.bo, "yes")
        body = json.loads(raw.body)
        body["event"]["blocks"] = [{"type": "rich_text", "elements": [element]}]
        await rig.receive(rig.vendor.sign(json.dumps(body).encode()))
        assert rig.request(request.id).state == "pending"


async def test_approval_struck_out_in_html_does_not_approve(tmp_path: Path) -> None:
    # A client writes the plain part without formatting. With the HTML part unread next to the plain text in
    # `mail_reading.py` the first of these approved.
    async with answer_rig("email", tmp_path) as rig:
        assert isinstance(rig.vendor, Post)
        for number, html in enumerate(("<s>Approve</s>", '<p style="text-decoration: line-through">Approve</p>'), 1):
            request = await rig.ask(number)
            card = rig.card(rig.bo, show_code(request.code))
            mail = replied(rig.vendor._card(card), rig.bo, "Approve")
            mail.add_alternative(f"<div>{html}</div>", subtype="html")
            await rig.receive(rig.vendor._brought(judged(mail)))
            assert rig.request(request.id).state == "pending", html


async def test_slack_shortcodes_and_escapes_are_read(tmp_path: Path) -> None:
    # `:+1:` is a picture, and a reason keeps its author's text. With the shortcodes unread in `slack_text.py` the
    # first answer was asked back, and with the escapes kept the reason contained `&amp;`.
    async with answer_rig("slack", tmp_path) as rig:
        assert await answered(rig, "yes :+1::skin-tone-3: thanks", 1) == "approved"
        assert await answered(rig, "yes :upside_down_face:", 2) == "pending"
        assert await answered(rig, "&gt; yes", 3) == "pending"
        request = await rig.ask(4)
        code = show_code(request.code)
        await reply(rig, f"deny {code} R&amp;D has no budget &lt;yet&gt;", code)
        assert rig.request(request.id).reason == "R&D has no budget <yet>"


async def test_portuguese_mail_contains_no_english_line(tmp_path: Path) -> None:
    # The marker line is in the language of the rest. With the line always in English in `mail_writing.py` it was in
    # his emails.
    async with answer_rig("email", tmp_path, "pt") as rig:
        assert await answered(rig, "Sim") == "approved"
        found = rig.vendor.reads(rig.bo)
        assert all("Escreva a sua resposta acima desta linha" in each for each in found)
        assert not any("Write your answer" in each for each in found)
