# ruff: noqa: RUF001 (words and marks of many languages)

import re
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.channels.answer_text import answer_tokens
from signoff.channels.answer_text.answer_parser import (
    READ_CHARS,
    AnswerSender,
    ParsedAnswer,
    decision_words,
    name_words,
    parse_answer,
    phrases_of,
)
from signoff.channels.answer_text.answer_tokens import LINE_CHARS, find_code, fold
from signoff.channels.answer_text.answer_vocabulary import APPROVE, DENY, NO, YES
from signoff.contracts.ids import show_code
from signoff.contracts.limits import ANSWER_LINES
from signoff.languages import catalogue
from signoff.languages.catalogue import texts_of

_LIMITS = frozenset(("but", "only", "if", "unless", "until", "wait", "max", "aber", "nur", "wenn", "pero", "mas"))


def _unread(text: str) -> ParsedAnswer:
    return ParsedAnswer(None, "K7Q2FM", text, "more", text)


_TEXT = st.text(max_size=400) | st.lists(
    st.sampled_from(
        ["yes", "no", "deny", "ja", "nein", "K7Q-2FM", "but", "\n", "?", "👎", ",", "~", ">", "~", "\u200b"]
    )
).map(" ".join)


@table(
    ("text", "locale", "verdict"),
    ("Yes", "en", "approved"),
    ("yes.", "en-GB", "approved"),
    ("  *YES*  ", "en", "approved"),
    ("ｙｅｓ！", "en", "approved"),
    ("yes\u200b\ufeff", "en", "approved"),
    ("Yes 👍", "en", "approved"),
    ("Approved\r\n\r\nBest,\r\nAna", "en", "approved"),
    ("no", "en", "denied"),
    ("/deny", "en", "denied"),
    ("Ja!", "de-AT", "approved"),
    ("yes", "de", "approved"),
    ("ich lehne ab", "de", "denied"),
    ("SÍ", "es_MX", "approved"),
    ("si", "es", "approved"),
    ("J’approuve.", "fr", "approved"),
    ("non", "fr", "denied"),
    ("sì", "it", "approved"),
    ("não", "pt-BR", "denied"),
    ("nao", "pt", "denied"),
    ("Nee", "nl", "denied"),
    ("TAK", "pl", "approved"),
    ("nie", "pl", "denied"),
    ("godkänns ej", "sv", None),
    ("Yes please", "en", "approved"),
    ("YES, thank you!!", "en", "approved"),
    ("Hi all,\n\nok, approved.\nThanks and best regards,\nAna", "en", "approved"),
    ("yes\n👍🏽 :)", "en", "approved"),
    ("Yes, go ahead 🙏", "en", "approved"),
    ("No thanks", "en", "denied"),
    ("no 🙏", "en", "denied"),
    ("not approved", "en", "denied"),
    ("I cannot approve", "en", "denied"),
    ("Sì, grazie", "it", "approved"),
    ("¡Sí! Gracias", "es", "approved"),
    ("Oui, s’il te plaît", "fr", "approved"),
    ("Olá a todos, sim, obrigado", "pt", "approved"),
    ("Ja, danke und viele Grüße", "de", "approved"),
    ("Bitte nicht", "de", "denied"),
    ("não aprovo", "pt", "denied"),
    ("Godkänner", "sv", "approved"),
    ("nej", "da", "denied"),
    ("nei", "no", "denied"),
    ("nei", "nn", "denied"),
    ("kyllä", "fi", "approved"),
    ("ano", "cs", "approved"),
    ("HAYIR", "tr", "denied"),
    ("hayır", "tr", "denied"),
    ("ONAYLIYORUM", "tr", "approved"),
    ("Hi Bo Berg,\nyes", "en", "approved"),
    ("Hi all, yes", "en", "approved"),
    ("Hi all, approve", "en", "approved"),
    ("thanks 👍\nno", "en", "denied"),
    ("no, (see below)", "en", "denied"),
    ("hi berta,\nyes", "en", "approved"),
    ("thanks and yes", "en", "approved"),
    ("yes and thanks", "en", "approved"),
    ("thanks and no", "en", "denied"),
    ("yes".ljust(READ_CHARS), "en", "approved"),
    ("yes" + "\nthanks" * (ANSWER_LINES - 1), "en", "approved"),
)
def test_answer_of_known_words_decides(text: str, locale: str, verdict: str | None) -> None:
    assert parse_answer(text, AnswerSender(locale, ("Ana Sousa",))).verdict == verdict


