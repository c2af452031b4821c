from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from answer_rigs import answer_rig, reply
from mail_kit import Delivered
from mail_post import Post
from tables import table

from signoff.channels.mail.html_text import html_lines
from signoff.contracts.ids import show_code
from signoff.testing.rig import ChannelRig

OUTLOOK: Final = (
    "From: Signoff <signoff@signoff.example>\nSent: Sunday, 22 November 2026 14:00\nTo: Bo\nSubject: Approvals\n\n"
)
GMAIL: Final = "On Sun, 22 Nov 2026 at 14:00, Signoff <signoff@signoff.example> wrote:\n\n"


def quoted_by_outlook(mail: Delivered) -> str:
    return OUTLOOK + mail.plain


def quoted_by_gmail(mail: Delivered) -> str:
    return GMAIL + "\n".join(f"> {line}" for line in mail.plain.split("\n"))


def quoted_as_html(mail: Delivered) -> str:
    return OUTLOOK + "\n".join(html_lines(mail.html))


QUOTES: Final = (quoted_by_outlook, quoted_by_gmail, quoted_as_html)


async def answered(
    rig: ChannelRig, number: int, quote: Callable[[Delivered], str], old: str = "", new: str = ""
) -> str:
    request = await rig.ask(number)
    code = show_code(request.code)
    text = quote(sent_last(rig))
    assert old in text
    await reply(rig, f"Approve\n\n{text.replace(old, new, 1)}", code)
    return rig.request(request.id).state


def sent_last(rig: ChannelRig) -> Delivered:
    assert isinstance(rig.vendor, Post)
    return rig.vendor.taken()[-1]


@table("quote", *QUOTES)
async def test_reply_with_a_complete_quote_is_read(quote: Callable[[Delivered], str], tmp_path: Path) -> None:
    async with answer_rig("email", tmp_path) as rig:
        assert await answered(rig, 1, quote) == "approved"


@pytest.mark.parametrize("quote", QUOTES)
async def test_changed_or_commented_quote_is_asked_back(quote: Callable[[Delivered], str], tmp_path: Path) -> None:
    async with answer_rig("email", tmp_path) as rig:
        assert await answered(rig, 2, quote, "Payee", "Payee (but only below 100)") == "pending"
        assert await answered(rig, 3, quote, "Payee", "Südwind GmbH") == "pending"
        assert await answered(rig, 4, quote, "Payee", "Payee\nbut only below 100\n") == "pending"
        assert "but only below 100" in rig.text_read_by(rig.bo)


async def test_comment_between_the_outlook_header_and_the_card_is_asked_back(tmp_path: Path) -> None:
    async with answer_rig("email", tmp_path) as rig:
        assert await answered(rig, 1, quoted_by_outlook, "\n\n##-", "\n\nonly below 100\n\n##-") == "pending"
        assert (
            await answered(rig, 2, quoted_by_outlook, "Subject: Approvals", "Subject: Approvals\nonly below 100")
            == "pending"
        )


async def test_answer_above_a_quoted_question_counts(tmp_path: Path) -> None:
    async with answer_rig("email", tmp_path) as rig:
        request = await rig.ask(1)
        code = show_code(request.code)
        await reply(rig, "hm", code)
        question = sent_last(rig)
        await reply(rig, f"Approve\n\n{quoted_by_outlook(question)}", code)
        assert rig.request(request.id).state == "approved"


async def test_part_of_the_card_may_be_cut_from_the_quote(tmp_path: Path) -> None:
    async with answer_rig("email", tmp_path) as rig:
        request = await rig.ask(1)
        code = show_code(request.code)
        lines = quoted_by_outlook(sent_last(rig)).split("\n")
        await reply(rig, "\n".join(["Approve", "", *lines[:9], *lines[-3:]]), code)
        assert rig.request(request.id).state == "approved"
