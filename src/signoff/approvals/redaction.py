"""Removes secret values from texts, in every notation in which they may appear. Pure."""

import html
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, quote_plus

from signoff.contracts.content import Remark, Words
from signoff.contracts.limits import REDACTION_CHARS
from signoff.languages.remarks import change_texts, english

HIDDEN: Final = "[hidden]"
LEAST_CHARS: Final = 3
"""The minimum length of a redacted secret.

Redacting every `1` in a text would only make it unreadable.
"""
_WITHHELD: Final = Remark.of("withheld")


def hide(value: Any, secrets: Collection[str], instead: Callable[[Any], Any], path: str = "") -> Any:
    """`path` is the dotted name of `value`. Items have their list's name. Does not copy parts without a secret."""
    if not secrets:
        return value
    if isinstance(value, Mapping):
        named = ((key, item, f"{path}.{key}" if path else key) for key, item in value.items())
        return {key: instead(item) if at in secrets else hide(item, secrets, instead, at) for key, item, at in named}
    return [hide(item, secrets, instead, path) for item in value] if isinstance(value, list) else value


def secret_values(args: Any, names: Collection[str]) -> frozenset[str]:
    """Skips texts shorter than `LEAST_CHARS`."""
    found: list[Any] = []
    hide(args, names, found.append)
    return frozenset(text for each in found for text in texts_of(each))


def texts_of(value: Any) -> Iterator[str]:
    """Yield all texts and numbers with at least `LEAST_CHARS` characters. Bytes are decoded as text."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            stack.extend(item)
        elif isinstance(item, bytes | bytearray):
            stack.append(bytes(item).decode("utf-8", "ignore"))
        elif not isinstance(item, bool | None) and len(str(item)) >= LEAST_CHARS:
            yield str(item)


def redact_remarks(remarks: Iterable[Words], secrets: Collection[str]) -> tuple[Words, ...]:
    """Remove secrets from the values of remarks.

    Signoff's own words are kept: an agent that chooses the secrets must not control which of them approvers see.
    """
    return tuple(_redact_remark(each, secrets) for each in remarks)


def _redact_remark(remark: Words, secrets: Collection[str]) -> Words:
    if _takes_too_long(english(remark), secrets):
        return _WITHHELD
    return change_texts(remark, lambda each: redact_secrets(each, secrets))


def redact_secrets(text: str, secrets: Collection[str]) -> str:
    """Replace each secret in `text` with `[hidden]`, even if characters in it are escaped.

    Escaped are quotes, backslashes and line ends. If the search would take too long (`REDACTION_CHARS`), the whole text
    is replaced.
    """
    if not secrets:
        return text
    if _takes_too_long(text, secrets):
        return HIDDEN
    for form in _forms(frozenset(secrets)):
        text = text.replace(form, HIDDEN)
    return text


def _takes_too_long(text: str, secrets: Collection[str]) -> bool:
    return len(_forms(frozenset(secrets))) * len(text) > REDACTION_CHARS


@lru_cache(maxsize=16)
def _forms(secrets: frozenset[str]) -> tuple[str, ...]:
    """Without this cache, many secrets and texts took minutes.

    The longest come first: if one secret is part of another, the rest of the longer one would remain.
    """
    found = {form for secret in secrets if secret for form in _spellings(secret)}
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def redact_value(value: Any, secrets: Collection[str]) -> Any:
    """Replaces a number only if it equals a secret. Copies nothing if there are no secrets."""
    if not secrets:
        return value
    if isinstance(value, str):
        return redact_secrets(value, secrets)
    if isinstance(value, Mapping):
        return {_name_without(name, secrets): redact_value(each, secrets) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(each, secrets) for each in value]
    hidden = not isinstance(value, bool | None) and str(value) in secrets
    return HIDDEN if hidden else value


def _name_without(name: Any, secrets: Collection[str]) -> Any:
    return redact_secrets(name, secrets) if isinstance(name, str) else name


def redact_arguments(args: Any, names: Collection[str], secrets: Collection[str], path: str = "") -> Any:
    """Remove secrets from the texts of all arguments that are not secret themselves.

    Numbers and keys are kept: an agent that chooses the secrets must not control which amounts approvers see. `path` is
    the dotted name of `args`.
    """
    if not secrets:
        return args
    return _show(args, names, secrets, path)


def names_of_repeats(args: Any, names: Collection[str]) -> frozenset[str]:
    """Return the dotted names of the arguments that `redact_arguments` changes."""
    secrets = secret_values(args, names)
    return frozenset(_repeats(args, names, secrets, "")) if secrets else frozenset()


def _repeats(value: Any, names: Collection[str], secrets: Collection[str], path: str) -> Iterator[str]:
    if isinstance(value, str):
        if redact_secrets(value, secrets) != value:
            yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            at = f"{path}.{key}" if path else str(key)
            if at not in names:
                yield from _repeats(item, names, secrets, at)
    elif isinstance(value, list):
        for item in value:
            yield from _repeats(item, names, secrets, path)


def _show(value: Any, names: Collection[str], secrets: Collection[str], path: str) -> Any:
    if isinstance(value, str):
        return redact_secrets(value, secrets)
    if isinstance(value, Mapping):
        named = ((key, item, f"{path}.{key}" if path else str(key)) for key, item in value.items())
        return {key: item if at in names else _show(item, names, secrets, at) for key, item, at in named}
    return [_show(item, names, secrets, path) for item in value] if isinstance(value, list) else value


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    # As encoded in addresses, forms and pages. Half surrogates cannot be encoded, and a model may propose them. They
    # must not keep a card from approvers.
    whole = secret.encode(errors="replace").decode()
    yield from (quote(whole, safe=""), quote(whole), quote_plus(whole), html.escape(secret))
    # Also escaped twice: a JSON response that quotes JSON, or the `repr` of one.
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
