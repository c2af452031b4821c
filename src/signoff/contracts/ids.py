"""Makes and parses ids. None below the turn is random, so that a reset turn computes the same ones again."""

import hashlib
import re
import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final, NamedTuple

from pydantic import StringConstraints

# `\Z`, as in Python's `re` a `$` lets a final newline pass. Without `/` and `.` ids that are joined come apart again.
ID_PATTERN: Final = r"^[A-Za-z0-9_-]{1,48}\Z"
TOOL_NAME_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}\Z"
_CALL = re.compile(r"^c([1-9][0-9]{0,5})\.([1-9][0-9]{0,5})\Z")
# Above all calls that a completion may keep (CALLS_KEPT_PER_COMPLETION); with MAX_FALLBACKS still within `_CALL`.
_STAND_IN: Final = 1_000
# No I, L, O and U: what people read aloud or type is not mistaken for a digit.
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS: Final = (1, 3)
# In the order of their bytes, so that what is written in them sorts as its number.
_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_UUID_CHARS: Final = 22
_MILLISECONDS: Final = (1 << 48) - 1
_EVENT_HEX: Final = 40
_EVENT_SESSION: Final = re.compile(rf"event-[0-9a-f]{{{_EVENT_HEX}}}")

# Pydantic's patterns are Rust's, which know no `\Z` and where `$` is the very end.
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,48}$")]


class TurnKey(NamedTuple):
    """Names one turn. Each part matches `ID_PATTERN`."""

    tenant: str
    session: str
    turn: str

    @property
    def workflow_id(self) -> str:
        """Returns `turn/<tenant>/<session>/<turn>`."""
        return f"turn/{self.tenant}/{self.session}/{self.turn}"


class SessionKey(NamedTuple):
    """Names one session. Each part matches `ID_PATTERN`."""

    tenant: str
    session: str

    @property
    def workflow_id(self) -> str:
        """Returns `session/<tenant>/<session>`."""
        return f"session/{self.tenant}/{self.session}"


class ApprovalKey(NamedTuple):
    """Names one approval by its turn and its call."""

    turn: TurnKey
    call: str

    @property
    def id(self) -> str:
        """Returns `<tenant>.<session>.<turn>.<call>`."""
        return ".".join((*self.turn, self.call))


def event_workflow_id(store: str, delivery: str) -> str:
    """Returns the id of the workflow in which a handler is given an event: one for each that is owed by a store."""
    # Numbers begin anew with each store: what one was given would be taken for what another is owed.
    return f"event/{store}/{delivery}"


def subscription_turn(tenant: str, subscription: str, event: str) -> TurnKey:
    """Return the turn that an event starts for a subscription: the same at every delivery, alone in its session."""
    named = hashlib.sha256("\n".join((tenant, subscription, event)).encode()).hexdigest()[:_EVENT_HEX]
    return TurnKey(tenant, f"event-{named}", named)


def is_subscription_session(session: str) -> bool:
    """Return whether a session has the form of `subscription_turn`. The gateway gives no other turn such a session."""
    return _EVENT_SESSION.fullmatch(session) is not None


def is_id(text: str) -> bool:
    """Returns whether `text` may name a tenant, session, turn, person or actor."""
    return re.match(ID_PATTERN, text) is not None


def is_tool_name(text: str) -> bool:
    """Returns whether `text` may name a tool."""
    return re.match(TOOL_NAME_PATTERN, text) is not None


def call_id(completion: int, index: int) -> str:
    """Makes `c<completion>.<index>`, both from 1; it is also the activity id."""
    return f"c{completion}.{index}"


def is_call(text: str) -> bool:
    """Returns whether `text` is a call's id."""
    return _CALL.match(text) is not None


def completion_of(call: str) -> int:
    """Returns the completion that proposed call `c<completion>.<index>`, from 1; 0 for anything else."""
    return int(call[1:].partition(".")[0]) if _CALL.match(call) else 0


def stand_in_id(call: str, number: int) -> str:
    """Makes the id of the tool that is tried as number `number`, from 1, in place of call `call`: `c1.2`, then
    `c1.1002`.

    A completion's own calls never reach that far.
    """
    completion, _, index = call.partition(".")
    return f"{completion}.{int(index) + number * _STAND_IN}"


def is_stand_in(call: str) -> bool:
    """Returns whether a call's id is one that `stand_in_id` makes."""
    index = call.partition(".")[2]
    return index.isdecimal() and int(index) > _STAND_IN


def call_of_stand_in(call: str) -> str:
    """Returns the id of the call in whose place a stand-in's id is tried; any other call's own."""
    completion, _, index = call.partition(".")
    return f"{completion}.{int(index) % _STAND_IN}" if is_stand_in(call) else call


def parse_workflow_id(workflow_id: str) -> TurnKey | None:
    """Parses a workflow id to the turn it names, or None when it names no turn."""
    parts = workflow_id.split("/")
    if len(parts) != 4 or parts[0] != "turn" or not all(is_id(part) for part in parts[1:]):
        return None
    return TurnKey(*parts[1:])


def parse_session_workflow_id(workflow_id: str) -> SessionKey | None:
    """Parses a workflow id to the session it names, or None when it names no session."""
    parts = workflow_id.split("/")
    if len(parts) != 3 or parts[0] != "session" or not all(is_id(part) for part in parts[1:]):
        return None
    return SessionKey(*parts[1:])


def parse_approval_id(approval_id: str) -> ApprovalKey | None:
    """Parses an approval id to turn and call, or None when it is malformed."""
    parts = approval_id.split(".")
    if len(parts) != 5 or not all(is_id(part) for part in parts[:3]):
        return None
    call = ".".join(parts[3:])
    return ApprovalKey(TurnKey(*parts[:3]), call) if _CALL.match(call) else None


def new_code(below: Callable[[int], int]) -> str:
    """Makes a short code for people to read and type: six Crockford base32 characters, digits in places 2 and 4.

    `below(n)` gives a random number from 0 to n-1. No word of a language has digits there, so none is a code.
    """
    return "".join(_CROCKFORD[below(10 if place in _DIGITS else 32)] for place in range(6))


def show_code(code: str) -> str:
    """Writes `K7Q2FM` for people: `K7Q-2FM`."""
    return f"{code[:3]}-{code[3:]}"


def read_code(text: str) -> str | None:
    """Parses a typed code in any case, with or without the hyphen, O/I/L read as 0/1/1; None if it is not one."""
    code = text.strip().upper().replace("-", "").replace("O", "0").replace("I", "1").replace("L", "1")
    return code if len(code) == 6 and all(map(_fits, range(6), code)) else None


def uuid7(now: datetime) -> str:
    """Makes a version 7 UUID (RFC 9562) of the millisecond `now`, as 22 characters in base 62, which sort by time.

    Its 36 usual characters would stand in a history sixteen times, and a turn has two ids made of them.
    """
    number = (int(now.timestamp() * 1000) & _MILLISECONDS) << 80 | secrets.randbits(80)
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    digits = []
    for _ in range(_UUID_CHARS):
        number, digit = divmod(number, len(_BASE62))
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))


def _fits(place: int, char: str) -> bool:
    return char in (_CROCKFORD[:10] if place in _DIGITS else _CROCKFORD)


def session_name(key: SessionKey) -> str:
    """Says how addresses name a session: `<tenant>.<session>`."""
    return ".".join(key)


def turn_name(key: TurnKey) -> str:
    """Says how addresses name a turn: `<tenant>.<session>.<turn>`."""
    return ".".join(key)
