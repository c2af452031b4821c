"""A reader of only the first line would approve every one of these."""

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
async def test_conditional_approval_is_asked_back_on_every_channel(kind: Kind, tmp_path: Path) -> None:
    # On any line, also below a sign-off, which only mail has. With only the first line read in `read_lines` every
    # channel approved the first of these.
    async with answer_rig(kind, tmp_path) as rig:
        for number, words in enumerate((*CONDITIONS, *SIGNED), 1):
            assert await answered(rig, words, number) == "pending", words
        assert rig.decisions.answers == []
        assert await answered(rig, "yes, thanks\nBo", 99) == "approved"


async def test_conditional_approval_in_portuguese_or_german_is_asked_back(tmp_path: Path) -> None:
    # 520 EUR were approved by `Sim / Mas só se for mais barato, senão não`. With only the first line read in
    # `read_lines` the Portuguese answer approved.
    for locale, words in (("pt", "Sim\nMas só se for mais barato, senão não"), ("de", "Ja\nnicht!")):
        async with answer_rig("email", tmp_path, locale) as rig:
            assert await answered(rig, words) == "pending"


async def test_condition_below_an_unmarked_quote_is_seen(tmp_path: Path) -> None:
    # Outlook marks no quoted line, but our last line shows where our mail ends. Without the search for our last line
    # in `_scan` of `mail_quotes.py` the condition was ignored, and the answer approved.
    async with answer_rig("email", tmp_path) as rig:
        quote = "From: Signoff\nSent: Sunday\nTo: Bo\nSubject: Pay\n\n##- Write above -##\n\nPay 1\n\n##=##"
        assert await answered(rig, f"yes\n\n{quote}\n\nbut only half of it") == "pending"
        assert await answered(rig, f"yes\n\n{quote.replace('Pay 1', 'Pay 2')}", 2) == "approved"


async def test_unknown_footer_is_quoted_and_an_answer_with_code_decides(tmp_path: Path) -> None:
    # A footer that may be a condition is then known for this person only. Without the check of unknown lines in
    # `read_mail_answer` the first answer approved.
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


async def test_condition_below_a_signature_never_becomes_a_footer(tmp_path: Path) -> None:
    # Words that limit an answer are asked about each time, regardless of earlier answers. Without the search for
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