@table(
    ("text", "locale", "why"),
    ("", "en", "empty"),
    (" \n\t ", "en", "empty"),
    ("y", "en", "unknown"),
    ("j", "de", "unknown"),
    ("ok", "en", "unknown"),
    ("👍", "en", "unknown"),
    ("not yet", "en", "unknown"),
    ("yes?", "en", "question"),
    ("yes\u037e", "en", "question"),
    ("¿sí?", "es", "question"),
    ("yes or no？", "en", "question"),
    ("yes, but only today", "en", "more"),
    ("yes if it is cheaper", "en", "more"),
    ("no problem", "en", "unknown"),
    ("yes yes", "en", "more"),
    ("yes,\nbut only today", "en", "more"),
    ("yes\nbut only today", "en", "more"),
    ("yes\n\n\n\nPS: only half of it", "en", "more"),
    ("yes,", "en", "more"),
    ("yes and", "en", "more"),
    ("yes and Ana", "en", "more"),
    ("yes,  \n\n", "en", "more"),
    ("Hi Bo Ander Berg,\nyes", "en", "more"),
    ("hi bo berg,\nyes", "en", "more"),
    ("hi all berta,\nyes", "en", "more"),
    ("yes all", "en", "more"),
    ("all yes", "en", "more"),
    ("hi yes all", "en", "more"),
    ("deny 🙃", "en", "more"),
    ("yes...", "en", "unknown"),
    ("approved\njust kidding, deny it", "en", "two"),
    ("Ja / nicht!", "de", "more"),
    ("Ja\nnicht!", "de", "more"),
    ("Sim\nMas só se for mais barato, senão não", "pt", "two"),
    ("hardly approved", "en", "more"),
    ("talvez sim", "pt", "more"),
    ("yes (question mark)", "en", "more"),
    ("yes ❓", "en", "question"),
    ("yes 🙃", "en", "more"),
    ("yes 😉", "en", "more"),
    ("yes 🏳", "en", "more"),
    ("y\u0336e\u0336s\u0336", "en", "unknown"),
    ("approved 💯\u20e0", "en", "more"),
    ("yes \u202eon", "en", "more"),
    ("“yes”", "en", "more"),
    ("(yes)", "en", "more"),
    ("yes no", "en", "two"),
    ("Yes\n\nNo", "en", "two"),
    ("yes 👎", "en", "two"),
    ("no ✅", "en", "two"),
    ("👍\nno", "en", "two"),
    ("no 🙏 🙃", "en", "more"),
    ("~yes~", "en", "more"),
    ("> yes", "en", "more"),
    ("!yes", "en", "more"),
    ("- yes", "en", "more"),
    ("y\u200bes", "en", "unknown"),
    ("Hello only if cheap,\nyes", "en", "more"),
    ("ja", "en", "unknown"),
    ("oui", "de", "unknown"),
    ("no", "pl", "unknown"),
    ("no", "cs", "unknown"),
    ("yes\n" * 201, "en", "more"),
    ("yes\n" + "x" * 300, "en", "more"),
    ("yes" + " " * READ_CHARS + "\nbut no", "en", "more"),
)
def test_answer_with_other_words_decides_nothing(text: str, locale: str, why: str) -> None:
    answer = parse_answer(text, AnswerSender(locale, ("Ana Sousa",)))
    assert (answer.verdict, answer.code, answer.why) == (None, "", why)
    assert answer.comment == text[:READ_CHARS].strip()


