"""Splits a written line into words, codes and signs, normalised so that equal looks are equal and odd looks are odd.

Whatever is no plain word, no code as we show it, no known sign and no ordinary mark between words is `odd`: letters
that are struck out, pictures that nobody listed, brackets, quotation marks. Nothing odd is ever part of a yes.
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
"""The command of review bots that denies; the word alone only asks to wait."""
LINE_CHARS: Final = 200
"""No decision is longer; normalising a long run of accents takes time in its square, so longer lines are never."""

_FOLDED: Final = 16_384
"""Words of which it is remembered how they are compared: our own tables, and not whatever anybody writes."""

Kind = Literal["word", "code", "pause", "ask", "good", "bad", "odd"]


@dataclass(frozen=True)
class AnswerToken:
    """One piece of a line. `text` is a folded word, or a code as `read_code` gives it, else what stands there.

    `capital`: a word that begins with a capital letter.
    """

    kind: Kind
    text: str
    capital: bool = False


# The last is the Greek one, which NFKC makes a semicolon: what asks must not become what ends a sentence.
_ASKS: Final = frozenset("?¿？؟;⁇⁈⁉‽❓❔\u037e") - {";"}
_ASKED: Final = dict.fromkeys(map(ord, _ASKS), "?")
_PAUSES: Final = frozenset(".,!¡:;。，！、-–—")
# Keyboards and mail programs put one of these where a code has a hyphen.
_DASHES: Final = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-")
_HYPHENS: Final = frozenset("-\u2010\u2011")
_APOSTROPHES: Final = dict.fromkeys(map(ord, "’‘ʼ´`"), "'")
_TONES: Final = frozenset(map(chr, range(0x1F3FB, 0x1F400)))
_SELECTORS: Final = frozenset("\ufe0e\ufe0f")
_VARIED: Final = GOOD_SIGNS | BAD_SIGNS | _TONES | _SELECTORS
# What turns the direction of a text has no width either, and is never passed over.
_TURNS: Final = frozenset("\u202e\u202d\u2067")
# What stands around a code where somebody copies a card's own words; around anything else it is odd.
_AROUND: Final = "#([{<\"'“”„«»‹›*_"
_CODE: Final = re.compile(r"[0-9A-Za-z]{3}-?[0-9A-Za-z]{3}\Z")
_CHUNK: Final = re.compile(r"\S+")


def tokens(line: str, codes: Collection[str] = ()) -> tuple[AnswerToken, ...]:
    """Splits a line of at most `LINE_CHARS`; a longer one is one odd piece. `codes` are as for `find_code`."""
    if len(line) > LINE_CHARS:
        return (AnswerToken("odd", line[:LINE_CHARS]),)
    found: list[AnswerToken] = []
    # Before anything is normalised, which makes other marks of some of them.
    line = line.translate(_ASKED)
    line = _strip_bold(line.strip())
    quoted = line
    if quoted.startswith(("-", "!")):
        # An item of a list, a negation: no more somebody's plain answer than a quotation, whose mark is odd anyway.
        found.append(AnswerToken("odd", quoted[:1]))
    if quoted == HOLD:
        return (AnswerToken("word", HOLD),)
    if quoted.startswith("/"):
        line = quoted[1:]
    pieces = _CHUNK.findall(unicodedata.normalize("NFC", line))
    coded = [find_code(_peel(piece), codes) for piece in pieces]
    # A card says: write “approve K7Q-2FM”. Who copies that copies its quotation marks.
    copied = any(coded)
    for piece, code in zip(pieces, coded, strict=True):
        if code:
            found.append(AnswerToken("code", code))
            found += [AnswerToken("ask", char) for char in piece if char in _ASKS]
            found += [AnswerToken("pause", char) for char in piece[-1:] if char in ",.:;!"]
        else:
            found += _of_chunk(piece.strip('“”„«»‹›"') if copied else piece)
    return tuple(found)


def _strip_bold(line: str) -> str:
    """Removes the marks that make all of a line bold; a mark that stands alone is a footnote's, and odd."""
    for mark in ("**", "__", "*", "_"):
        inner = line.removeprefix(mark).rstrip(".!").removesuffix(mark)
        if line.startswith(mark) and line.rstrip(".!").endswith(mark) and inner and mark[0] not in inner:
            return inner
    return line


def find_code(token: str, codes: Collection[str] = ()) -> str:
    """Returns the short code that `token` is, as `read_code` gives it; else "".

    It is one if it looks like one as cards show it, with its separator or with digits, or if it is one of `codes`,
    which are open for whoever wrote it: six letters alone may be any word.
    """
    plain = token.translate(_DASHES)
    if not _CODE.match(plain):
        return ""
    code = read_code(plain) or ""
    shown = "-" in plain or any(char.isdigit() for char in plain)
    return code if shown or code in codes else ""


@lru_cache(maxsize=_FOLDED)
def fold(word: str) -> str:
    """Normalises a short text for comparing words: without case and accents, blanks as one space."""
    # Folding case may leave what is not in normal form any more (Unicode, section 3.13), so that is done again.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold())
    # Python folds by no language: Turkish `HAYIR` becomes `hayir`, while its small letter without a dot stays.
    plain = unicodedata.normalize("NFD", folded.replace("ı", "i").translate(_APOSTROPHES))
    return " ".join("".join(char for char in plain if unicodedata.category(char) != "Mn").split())


def _peel(piece: str) -> str:
    return unicodedata.normalize("NFKC", piece).translate(_DASHES).strip(_AROUND + ")]}.,:;!?")


def _of_chunk(piece: str) -> list[AnswerToken]:
    """Splits what stands between two blanks."""
    piece = NAMED_SIGNS.get(piece.rstrip(".!"), piece)
    if piece.startswith(("http://", "https://")):
        return [AnswerToken("odd", piece)]
    for smile in SMILES:
        if piece.rstrip(".!") == smile:
            return [AnswerToken("good", smile)]
    if ".." in piece or "…" in piece:
        # Who leaves it open has not said yes.
        return [AnswerToken("odd", piece)]
    found: list[AnswerToken] = []
    word = ""
    bare = _bare(piece)
    for at, char in enumerate(bare):
        # `no-brainer` is no `no`, and `vas-y` one phrase of two words.
        if char in _HYPHENS and word and bare[at + 1 : at + 2].isalpha():
            found += _word(word)
            word = ""
            continue
        # The apostrophe belongs to a word, as in `j'approuve`, where letters stand on both sides of it.
        if char.isalnum() or (char == "'" and word):
            word += char
            continue
        found += _word(word)
        word = ""
        found += _mark(char)
    return found + _word(word)


def _bare(piece: str) -> str:
    """Removes from `piece` what has no width at its ends, its bold marks, and the tones and variants of pictures."""
    end = len(piece)
    while end and unicodedata.category(piece[end - 1]) == "Cf" and piece[end - 1] not in _TURNS:
        end -= 1
    piece = piece[:end]
    for mark in ("**", "__", "*", "_"):
        if len(piece) > 2 * len(mark) and piece.startswith(mark) and piece.rstrip(".,!").endswith(mark):
            piece = piece.removeprefix(mark).replace(mark, "", 1)
            break
    plain = "".join(char for at, char in enumerate(piece) if not _beside_a_sign(piece, at))
    # Composed first, so that what compatibility takes apart is no letter with something struck through it.
    return unicodedata.normalize("NFKC", plain.translate(_APOSTROPHES))


def _beside_a_sign(piece: str, at: int) -> bool:
    """Returns whether a character only changes how the known picture before it looks."""
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
