"""Splits an email's answer into body, sign-off and footer, and decides which footers may be ignored.

The body must be wholly an answer (`answer_parser.py`). A footer is ignored if it is known to mean nothing: a device's
line, contact lines, a confidentiality notice, or a block that the sender has confirmed. Signoff asks once about any
other text and quotes its line: it may be a condition, wherever it is.
"""

# ruff: noqa: RUF001 (marks of other alphabets look alike)

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from signoff.channels.answer_text.answer_parser import (
    AnswerSender,
    ParsedAnswer,
    decision_words,
    is_unfinished,
    name_words,
    phrases_of,
    read_lines,
    reserve_words,
)
from signoff.channels.answer_text.answer_tokens import LINE_CHARS, fold
from signoff.channels.answer_text.approval_remarks import MONEY_SIGNS
from signoff.channels.answer_text.footer_phrases import (
    AGAINST,
    BANNERS,
    CLOSINGS,
    COMPANIES,
    COUNTRIES,
    DEVICES,
    EXCUSES,
    LABELS,
    NOTICE_WORDS,
    NOTICES,
    PARTICLES,
    STREETS,
    TITLES,
    WARNING_WORDS,
    WARNINGS,
)
from signoff.channels.answer_text.phrases import MOBILE
from signoff.channels.answer_text.quotes import is_rule
from signoff.channels.answer_text.sent_words import unsent_lines
from signoff.contracts.limits import FOOTER_LINES

_NOTICE_CHARS: Final = 4_000
_NOTICE_LEAST: Final = 2
_SHORT_WORDS: Final = 12
"""A shorter block that may be a condition is never remembered: the sender may mean it the next time."""
_COMPANY_WORDS: Final = 3
_SENT: Final = ("sent from ", "sent via ", "sent with ", "sent using ")
_CONTACT_WORDS: Final = 14
_URL: Final = re.compile(r"<?(?:https?://|www\.)[^\s<>]{1,300}>?|[\w-]{1,60}(?:\.[\w-]{1,60}){1,5}(?:/[^\s]{0,200})?")
_MAIL: Final = re.compile(r"<?(?:mailto:)?[\w.+%-]{1,80}@[\w-]{1,60}(?:\.[\w-]{1,60}){1,5}>?|(?<!\S)@\w{2,30}\b")
_NUMBER: Final = re.compile(r"\+?[\d()/.–-]*\d[\d()/.–-]*")
_GROUPED: Final = re.compile(r"\(?\d{3}\)?[-./]\d{3}[-./]\d{3,4}")
_POSTAL: Final = re.compile(r"\d{4,6}(?:-\d{3,4})?|[A-Z]{1,2}\d[A-Z\d]?|\d[A-Z]{2}|[A-Z]{1,3}-\d{4,6}")
_NUMBERED: Final = re.compile(
    r"\b(iphone|ipad|pixel|galaxy|note|redmi|mi|oneplus|ios|android|windows|outlook) \d{1,2}\b"
)
_STREET_ENDS: Final = ("straße", "strasse", "str.", "platz", "weg", "allee", "gasse", "ring", "ufer", "damm")
_SENTENCE: Final = re.compile(r"(?<=[.!?:;])\s+")
_TIGHT: Final = " \t*_~|·•,;:.-–—()[]<>\"'“”/📧📱☎🌐📍✉📞🏢\ufe0f"
"""Marks without meaning at the ends of a word: rules, punctuation, and the emoji before phone numbers."""


@dataclass(frozen=True)
class _Cut:
    """The lines of one email."""

    body: tuple[str, ...]
    footer: tuple[str, ...]


def read_mail_answer(
    above: Sequence[str], below: Sequence[str], sender: AnswerSender, quoted: Sequence[str] = ()
) -> ParsedAnswer:
    """The lines are `above` and `below` the quote.

    Words in `quoted` that Signoff did not send are the writer's, too.
    """
    cut = _split_footer(_without_banners(above), sender)
    answer = read_lines(cut.body, sender)
    if answer.verdict == "denied":
        return _keep_denial(answer, cut, below, sender)
    whole = "\n".join([*above, *below]).strip()
    if answer.verdict is None and not answer.question:
        return replace(answer, comment=whole)
    if not any(cut.footer) and is_unfinished("\n".join(cut.body)):
        return ParsedAnswer(None, answer.code, whole, "more", next(filter(None, reversed(cut.body))), answer.effects)
    footer, under = _text(cut.footer), _text(below)
    for block, lines in ((footer, cut.footer), (under, below)):
        unread = unknown_line(lines, sender)
        if unread and not _is_known(block, sender, answer.code):
            return ParsedAnswer(None, answer.code, whole, "more", unread, answer.effects, _to_remember(block, sender))
    inside = unsent_lines(_without_banners(quoted), sender.sent)
    block = _text(inside)
    if inside and not _is_known(block, sender, answer.code):
        return ParsedAnswer(None, answer.code, whole, "more", inside[0], answer.effects, _to_remember(block, sender))
    # Remember a block that is known only because the answer has the code: from now on this sender's block is known.
    new = [each for each in (footer, under, block) if each and footer_digest(each) not in sender.footers]
    confirmed = next((each for each in new if _is_known(each, sender, answer.code)), "")
    return replace(answer, footer=_to_remember(confirmed, sender))


