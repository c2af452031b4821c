"""Explains errors in JSON. Imported only for an error, since a hook starts before each call of an agent."""

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
    """Use the parser's own words for an unknown error."""
    message = error.msg.lower()
    what: Words = _SYNTAX.get(message, message)
    return Remark.of("json", detail=what, line=str(error.lineno))


def double_name(name: str) -> Remark:
    """`name` has its quotes."""
    return Remark.of("double_name", name=name)


def constant_number(name: str) -> Remark:
    return Remark.of("constant_number", name=name)
