"""Parses Authentication-Results (RFC 8601): whether DMARC passed, and by which SPF identity.

Anybody can write such a field, in our mail server's name too. Ours are told from those by where they stand: next to the
`Received` that our server adds on top of whatever it is brought.
"""

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from signoff.channels.mail.header import MailHeader, without_comments

_MAX_LENGTH: Final = 16 * 1024
_BY: Final = re.compile(r"(?:^|\s)by\s+([a-z0-9][a-z0-9._:-]{0,252})(?=[\s;]|$)")
_TRACE: Final = ("authentication-results", "received-spf", "dkim-filter", "dmarc-filter", "arc-", "x-")
"""How the names of fields begin that servers write below their `Received`, among their results."""


@dataclass(frozen=True)
class MethodResult:
    """The result of one method, all in lower case."""

    method: str
    """The method, such as `dmarc`."""
    value: str
    """Its result, such as `pass`."""
    properties: dict[str, str]
    """Its properties, such as `header.from`."""


@dataclass(frozen=True)
class AuthenticationResults:
    """One field. Who wrote it is whom `authserv_id` names only if our own server takes such fields of others out."""

    authserv_id: str
    results: tuple[MethodResult, ...]


@dataclass(frozen=True)
class ResultsServer:
    """Our mail server: as whom it signs its results, and as whom it names itself in `Received`, if otherwise.

    A `*` in either stands for any letters of one name, since a provider has many servers.
    """

    name: str
    received_by: str = ""

    def results(self, header: MailHeader) -> tuple[MethodResult, ...] | None:
        """Returns all results of our own server; None where none of its `Received` is found.

        Above its topmost `Received`, and between several of its own, nobody before it can have written anything.
        Directly below, most servers write theirs (Postfix with milters, rspamd, Gmail): there a field of its name that
        came with the mail may follow, which it has to take out (RFC 8601, section 5).
        """
        own, name = _pattern(self.received_by or self.name), _pattern(self.name)
        received = [(at, value.lower()) for at, (field, value) in enumerate(header.fields) if field == "received"]
        hops = [(at, _by(value, own)) for at, value in received]
        first = next((number for number, (_, by) in enumerate(hops) if by is None or own.fullmatch(by)), None)
        # Of one that is not clear it is open whether it is ours: passed over, one that came with the mail would count.
        if first is None or hops[first][1] is None:
            return None
        # A server that hands on to itself, as to its own LMTP, writes several in a row.
        run = takewhile(lambda hop: hop[1] is not None and own.fullmatch(hop[1]), hops[first:])
        end = max(at for at, _ in run) + 1
        while end < len(header.fields) and header.fields[end][0].startswith(_TRACE):
            end += 1
        values = (value for field, value in header.fields[:end] if field == "authentication-results")
        fields = [field for field in map(parse_results, values) if name.fullmatch(field.authserv_id)]
        # A field may say that nothing was looked at (`none`): a verdict beside it is then not our server's.
        has_results = all(field.results for field in fields)
        return tuple(result for field in fields for result in field.results) if has_results else ()


def _pattern(name: str) -> re.Pattern[str]:
    # No dots: `*.example.com` must not stand for names that somebody makes up below a server's own.
    return re.compile("[^.]*".join(map(re.escape, name.lower().split("*"))))


def _by(received: str, own: re.Pattern[str]) -> str | None:
    """Returns the host that a `Received` in lower case names as receiver; "" where it names none, None if it is not
    clear.

    The name by which whoever brought the mail greeted stands in it, and is a stranger's to choose.
    """
    plain = without_comments(received) if len(received) <= _MAX_LENGTH else ""
    found = _BY.search(plain)
    words = plain.split().count("by")
    if found is not None and words == 1:
        return found[1]
    return None if words > 1 or not plain.strip() or own.search(received) else ""


def parse_results(value: str) -> AuthenticationResults:
    """Parses an unfolded field. What does not follow the grammar yields no result, never an error."""
    # A field that is too long or does not balance gets no name, and `_by_results` asks for ours: it vouches for nobody.
    first, *rest = _parts(value) if len(value) <= _MAX_LENGTH else [[]]
    results = tuple(result for part in rest if (result := _result(part)) is not None)
    # Exchange Online writes no name, and begins with its first result: that is nobody's field.
    return AuthenticationResults(first[0] if first and "=" not in first else "", results)


def _result(part: list[str]) -> MethodResult | None:
    if len(part) < 3 or part[1] != "=":
        return None
    # RFC 8601 lets a version follow the method, as in `dkim/1`.
    method = part[0].partition("/")[0].strip()
    properties: dict[str, str] = {}
    rest = part[3:]
    for at in range(0, len(rest) - 2, 3):
        name, equals, value = rest[at : at + 3]
        # Of two values readers could take either. It stays a result, and no `pass`: left out, a `fail` would be missed.
        if equals != "=" or name in properties:
            return MethodResult(method, "", {})
        properties[name] = value
    return MethodResult(method, part[2], properties)


def _parts(value: str) -> list[list[str]]:
    """Splits a field into words and `=` between semicolons, without comments; quoted strings are one word. None if it
    does not balance.
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
