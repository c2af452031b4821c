"""The catalogue: in every language whole, and nothing in it that nobody says."""

import re
import string
from collections.abc import Iterator, Mapping

import pytest
from documents import PACKAGE

from signoff.texts import catalogue
from signoff.texts.catalogue import ENGLISH, LANGUAGES, form_of, has_text, is_spoken, language_of, text, texts_of

OTHERS = sorted(set(LANGUAGES) - {ENGLISH})


def placeholders(words: str) -> set[str]:
    """The names in braces."""
    return {name for _, name, _, _ in string.Formatter().parse(words) if name is not None}


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Mapping[str, str]]]:
    """A catalogue of two languages, by code, in place of ours."""
    found: dict[str, Mapping[str, str]] = {}
    monkeypatch.setattr(catalogue, "LANGUAGES", {"en": "English", "xx": "Xx"})
    monkeypatch.setattr(catalogue, "_read", lambda language: found[language])
    texts_of.cache_clear()
    yield found
    texts_of.cache_clear()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text_with_its_places(language: str) -> None:
    """No key is missing or made up, no value is left out, and no text is empty."""
    english, found = texts_of(ENGLISH), catalogue._read(language)
    assert {key for key in found if not key.endswith(".one")} == {key for key in english if not key.endswith(".one")}
    assert {key: placeholders(words) for key, words in found.items() if not key.endswith(".one")} == {
        key: placeholders(words) for key, words in english.items() if not key.endswith(".one")
    }
    assert all(words.strip() == words != "" for words in found.values())
    assert is_spoken(language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_singular_has_a_plural_with_its_places(language: str) -> None:
    """Whatever stands in a form for one is a value of the text, and so is the number where none is one too."""
    found = texts_of(language)
    for key in (key for key in found if key.endswith(".one")):
        assert placeholders(found[key]) <= placeholders(found[key.removesuffix(".one")])
        assert "n" in placeholders(found[key]) or key == "edit.wrong.one"


@pytest.mark.parametrize("language", OTHERS)
def test_no_language_is_english_in_disguise(language: str) -> None:
    """Sentences are translated; only names, commands and units may read alike."""
    ours, theirs = texts_of(ENGLISH), texts_of(language)
    alike = {key for key, words in ours.items() if theirs[key] == words and len(words.split()) > 2}
    assert alike <= {"card.subject", "time.day", "tools.none_how", "card.values.page", "card.values.file"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_counts_days_and_months(language: str) -> None:
    """Seven and twelve, separated by blanks."""
    assert len(text("time.days_of_week", language).split()) == 7
    assert len(text("time.months", language).split()) == 12


def test_a_language_that_lacks_a_text_is_not_spoken(parts: dict[str, Mapping[str, str]]) -> None:
    """English is spoken whole in its place, never mixed with it; so it is in place of an unknown language."""
    parts |= {"en": {"a": "one {n}", "b": "two"}, "xx": {"a": "un {n}"}}
    assert (text("a", "xx", n=1), text("b", "xx"), text("a", "yy", n=2)) == ("one 1", "two", "one 2")
    assert (is_spoken("xx"), language_of("xx-YY"), is_spoken("en")) == (False, "en", True)


def test_a_language_that_has_every_text_is_spoken(parts: dict[str, Mapping[str, str]]) -> None:
    """With all of English's keys, whatever else it has."""
    parts |= {"en": {"a": "one"}, "xx": {"a": "un", "a.one": "un seul"}}
    assert (text("a", "xx"), is_spoken("xx"), language_of("xx-YY")) == ("un", True, "xx")


@pytest.mark.parametrize(
    ("locale", "language"), [("de-AT", "de"), ("pt_BR", "pt"), ("FR", "fr"), ("ja", "en"), ("", "en"), ("en-GB", "en")]
)
def test_a_locale_gives_a_language(locale: str, language: str) -> None:
    """By its first part, in any spelling."""
    assert language_of(locale) == language


def test_a_text_of_one_is_said_in_the_singular() -> None:
    """French says none in the singular too; what has one form alone keeps it."""
    assert [text("waiting.count", "en", n=n) for n in (0, 1, 2)] == [
        "0 requests wait for your answer.",
        "1 request waits for your answer.",
        "2 requests wait for your answer.",
    ]
    assert [form_of("waiting.count", "fr", n) for n in (0, 1, 2)] == [
        "waiting.count.one",
        "waiting.count.one",
        "waiting.count",
    ]
    assert form_of("time.h", "en", 1) == "time.h"


def test_values_are_put_in_once() -> None:
    """Braces that somebody wrote stay braces, and a text that nobody wrote is an error."""
    assert text("receipt.malformed", "en", why="{n} {why}").endswith(": {n} {why}.")
    with pytest.raises(KeyError):
        text("no.such.text", "en")
    assert not has_text("no.such.text")


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_key_stands_twice(language: str) -> None:
    """Each text has one place."""
    written = "".join(path.read_text() for path in (PACKAGE / "texts/languages" / language).glob("*.py"))
    keys = re.findall(r'^    "([a-z_. ]+)": ', written, re.MULTILINE)
    assert len(keys) == len(set(keys)) > 0


def test_every_text_is_used() -> None:
    """Nobody asks for a text that is not there, and no text is left that nobody asks for."""
    sources = [
        path
        for folder in ("gateway", "channels", "cli", "texts", "testing")
        for path in (PACKAGE / folder).rglob("*")
        if path.suffix in (".py", ".html") and "languages" not in path.parts
    ]
    written = "".join(path.read_text() for path in sources)
    asked = set(re.findall(r"""\bt(?:ext)?\(\s*['"]([a-z_.]+)['"]\s*[,)]""", written))
    assert asked <= set(texts_of(ENGLISH))
    # A key made of two parts: `t('state.' ~ state)` or `text(f"call.{code}")`.
    joined = tuple(re.findall(r"""['"]([a-z_]+\.(?:[a-z_]+\.)?)(?:['"]\s*~|\{)""", written))
    # Remarks are looked up by their English text: see `test_remarks`.
    found = [key.removesuffix(".one") for key in texts_of(ENGLISH) if not key.startswith("remark.")]
    assert [key for key in found if key not in written and not key.startswith(joined)] == []
