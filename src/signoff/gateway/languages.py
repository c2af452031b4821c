"""Chooses the language of an answer."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from starlette.requests import Request

from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.languages.catalogue import ENGLISH, is_spoken, spoken_language
from signoff.texts.formatter import Formatter, formatter_for

LANGUAGE: Final = "signoff_language"
"""The cookie of the language that a visitor chose on a page."""
_HEADER: Final = "accept-language"
_LANGUAGES_READ: Final = 10
_NOBODY: Final = Person(id="nobody", tenant=DEFAULT_TENANT)


def language_for(request: Request, locale: str) -> str:
    """Order: the choice on a page, the directory's locale, the browser's languages."""
    chosen = request.cookies.get(LANGUAGE, "")
    if is_spoken(chosen):
        return chosen
    return spoken_language(locale) or asked_language(request)


def asked_language(request: Request) -> str:
    entries = [part.partition(";") for part in request.headers.get(_HEADER, "").split(",")[:_LANGUAGES_READ]]
    preferred = sorted(entries, key=lambda part: -_weight(part[2]))
    codes = (name.strip().partition("-")[0].lower() for name, _, weight in preferred if _weight(weight) > 0)
    return next((code for code in codes if is_spoken(code)), ENGLISH)


def _weight(written: str) -> float:
    name, _, value = written.strip().partition("=")
    try:
        return float(value) if name == "q" else 1.0
    except ValueError:
        return 0.0


def formatter_in(request: Request, person: Person | None, now: datetime) -> Formatter:
    """Order: the language of the request, then that of the person."""
    formatter = formatter_for(person or _NOBODY, now)
    if _HEADER not in request.headers:
        return formatter
    return replace(formatter, language=asked_language(request), locale="")
