"""Splits a written line into words, codes and signs, normalised so that text that looks equal is equal.

Everything else is `odd`: struck-out letters, unlisted emoji, brackets, quotation marks. An approval never contains an
odd piece.
"""

# ruff: noqa: RUF001 (marks of many alphabets)

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from signoff.channels.answer_text.answer_vocabulary import BAD_SIGNS, GOOD_SIGNS, NAMED_SIGNS, SMILES
from signoff.contracts.ids import read_code

HOLD: Final = "/hold"
"""The command of review bots that denies. Without the slash, the word only asks to wait."""
LINE_CHARS: Final = 200
"""No decision is longer. Longer lines are not normalised: the time for a run of accents grows with its square."""

_FOLDED: Final = 16_384
"""Size of the cache of folded words: enough for our tables. The limit bounds the memory that senders' words use."""

Kind = Literal["word", "code", "pause", "ask", "good", "bad", "odd"]


@dataclass(frozen=True)
class AnswerToken:
    """One piece of a line. `text` is a folded word, a code as from `read_code`, or the characters of other pieces."""

    kind: Kind
    text: str
    capital: bool = False


# The last is the Greek question mark, which NFKC turns into a semicolon. A question must not become a
# pause.
_ASKS: Final = frozenset("?¿？؟;⁇⁈⁉‽❓❔\u037e") - {";"}
_ASKED: Final = dict.fromkeys(map(ord, _ASKS), "?")
_PAUSES: Final = frozenset(".,!¡:;。，！、-–—")
# Keyboards and email clients replace a code's hyphen with one of these.
_DASHES: Final = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-")
_HYPHENS: Final = frozenset("-\u2010\u2011")
_APOSTROPHES: Final = dict.fromkeys(map(ord, "’‘ʼ´`"), "'")
_TONES: Final = frozenset(map(chr, range(0x1F3FB, 0x1F400)))
_SELECTORS: Final = frozenset("\ufe0e\ufe0f")
_VARIED: Final = GOOD_SIGNS | BAD_SIGNS | _TONES | _SELECTORS
# Marks that reverse the direction of text have no width either, but are never ignored.
_TURNS: Final = frozenset("\u202e\u202d\u2067")
# Marks around a code in text copied from a card. Around anything else they are odd.
_AROUND: Final = "#([{<\"'“”„«»‹›*_"
_CODE: Final = re.compile(r"[0-9A-Za-z]{3}-?[0-9A-Za-z]{3}\Z")
_CHUNK: Final = re.compile(r"\S+")


def tokens(line: str, codes: Collection[str] = ()) -> tuple[AnswerToken, ...]:
    """Split a line of at most `LINE_CHARS`; a longer one is one odd piece. `codes` are as for `find_code`."""
    if len(line) > LINE_CHARS:
        return (AnswerToken("odd", line[:LINE_CHARS]),)
    result: list[AnswerToken] = []
    # Do this before any normalisation, which changes some question marks into other marks.
    line = line.translate(_ASKED)
    line = _strip_bold(line.strip())
    quoted = line
    if quoted.startswith(("-", "!")):
        # A list item or a negation is no more a plain answer than a quotation, whose mark is odd anyway.
        result.append(AnswerToken("odd", quoted[:1]))
    if quoted == HOLD:
        return (AnswerToken("word", HOLD),)
    if quoted.startswith("/"):
        line = quoted[1:]
    pieces = _CHUNK.findall(unicodedata.normalize("NFC", line))
    coded = [find_code(_peel(piece), codes) for piece in pieces]
    # Cards say: write “approve K7Q-2FM”. People copy the quotation marks, too.
    copied = any(coded)
    for piece, code in zip(pieces, coded, strict=True):
        if code:
            result.append(AnswerToken("code", code))
            result += [AnswerToken("ask", char) for char in piece if char in _ASKS]
            result += [AnswerToken("pause", char) for char in piece[-1:] if char in ",.:;!"]
        else:
            result += _of_chunk(piece.strip('“”„«»‹›"') if copied else piece)
    return tuple(result)


