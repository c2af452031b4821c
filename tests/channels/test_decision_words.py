# ruff: noqa: RUF001 (words and marks of many languages)

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.channels import words
from signoff.channels.texts import TABLES
from signoff.channels.words import LANGUAGES, LINE_CHARS, READ_CHARS, Said, decision_words, read
from signoff.contracts.ids import show_code

_TEXT = st.text(max_size=400) | st.lists(
    st.sampled_from(
        ["yes", "no", "deny", "ja", "nein", "K7Q-2FM", "but", "\n", "?", "👎", ",", "~", ">", "~", "\u200b"]
    )
).map(" ".join)


@pytest.mark.parametrize(
    ("text", "locale", "verdict"),
    [
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
        ("Godkänner", "sv", "approved"),
        ("nej", "da", "denied"),
        ("nei", "no", "denied"),
        ("nei", "nn", "denied"),
        ("kyllä", "fi", "approved"),
        ("ano", "cs", "approved"),
        ("HAYIR", "tr", "denied"),
        ("hayır", "tr", "denied"),
        ("ONAYLIYORUM", "tr", "approved"),
    ],
)
def test_a_first_line_that_is_wholly_a_word_of_the_person_decides(text: str, locale: str, verdict: str | None) -> None:
    """In the person's language and in English, whatever the case, the width, the accents and the marks around it."""
    assert read(text, locale).verdict == verdict


@pytest.mark.parametrize(
    ("text", "locale", "why"),
    [
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
        ("no problem", "en", "more"),
        ("yes yes", "en", "more"),
        ("yes,\nbut only today", "en", "more"),
        ("yes no", "en", "two"),
        ("Yes\n\nNo", "en", "two"),
        ("yes 👎", "en", "two"),
        ("no ✅", "en", "two"),
        ("~yes~", "en", "unknown"),
        ("> yes", "en", "unknown"),
        ("!yes", "en", "unknown"),
        ("- yes", "en", "unknown"),
        ("y\u200bes", "en", "unknown"),
        ("Hello,\nyes", "en", "unknown"),
        ("ja", "en", "unknown"),
        ("oui", "de", "unknown"),
        ("no", "pl", "unknown"),
        ("no", "cs", "unknown"),
        ("yes" + " " * 300 + "unless it rains", "en", "more"),
        ("yes " + "x" * 300, "en", "more"),
    ],
)
def test_whatever_else_is_written_decides_nothing(text: str, locale: str, why: str) -> None:
    """All of it is the comment, for whoever asks again."""
    assert read(text, locale) == Said(None, "", text.strip(), why)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("approve K7Q2FM", Said("approved", "K7Q2FM")),
        ("Approve k7q-2fm.", Said("approved", "K7Q2FM")),
        ("yes (K7Q‑2FM)", Said("approved", "K7Q2FM")),
        ("K7Q-2FM: yes", Said("approved", "K7Q2FM")),
        ("no #KOI-LFM", Said("denied", "K011FM")),
        ("deny K7Q-2FM too expensive", Said("denied", "K7Q2FM", "too expensive")),
        ("deny K7Q-2FM too expensive\nand too late", Said("denied", "K7Q2FM", "too expensive\nand too late")),
        ("deny\ntoo expensive", Said("denied", "", "too expensive")),
        ("approve K7Q-2FM if cheap", Said(None, "K7Q2FM", "approve K7Q-2FM if cheap", "more")),
        ("no K7Q-2FM is fine", Said(None, "K7Q2FM", "no K7Q-2FM is fine", "more")),
        ("deny K7Q-2FM or A1B-2C3", Said(None, "K7Q2FM", "deny K7Q-2FM or A1B-2C3", "more")),
        ("deny K7Q-2FM approve", Said(None, "K7Q2FM", "deny K7Q-2FM approve", "two")),
        ("deny K7Q-2FM? why", Said(None, "K7Q2FM", "deny K7Q-2FM? why", "question")),
        ("approve K7Q-2FM?", Said(None, "K7Q2FM", "approve K7Q-2FM?", "question")),
        ("what is K7Q-2FM?", Said(None, "K7Q2FM", "what is K7Q-2FM?", "question")),
        ("K7Q-2FM or A1B-2C3", Said(None, "", "K7Q-2FM or A1B-2C3", "unknown")),
    ],
)
def test_a_code_in_the_line_names_the_request(text: str, said: Said) -> None:
    """A denial may be followed by its reason; what follows an approval could be a condition."""
    assert read(text, "en") == said


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_word_means_two_things(language: str) -> None:
    """Nor is one a single letter, and the accents of a keyboard make no other word."""
    tables = ((words._YES, words._APPROVE), (words._NO, words._DENY))
    yes, no = (
        {words._bare(word) for table in pair for spoken in ("en", language) for word in table[spoken].split(", ")}
        for pair in tables
    )
    assert not yes & no
    assert all(len(word) > 1 for word in yes | no)
    assert set(decision_words(language)) <= yes | no


