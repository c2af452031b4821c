"""Parses Authentication-Results (RFC 8601).

An attacker can write such a field, also in our mail server's name. Only the position identifies our server's fields:
next to the `Received` that it adds on top of each mail.
"""

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from signoff.channels.mail.header import MailHeader, without_comments

_MAX_LENGTH: Final = 16 * 1024
_BY: Final = re.compile(r"(?:^|\s)by\s+([a-z0-9][a-z0-9._:-]{0,252})(?=[\s;]|$)")
_TRACE: Final = ("authentication-results", "received-spf", "dkim-filter", "dmarc-filter", "arc-", "x-")
"""Prefixes of the fields that servers write below their `Received`, together with their results."""


@dataclass(frozen=True)
class MethodResult:
    """The result of one method, all in lower case."""

    method: str
    value: str
    properties: dict[str, str]
    """Properties such as `header.from`."""


@dataclass(frozen=True)
class AuthenticationResults:
    """One field. `authserv_id` is its true author only if our own server removes such fields by others."""

    authserv_id: str
    results: tuple[MethodResult, ...]


@dataclass(frozen=True)
class ResultsServer:
    """Our mail server: the name in its results, and in its `Received`, if different.

    A `*` in either matches any letters within one label, since a provider has many servers.
    """

    name: str
    received_by: str = ""

    def results(self, header: MailHeader) -> tuple[MethodResult, ...] | None:
        """Return all results of our own server. None if the mail has none of its `Received`.

        Only our server can have written the fields above its topmost `Received`, and between several of its `Received`.
        Most servers write their results directly below (Postfix with milters, rspamd, Gmail). A field in its name that
        arrived with the mail may follow there: our server must remove it (RFC 8601, section 5).
        """
        own, name = _pattern(self.received_by or self.name), _pattern(self.name)
        received = [(at, value.lower()) for at, (field, value) in enumerate(header.fields) if field == "received"]
        hops = [(at, _by(value, own)) for at, value in received]
        first = next((number for number, (_, by) in enumerate(hops) if by is None or own.fullmatch(by)), None)
        # An unclear `Received` may be ours. If it were skipped, a forged one in the mail could count.
        if first is None or hops[first][1] is None:
            return None
        # A server that passes mail to itself, such as to its own LMTP, writes several in a row.
        run = takewhile(lambda hop: hop[1] is not None and own.fullmatch(hop[1]), hops[first:])
        end = max(at for at, _ in run) + 1
        while end < len(header.fields) and header.fields[end][0].startswith(_TRACE):
            end += 1
        values = (value for field, value in header.fields[:end] if field == "authentication-results")
        fields = [field for field in map(parse_results, values) if name.fullmatch(field.authserv_id)]
        # A field may state that nothing was checked (`none`): another verdict is then not our server's.
        has_results = all(field.results for field in fields)
        return tuple(result for field in fields for result in field.results) if has_results else ()


def _pattern(name: str) -> re.Pattern[str]:
    # Exclude dots: `*.example.com` must not match names that an attacker creates below a server's own.
    return re.compile("[^.]*".join(map(re.escape, name.lower().split("*"))))


def _by(received: str, own: re.Pattern[str]) -> str | None:
    """Return the receiving host in a `Received` in lower case, "" if it names none, None if it is unclear.

    The field also has the greeting name of the sending client, which an attacker can choose.
    """
    plain = without_comments(received) if len(received) <= _MAX_LENGTH else ""
    found = _BY.search(plain)
    words = plain.split().count("by")
    if found is not None and words == 1:
        return found[1]
    return None if words > 1 or not plain.strip() or own.search(received) else ""


def parse_results(value: str) -> AuthenticationResults:
    """Parse an unfolded field. Text against the grammar yields no result, never an error."""
    # A field that is too long or unbalanced gets no name. `results` requires our name, so the field proves nothing.
    first, *rest = _parts(value) if len(value) <= _MAX_LENGTH else [[]]
    results = tuple(result for part in rest if (result := _result(part)) is not None)
    # Exchange Online writes no name and begins with its first result: such a field has no author.
    return AuthenticationResults(first[0] if first and "=" not in first else "", results)


def _result(part: list[str]) -> MethodResult | None:
    if len(part) < 3 or part[1] != "=":
        return None
    # RFC 8601 allows a version after the method, as in `dkim/1`.
    method = part[0].partition("/")[0].strip()
    properties: dict[str, str] = {}
    rest = part[3:]
    for at in range(0, len(rest) - 2, 3):
        name, equals, value = rest[at : at + 3]
        # Parsers could take either of two values. Keep the result, but not as `pass`: without it, a `fail` could be
        # missed.
        if equals != "=" or name in properties:
            return MethodResult(method, "", {})
        properties[name] = value
    return MethodResult(method, part[2], properties)


def _parts(value: str) -> list[list[str]]:
    """Split a field at semicolons into words and `=`, without comments.

    A quoted string is one word. Returns one empty part if quotes or parentheses do not balance.
    """
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
            # A `;` does not split here: `smtp.mailfrom` repeats an address that an attacker chooses. Its local part
            # may be a quoted string with `; dmarc=pass header.from=...` in it.
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
