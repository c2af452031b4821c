# ruff: noqa: RUF001 (other alphabets look alike)
"""Finds the new text of a reply, above and below the quote.

Looks at each line a fixed number of times, and tries no pattern on more than a thousand characters: published reply
parsers take seconds for 9 kB of `On `. An error here treats too much as quoted or reports that it is unsure; both lead
to a question back.
"""

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from signoff.channels.answer_text.phrases import FROM, HEADERS, OPENERS, ORIGINAL, WROTE

MARK: Final = "##-"
"""Start of the line "reply above this line", in every language. From there to `END` all text is Signoff's."""
END: Final = "##=##"
"""Start of the last line of every email from Signoff. Text after it is another writer's."""
CUT: Final = "\0cut"
"""A line that no text can contain: everything from here on is quoted."""
SIGNED: Final = "\0sig"
"""Prefix, which no text can contain, of a line that the email client marks as part of a signature."""
LONGEST: Final = 1_000
"""Characters of the longest line that is searched for a phrase."""
_DASHES: Final = "--"
_MAX_LINES: Final = 20_000
_MAX_TEXT: Final = 20_000
_QUOTED: Final = (">", "＞", "|", "»", "›")
_RULE: Final = frozenset("-_=*–—─━#~ ")
_OPENERS: Final = tuple(f"{word} " for word in OPENERS)
_SPAN: Final = 4
"""The most lines over which a client breaks the attribution line, such as `On ..., Ana wrote:`."""


@dataclass(frozen=True)
class WrittenText:
    """The new lines of a reply, including signatures."""

    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    unclear: str = ""
    """Why the text may not decide: `nothing` was written, or it is `too_long`."""
    quoted: tuple[str, ...] = field(default=(), compare=False)
    """The quoted lines, without their marks and the clients' headers."""


@dataclass
class _Found:
    above: list[str] = field(default_factory=list)
    under: list[str] = field(default_factory=list)
    quoted: list[str] = field(default_factory=list)


def find_new_text(lines: Sequence[str], *, flowed: bool = False) -> WrittenText:
    """Find the `lines` that are not quoted. Signature lines that the client marks follow a line `--`."""
    few = lines[:_MAX_LINES]
    parts = _scan([_clean(line) for line in (_unflow(few) if flowed else few)])
    above, under = _mark_signature(_trim(parts.above)), _mark_signature(_trim(parts.under))
    # The part beyond the limit may retract the part that is read.
    long = len(lines) > _MAX_LINES or sum(map(len, (*above, *under))) > _MAX_TEXT
    why = "too_long" if long else "" if above or under else "nothing"
    return WrittenText(_cut_lines(above), _cut_lines(under), why, _without_headers(parts.quoted))


def is_rule(line: str) -> bool:
    return len(line) >= 5 and set(line) <= _RULE


def _scan(lines: list[str]) -> _Found:
    found = _Found()
    into = found.above
    ends = [place for place, line in enumerate(lines) if line.startswith(END)]
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line:
            into.append(line)
            at += 1
            continue
        quoted = line.startswith(_QUOTED)
        span = 0 if quoted else _attribution(lines, at)
        if quoted or span:
            if quoted:
                found.quoted.append(_unmarked(line))
            at += span or 1
            into = found.under
            if quoted or _quote_follows(lines, at):
                continue
        elif not _cuts(lines, at):
            into.append(line)
            at += 1
            continue
        # From here on the client marks no quoted line, so everything up to the end of our email may be quoted.
        into = found.under
        end = bisect_left(ends, at)
        until = ends[end] + 1 if end < len(ends) else at + 1 if line.startswith(MARK) else len(lines)
        found.quoted += map(_unmarked, lines[at:until])
        # If the writer removed the end of our email, the text below its first line may be the writer's.
        at = until
    return found


def _unmarked(line: str) -> str:
    return line.lstrip("".join(_QUOTED) + " ") if line.startswith(_QUOTED) else line


def _without_headers(lines: list[str]) -> tuple[str, ...]:
    """Remove the text that email clients write above a quote; other words there are the writer's."""
    texts: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        span = _attribution(lines, at) if line else 0
        if span:
            at += span
        elif line and _header_block(lines, at):
            while at < len(lines) and lines[at]:
                named = _header_name(lines[at]) in FROM | HEADERS
                # The addresses of many recipients continue on the next line.
                if not named and "@" not in lines[at]:
                    texts.append(lines[at])
                at += 1
        else:
            cut = not line.startswith(MARK) and bool(line) and _cuts(lines, at)
            if line and not cut:
                texts.append(line)
            at += 1
            while cut and at < len(lines) and _header_name(lines[at]) in FROM | HEADERS:
                at += 1
    return tuple(texts)


