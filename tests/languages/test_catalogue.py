import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import PACKAGE
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.languages import catalogue
from signoff.languages.catalogue import (
    ENGLISH,
    FOLDER,
    form_of,
    has_text,
    is_spoken,
    language_codes,
    language_of,
    languages,
    text,
    texts_of,
)
from signoff.languages.po import PoEntry, compile_po, read_po

OTHERS = sorted(set(language_codes()) - {ENGLISH})
ONE_ALONE = (False, True, False, False, False, False)
FIRST_FORMS = {
    "en": ONE_ALONE,
    "de": ONE_ALONE,
    "es": ONE_ALONE,
    "fr": (True, True, False, False, False, False),
    "it": ONE_ALONE,
    "pt": ONE_ALONE,
}
"""Language -> whether 0, 1, 2, 5, 21 and 1,000 use the first of its two forms."""
HEADER = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"X-Language-Name: {name}\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"
"""


def entries(language: str) -> dict[str, PoEntry]:
    name = f"{language}.po"
    found = read_po((FOLDER / name).read_text(encoding="utf-8"), name)
    return {entry.key: entry for entry in found if entry.key}


def placeholders(words: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(words) if name is not None}


def written(name: str, *texts: str) -> str:
    return HEADER.format(name=name) + "".join(texts)


def single(key: str, words: str) -> str:
    return f'msgctxt "{key}"\nmsgid "{key} in English"\nmsgstr "{words}"\n'


def numbered(key: str, *forms: str) -> str:
    lines = "".join(f'msgstr[{place}] "{words}"\n' for place, words in enumerate(forms))
    return f'msgctxt "{key}"\nmsgid "{key} one"\nmsgid_plural "{key} many"\n{lines}'


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    cached = (catalogue.language_codes, catalogue.languages, catalogue._read, catalogue._whole)
    monkeypatch.setattr(catalogue, "FOLDER", tmp_path)
    for each in cached:
        each.cache_clear()
    yield tmp_path
    for each in cached:
        each.cache_clear()


@table("language", *language_codes())
def test_every_language_has_every_text_with_its_placeholders(language: str) -> None:
    english, found = entries(ENGLISH), entries(language)
    assert list(found) == list(english)
    assert {key: placeholders(entry.forms[-1]) for key, entry in found.items()} == {
        key: placeholders(entry.forms[-1]) for key, entry in english.items()
    }
    assert all(words.strip() == words != "" for entry in found.values() for words in entry.forms)
    assert is_spoken(language)


@table("language", *language_codes())
def test_every_language_translates_the_current_english(language: str) -> None:
    english, found = entries(ENGLISH), entries(language)
    assert {key: entry.identity for key, entry in found.items()} == {
        key: entry.identity for key, entry in english.items()
    }
    for entry in english.values():
        assert entry.forms == ((entry.words,) if entry.plural is None else (entry.words, entry.plural))


@table("language", *language_codes())
def test_counted_text_has_a_form_for_each_number(language: str) -> None:
    assert tuple(catalogue._read(language).form_for(n) == 0 for n in (0, 1, 2, 5, 21, 1_000)) == FIRST_FORMS[language]
    counted = {key: entry for key, entry in entries(language).items() if entry.plural is not None}
    assert len(counted) > 10
    for key, entry in counted.items():
        one, many = map(placeholders, entry.forms)
        assert "n" in many
        assert one == (many - {"n"} if key == "edit.wrong" else many)


def test_languages_are_named_by_their_files_with_english_first() -> None:
    assert list(languages().items()) == [
        *(("en", "English"), ("de", "Deutsch"), ("es", "Español")),
        *(("fr", "Français"), ("it", "Italiano"), ("pt", "Português")),
    ]


@table("language", *OTHERS)
def test_no_translation_equals_its_english_text(language: str) -> None:
    ours, theirs = texts_of(ENGLISH), texts_of(language)
    alike = {key for key, words in ours.items() if theirs[key] == words and len(words.split()) > 2}
    assert alike <= {"card.subject", "time.day", "tools.none_how", "card.values.page", "card.values.file"}


@table("language", *language_codes())
def test_every_language_names_days_and_months(language: str) -> None:
    assert len(text("time.days_of_week", language).split()) == 7
    assert len(text("time.months", language).split()) == 12


def test_language_without_a_text_is_incomplete_and_falls_back(folder: Path) -> None:
    (folder / "en.po").write_text(written("English", single("a", "one {n}"), single("b", "two")))
    (folder / "xx.po").write_text(written("Xx", single("a", "un {n}"), single("b", "")))
    (folder / "yy.po").write_text(written("Yy", single("a", "ein {n}"), "#, fuzzy\n", single("b", "zwei")))
    for language in ("xx", "yy", "zz", "../en"):
        assert (text("a", language, n=1), text("b", language), is_spoken(language)) == ("one 1", "two", False)
    assert (language_of("xx-YY"), is_spoken("en")) == ("en", True)


def test_language_is_a_file_with_its_name(folder: Path) -> None:
    (folder / "en.po").write_text(written("English", single("a", "one")))
    (folder / "xx.po").write_text(written("Xx", single("a", "un"), single("more", "plus")))
    assert (text("a", "xx"), is_spoken("xx"), language_of("xx-YY")) == ("un", True, "xx")
    assert dict(languages()) == {"en": "English", "xx": "Xx"}


def test_compiled_language_equals_its_file(folder: Path) -> None:
    texts = (single("a", r"un \"mot\"\né"), numbered("b", "{n} mot", "{n} mots"))
    (folder / "en.mo").write_bytes(compile_po(written("English", *texts), "en.po"))
    assert text("a", "en") == 'un "mot"\né'
    assert [text("b", "en", n=n) for n in (0, 1, 2, "1")] == ["0 mots", "1 mot", "2 mots", "1 mots"]
    assert dict(languages()) == {"en": "English"}


def test_file_of_a_language_precedes_its_compiled_form(folder: Path) -> None:
    (folder / "en.mo").write_bytes(compile_po(written("English", single("a", "old")), "en.po"))
    (folder / "en.po").write_text(written("English", single("a", "new")))
    assert text("a", "en") == "new"


def test_broken_file_is_reported_with_its_line(folder: Path) -> None:
    (folder / "en.po").write_text(written("English", single("a", "one"), 'msgctxt "b"\nmsgid "two\n'))
    with pytest.raises(ConfigError) as caught:
        text("a", "en")
    assert str(caught.value) == "en.po:10: this is no text as `.po` files have them"
    assert caught.value.context == {"file": "en.po", "line": 10}


@table(
    ("locale", "language"), ("de-AT", "de"), ("pt_BR", "pt"), ("FR", "fr"), ("ja", "en"), ("", "en"), ("en-GB", "en")
)
def test_locale_selects_a_language(locale: str, language: str) -> None:
    assert language_of(locale) == language


def test_text_about_one_is_singular() -> None:
    assert [text("waiting.count", "en", n=n) for n in (0, 1, 2)] == [
        "0 requests need your answer.",
        "1 request needs your answer.",
        "2 requests need your answer.",
    ]
    assert [form_of("waiting.count", "fr", n).split()[1] for n in (0, 1, 2)] == ["demande", "demande", "demandes"]
    assert form_of("time.h", "en", 1) == "{n} h"


def test_values_are_inserted_once() -> None:
    assert text("receipt.malformed", "en", why="{n} {why}").endswith(": {n} {why}.")
    with pytest.raises(KeyError):
        text("no.such.text", "en")
    assert not has_text("no.such.text")


def test_every_text_is_used() -> None:
    sources = [
        path
        for folder in ("gateway", "channels", "cli", "texts", "testing")
        for path in (PACKAGE / folder).rglob("*")
        if path.suffix in (".py", ".html")
    ]
    source = "".join(path.read_text() for path in sources)
    asked = set(re.findall(r"""\bt(?:ext)?\(\s*['"]([a-z_.]+)['"]\s*[,)]""", source))
    assert asked <= set(texts_of(ENGLISH))
    # A key made of two parts: `t('state.' ~ state)` or `text(f"call.{code}")`.
    joined = tuple(re.findall(r"""['"]([a-z_]+\.(?:[a-z_]+\.)?)(?:['"]\s*~|\{)""", source))
    # For remarks see `test_remarks`.
    found = [key for key in texts_of(ENGLISH) if not key.startswith("remark.")]
    assert [key for key in found if key not in source and not key.startswith(joined)] == []