def unknown_line(lines: Sequence[str], sender: AnswerSender) -> str:
    """Return the first line of a footer with unknown meaning; "" if the whole footer is known to mean nothing."""
    if len(lines) > FOOTER_LINES:
        return next(filter(None, lines), "…")
    for paragraph in _paragraphs(lines):
        if _is_notice(" ".join(paragraph)):
            continue
        for at, line in enumerate(paragraph):
            # A notice may follow an address without a blank line between them.
            if at and _is_notice(" ".join(paragraph[at:])):
                break
            if not _says_nothing(line, sender):
                return line
    return ""


def _keep_denial(answer: ParsedAnswer, cut: _Cut, below: Sequence[str], sender: AnswerSender) -> ParsedAnswer:
    """An approval below the denial voids it."""
    yes = {phrase for phrase, verdict in decision_words(sender.locale).items() if verdict == "approved"}
    unread = unknown_line([*cut.footer, "", *below], sender)
    if unread and any(fold(line.strip(_TIGHT)) in yes for line in (*cut.footer, *below) if len(line) <= LINE_CHARS):
        return ParsedAnswer(None, answer.code, "\n".join([*cut.body, *cut.footer, *below]).strip(), "two", unread)
    return answer


def _split_footer(lines: Sequence[str], sender: AnswerSender) -> _Cut:
    for at, line in enumerate(lines):
        if not line:
            continue
        # A company's notice follows a blank line, perhaps without a sign-off above it.
        alone = at > 0 and not lines[at - 1]
        if _is_dashes(line) or _begins_device(line):
            # Keep this line in the footer: it may have more than the device's words.
            return _Cut(tuple(lines[:at]), tuple(lines[at:]))
        # A sign-off in words needs a line above it: an answer may begin with a courtesy or the greeting of a name.
        if any(lines[:at]) and (_closes(line, sender) or _is_own_name(line, sender)):
            return _Cut(tuple(lines[:at]), tuple(lines[at + 1 :]))
        if alone and any(lines[:at]) and _is_notice(_paragraph_at(lines, at)):
            return _Cut(tuple(lines[:at]), tuple(lines[at:]))
    return _Cut(tuple(lines), ())


def _without_banners(lines: Sequence[str]) -> list[str]:
    """Remove the banners that a company's mail server wrote above the lines."""
    left = list(lines)
    while left:
        if not left[0]:
            left.pop(0)
            continue
        folded = left[0][: LINE_CHARS * 2].casefold()
        banner = next((each for each in BANNERS if folded.startswith(each)), "")
        rest = left[0][len(banner) :].strip(" -–—:")
        if banner and (not rest or banner[0] in "[*("):
            left[0] = rest
            continue
        paragraph = next(iter(_paragraphs(left)), [])
        if not _is_warning(" ".join(paragraph)):
            return left
        left = left[len(paragraph) :]
    return left


def _is_warning(text: str) -> bool:
    folded = text[:_NOTICE_CHARS].casefold().lstrip("*_ ")
    return folded.startswith(WARNINGS) and _each_sentence_has(text, WARNING_WORDS)


def _is_notice(text: str) -> bool:
    """Return whether a paragraph begins like a notice and each of its sentences has a notice's words."""
    if len(text) > _NOTICE_CHARS:
        return False
    folded = fold(text.lstrip("*_[(- "))
    has_notice_words = len(_words(text) & NOTICE_WORDS) >= _NOTICE_LEAST
    return has_notice_words and folded.startswith(_openings()) and _each_sentence_has(text, NOTICE_WORDS)


def _each_sentence_has(text: str, words: frozenset[str]) -> bool:
    sentences = [each for each in _SENTENCE.split(text[:_NOTICE_CHARS]) if any(map(str.isalnum, each))]
    decisive = _decisions() | AGAINST
    for sentence in sentences:
        sentence_words = _words(sentence)
        # A heading such as `Disclaimer:` counts as a sentence.
        if not (words & sentence_words) or decisive & sentence_words or not MONEY_SIGNS.isdisjoint(sentence):
            return False
    return bool(sentences)


def _closes(line: str, sender: AnswerSender) -> bool:
    if len(line) > LINE_CHARS:
        return False
    folded = " ".join(fold(line).replace(",", " ").strip(_TIGHT + "!").split())
    if folded in _closings():
        return True
    head, _, name = line.partition(",")
    ends = fold(head).strip(_TIGHT + "!") in _closings()
    return ends and bool(name.strip()) and _is_own_name(name.strip(), sender)


