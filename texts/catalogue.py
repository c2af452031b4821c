"""Every word that channels say, by language. A language is added by a module and its line here."""

from collections.abc import Mapping
from typing import Final

from signoff.texts.languages import de, en, es, fr, it, pt

ENGLISH: Final = "en"
TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    ENGLISH: en.TEXTS,
    "de": de.TEXTS,
    "es": es.TEXTS,
    "fr": fr.TEXTS,
    "it": it.TEXTS,
    "pt": pt.TEXTS,
}


def language_of(locale: str) -> str:
    """The language of a locale such as `de-AT`, if there are texts in it; English otherwise."""
    language = locale.replace("_", "-").partition("-")[0].lower()
    return language if language in TABLES else ENGLISH


def has_text(key: str) -> bool:
    """Whether there is a text of that name."""
    return key in TABLES[ENGLISH]


def text(key: str, language: str, **values: object) -> str:
    """The text `key` in `language`, in English where that language lacks it. Raises `KeyError` for no such text.

    `values` are put in as they are: make them visible first.
    """
    # Filled in once: braces in a value, which a model may have written, are never looked at as places.
    words = TABLES.get(language, {}).get(key) or TABLES[ENGLISH][key]
    return words.format(**values) if values else words
