from typing import Any

import yaml
from mail_corpus import MAILS
from tables import table

from signoff.channels.answer_text.answer_parser import AnswerSender, ParsedAnswer, parse_answer
from signoff.channels.answer_text.footers import footer_digest, read_mail_answer

ANSWERS: dict[str, Any] = yaml.safe_load((MAILS / "answers.yaml").read_text())
ANA = ("Ana Sousa",)


def read_all(kind: str) -> list[tuple[str, str, ParsedAnswer]]:
    rows = [(language, text) for language, texts in ANSWERS[kind].items() for text in texts]
    return [
        (language, text, parse_answer(text, AnswerSender(language, ANA, {"K7Q2FM": "Pay 300 EUR"})))
        for language, text in rows
    ]


def test_deceptive_answers_are_not_read_as_approvals() -> None:
    assert [text for _, text, answer in read_all("asked") if answer.verdict is not None] == []
    assert [text for _, text, answer in read_all("no") if answer.verdict == "approved"] == []


def test_most_ordinary_answers_are_read() -> None:
    read_as = {"yes": "approved", "no": "denied"}
    for kind, verdict in read_as.items():
        rows = read_all(kind)
        missed = [text for _, text, answer in rows if answer.verdict != verdict]
        assert len(missed) <= 0.03 * len(rows), missed


def test_email_decides_above_known_closing_text() -> None:
    for text in ANSWERS["mail"]["yes"]:
        assert read_mail_answer(text.split("\n"), (), AnswerSender("en", ANA)).verdict == "approved", text


@table("text", *ANSWERS["mail"]["asked"])
def test_email_with_unknown_text_after_its_sign_off_is_asked_back(text: str) -> None:
    answer = read_mail_answer(text.split("\n"), (), AnswerSender("en", ANA))
    assert answer.verdict is None
    assert answer.unread or answer.why == "two"


def test_confirmed_footer_is_matched_exactly_and_per_sender() -> None:
    lines = "Approve{}\n\nBest regards,\nAna\nBuilding bridges since 1911"
    asked = read_mail_answer(lines.format("").split("\n"), (), AnswerSender("en", ANA))
    assert asked.footer == "Ana\nBuilding bridges since 1911"
    digest = footer_digest(asked.footer)
    pending = AnswerSender("en", ANA, asked=frozenset({(digest, "K7Q2FM")}))
    known = AnswerSender("en", ANA, footers=frozenset({digest}))
    assert read_mail_answer(lines.format("").split("\n"), (), pending).verdict is None
    assert read_mail_answer(lines.format(" A1B-2C3").split("\n"), (), pending).verdict is None
    confirmed = read_mail_answer(lines.format(" K7Q-2FM").split("\n"), (), pending)
    assert (confirmed.verdict, confirmed.footer) == ("approved", asked.footer)
    settled = read_mail_answer(lines.format("").split("\n"), (), known)
    assert (settled.verdict, settled.footer) == ("approved", "")
    assert read_mail_answer([*lines.format("").split("\n"), "2"], (), known).verdict is None


def test_denial_counts_above_any_footer_unless_an_approval_follows() -> None:
    answer = read_mail_answer(
        ["No", "", "too expensive", "", "Best,", "Ana", "whatever"], ("and below",), AnswerSender("en", ANA)
    )
    assert (answer.verdict, answer.comment) == ("denied", "too expensive")
    assert read_mail_answer(["No", "", "Best,", "Ana", "yes"], (), AnswerSender("en", ANA)).verdict is None
