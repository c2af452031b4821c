# ruff: noqa: RUF001 (other alphabets look alike)
"""Finds what is new in the text of a reply, and whether it stands above the quote or below.

A scanner over lines: each is looked at a fixed number of times, and no pattern is tried on more than a thousand
characters. Published reply readers take seconds for 9 kB of `On `. Where this one errs, it takes more for quoted than
is, or says that it is not sure: both end in a question back.
"""

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from signoff.channels.answer_text.phrases import FROM, HEADERS, OPENERS, ORIGINAL, WROTE

MARK: Final = "##-"
"""How the line that says "reply above this line" begins, in every language; from there to `END` all is ours."""
END: Final = "##=##"
"""The last line of every mail of ours: what follows it was written by somebody else."""
CUT: Final = "\0cut"
"""A line that no text can hold: from here on all is quoted."""
SIGNED: Final = "\0sig"
"""How a line begins, as no text can, that a mail program marks as part of a signature."""
LONGEST: Final = 1_000
"""Characters of a line in which a phrase is looked for."""
_DASHES: Final = "--"
_MAX_LINES: Final = 20_000
_MAX_TEXT: Final = 20_000
_QUOTED: Final = (">", "＞", "|", "»", "›")
_RULE: Final = frozenset("-_=*–—─━#~ ")
_OPENERS: Final = tuple(f"{word} " for word in OPENERS)
_SPAN: Final = 4
"""Lines over which a client breaks the line that says whose words follow."""


@dataclass(frozen=True)
class WrittenText:
    """What somebody wrote anew, line by line, signatures and all."""

    above: tuple[str, ...] = ()
    """The lines above the quote."""
    below: tuple[str, ...] = ()
    """The lines below the quote."""
    unclear: str = ""
    """Why none of it may decide: `nothing` written, or `too_long`."""
    quoted: tuple[str, ...] = field(default=(), compare=False)
    """The quoted lines, without their marks and the headers of mail programs."""


@dataclass
class _Found:
    above: list[str] = field(default_factory=list)
    under: list[str] = field(default_factory=list)
    quoted: list[str] = field(default_factory=list)


def find_new_text(lines: Sequence[str], *, flowed: bool = False) -> WrittenText:
    """Finds those of `lines` that are not quoted. The lines of a signature that a client marks follow a line `--`."""
    few = lines[:_MAX_LINES]
    found = _scan([_clean(line) for line in (_unflow(few) if flowed else few)])
    above, under = _mark_signature(_trim(found.above)), _mark_signature(_trim(found.under))
    # What was cut off may take back what stands above it.
    long = len(lines) > _MAX_LINES or sum(map(len, (*above, *under))) > _MAX_TEXT
    why = "too_long" if long else "" if above or under else "nothing"
    return WrittenText(_cut_lines(above), _cut_lines(under), why, _without_headers(found.quoted))


def is_rule(line: str) -> bool:
    """Returns whether a line is nothing but a drawn one."""
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
        # From here on the client marks no line of what it quotes, so that all up to the end of our mail may be quoted.
        into = found.under
        end = bisect_left(ends, at)
        until = ends[end] + 1 if end < len(ends) else at + 1 if line.startswith(MARK) else len(lines)
        found.quoted += map(_unmarked, lines[at:until])
        # Where somebody has cut our mail, what is left below its first line may be theirs.
        at = until
    return found


def _unmarked(line: str) -> str:
    return line.lstrip("".join(_QUOTED) + " ") if line.startswith(_QUOTED) else line


def _without_headers(lines: list[str]) -> tuple[str, ...]:
    """Removes what mail programs write above a quote; other words there are the writer's."""
    kept: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        span = _attribution(lines, at) if line else 0
        if span:
            at += span
        elif line and _header_block(lines, at):
            while at < len(lines) and lines[at]:
                named = _header_name(lines[at]) in FROM | HEADERS
                # Addresses of many recipients go on in the next line.
                if not named and "@" not in lines[at]:
                    kept.append(lines[at])
                at += 1
        else:
            cut = not line.startswith(MARK) and bool(line) and _cuts(lines, at)
            if line and not cut:
                kept.append(line)
            at += 1
            while cut and at < len(lines) and _header_name(lines[at]) in FROM | HEADERS:
                at += 1
    return tuple(kept)