@table(
    ("text", "answer"),
    ("approve K7Q2FM", ParsedAnswer("approved", "K7Q2FM")),
    ("Approve k7q-2fm.", ParsedAnswer("approved", "K7Q2FM")),
    ("yes (K7Q‑2FM)", ParsedAnswer("approved", "K7Q2FM")),
    ("K7Q-2FM: yes", ParsedAnswer("approved", "K7Q2FM")),
    ("no #KOI-LFM", ParsedAnswer("denied", "K011FM")),
    ("deny K7Q-2FM too expensive", ParsedAnswer("denied", "K7Q2FM", "too expensive")),
    ("deny K7Q-2FM too expensive\nand too late", ParsedAnswer("denied", "K7Q2FM", "too expensive\nand too late")),
    ("deny\ntoo expensive", ParsedAnswer("denied", "", "too expensive")),
    ("approve K7Q-2FM if cheap", _unread("approve K7Q-2FM if cheap")),
    ("“approve K7Q-2FM”", ParsedAnswer("approved", "K7Q2FM")),
    ("Yes K7Q-2FM, thanks", ParsedAnswer("approved", "K7Q2FM")),
    ("no, too expensive", ParsedAnswer("denied", "", "no, too expensive")),
    ("Denied.\n\nIs it not cheaper elsewhere?", ParsedAnswer("denied", "", "Is it not cheaper elsewhere?")),
    ("no K7Q-2FM is right", ParsedAnswer(None, "K7Q2FM", "no K7Q-2FM is right", "more")),
    ("do not approve K7Q-2FM too late", ParsedAnswer("denied", "K7Q2FM", "too late")),
    ("deny 🙃 K7Q-2FM too late", ParsedAnswer("denied", "K7Q2FM", "too late")),
    ("deny K7Q-2FM 🙃", ParsedAnswer("denied", "K7Q2FM", "🙃")),
    ("not K7Q-2FM approved", ParsedAnswer(None, "K7Q2FM", "not K7Q-2FM approved", "more", "not K7Q-2FM approved")),
    ("deny K7Q-2FM or A1B-2C3", ParsedAnswer(None, "", "deny K7Q-2FM or A1B-2C3", "more")),
    ("deny K7Q-2FM approve", ParsedAnswer(None, "K7Q2FM", "deny K7Q-2FM approve", "two")),
    ("deny K7Q-2FM? why", ParsedAnswer(None, "K7Q2FM", "deny K7Q-2FM? why", "question")),
    ("approve K7Q-2FM?", ParsedAnswer(None, "K7Q2FM", "approve K7Q-2FM?", "question")),
    ("what is K7Q-2FM?", ParsedAnswer(None, "K7Q2FM", "what is K7Q-2FM?", "question")),
    ("K7Q-2FM or A1B-2C3", ParsedAnswer(None, "", "K7Q-2FM or A1B-2C3", "unknown")),
    ("yes to K7Q-2FM thanks", ParsedAnswer("approved", "K7Q2FM")),
    *(
        (text, ParsedAnswer(None, "K7Q2FM", text, "more", text))
        for text in ("yes to K7Q-2FM only once", "yes partly K7Q-2FM")
    ),
)
def test_code_in_the_line_names_the_request(text: str, answer: ParsedAnswer) -> None:
    assert parse_answer(text, AnswerSender("en")) == answer


@table("word", "cannot", "hardly", "please", "thanks", "grazie", "talvez", "really", "not-ok", "a-b-c")
def test_ordinary_word_is_no_code(word: str) -> None:
    assert find_code(word) == ""
    assert parse_answer(f"yes {word}", AnswerSender("en")).code == ""


