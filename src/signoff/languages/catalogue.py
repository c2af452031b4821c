"""Contains all sentences that people read outside the terminal, by language: cards, receipts, notices and the inbox.

A language is a file of this directory, named by its code, with its own name in the header. A wheel has it compiled
(`.mo`); a checkout compiles it in memory when it needs a text. If a language lacks one text, English replaces all of
it.
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
"""The header's field with the language's own name."""


@dataclass(frozen=True)
class Language:
    """All texts of a language."""

    name: str
    forms: Mapping[str, tuple[str, ...]]
    """Maps a key to the text, or to its plural forms."""
    form_for: Callable[[int], int]
    """Maps a number to the index of its form."""


class _Catalogue(GNUTranslations):
    """A compiled file. The library lists all texts only in these two attributes."""

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
    """Return the codes of all languages, English first."""
    codes = {path.stem for path in FOLDER.iterdir() if path.suffix in (".po", ".mo")}
    return (ENGLISH, *sorted(codes - {ENGLISH}))


@cache
def languages() -> Mapping[str, str]:
    """Return the languages' own names by code, English first."""
    return MappingProxyType({code: _read(code).name for code in language_codes()})


def forms_of(language: str) -> Mapping[str, tuple[str, ...]]:
    """English replaces an unsupported language."""
    return _spoken(language).forms


def texts_of(language: str) -> Mapping[str, str]:
    return {key: forms[-1] for key, forms in forms_of(language).items()}


def language_of(locale: str) -> str:
    """Return English if the locale's language lacks a text."""
    return spoken_language(locale) or ENGLISH


def spoken_language(locale: str) -> str:
    """Return "" for an unsupported or empty locale."""
    language = locale.replace("_", "-").partition("-")[0].lower()
    return language if is_spoken(language) else ""


def is_spoken(language: str) -> bool:
    """Return whether a language, by its code, has every text."""
    return language == ENGLISH or _spoken(language) is not _read(ENGLISH)


def has_text(key: str) -> bool:
    return key in _read(ENGLISH).forms


def text(key: str, language: str, **values: object) -> str:
    """Fill in the text `key` in `language`.

    Raises `KeyError` for an unknown text, and for a placeholder without value. `values` are inserted unchanged: make
    them visible first. A whole number `n` selects the language's plural form.
    """
    words = form_of(key, language, values.get("n"))
    # Format only once: braces in a value, which a model may have written, must never count as placeholders.
    return words.format(**values) if values else words


def form_of(key: str, language: str, number: object) -> str:
    """Return the plural form for `number`, or the last form for other values."""
    spoken = _spoken(language)
    forms = spoken.forms[key]
    return forms[spoken.form_for(number) if len(forms) > 1 and isinstance(number, int) else -1]


def _spoken(language: str) -> Language:
    """Return English if the language is unknown or lacks a text."""
    return _whole(language) if language in language_codes() else _read(ENGLISH)


@cache
def _whole(language: str) -> Language:
    english, found = _read(ENGLISH), _read(language)
    return found if found.forms.keys() >= english.forms.keys() else english


@cache
def _read(language: str) -> Language:
    file = FOLDER / f"{language}.po"
    # Prefer the source: a compiled file next to it may be older.
    compiled = _compile(file) if file.exists() else file.with_suffix(".mo").read_bytes()
    return _Catalogue(BytesIO(compiled)).language()


def _compile(file: Path) -> bytes:
    try:
        return compile_po(file.read_text(encoding="utf-8"), file.name)
    except PoError as error:
        raise ConfigError(str(error), file=file.name, line=error.line) from None
