"""Says what is wrong with JSON. The reader loads this when something is: a hook starts before each call of an agent."""

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
"""The words of Python's reader."""


def syntax_error(error: json.JSONDecodeError) -> Remark:
    """Says what Python's reader did not understand; in its own words where it has new ones."""
    message = error.msg.lower()
    what: Words = _SYNTAX.get(message, message)
    return Remark.of("json", what=what, line=str(error.lineno))


def double_name(name: str) -> Remark:
    """Says that a name, which is given in its quotes, comes twice in one object."""
    return Remark.of("double_name", name=name)


def constant_number(name: str) -> Remark:
    """Says that something is no JSON number, such as `NaN`."""
    return Remark.of("constant_number", name=name)