@pytest.mark.parametrize("language", sorted(TABLES))
def test_the_words_that_cards_tell_people_to_write_decide(language: str) -> None:
    """Each table of texts says how to answer, and that is understood."""
    code = show_code("K7Q2FM")
    approve, deny = TABLES[language]["word.approve"], TABLES[language]["word.deny"]
    assert read(f"{approve} {code}", language) == Said("approved", "K7Q2FM")
    assert read(f"{deny} {code} because", language) == Said("denied", "K7Q2FM", "because")


@given(text=_TEXT, locale=st.sampled_from([*LANGUAGES, "", "xx", "de-CH", "-"]))
def test_only_a_line_that_holds_a_decision_word_decides(text: str, locale: str) -> None:
    """And nothing that anybody writes raises."""
    said = read(text, locale)
    assert (said.verdict is None) == bool(said.why)
    if said.verdict is not None:
        first = words._bare(text.translate(words._LINE_ENDS).strip().partition("\n")[0])
        assert any(word in first for word, verdict in decision_words(locale).items() if verdict == said.verdict)
        assert "?" not in text.strip().partition("\n")[0] or said.comment


@given(text=_TEXT, locale=st.sampled_from(LANGUAGES))
def test_quoting_or_doubting_a_line_takes_its_decision_away(text: str, locale: str) -> None:
    """Whatever decides does not decide any more behind a `>`, or before a question mark."""
    line = " ".join(text.split())
    if read(line, locale).verdict is not None:
        assert read(f"> {line}", locale).verdict is None
        assert read(f"{line.split()[0]}? {line}", locale).verdict is None


def _steps(text: str) -> int:
    """Lines of Python executed by reading `text`, in `words` and below."""
    count = 0

    def step(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return step

    sys.settrace(step)
    try:
        read(text, "en")
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize(
    "piece", ["On ", "yes\n", "yes, but\n", "a\u0301\u0323" * 60 + "\n", "K7Q-2FM ", "\u0323\u0301"]
)
def test_reading_takes_time_in_proportion_to_the_length(piece: str) -> None:
    """Counted in steps; what C does in the square of a length is only ever given short lines."""
    read(piece, "en")
    size = 30_000 // len(piece)
    once, twice = _steps(piece * size), _steps(piece * size * 2)
    assert twice <= 2 * once + 500
    assert _steps(piece * (10 * READ_CHARS // len(piece))) <= _steps(piece * (READ_CHARS // len(piece) + 1)) + 500


def test_no_long_line_is_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python orders a run of accents by insertion, so that 60 kB of them would take seconds."""
    seen: list[int] = []
    real = words.unicodedata.normalize

    class Watched:
        category = staticmethod(words.unicodedata.category)

        @staticmethod
        def normalize(form: Any, text: str) -> str:
            seen.append(len(text))
            return real(form, text)

    monkeypatch.setattr(words, "unicodedata", Watched)
    for text in ("\u0323\u0301" * 30_000, "yes " + "\u0323\u0301" * 30_000, "yes\n" + "\u0323\u0301" * 30_000):
        read(text, "en")
    assert seen
    # Folding may make three characters of one, and compatibility eighteen; no more.
    assert max(seen) <= 18 * 3 * LINE_CHARS