def _is_own_name(line: str, sender: AnswerSender) -> bool:
    words = fold(line.strip(_TIGHT)).replace("-", " ").split() if len(line) <= LINE_CHARS else []
    own = _own(sender)
    if not words or len(words) > 6:
        return False
    return all(_is_named(word.strip(_TIGHT), own) for word in words) and any(len(word) > 1 for word in words)


def _is_named(word: str, own: frozenset[str]) -> bool:
    """Return whether a word is one of the sender's names or abbreviates one, as `Alex` or `A`."""
    if word in own:
        return True
    return word.isalpha() and any(name.startswith(word) for name in own) and (len(word) == 1 or len(word) >= 3)


def _own(sender: AnswerSender) -> frozenset[str]:
    return name_words(sender.names) - reserve_words()


def _says_nothing(line: str, sender: AnswerSender) -> bool:
    if not line or is_rule(line) or _is_dashes(line):
        return True
    if len(line) > LINE_CHARS:
        return False
    return _closes(line, sender) or _is_own_name(line, sender) or _is_device(line) or _is_contact(line, sender)


def _is_dashes(line: str) -> bool:
    return line in ("--", "-- ", "—", "–", "__", "---", "***")


def _begins_device(line: str) -> bool:
    """The rest of the line does not matter."""
    return line[:LINE_CHARS].lstrip("*_[( ").casefold().startswith((*MOBILE, *_SENT))


def _is_device(line: str) -> bool:
    """The rest of the line must name only devices or email clients."""
    if len(line) > LINE_CHARS:
        return False
    folded = line.lstrip("*_[( ").casefold()
    if not _begins_device(line):
        return False
    for excuse in EXCUSES:
        folded = folded.replace(excuse, " ")
    words = _NUMBERED.sub(r"\1", _URL.sub(" ", folded.replace("’", "'"))).replace("<", " ").replace(">", " ").split()
    return all(_names_device(fold(word.strip(_TIGHT))) for word in words)


def _names_device(word: str) -> bool:
    if not word or word in DEVICES or word.partition("'")[0] in DEVICES or word in _opening_words():
        return True
    # A model's name has letters and digits.
    word = word.replace("-", "")
    return word.isalnum() and any(map(str.isdigit, word)) and any(map(str.isalpha, word)) and len(word) <= 10


def _is_contact(line: str, sender: AnswerSender) -> bool:
    """Return whether a line has only names, titles, companies, numbers or addresses, and each word is part of one."""
    if not MONEY_SIGNS.isdisjoint(line.replace("<", "").replace(">", "")):
        return False
    bare = _URL.sub(_kept_word, _MAIL.sub(" ", line))
    addressed = bare != line
    pieces = [piece for piece in _URL.sub(_kept_word, _MAIL.sub(" ", line)).split() if piece.strip(_TIGHT)]
    # The line has only addresses.
    if not pieces:
        return True
    words = [fold(piece.strip(_TIGHT)) for piece in pieces]
    own = _own(sender)
    reserved = reserve_words() | _decisions()
    plain = [word for word in words if word]
    if len(plain) > _CONTACT_WORDS or any(word in reserved for word in plain):
        return False
    return (
        _is_numbers(pieces, words, own, addressed=addressed)
        or _is_title(pieces, words, own)
        or _is_company(pieces, words)
        or _is_place(pieces)
    )


def _kept_word(found: re.Match[str]) -> str:
    """Return a blank for an address, and any other word unchanged, such as `No.5` and `GmbH.Co`."""
    text = found[0].lower()
    known = text.startswith(("http", "www.", "<http", "<www")) or text.rsplit(".", 1)[-1].partition("/")[0] in _DOMAINS
    return " " if known else found[0]


_DOMAINS: Final = frozenset(
    """
    com org net edu gov io ai app dev co eu de at ch fr es it pt br uk us ca mx ar nl be se no dk fi pl cz info biz
    example test cloud tech in au nz jp cn ie lu li
    """.split()  # noqa: SIM905
)


def _is_numbers(pieces: Sequence[str], words: Sequence[str], own: frozenset[str], *, addressed: bool) -> bool:
    """Recognise `Tel. +49 30 1234 - 0`: labels, and enough digits for a phone number."""
    digits = sum(char.isdigit() for piece in pieces for char in piece)
    if not digits and not addressed:
        return False
    labelled = any(word in LABELS for word in words)
    # A label without a number was before an address, which the caller removed.
    if digits and digits < 6 and not any("ext" in word for word in words):
        return False
    known = (word in LABELS or word in own or not word for word in words)
    alone = any(piece.startswith(("+", "(", "00", "0")) for piece in pieces)
    spelled = all(each or _NUMBER.fullmatch(piece.strip(",;:|")) for each, piece in zip(known, pieces, strict=True))
    grouped = digits >= 9 and any(_GROUPED.fullmatch(piece.strip(",;:|")) for piece in pieces)
    return spelled and (labelled or grouped or (digits >= 7 and alone))