def _attribution(lines: list[str], at: int) -> int:
    """Counts the lines from `at` that say whose words follow; 0 for none."""
    # Gmail breaks the line right before the last bracket, which then looks like a mark of a quote.
    if lines[at + 1 : at + 2] == [">:"] and len(lines[at]) < LONGEST and _says_who(f"{lines[at]}>:"):
        return 2
    for span in range(1, _SPAN + 1):
        if not _goes_on(lines, at, span):
            return 0
        if _says_who(" ".join(lines[at : at + span])):
            opened = f"{lines[at]} ".casefold().startswith(_OPENERS)
            # Where fewer lines say it by themselves, those above them are the person's own words.
            alone = opened or not any(_says_who(" ".join(lines[at + n : at + span])) for n in range(1, span))
            return span if alone else 0
    return 0


def _goes_on(lines: list[str], at: int, span: int) -> bool:
    last = at + span - 1
    if last >= len(lines):
        return False
    line = lines[last]
    # The first line of several has a date or an address: what is written right above it has neither.
    return bool(line) and len(line) < LONGEST and not line.startswith(_QUOTED) and (span > 1 or _is_dated(line))


def _says_who(text: str) -> bool:
    if not text.endswith((":", "：")) or not _is_dated(text):
        return False
    folded = text.casefold()
    # For clients in languages that `WROTE` lacks: they too write an address, and four digits are a date or a time.
    addressed = "@" in text and "<" in text and sum(map(str.isdigit, text)) >= 4
    return addressed or any(phrase in folded for phrase in WROTE)


def _is_dated(line: str) -> bool:
    return "@" in line or any(map(str.isdigit, line))


def _quote_follows(lines: list[str], at: int) -> bool:
    following = next((line for line in lines[at : at + _SPAN] if line), "")
    return following.startswith(_QUOTED)


def _cuts(lines: list[str], at: int) -> bool:
    """Returns whether all from here on is quoted, in a way that marks no single line."""
    line = lines[at]
    if line.startswith((MARK, CUT)):
        return True
    if line.startswith(("--", "__", "==", "**", "——")) and len(line) < LONGEST:
        inner = line.strip("-_=*— ").casefold()
        # Zoho's and Android's own way: `---- On Sun, 22 Nov 2026, Approvals wrote ----`.
        return inner in ORIGINAL or (line.endswith("--") and any(inner.endswith(phrase) for phrase in WROTE))
    return _header_block(lines, at) or (len(line) < LONGEST and line.casefold() in ORIGINAL)


def _header_name(line: str) -> str:
    # A wide colon is what Chinese and Japanese clients write; stars are left of bold type made plain.
    name, colon, _ = line[:60].replace("：", ":").replace("*", "").partition(":")
    return name.strip().casefold() if colon else ""


def _header_block(lines: list[str], at: int) -> bool:
    """Returns whether a quoted header begins here, as Outlook writes one: the sender's line, and two more."""
    first = _header_name(lines[at])
    if first not in FROM and first not in HEADERS:
        return False
    names = [_header_name(line) for line in lines[at : at + 8]]
    return any(name in FROM for name in names) and sum(name in HEADERS for name in names) >= 2


def _unflow(lines: Sequence[str]) -> Iterator[str]:
    """Lines of `format=flowed` (RFC 3676) joined where the writer did not end them."""
    pieces: list[str] = []
    for line in lines:
        # A signature begins with `-- `, whose blank joins nothing (RFC 3676, 4.3).
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
    """Removes invisible characters from `line`, and writes blanks as one space."""
    if line == CUT:
        return line
    if line.startswith(SIGNED):
        rest = _clean(line.removeprefix(SIGNED))
        return SIGNED + rest if rest else ""
    if not line.isascii():
        # Characters of no width would make another word of `approve` that looks the same.
        line = "".join(char for char in line if unicodedata.category(char) != "Cf")
    return " ".join(line.split())


def _trim(lines: list[str]) -> list[str]:
    """Removes blank lines at either end, and rules at the end."""
    start, end = 0, len(lines)
    while start < end and not lines[start]:
        start += 1
    while end > start and (not lines[end - 1] or is_rule(lines[end - 1])):
        end -= 1
    return lines[start:end]


def _mark_signature(lines: list[str]) -> list[str]:
    """Adds a line `--` above the first one that a client marks as part of a signature."""
    first = next((at for at, line in enumerate(lines) if line.startswith(SIGNED)), len(lines))
    head = [*lines[:first], *([_DASHES] if first < len(lines) else [])]
    return [*head, *(line.removeprefix(SIGNED) for line in lines[first:])]


def _cut_lines(lines: list[str]) -> tuple[str, ...]:
    """Removes the second of two blank lines in a row, and cuts visibly where no reason is that long."""
    kept: list[str] = []
    left = _MAX_TEXT
    for at, line in enumerate(lines):
        if not line and not lines[at - 1]:
            continue
        if len(line) + 1 > left:
            kept.append(line[: left - 1] + "…")
            break
        kept.append(line)
        left -= len(line) + 1
    return tuple(kept)