def test_code_is_recognised_by_its_form_or_by_an_open_request() -> None:
    assert find_code("a1c-2ef") == "A1C2EF"
    assert find_code("k7q2fm") == "K7Q2FM"
    assert find_code("abc-def") == ""
    assert find_code("abcdef", {"ABCDEF"}) == ""
    assert find_code("koilfm") == ""
    assert find_code("koilfm", {"K011FM"}) == "K011FM"
    open_code = AnswerSender("en", effects={"K011FM": "Pay"})
    assert parse_answer("yes koilfm", open_code) == ParsedAnswer("approved", "K011FM")
    assert parse_answer("approve a1c2ef", AnswerSender("en", effects={"A1C2EF": "Pay"})) == ParsedAnswer(
        "approved", "A1C2EF"
    )


def test_effect_may_be_repeated_word_for_word() -> None:
    sender = AnswerSender("en", effects={"K7Q2FM": "Pay 300 EUR to Hotel Sol", "A1B2C3": "Stop"})
    assert parse_answer("Yes, pay 300 EUR to Hotel Sol.", sender) == ParsedAnswer(
        "approved", effects=frozenset({"K7Q2FM"})
    )
    assert parse_answer("Approved: Pay 300 EUR to Hotel Sol", sender).effects == {"K7Q2FM"}
    assert parse_answer("Pay 300 EUR to Hotel Sol\nYes\nThanks", sender) == ParsedAnswer(
        "approved", effects=frozenset({"K7Q2FM"})
    )
    for text in (
        *("Yes, pay 30 EUR to Hotel Sol", "Yes, pay 300 EUR", "Yes, stop", "Stop. Yes"),
        *("Yes, pay 300 EUR to Hotel Sol?", "Yes, pay 300 EUR to Hotel Sol tomorrow", "Yes, pay 300 EUR to Hotel"),
    ):
        assert parse_answer(text, sender).verdict is None, text
    assert parse_answer("Yes, pay 300 EUR to Hotel Sol tomorrow", sender).effects == {"K7Q2FM"}
    denied = parse_answer("No. Pay 300 EUR to Hotel Sol", sender)
    assert (denied.verdict, denied.effects) == ("denied", frozenset({"K7Q2FM"}))
    page_text = "Yes, pay 300 EUR to Hotel Sol,"
    assert parse_answer(page_text, sender) == ParsedAnswer(
        None, "", page_text, "more", page_text, frozenset({"K7Q2FM"})
    )


def test_short_effect_may_be_repeated_and_an_empty_one_may_not() -> None:
    two = AnswerSender("en", effects={"K7Q2FM": "Stop it."})
    assert parse_answer("Yes, stop it", two) == ParsedAnswer("approved", effects=frozenset({"K7Q2FM"}))
    other = AnswerSender("en", effects={"K7Q2FM": "Start server."})
    assert parse_answer("Yes, start server", other) == ParsedAnswer("approved", effects=frozenset({"K7Q2FM"}))
    none = AnswerSender("en", effects={"K7Q2FM": ""})
    assert parse_answer("pay it", none).why == "unknown"
    assert parse_answer("Yes", none) == ParsedAnswer("approved")
    assert parse_answer("whatever", none).why == "unknown"


def test_name_is_recognised_by_each_of_its_words() -> None:
    assert name_words(("Sousa, Ana-María (Lisbon)", "José")) == {"sousa", "ana", "maria", "lisbon", "jose"}
    assert name_words(("Xavier MAX",)) == {"xavier", "max"}
    assert parse_answer("Yes\nAna Sousa", AnswerSender("en", ("Sousa, Ana-María",))).verdict == "approved"


def test_unread_line_is_returned() -> None:
    answer = parse_answer("Hi,\nyes\nbut only below 100\nthanks", AnswerSender("en"))
    assert (answer.why, answer.unread) == ("more", "but only below 100")
    assert parse_answer("yes no", AnswerSender("en")).unread == ""
    remark = "Yes. It looks right to me."
    assert parse_answer(remark, AnswerSender("en")).unread == remark