def _is_title(pieces: Sequence[str], words: Sequence[str], own: frozenset[str]) -> bool:
    """Recognise `Head of Finance` and `CEO at Example`."""
    at = next((at for at, word in enumerate(words) if word in ("at", "@") and at), len(words))
    named = [piece for piece in pieces[at + 1 :] if piece.strip(_TIGHT + "!")]
    if len(named) > _COMPANY_WORDS or not all(_is_capital(piece) for piece in named):
        return False
    words = words[:at]
    parts = [part for word in words for part in re.split(r"[/&|-]", word) if part]
    known = all(part in TITLES or part in PARTICLES or _is_named(part, own) for part in parts)
    return known and any(part in TITLES for part in parts)


def _is_company(pieces: Sequence[str], words: Sequence[str]) -> bool:
    """Recognise `Example Trading GmbH & Co. KG`: capitalised words and a legal form."""
    if len(words) > 8 or not any(word in COMPANIES for word in words):
        return False
    return all(_is_capital(piece) or word in COMPANIES for piece, word in zip(pieces, words, strict=True))


def _is_place(pieces: Sequence[str]) -> bool:
    """Recognise `Musterstraße 5, 10115 Berlin`: names, numbers, and a part that only addresses have."""
    if len(pieces) > 12 or not all(_is_capital(piece) or any(map(str.isdigit, piece)) for piece in pieces):
        return False
    words = [fold(piece.strip(_TIGHT)) for piece in pieces]
    streets = STREETS | COUNTRIES
    named = any(word in streets or word.endswith(tuple(map(fold, _STREET_ENDS))) for word in words)
    postal = any(_POSTAL.fullmatch(piece.strip(",;.")) for piece in pieces)
    cities = sum(piece[:1].isalpha() for piece in pieces)
    return named or (postal and cities >= 1)


def _is_capital(piece: str) -> bool:
    bare = piece.strip(_TIGHT)
    return not bare or bare[:1].isupper() or fold(bare) in PARTICLES


def _is_known(block: str, sender: AnswerSender, code: str) -> bool:
    """Return whether the sender has confirmed a block, or confirms it with this answer's `code`."""
    digest = footer_digest(block)
    return digest in sender.footers or (bool(code) and (digest, code) in sender.asked)


def _to_remember(block: str, sender: AnswerSender) -> str:
    """Return "" if the block decides, or is short and may be a condition."""
    block_words = _words(block)
    short = len(block.split()) < _SHORT_WORDS
    decides = any(phrase in fold(block).split("\n") for phrase in decision_words(sender.locale))
    return "" if decides or (short and block_words & reserve_words()) else block


def _text(lines: Sequence[str]) -> str:
    return "\n".join(filter(None, lines))


def footer_digest(block: str) -> str:
    """Return the hash under which a block is remembered: the text is never stored. "" for an empty block."""
    return hashlib.sha256(block.encode("utf-8", "surrogatepass")).hexdigest() if block else ""


def _words(text: str) -> frozenset[str]:
    pieces = re.split(r"[\s/()\[\]<>,;:.!?\"“”|]+", text[:_NOTICE_CHARS])
    return frozenset(fold(piece.strip("*_-'’")) for piece in pieces if piece)


def _paragraphs(lines: Sequence[str]) -> list[list[str]]:
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line:
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return [each for each in paragraphs if each]


def _paragraph_at(lines: Sequence[str], at: int) -> str:
    return " ".join(next(iter(_paragraphs(lines[at:])), []))


@cache
def _opening_words() -> frozenset[str]:
    return frozenset(fold(word) for phrase in MOBILE for word in phrase.split())


@cache
def _openings() -> tuple[str, ...]:
    return tuple(fold(each.strip()) for table in NOTICES.values() for each in table.split("|"))


@cache
def _closings() -> frozenset[str]:
    return frozenset(fold(each.strip()) for table in CLOSINGS.values() for each in table.split(", "))


@cache
def _decisions() -> frozenset[str]:
    """Return single words that decide in any language of `CLOSINGS`: no known footer has one."""
    phrases = (phrase for locale in CLOSINGS for phrase in phrases_of(locale).parts.items())
    return frozenset(phrase for phrase, part in phrases if part in ("approved", "denied") and phrase.isalpha()) - {
        # Notices use these words to forbid copying, and `no` also precedes a number.
        *("no", "non", "refuse", "nega", "autorizado", "autorizada", "autorise"),
    }
