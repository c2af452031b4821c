"""Finds the language in which whoever asks is answered."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from starlette.requests import Request

from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.languages.catalogue import ENGLISH, is_spoken, spoken_language
from signoff.texts.formatter import Formatter, formatter_for

LANGUAGE: Final = "signoff_language"
"""The cookie of a language that somebody chose on a page."""
_HEADER: Final = "accept-language"
_LANGUAGES_READ: Final = 10
_NOBODY: Final = Person(id="nobody", tenant=DEFAULT_TENANT)


def language_for(request: Request, locale: str) -> str:
    """Returns in which language a page is written for somebody of `locale`.

    What they chose on a page comes first, then the directory's locale, then what the browser asks for.
    """
    chosen = request.cookies.get(LANGUAGE, "")
    if is_spoken(chosen):
        return chosen
    return spoken_language(locale) or asked_language(request)


def asked_language(request: Request) -> str:
    """Returns the language that a client likes best of those that are spoken; English where it likes none."""
    asked = [part.partition(";") for part in request.headers.get(_HEADER, "").split(",")[:_LANGUAGES_READ]]
    liked = sorted(asked, key=lambda part: -_weight(part[2]))
    codes = (name.strip().partition("-")[0].lower() for name, _, weight in liked if _weight(weight) > 0)
    return next((code for code in codes if is_spoken(code)), ENGLISH)


def _weight(written: str) -> float:
    name, _, value = written.strip().partition("=")
    try:
        return float(value) if name == "q" else 1.0
    except ValueError:
        return 0.0


def formatter_in(request: Request, person: Person | None, now: datetime) -> Formatter:
    """Returns in what words a program is answered: in the language that it asks for, else in that of its person."""
    formatter = formatter_for(person or _NOBODY, now)
    if _HEADER not in request.headers:
        return formatter
    return replace(formatter, language=asked_language(request), locale="")