@table("language", *YES)
def test_no_word_means_both_approve_and_deny(language: str) -> None:
    tables = ((YES, APPROVE), (NO, DENY))
    yes, no = (
        {fold(word) for table in pair for spoken in ("en", language) for word in table[spoken].split(", ")}
        for pair in tables
    )
    assert not yes & no
    assert all(len(word) > 1 for word in yes | no)
    assert set(decision_words(language)) <= {phrase.replace("-", " ") for phrase in yes | no}


@table("locale", "de", "de-AT", "de_AT", "DE")
def test_locale_has_the_words_of_its_language_and_english(locale: str) -> None:
    words = decision_words(locale)
    assert words == decision_words("de")
    assert {words["ja"], words["approve"]} == {"approved"}
    assert {words["nein"], words["deny"]} == {"denied"}
    assert "oui" not in words


def test_limiting_words_are_part_of_no_approval() -> None:
    for language in catalogue.language_codes():
        for phrase, part in phrases_of(language).parts.items():
            assert part == "denied" or not set(phrase.split()) & _LIMITS, phrase


@table("language", *sorted(catalogue.language_codes()))
def test_words_suggested_by_cards_decide(language: str) -> None:
    code = show_code("K7Q2FM")
    approve, deny = texts_of(language)["word.approve"], texts_of(language)["word.deny"]
    assert [parse_answer(word, AnswerSender(language)).verdict for word in (approve, deny)] == ["approved", "denied"]
    assert parse_answer(f"{approve} {code}", AnswerSender(language)) == ParsedAnswer("approved", "K7Q2FM")
    assert parse_answer(f"{deny} {code} because", AnswerSender(language)) == ParsedAnswer("denied", "K7Q2FM", "because")


@given(text=_TEXT, locale=st.sampled_from([*YES, "", "xx", "de-CH", "-"]))
def test_only_text_with_a_decision_word_decides(text: str, locale: str) -> None:
    answer = parse_answer(text, AnswerSender(locale))
    assert (answer.verdict is None) == bool(answer.why)
    if answer.verdict is not None:
        folded = " ".join(fold(part) for part in re.split(r"[\s.,!:;*_¡-]+", text))
        assert any(word in folded for word, verdict in decision_words(locale).items() if verdict == answer.verdict)
    if answer.verdict == "approved":
        assert not set("?~>\u2026") & set(text)


@given(text=_TEXT, more=st.sampled_from(["but", "if cheap", "?", "~", "> x", "kidding", "🙃", "no", "(", "100 EUR"]))
def test_additional_word_cancels_an_approval(text: str, more: str) -> None:
    if parse_answer(text, AnswerSender("de")).verdict == "approved":
        for longer in (f"{text}\n{more}", f"{more}\n{text}", f"{text} {more}"):
            assert parse_answer(longer, AnswerSender("de")).verdict != "approved", longer


@given(text=_TEXT, locale=st.sampled_from([*YES]))
def test_quoted_or_questioned_line_decides_nothing(text: str, locale: str) -> None:
    line = " ".join(text.split())
    if parse_answer(line, AnswerSender(locale)).verdict is not None:
        assert parse_answer(f"> {line}", AnswerSender(locale)).verdict is None
        assert parse_answer(f"{line.split()[0]}? {line}", AnswerSender(locale)).verdict is None