def _strip_bold(line: str) -> str:
    """Remove the marks that make all of a line bold. A single mark is a footnote's, and odd."""
    for mark in ("**", "__", "*", "_"):
        inner = line.removeprefix(mark).rstrip(".!").removesuffix(mark)
        if line.startswith(mark) and line.rstrip(".!").endswith(mark) and inner and mark[0] not in inner:
            return inner
    return line


def find_code(token: str, codes: Collection[str] = ()) -> str:
    """Return the short code in `token`, as from `read_code`, or "".

    A code has its separator or digits, as on cards, or is one of `codes`, which are open for the writer. Six letters
    alone may be any word.
    """
    plain = token.translate(_DASHES)
    if not _CODE.match(plain):
        return ""
    code = read_code(plain) or ""
    shown = "-" in plain or any(char.isdigit() for char in plain)
    return code if shown or code in codes else ""


@lru_cache(maxsize=_FOLDED)
def fold(word: str) -> str:
    """Normalise a short text for comparing words: without case and accents, blanks as one space."""
    # Case folding can break the normal form (Unicode, section 3.13), so normalise again.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold())
    # Python ignores the language: Turkish `HAYIR` becomes `hayir`, but the small dotless letter stays.
    plain = unicodedata.normalize("NFD", folded.replace("ı", "i").translate(_APOSTROPHES))
    return " ".join("".join(char for char in plain if unicodedata.category(char) != "Mn").split())


def _peel(piece: str) -> str:
    return unicodedata.normalize("NFKC", piece).translate(_DASHES).strip(_AROUND + ")]}.,:;!?")


def _of_chunk(piece: str) -> list[AnswerToken]:
    piece = NAMED_SIGNS.get(piece.rstrip(".!"), piece)
    if piece.startswith(("http://", "https://")):
        return [AnswerToken("odd", piece)]
    for smile in SMILES:
        if piece.rstrip(".!") == smile:
            return [AnswerToken("good", smile)]
    if ".." in piece or "…" in piece:
        # A sentence left open does not approve.
        return [AnswerToken("odd", piece)]
    result: list[AnswerToken] = []
    word = ""
    bare = _bare(piece)
    for at, char in enumerate(bare):
        # `no-brainer` is not `no`, and `vas-y` is one phrase of two words.
        if char in _HYPHENS and word and bare[at + 1 : at + 2].isalpha():
            result += _word(word)
            word = ""
            continue
        # An apostrophe with letters on both sides belongs to its word, as in `j'approuve`.
        if char.isalnum() or (char == "'" and word):
            word += char
            continue
        result += _word(word)
        word = ""
        result += _mark(char)
    return result + _word(word)


def _bare(piece: str) -> str:
    """Remove trailing characters without width, bold marks, and the tones and variants of emoji."""
    end = len(piece)
    while end and unicodedata.category(piece[end - 1]) == "Cf" and piece[end - 1] not in _TURNS:
        end -= 1
    piece = piece[:end]
    for mark in ("**", "__", "*", "_"):
        if len(piece) > 2 * len(mark) and piece.startswith(mark) and piece.rstrip(".,!").endswith(mark):
            piece = piece.removeprefix(mark).replace(mark, "", 1)
            break
    plain = "".join(char for at, char in enumerate(piece) if not _beside_a_sign(piece, at))
    # NFKC also composes: a letter apart from its accent would count as struck out.
    return unicodedata.normalize("NFKC", plain.translate(_APOSTROPHES))


def _beside_a_sign(piece: str, at: int) -> bool:
    """Return whether a character only changes the look of the known emoji before it."""
    if piece[at] not in _TONES and piece[at] not in _SELECTORS:
        return False
    return at > 0 and piece[at - 1] in _VARIED


def _word(word: str) -> list[AnswerToken]:
    if not word:
        return []
    ends = word.rstrip("'")
    return [AnswerToken("word", fold(ends), word[0].isupper()) if ends == word else AnswerToken("odd", word)]


def _mark(char: str) -> list[AnswerToken]:
    if char in _ASKS:
        return [AnswerToken("ask", char)]
    if char in GOOD_SIGNS:
        return [AnswerToken("good", char)]
    if char in BAD_SIGNS:
        return [AnswerToken("bad", char)]
    return [AnswerToken("pause" if char in _PAUSES else "odd", char)]
