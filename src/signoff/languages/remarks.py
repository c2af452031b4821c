"""Writes remarks in the reader's language. Text by a person or a tool's author stays unchanged."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from signoff.contracts.content import Remark, Words
from signoff.contracts.errors import SignoffError
from signoff.languages.catalogue import ENGLISH, form_of

_JOINT: Final = "; "
_DEPTH: Final = 10
"""The deepest nesting of remarks: an attacker could store an endlessly nested one."""
_DIGITS: Final = 9
"""Digits of a number that selects a plural form."""
_ErrorT = TypeVar("_ErrorT", bound=SignoffError)


class RemarkError(ValueError):
    """An error in the words of a remark."""

    def __init__(self, words: Words) -> None:
        super().__init__(english(words))
        self.words = words


def remark_text(words: Words | Sequence[Words], language: str) -> str:
    """Separate several remarks by `; `. A remark that the catalogue lacks is shown by its code."""
    return _text(words, language, _DEPTH)


def english(words: Words | Sequence[Words]) -> str:
    return remark_text(words, ENGLISH)


def change_texts(words: Words, change: Callable[[str], str]) -> Words:
    """Return `words` with `change` applied to text outside the catalogue. Drops remarks that are nested too deeply."""
    return change(words) if isinstance(words, str) else _change(words, change, _DEPTH)


def worded(kind: Callable[..., _ErrorT], remark: Remark, **context: object) -> _ErrorT:
    return kind(english(remark), remark=remark, **context)


def error_text(error: SignoffError, language: str) -> str:
    remark = error.context.get("remark")
    return remark_text(remark, language) if isinstance(remark, Remark) else error.message


def speaks(error: SignoffError, language: str) -> bool:
    """Return whether `error_text` is in `language`."""
    return isinstance(error.context.get("remark"), Remark) or language == error.context.get("language", ENGLISH)


def _text(words: Words | Sequence[Words], language: str, depth: int) -> str:
    if isinstance(words, str):
        return words
    if not isinstance(words, Remark):
        return _JOINT.join(_text(each, language, depth) for each in words)
    if not depth:
        return words.code
    values = {name: _text(value, language, depth - 1) for name, value in words.values.items()}
    n = values.get("n", "")
    number = int(n) if n.isascii() and n.isdecimal() and len(n) <= _DIGITS else None
    try:
        # Format only once: braces in a value, which a model may have written, must never count as placeholders.
        return form_of(f"remark.{words.code}", language, number).format(**values)
    except KeyError:
        return words.code


def _change(remark: Remark, change: Callable[[str], str], depth: int) -> Remark:
    def of(words: Words) -> Words:
        return change(words) if isinstance(words, str) else _change(words, change, depth - 1)

    if not depth:
        return Remark(code=remark.code)
    values = remark.values.items()
    return Remark(
        code=remark.code,
        values={name: tuple(map(of, each)) if isinstance(each, tuple) else of(each) for name, each in values},
    )
