import pytest

from signoff.channels.answer_text.answer_parser import AnswerSender, ParsedAnswer, parse_answer
from signoff.channels.answer_text.footers import read_mail_answer
from signoff.languages.catalogue import language_codes, text

ANA = ("Ana Sousa",)
WHICH = "Which invoice is this for?"


@pytest.mark.parametrize("locale", language_codes())
@pytest.mark.parametrize("own", [True, False])
def test_question_begins_with_the_word_of_the_language_or_of_english(locale: str, own: bool) -> None:
    word = text("word.ask", locale if own else "en")
    sender = AnswerSender(locale)
    for begin in (f"{word}:", f"{word.upper()} :", f"{word}\uff1a"):
        assert parse_answer(f"{begin} {WHICH}", sender) == ParsedAnswer(
            None, comment=f"{begin} {WHICH}", question=WHICH
        )
    for begin in (f"{word} K7Q-2FM", f"{word} k7q2fm:", f"{word}: K7Q-2FM", f"{word}: (K7Q-2FM),", f"“{word} K7Q-2FM”"):
        answer = parse_answer(f"{begin} {WHICH}", sender)
        assert (answer.verdict, answer.code, answer.question, answer.why) == (None, "K7Q2FM", WHICH, ""), begin


def test_question_has_all_lines_of_the_message() -> None:
    answer = parse_answer("\nask: Which invoice?\n\n - the old one\n - the new one", AnswerSender("en"))
    assert answer.question == "Which invoice?\n\n- the old one\n- the new one"
    assert parse_answer("ask K7Q-2FM\nWhich invoice?", AnswerSender("en")).question == "Which invoice?"


@pytest.mark.parametrize(
    "words",
    [
        "?", "??", "? Which invoice", "¿Qué factura?", WHICH, "Is this right?", "ask", "ask:", "ask: ?", "ask K7Q-2FM",
        "ask K7Q-2FM?", "ask Maria about it", "Ask Maria: is it right?", "please ask: which invoice?",
        "Hi,\nask: which invoice?", "which?\nask: why", "asked: why", "question mark: why", "> ask: why",
        "\u0430sk: why", "a\u200bsk: why", "ask\u0589 why", "ask- why", "ask; why", "-ask: why", "task K7Q-2FM why",
        "K7Q-2FM ask why", "can you ask K7Q-2FM why", "K7Q-2FM?",
    ],
)  # fmt: skip
def test_other_text_asks_nothing(words: str) -> None:
    answer = parse_answer(words, AnswerSender("en", ANA))
    assert (answer.verdict, answer.question) == (None, "")


@pytest.mark.parametrize(
    "words", ["ask: yes", "ask: approved", "ask K7Q-2FM approve", "ask: why?\nyes and no", "question: approve K7Q-2FM"]
)
def test_decision_behind_the_word_decides_and_asks_nothing(words: str) -> None:
    answer = parse_answer(words, AnswerSender("en"))
    assert (answer.verdict, answer.question, answer.why) == (None, "", "two")


@pytest.mark.parametrize(
    "words", ["ask: Which invoice?\nNo.", "ask: why?\n\nno, thanks", "Which?\nno", "No.\nask: why this invoice?"]
)
def test_denial_with_a_question_stays_a_denial(words: str) -> None:
    answer = parse_answer(words, AnswerSender("en"))
    assert (answer.verdict, answer.question) == ("denied", "")


@pytest.mark.parametrize(
    ("locale", "words"),
    [
        ("en", "ask: No, I mean which invoice"), ("de", "Frage: nein, welche Rechnung meinst du"),
        ("fr", "question: non payée depuis mars"), ("en", "ask: No."), ("en", "ask K7Q-2FM no, the other one"),
        ("en", "ask: Which invoice?\nNo, I mean the old one"), ("en", "ask: which invoice\nNo. 471"),
        ("en", "ask: which invoice\nNo. 234567"), ("en", "ask: No, is it like A1B-2C3"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("others", [False, True])
def test_denial_within_a_question_is_asked_back(locale: str, words: str, others: bool) -> None:
    sender = AnswerSender(locale, effects={"A1B2C3": "Pay 20 EUR"}, others=others)
    answer = parse_answer(words, sender)
    assert (answer.verdict, answer.question) == (None, "")
    assert answer.why in ("two", "unknown", "more")


def test_code_of_an_open_request_within_a_question_makes_it_unclear() -> None:
    sender = AnswerSender("en", effects={"A1B2C3": "Pay 20 EUR"})
    assert parse_answer("ask: is it like\nA1B-2C3?", sender).question == ""
    assert parse_answer("ask K7Q-2FM is it like A1B-2C3?", sender).question == "is it like A1B-2C3?"
    assert parse_answer("ask: is INV-471 due?", sender).question == "is INV-471 due?"


def test_question_of_too_many_lines_asks_nothing() -> None:
    assert parse_answer("ask: why\n" + "line\n" * 300, AnswerSender("en")).question == ""
    assert parse_answer("ask: " + "why " * 40_000, AnswerSender("en")).question == ""


def test_question_to_several_people_needs_the_code() -> None:
    sender = AnswerSender("en", others=True)
    assert parse_answer("Question: is it due?", sender).question == ""
    assert parse_answer("Question K7Q-2FM: is it due?", sender).question == "is it due?"


def test_signature_of_an_email_is_no_part_of_the_question() -> None:
    sender = AnswerSender("en", ANA)
    mail = ["ask: Which invoice?", "", "Best regards,", "Ana Sousa", "Tel. +49 30 1234567"]
    assert read_mail_answer(mail, (), sender).question == "Which invoice?"


@pytest.mark.parametrize("below", [["No."], ["approve"], ["but not the old one"]])
def test_unknown_text_below_a_question_is_asked_back(below: list[str]) -> None:
    sender = AnswerSender("en", ANA)
    mail = ["ask: Which invoice?", "", "Best regards,", "Ana"]
    for answer in (read_mail_answer(mail, below, sender), read_mail_answer([*mail, *below], (), sender)):
        assert (answer.verdict, answer.question, answer.why) == (None, "", "more")
