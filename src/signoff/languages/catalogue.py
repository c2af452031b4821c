"""Holds every sentence that people read outside the terminal, by language: cards, receipts, notices and the inbox.

A language is a file of this folder, by its code, with its own name in the header. A wheel holds it compiled (`.mo`); a
checkout compiles it in memory when a text of it is needed. It is spoken whole or not at all: where it lacks a text,
English is spoken in its place.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from gettext import GNUTranslations
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Final

from signoff.contracts.errors import ConfigError
from signoff.languages.po import PoError, compile_po

ENGLISH: Final = "en"
FOLDER: Final = Path(__file__).parent
_NAME: Final = "x-language-name"
"""The field of a header that holds the language's name in itself."""


@dataclass(frozen=True)
class Language:
    """All texts of a language."""

    name: str
    """In itself."""
    forms: Mapping[str, tuple[str, ...]]
    """Key -> the text, or its forms by number."""
    form_for: Callable[[int], int]
    """Number -> which form it takes."""


class _Catalogue(GNUTranslations):
    """A compiled file. The library looks texts up, and lists them in these two alone."""

    _catalog: dict[str | tuple[str, int], str]
    plural: Callable[[int], int]

    def language(self) -> Language:
        forms: dict[str, tuple[str, ...]] = {}
        # The forms of a text follow one another.
        for name, words in self._catalog.items():
            key, context, _ = (name[0] if isinstance(name, tuple) else name).partition("\4")
            if context:
                forms[key] = (*forms.get(key, ()), words)
        return Language(self.info()[_NAME], MappingProxyType(forms), self.plural)


@cache
def language_codes() -> tuple[str, ...]:
    """Returns the codes of all languages, English first."""
    found = {path.stem for path in FOLDER.iterdir() if path.suffix in (".po", ".mo")}
    return (ENGLISH, *sorted(found - {ENGLISH}))


@cache
def languages() -> Mapping[str, str]:
    """Returns the languages by code, each with its name in itself, English first."""
    return MappingProxyType({code: _read(code).name for code in language_codes()})


def forms_of(language: str) -> Mapping[str, tuple[str, ...]]:
    """Returns all texts of a language by key, each in its forms; those of English where it is not spoken."""
    return _spoken(language).forms


def texts_of(language: str) -> Mapping[str, str]:
    """Returns the same, each in its form of many."""
    return {key: forms[-1] for key, forms in forms_of(language).items()}


def language_of(locale: str) -> str:
    """Returns the language for a locale such as `de-AT`: its own where all texts are there, else English."""
    return spoken_language(locale) or ENGLISH


def spoken_language(locale: str) -> str:
    """Returns the language for a locale such as `de-AT`; "" for one that is not spoken here, and for no locale."""
    language = locale.replace("_", "-").partition("-")[0].lower()
    return language if is_spoken(language) else ""


def is_spoken(language: str) -> bool:
    """Returns whether every text is there in a language, named by its code."""
    return language == ENGLISH or _spoken(language) is not _read(ENGLISH)


def has_text(key: str) -> bool:
    """Returns whether there is a text of that name."""
    return key in _read(ENGLISH).forms


def text(key: str, language: str, **values: object) -> str:
    """Fills in the text `key` in `language`. Raises `KeyError` for no such text, and for a place in it without a value.

    `values` are put in as they are: make them visible first. Where one of them is a whole number `n`, the form that the
    language has for that number is used.
    """
    words = form_of(key, language, values.get("n"))
    # Filled in once: braces in a value, which a model may have written, are never looked at as places.
    return words.format(**values) if values else words


def form_of(key: str, language: str, number: object) -> str:
    """Returns a text with its places, in the form for a number; in that of many for what is no whole number."""
    spoken = _spoken(language)
    forms = spoken.forms[key]
    return forms[spoken.form_for(number) if len(forms) > 1 and isinstance(number, int) else -1]


def _spoken(language: str) -> Language:
    """Returns a language; English where there is no such language, or where it lacks a text."""
    return _whole(language) if language in language_codes() else _read(ENGLISH)


@cache
def _whole(language: str) -> Language:
    english, found = _read(ENGLISH), _read(language)
    return found if found.forms.keys() >= english.forms.keys() else english


@cache
def _read(language: str) -> Language:
    file = FOLDER / f"{language}.po"
    # A compiled file beside it may be older than it.
    compiled = _compile(file) if file.exists() else file.with_suffix(".mo").read_bytes()
    return _Catalogue(BytesIO(compiled)).language()


def _compile(file: Path) -> bytes:
    try:
        return compile_po(file.read_text(encoding="utf-8"), file.name)
    except PoError as error:
        raise ConfigError(str(error), file=file.name, line=error.line) from None
