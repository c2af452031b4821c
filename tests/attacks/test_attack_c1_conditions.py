"""Attack C1: a yes whose condition, question or withdrawal stands on another line is carried out as a plain yes.

Seen to fail without the mend: with the first line alone given to the reader, every one of these approves.
"""

from pathlib import Path

import pytest
from answer_rigs import CHATS, Kind, answer_rig, answered, reply

from signoff.contracts.ids import show_code

CONDITIONS = (
    "yes\nbut only if it is below 100",
    "Approved\n\n\n\nJust kidding, deny it",
    "approve\nPS: half of it",
    "yes / but only",
    "Yes\n\n> quoted\n\nunless Ana disagrees",
    "approve {code}\nafter Friday",
    "yes,",
)
SIGNED = (
    "yes\n\nBest regards,\nBo\nonly if it is below 100",
    "yes\n\n-- \nnot before Monday",
    "yes\n\nSent from my iPhone, only below 100",
    "yes\n\nBo\nSubject to Ana's agreement",
    "yes\n\nThis e-mail is confidential. Pay no more than 100 EUR.",
    "yes\n\nThanks,\nBo\nHead of Waiting Until Friday",
)


@pytest.mark.parametrize("kind", ["email", *CHATS])
async def test_no_condition_is_passed_over(kind: Kind, tmp_path: Path) -> None:
    # On whatever line it stands; below a sign-off too, which only a mail has. With the first line alone read in
    # `read_lines` every one of the channels approved the first of these.
    async with answer_rig(kind, tmp_path) as rig:
        for number, words in enumerate((*CONDITIONS, *SIGNED), 1):
            assert await answered(rig, words, number) == "pending", words
        assert rig.decisions.answers == []
        assert await answered(rig, "yes, thanks\nBo", 99) == "approved"


async def test_the_real_one_in_portuguese_and_the_one_in_german(tmp_path: Path) -> None:
    # 520 EUR were approved by `Sim / Mas só se for mais barato, senão não`. With the first line alone read in
    # `read_lines` the Portuguese one approved.
    for locale, words in (("pt", "Sim\nMas só se for mais barato, senão não"), ("de", "Ja\nnicht!")):
        async with answer_rig("email", tmp_path, locale) as rig:
            assert await answered(rig, words) == "pending"


async def test_a_condition_below_our_own_mail_is_seen_where_no_quote_is_marked(tmp_path: Path) -> None:
    # Outlook marks no line of what it quotes; our last line says where our mail ends. Without the look for our last
    # line in `_scan` of `mail_quotes.py` half of it was passed over, and the whole approved.
    async with answer_rig("email", tmp_path) as rig:
        quote = "From: Signoff\nSent: Sunday\nTo: Bo\nSubject: Pay\n\n##- Write above -##\n\nPay 1\n\n##=##"
        assert await answered(rig, f"yes\n\n{quote}\n\nbut only half of it") == "pending"
        assert await answered(rig, f"yes\n\n{quote.replace('Pay 1', 'Pay 2')}", 2) == "approved"


async def test_what_is_asked_about_is_quoted_and_one_yes_with_the_code_decides(tmp_path: Path) -> None:
    # A footer that could be a condition is known of this person after that, and of nobody else. Without the look at
    # unknown lines in `read_mail_answer` the first answer approved.
    footer = (
        "Bo\nWe build the harbours of tomorrow, without compromise, and only from stone of our own quarries since 1911"
    )
    async with answer_rig("email", tmp_path) as rig:
        request = await rig.ask()
        code = show_code(request.code)
        await reply(rig, f"Approve\n\nBest regards,\n{footer}", code)
        assert rig.request(request.id).state == "pending"
        assert "We build the harbours of tomorrow" in rig.text_read_by(rig.bo)
        await reply(rig, f"approve {code}\n\nBest regards,\n{footer}", code)
        assert rig.request(request.id).state == "approved"
        assert await answered(rig, f"Approve\n\nBest regards,\n{footer}", 2) == "approved"
        assert await answered(rig, f"Approve\n\nBest regards,\n{footer} or so", 3) == "pending"


async def test_a_condition_that_was_meant_once_is_no_footer_the_next_time(tmp_path: Path) -> None:
    # A few words that limit an answer are asked about each time, whatever was answered before. Without the look for
    # reserving words in `_to_remember` the answer with the code approved.
    words = "yes{}\n\nBest regards,\nBo\nonly if it is below 100"
    async with answer_rig("email", tmp_path) as rig:
        request = await rig.ask(1)
        code = show_code(request.code)
        for answer in (words.format(""), words.format(f" {code}")):
            await reply(rig, answer, code)
            assert rig.request(request.id).state == "pending"
        await reply(rig, f"yes {code}", code)
        assert rig.request(request.id).state == "approved"
        assert await answered(rig, words.format(""), 2) == "pending"
        assert await answered(rig, words.format(" {code}"), 3) == "pending"