def _attribution(lines: list[str], at: int) -> int:
    """Return how many lines from `at` are an attribution, such as `On ..., Ana wrote:`."""
    # Gmail breaks the line right before the last bracket, which then looks like a quote mark.
    if lines[at + 1 : at + 2] == [">:"] and len(lines[at]) < LONGEST and _says_who(f"{lines[at]}>:"):
        return 2
    for span in range(1, _SPAN + 1):
        if not _goes_on(lines, at, span):
            return 0
        if _says_who(" ".join(lines[at : at + span])):
            opened = f"{lines[at]} ".casefold().startswith(_OPENERS)
            # If the last few of these lines are already an attribution, the lines above are the writer's.
            alone = opened or not any(_says_who(" ".join(lines[at + n : at + span])) for n in range(1, span))
            return span if alone else 0
    return 0


def _goes_on(lines: list[str], at: int, span: int) -> bool:
    last = at + span - 1
    if last >= len(lines):
        return False
    line = lines[last]
    # The first of several lines must have a date or an address, which text directly above an attribution has not.
    return bool(line) and len(line) < LONGEST and not line.startswith(_QUOTED) and (span > 1 or _is_dated(line))


def _says_who(text: str) -> bool:
    if not text.endswith((":", "：")) or not _is_dated(text):
        return False
    folded = text.casefold()
    # Clients in languages that `WROTE` lacks also write an address and a date or time of at least four digits.
    addressed = "@" in text and "<" in text and sum(map(str.isdigit, text)) >= 4
    return addressed or any(phrase in folded for phrase in WROTE)


def _is_dated(line: str) -> bool:
    return "@" in line or any(map(str.isdigit, line))


def _quote_follows(lines: list[str], at: int) -> bool:
    following = next((line for line in lines[at : at + _SPAN] if line), "")
    return following.startswith(_QUOTED)


def _cuts(lines: list[str], at: int) -> bool:
    """Return whether a quote without marks on its lines begins here."""
    line = lines[at]
    if line.startswith((MARK, CUT)):
        return True
    if line.startswith(("--", "__", "==", "**", "——")) and len(line) < LONGEST:
        inner = line.strip("-_=*— ").casefold()
        # Zoho and Android write `---- On Sun, 22 Nov 2026, Approvals wrote ----`.
        return inner in ORIGINAL or (line.endswith("--") and any(inner.endswith(phrase) for phrase in WROTE))
    return _header_block(lines, at) or (len(line) < LONGEST and line.casefold() in ORIGINAL)


def _header_name(line: str) -> str:
    # Chinese and Japanese clients write a wide colon. Stars remain when bold text becomes plain text.
    name, colon, _ = line[:60].replace("：", ":").replace("*", "").partition(":")
    return name.strip().casefold() if colon else ""


def _header_block(lines: list[str], at: int) -> bool:
    """Return whether a quoted header as Outlook writes it begins here: the sender's line and two more."""
    first = _header_name(lines[at])
    if first not in FROM and first not in HEADERS:
        return False
    names = [_header_name(line) for line in lines[at : at + 8]]
    return any(name in FROM for name in names) and sum(name in HEADERS for name in names) >= 2


def _unflow(lines: Sequence[str]) -> Iterator[str]:
    """Join the lines of `format=flowed` (RFC 3676) that the writer did not end."""
    pieces: list[str] = []
    for line in lines:
        # The trailing blank of the signature mark `-- ` does not join lines (RFC 3676, 4.3).
        free = bool(line.strip()) and not line.startswith(_QUOTED) and line.rstrip() != "--"
        if pieces and not free:
            yield "".join(pieces)
            pieces.clear()
        if not free:
            yield line
            continue
        pieces.append(line)
        if not line.endswith(" "):
            yield "".join(pieces)
            pieces.clear()
    if pieces:
        yield "".join(pieces)


def _clean(line: str) -> str:
    if line == CUT:
        return line
    if line.startswith(SIGNED):
        rest = _clean(line.removeprefix(SIGNED))
        return SIGNED + rest if rest else ""
    if not line.isascii():
        # Characters without width would turn `approve` into a different word that looks the same.
        line = "".join(char for char in line if unicodedata.category(char) != "Cf")
    return " ".join(line.split())


def _trim(lines: list[str]) -> list[str]:
    start, end = 0, len(lines)
    while start < end and not lines[start]:
        start += 1
    while end > start and (not lines[end - 1] or is_rule(lines[end - 1])):
        end -= 1
    return lines[start:end]


def _mark_signature(lines: list[str]) -> list[str]:
    """Add a line `--` above the first line that the client marks as part of a signature."""
    first = next((at for at, line in enumerate(lines) if line.startswith(SIGNED)), len(lines))
    head = [*lines[:first], *([_DASHES] if first < len(lines) else [])]
    return [*head, *(line.removeprefix(SIGNED) for line in lines[first:])]


def _cut_lines(lines: list[str]) -> tuple[str, ...]:
    """Remove repeated blank lines, and cut visibly at a length that no reason reaches."""
    texts: list[str] = []
    left = _MAX_TEXT
    for at, line in enumerate(lines):
        if not line and not lines[at - 1]:
            continue
        if len(line) + 1 > left:
            texts.append(line[: left - 1] + "…")
            break
        texts.append(line)
        left -= len(line) + 1
    return tuple(texts)
