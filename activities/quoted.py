"""Secrets out of words: as they are, and as JSON and Python write them, which is how they get into words."""

import json
from collections.abc import Collection, Iterator

from signoff.registry.records import HIDDEN


def without(text: str, secrets: Collection[str]) -> str:
    """`text` with `[hidden]` in the place of each secret, also where quotes, backslashes or line ends are escaped."""
    written = {form for secret in secrets for form in _written(secret)}
    # The longest first: where one secret is part of another, the other's rest would stay in the text.
    for form in sorted(written, key=lambda form: (-len(form), form)):
        text = text.replace(form, HIDDEN)
    return text


def _written(secret: str) -> Iterator[str]:
    yield secret
    # Also what was written twice: an answer in JSON that quotes JSON, or the `repr` of one.
    once = {quoted(secret) for quoted in _WAYS}
    yield from once
    yield from {quoted(form) for form in once for quoted in _WAYS}


def _python(text: str) -> str:
    return repr(text)[1:-1]


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


_WAYS = (_python, _json, _ascii)
