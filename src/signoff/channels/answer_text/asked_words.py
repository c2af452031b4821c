"""Finds a question to the agent in a written answer.

It begins with a word such as `ask`, and a colon or the code of a request: `ask K7Q-2FM Which invoice?`.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from signoff.channels.answer_text.answer_tokens import fold, tokens

_BEGIN: Final = re.compile(r"[“”„«»\"]?(?P<word>\w{1,40})\s*(?P<colon>[:\uff1a]?)\s*(?P<rest>.*)")


class WrittenQuestion(NamedTuple):
    """A question to the agent."""

    code: str
    """The code of its request, or ""."""
    lines: tuple[str, ...]
    """The question without its word and code, from the first line."""
    clear: bool
    """Whether it has words, and names no other open request."""

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip()


def find_question(lines: Sequence[str], words: Collection[str], codes: Collection[str] = ()) -> WrittenQuestion | None:
    """`words` are folded. `codes` are as for `find_code`."""
    written = [line.strip() for line in lines]
    first = next(filter(None, written), "")
    begun = _begin(first, words, codes)
    if begun is None:
        return None
    code, rest = begun
    lines = (rest, *written[written.index(first) + 1 :])
    others = {each.text for line in lines for each in tokens(line, codes) if each.text in codes}
    clear = any(map(str.isalnum, "".join(lines))) and bool(code or not others)
    return WrittenQuestion(code, lines, clear)


def _begin(line: str, words: Collection[str], codes: Collection[str]) -> tuple[str, str] | None:
    found = _BEGIN.match(line)
    if found is None or fold(found["word"]) not in words:
        return None
    code, rest = _cut_code(found["rest"], codes)
    return (code, rest) if code or found["colon"] else None


def _cut_code(line: str, codes: Collection[str]) -> tuple[str, str]:
    chunk, _, rest = line.partition(" ")
    found = [each.text for each in tokens(chunk, codes) if each.kind == "code"]
    return (found[0], rest.lstrip(" :\uff1a")) if len(found) == 1 else ("", line)