def _steps(text: str) -> int:
    count = 0

    def step(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return step

    sys.settrace(step)
    try:
        parse_answer(text, AnswerSender("en"))
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize(
    "piece", ["On ", "yes\n", "yes, but\n", "a\u0301\u0323" * 60 + "\n", "K7Q-2FM ", "\u0323\u0301"]
)
def test_answer_is_parsed_in_linear_time(piece: str) -> None:
    parse_answer(piece, AnswerSender("en"))
    size = 30_000 // len(piece)
    once, twice = _steps(piece * size), _steps(piece * size * 2)
    assert twice <= 2 * once + 500
    assert _steps(piece * (10 * READ_CHARS // len(piece))) <= _steps(piece * (READ_CHARS // len(piece) + 1)) + 500


def test_long_lines_are_not_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python orders a run of accents by insertion, so 60 kB of them would take seconds."""
    seen: list[int] = []
    real = answer_tokens.unicodedata.normalize

    class Watched:
        category = staticmethod(answer_tokens.unicodedata.category)

        @staticmethod
        def normalize(form: Any, text: str) -> str:
            seen.append(len(text))
            return real(form, text)

    monkeypatch.setattr(answer_tokens, "unicodedata", Watched)
    fold.cache_clear()
    for text in ("\u0323\u0301" * 30_000, "yes " + "\u0323\u0301" * 30_000, "yes\n" + "\u0323\u0301" * 30_000):
        parse_answer(text, AnswerSender("en"))
    assert seen
    # Folding makes at most three characters of one, and compatibility eighteen.
    assert max(seen) <= 18 * 3 * LINE_CHARS


GREETED = [
    (
        "en",
        "Hi Maria, {}",
        ["please approve", "approve", "approve it", "go ahead", "please proceed", "approve K7Q-2FM"],
    ),
    ("en", "Hi all,\n{}", ["please approve", "please go ahead"]),
    ("de", "Hallo Maria, {}", ["bitte genehmigen", "bitte freigeben", "freigeben"]),
    ("fr", "Bonjour Paul, {}", ["valide stp", "approuve", "approuver s'il te plaît", "allez-y"]),
    ("es", "Hola María, {}", ["aprueba por favor", "aprobar por favor", "adelante"]),
    ("it", "Ciao Maria, {}", ["approva per favore", "procedi pure", "approvare"]),
    ("pt", "Olá Maria, {}", ["aprova por favor", "pode avançar", "aprovar"]),
]
STATED = [
    ("en", "Hi Maria, {}", ["approved", "yes", "I approve"]),
    ("de", "Hallo Maria, {}", ["genehmigt", "ja", "ich genehmige das"]),
    ("fr", "Bonjour Paul, {}", ["j'approuve", "oui"]),
    ("es", "Hola María, {}", ["aprobado", "sí"]),
    ("it", "Ciao Maria, {}", ["approvato", "sì"]),
    ("pt", "Olá Maria, {}", ["aprovado", "sim"]),
]


def _filled(table: list[tuple[str, str, list[str]]]) -> list[tuple[str, str]]:
    return [(locale, frame.format(words)) for locale, frame, each in table for words in each]


@table(("locale", "text"), *_filled(GREETED))
def test_order_to_another_person_is_no_approval(locale: str, text: str) -> None:
    assert parse_answer(text, AnswerSender(locale, ("Ana Sousa",))).verdict is None


@table(("locale", "text"), *_filled(GREETED))
def test_order_in_a_message_to_others_is_no_approval(locale: str, text: str) -> None:
    words = re.split(r"[,\n] ?", text, maxsplit=1)[1]
    assert parse_answer(words, AnswerSender(locale)).verdict == "approved"
    answer = parse_answer(words, AnswerSender(locale, others=True))
    assert (answer.verdict, answer.unread) == (None, words.strip())


@table(("locale", "text"), *_filled(STATED))
def test_statement_to_another_person_is_an_approval(locale: str, text: str) -> None:
    assert parse_answer(text, AnswerSender(locale, ("Ana Sousa",), others=True)).verdict == "approved"


@table("text", "Hi Signoff, please approve", "Hello, please approve", "Hi, approve\n\nThanks\nAna")
def test_order_to_signoff_is_an_approval(text: str) -> None:
    assert parse_answer(text, AnswerSender("en", ("Ana Sousa",))).verdict == "approved"


@table(
    ("text", "comment"),
    ("Approved!\n\nNice one.", "Nice one."),
    (
        "Approved. The team has been looking forward to this.",
        "Approved. The team has been looking forward to this.",
    ),
    ("Approved\n\nThanks for the quick work on this.", "Thanks for the quick work on this."),
    ("Approved. It looks right to me.", "Approved. It looks right to me."),
    ("Approved. It looks right to me, as always.", "Approved. It looks right to me, as always."),
    ("Approved\nNice one.\nIt looks right to me.", "Nice one.\nIt looks right to me."),
    ("Approved\nK7Q-2FM, it looks right to me.", "K7Q-2FM, it looks right to me."),
)
def test_remark_after_an_approval_is_its_comment(text: str, comment: str) -> None:
    answer = parse_answer(text, AnswerSender("en"))
    assert (answer.verdict, answer.comment) == ("approved", comment)


@table(
    "text",
    "Approved. Only this once.",
    "Approved. Send me the receipt.",
    "Approved. Tell Bob.",
    "Approved. The small one.",
    "Approved. The limit is 100.",
    "Approved. It is two rooms.",
    "Approved. I want the receipt.",
    "Approved. I expect a discount from them.",
    "Approved. This is for Berlin.",
    "Approved. That covers the first half.",
    "Approved. The other one is wrong.",
    "Approved. It was M4X-9TD.",
    "Approved. I know the people of Acme well.",
    "Approved. It is fine (mostly).",
    "Approved. It is fine 🙄",
    "Approved. The plan: we go.",
    "Approved. Is it the right one?",
    "Approved. My foot.",
    "Approved. Thanks for sending me the receipt.",
    "Approved. Maria knows the rest.",
    "Approved. Only this once, it looks right to me.",
    "Approved. Nice one. Maria knows the way.",
    "Yes, I saw it in the list.",
    "The team is happy. Approved.",
    "Genehmigt. Ich erwarte die Quittung.",
    "Approuvé. Merci de m'envoyer le reçu.",
    "Approuvé. C'est bon s'il paie.",
    "Aprobado. Gracias por enviar el recibo.",
    "Approvato. Aspetto la ricevuta.",
    "Aprovado. Espero o recibo.",
)
def test_condition_order_or_doubt_after_an_approval_is_asked_back(text: str) -> None:
    effects = {"K7Q2FM": "Pay 300 EUR to Nordwind", "M4X9TD": "Pay 200 EUR to Acme"}
    for locale in ("en", "de", "fr", "es", "it", "pt"):
        assert parse_answer(text, AnswerSender(locale, effects=effects)).verdict is None, locale


@table(
    ("text", "verdict"),
    ("approve once", "approved"),
    ("ACK", "approved"),
    ("LGTM :shipit:", "approved"),
    ("LGTM :shipit: \n", "approved"),
    ("Denied, see https://wiki.example/x", "denied"),
    ("Denied, see https://wiki.example/x?id=1", "denied"),
    ("NACK", "denied"),
    ("/hold", "denied"),
    ("hold", None),
    ("/approve cancel", None),
    ("/approve\n/hold", None),
    ("+1 with nits", None),
    ("nein zu teuer", "denied"),
    ("nein warte", None),
    ("nein K7Q-2FM zu teuer", None),
    ("no too expensive", "denied"),
    ("no already cancelled", None),
    ("nein das ist kein Problem", None),
    ("no problem", None),
    ("no wait", None),
    ("no objections", None),
    ("no-brainer", None),
    ("yes to K7Q-2FM", "approved"),
    ("yes to all", None),
    ("yes to", None),
    ("yes pay it", "approved"),
    ("yes, everyone pay it", None),
    ("yes, pay it", "approved"),
    ("yes, cancel it", None),
    ("pay it", None),
    ("yes period", "approved"),
)
def test_words_common_in_bot_commands_are_read(text: str, verdict: str | None) -> None:
    sender = AnswerSender("de" if "nein" in text else "en", effects={"K7Q2FM": "Pay 300 EUR to Nordwind"})
    assert parse_answer(text, sender).verdict == verdict


@table("locale", "en", "de", "fr", "es", "it", "pt")
def test_idiom_with_an_initial_no_is_no_denial(locale: str) -> None:
    for text in ("alright, no big deal - I will look at it", "no brainer", "no objections from my side", "no rush"):
        assert parse_answer(text, AnswerSender(locale)).verdict is None
