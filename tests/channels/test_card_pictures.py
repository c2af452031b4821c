"""The pictures of docs/channels.md show what the vendors hold, and can be made anew."""

import re
from pathlib import Path

import pytest
from card_pictures import SLACK, WHATSAPP, WIDE, Taken, drawn_slack, drawn_whatsapp, pictures, take
from documents import ROOT
from jinja2 import UndefinedError

from signoff.testing.fake_slack import FakeSlack, SlackMessage
from signoff.testing.fake_whatsapp import FakeWhatsApp, WhatsAppMessage

EFFECT, CODE = "Top up the petty cash of Lisbon by 80 EUR", "K7Q-2FM"
ENDED = "Approved by Ana Sousa by e-mail, 14:00 UTC."
MOST = 60_000
ASK = {
    "email": {"Open"},
    "email-phone": {"Open"},
    "slack": {"Approve", "Deny", "Open"},
    "whatsapp": {"Approve", "Deny"},
    "whatsapp-template": {"Approve", "Deny"},
}
"""Cards that ask, and the lines of their buttons."""
OVER = ("email-closed", "slack-closed", "whatsapp-closed")
_PNG = b"\x89PNG\r\n\x1a\n"


def lines(taken: Taken) -> list[str]:
    return [line.strip() for line in taken.words.splitlines() if line.strip()]


@pytest.mark.chromium
async def test_pictures_show_what_would_happen_the_code_and_the_buttons(tmp_path: Path) -> None:
    made = await pictures()
    taken = await take(made, tmp_path)
    assert set(taken) == {*ASK, *OVER}
    for name, each in taken.items():
        assert EFFECT in each.words, name
        assert CODE in each.words, name
        written = each.file.read_bytes()
        assert written.startswith(_PNG)
        assert int.from_bytes(written[16:20]) == made[name].width
        assert len(written) <= MOST, name
    for name, buttons in ASK.items():
        assert buttons <= set(lines(taken[name])), name
        assert ENDED not in taken[name].words
    for name in OVER:
        assert ENDED in lines(taken[name]), name
        assert not {"Approve", "Deny"} & set(lines(taken[name])), name
    assert f"{CODE}: Already decided." in taken["slack-closed"].words


@pytest.mark.chromium
async def test_what_is_drawn_is_what_the_vendor_holds(tmp_path: Path) -> None:
    slack, phone = FakeSlack(), FakeWhatsApp()
    section = {"type": "section", "text": {"type": "plain_text", "text": "*not bold* <b>&amp;\nsecond line"}}
    actions = {"type": "actions", "elements": [{"type": "button", "text": {"text": "Go <on>"}}]}
    user = SLACK.rpartition(":")[2]
    slack.messages = [
        SlackMessage(user, "1.1", "fallback", [section, actions]),
        SlackMessage("USOMEBODY", "1.2", "not hers"),
        SlackMessage(user, "1.3", "1 &lt; 2 &amp; 3", ephemeral=True),
    ]
    phone.bubbles = [
        WhatsAppMessage(WHATSAPP, "wamid.1", "interactive", "first <i>\nmore", buttons={"Yes & no": "x"}),
        WhatsAppMessage(WHATSAPP, "wamid.2", "text", "over", about="wamid.1"),
    ]
    taken = await take({"slack": drawn_slack(slack), "whatsapp": drawn_whatsapp(phone)}, tmp_path)
    assert [line for line in lines(taken["slack"]) if line not in ("S", "Signoff APP 14:00")] == [
        *("*not bold* <b>&amp;", "second line", "Go <on>"),
        *("Only visible to you", "1 < 2 & 3"),
    ]
    assert lines(taken["whatsapp"]) == ["first <i>", "more", "Yes & no", "Signoff", "first <i>", "over"]


def test_a_block_that_cannot_be_drawn_is_not_left_out() -> None:
    slack = FakeSlack()
    slack.messages = [SlackMessage(SLACK.rpartition(":")[2], "1.1", "x", [{"type": "image", "image_url": "x"}])]
    with pytest.raises(UndefinedError):
        drawn_slack(slack)
    slack.messages[0].blocks = []
    assert drawn_slack(slack).width == WIDE


def test_each_picture_is_shown_with_words_for_it() -> None:
    text = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("channels.md", "email.md"))
    there = {file.stem.removeprefix("channel-"): file for file in (ROOT / "docs" / "images").glob("channel-*.png")}
    assert set(there) == {*ASK, *OVER}
    for name, file in there.items():
        found = re.search(rf"^!\[([^]]+)\]\(images/{file.name}\)$", text, re.MULTILINE)
        assert found, f"{file.name} is not shown"
        assert len(found[1]) > 40
        heading = re.findall(r"^## (.+)$", text[: found.start()], re.MULTILINE)[-1]
        assert heading == f"Kind {name.partition('-')[0]}"
        assert file.stat().st_size <= MOST
