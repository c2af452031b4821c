"""Explains errors in JSON. The reader imports this only for an error: a hook starts before each call of an agent."""

import json
from typing import Final

from signoff.contracts.content import Remark, Words

DEEP: Final = Remark.of("deep")
LARGE_NUMBER: Final = Remark.of("large_number")
_SYNTAX: Final = {
    "expecting value": Remark.of("json.value"),
    "expecting property name enclosed in double quotes": Remark.of("json.name"),
    "expecting ',' delimiter": Remark.of("json.delimiter", mark=","),
    "expecting ':' delimiter": Remark.of("json.delimiter", mark=":"),
    "extra data": Remark.of("json.extra"),
    "unterminated string starting at": Remark.of("json.string"),
    "invalid control character at": Remark.of("json.control"),
    "illegal trailing comma before end of object": Remark.of("json.comma"),
}
"""Maps the messages of Python's parser."""


def syntax_error(error: json.JSONDecodeError) -> Remark:
    """Return a remark on a syntax error, in the parser's own words if they are unknown."""
    message = error.msg.lower()
    what: Words = _SYNTAX.get(message, message)
    return Remark.of("json", detail=what, line=str(error.lineno))


def double_name(name: str) -> Remark:
    """Return the remark that an object has a name twice. `name` has its quotes."""
    return Remark.of("double_name", name=name)


def constant_number(name: str) -> Remark:
    """Return the remark that a constant, such as `NaN`, is not a JSON number."""
    return Remark.of("constant_number", name=name)
