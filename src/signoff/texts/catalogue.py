"""Holds every sentence that people read outside the terminal, by language: cards, receipts, notices and the inbox.

A language is a folder of `languages` with the modules of `PARTS` and a place in `LANGUAGES`. It is read when somebody
needs it, and spoken whole or not at all: where it lacks a text, English is spoken in its place.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final

ENGLISH: Final = "en"
LANGUAGES: Final[Mapping[str, str]] = {
    ENGLISH: "English",
    "de": "Deutsch",
    "es": "Español",
    "fr": "Français",
    "it": "Italiano",
    "pt": "Português",
}
"""Code -> the language's name in itself."""
PARTS: Final = ("messages", "approvals", "pages", "remarks")
_ONE: Final = ".one"
_ONE_AND_ZERO: Final = frozenset(("fr",))
"""Languages that say `0 demande`, not `0 demandes`."""


@cache
def texts_of(language: str) -> Mapping[str, str]:
    """Returns all texts of a language by key; those of English where there is no such language, or where it lacks
    one.
    """
    english = _read(ENGLISH)
    if language not in LANGUAGES:
        return english
    found = _read(language)
    # A language has forms of the singular where it needs them.
    missing = [key for key in english.keys() - found.keys() if not key.endswith(_ONE)]
    return english if missing else found


def language_of(locale: str) -> str:
    """Returns the language for a locale such as `de-AT`: its own where all texts are there, else English."""
    return spoken_language(locale) or ENGLISH


def spoken_language(locale: str) -> str:
    """Returns the language for a locale such as `de-AT`; "" for one that is not spoken here, and for no locale."""
    language = locale.replace("_", "-").partition("-")[0].lower()
    return language if is_spoken(language) else ""


def is_spoken(language: str) -> bool:
    """Returns whether every text is there in a language, named by its code."""
    return language == ENGLISH or (language in LANGUAGES and texts_of(language) is not texts_of(ENGLISH))


def has_text(key: str) -> bool:
    """Returns whether there is a text of that name."""
    return key in texts_of(ENGLISH)


def text(key: str, language: str, **values: object) -> str:
    """Fills in the text `key` in `language`. Raises `KeyError` for no such text, and for a place in it without a value.

    `values` are put in as they are: make them visible first. Where one of them is a whole number `n`, the form of the
    singular, `KEY.one`, is used where the language has one and uses it for that number.
    """
    texts = texts_of(language)
    key = form_of(key, language, values.get("n"))
    # Filled in once: braces in a value, which a model may have written, are never looked at as places.
    return texts[key].format(**values) if values else texts[key]


def form_of(key: str, language: str, number: object) -> str:
    """Returns the form of a text for a number: `KEY.one`, where there is one and the number takes it, else `KEY`."""
    one = number == 1 or (number == 0 and language in _ONE_AND_ZERO)
    return f"{key}{_ONE}" if one and f"{key}{_ONE}" in texts_of(language) else key


@cache
def _read(language: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for part in PARTS:
        found |= import_module(f"signoff.texts.languages.{language}.{part}").TEXTS
    return MappingProxyType(found)
