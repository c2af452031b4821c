"""Authentication-Results (RFC 8601), as far as they say whether DMARC passed, and by which SPF identity."""

from dataclasses import dataclass
from typing import Final

_MAX_LENGTH: Final = 16 * 1024


@dataclass(frozen=True)
class Result:
    """One method's, such as `dmarc`, its word, such as `pass`, and its properties, such as `header.from`.

    All in lower case.
    """

    method: str
    value: str
    properties: dict[str, str]


@dataclass(frozen=True)
class Results:
    """One field. Who wrote it is whom `authserv_id` names only if our own server takes such fields of others out."""

    authserv_id: str
    results: tuple[Result, ...]

    def of(self, method: str) -> list[Result]:
        """All of one method."""
        return [result for result in self.results if result.method == method]


def parse_results(value: str) -> Results:
    """Read an unfolded field. What does not follow the grammar yields no result, never an error."""
    # A field that is too long or does not balance gets no name, and `_by_results` asks for ours: it vouches for nobody.
    first, *rest = _parts(value) if len(value) <= _MAX_LENGTH else [[]]
    results = tuple(result for part in rest if (result := _result(part)) is not None)
    return Results(first[0] if first else "", results)


def _result(part: list[str]) -> Result | None:
    if len(part) < 3 or part[1] != "=":
        return None
    # RFC 8601 lets a version follow the method, as in `dkim/1`.
    method = part[0].partition("/")[0].strip()
    properties: dict[str, str] = {}
    at = 3
    while at + 2 < len(part):
        name, equals, value = part[at : at + 3]
        if equals != "=":
            return None
        # Of two values readers could take either: none is taken.
        if name in properties:
            return None
        properties[name] = value
        at += 3
    return Result(method, part[2], properties)


def _parts(value: str) -> list[list[str]]:
    """Words and `=` between semicolons, without comments; quoted strings are one word. None if it does not balance."""
    parts: list[list[str]] = [[]]
    word: list[str] = []
    depth, at = 0, 0
    quoted = False

    def end_word() -> None:
        if word:
            parts[-1].append("".join(word).lower())
            word.clear()

    while at < len(value):
        char = value[at]
        at += 1
        if char == "\\" and (quoted or depth):
            if quoted:
                word.append(value[at : at + 1])
            at += 1
        elif quoted:
            # A `;` parts nothing here: `smtp.mailfrom` repeats an address of a stranger's choice, whose local part may
            # be a quoted string with `; dmarc=pass header.from=...` in it.
            quoted = char != '"'
            if quoted:
                word.append(char)
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth < 0:
                return [[]]
            end_word()
        elif depth:
            continue
        elif char == '"':
            quoted = True
        elif char in "; \t=":
            end_word()
            if char == "=":
                parts[-1].append("=")
            elif char == ";":
                parts.append([])
        else:
            word.append(char)
    end_word()
    return parts if not (depth or quoted) else [[]]
