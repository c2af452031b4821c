"""Builds and parses ids. No id below the turn is random, so that a reset turn computes the same ids."""

import hashlib
import re
import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final, NamedTuple

from pydantic import StringConstraints

# Use `\Z`: in Python's `re`, `$` permits a final newline. Without `/` and `.`, joined ids can be separated again.
ID_PATTERN: Final = r"^[A-Za-z0-9_-]{1,48}\Z"
TOOL_NAME_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}\Z"
_CALL = re.compile(r"^c([1-9][0-9]{0,5})\.([1-9][0-9]{0,5})\Z")
# Higher than any call of a completion (CALLS_KEPT_PER_COMPLETION); with MAX_FALLBACKS still within `_CALL`.
_STAND_IN: Final = 1_000
# No I, L, O and U, which readers could mistake for digits.
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS: Final = (1, 3)
# In byte order, so that the text sorts like its number.
_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_UUID_CHARS: Final = 22
_MILLISECONDS: Final = (1 << 48) - 1
_EVENT_HEX: Final = 40
_EVENT_SESSION: Final = re.compile(rf"event-[0-9a-f]{{{_EVENT_HEX}}}")

# Pydantic uses Rust's patterns, which lack `\Z` and where `$` is the very end.
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,48}$")]


class TurnKey(NamedTuple):
    """The ids of one turn. Each part matches `ID_PATTERN`."""

    tenant: str
    session: str
    turn: str

    @property
    def workflow_id(self) -> str:
        """`turn/<tenant>/<session>/<turn>`."""
        return f"turn/{self.tenant}/{self.session}/{self.turn}"


class SessionKey(NamedTuple):
    """The ids of one session. Each part matches `ID_PATTERN`."""

    tenant: str
    session: str

    @property
    def workflow_id(self) -> str:
        """`session/<tenant>/<session>`."""
        return f"session/{self.tenant}/{self.session}"


class ApprovalKey(NamedTuple):
    """The turn and call of one approval."""

    turn: TurnKey
    call: str

    @property
    def id(self) -> str:
        """`<tenant>.<session>.<turn>.<call>`."""
        return ".".join((*self.turn, self.call))


def event_workflow_id(store: str, delivery: str) -> str:
    """Return the id of the workflow that delivers an event to a handler."""
    # Each store numbers its deliveries from the start: without its id, two deliveries would share a workflow.
    return f"event/{store}/{delivery}"


def subscription_turn(tenant: str, subscription: str, event: str) -> TurnKey:
    """Return the turn that an event starts for a subscription: the same at every delivery, alone in its session."""
    named = hashlib.sha256("\n".join((tenant, subscription, event)).encode()).hexdigest()[:_EVENT_HEX]
    return TurnKey(tenant, f"event-{named}", named)


def is_subscription_session(session: str) -> bool:
    """The gateway gives no other turn a session of this form."""
    return _EVENT_SESSION.fullmatch(session) is not None


def is_id(text: str) -> bool:
    """Return whether `text` may name a tenant, session, turn, person or actor."""
    return re.match(ID_PATTERN, text) is not None


def is_tool_name(text: str) -> bool:
    return re.match(TOOL_NAME_PATTERN, text) is not None


def call_id(completion: int, index: int) -> str:
    """Return `c<completion>.<index>`, both from 1. It is also the activity id."""
    return f"c{completion}.{index}"


def is_call(text: str) -> bool:
    return _CALL.match(text) is not None


def completion_of(call: str) -> int:
    """Return `completion` of `c<completion>.<index>`, 0 for anything else."""
    return int(call[1:].partition(".")[0]) if _CALL.match(call) else 0


def stand_in_id(call: str, number: int) -> str:
    """Return the id of fallback `number`, from 1: `c1.1002` for `c1.2`. A completion's own calls never reach that
    index.
    """
    completion, _, index = call.partition(".")
    return f"{completion}.{int(index) + number * _STAND_IN}"


def is_stand_in(call: str) -> bool:
    index = call.partition(".")[2]
    return index.isdecimal() and int(index) > _STAND_IN


def call_of_stand_in(call: str) -> str:
    """Return the original call's id. Any other id is returned unchanged."""
    completion, _, index = call.partition(".")
    return f"{completion}.{int(index) % _STAND_IN}" if is_stand_in(call) else call


def parse_workflow_id(workflow_id: str) -> TurnKey | None:
    parts = workflow_id.split("/")
    if len(parts) != 4 or parts[0] != "turn" or not all(is_id(part) for part in parts[1:]):
        return None
    return TurnKey(*parts[1:])


def parse_session_workflow_id(workflow_id: str) -> SessionKey | None:
    parts = workflow_id.split("/")
    if len(parts) != 3 or parts[0] != "session" or not all(is_id(part) for part in parts[1:]):
        return None
    return SessionKey(*parts[1:])


def parse_approval_id(approval_id: str) -> ApprovalKey | None:
    parts = approval_id.split(".")
    if len(parts) != 5 or not all(is_id(part) for part in parts[:3]):
        return None
    call = ".".join(parts[3:])
    return ApprovalKey(TurnKey(*parts[:3]), call) if _CALL.match(call) else None


def new_code(below: Callable[[int], int]) -> str:
    """Return six Crockford base32 characters, with digits in places 2 and 4: no word of a language has digits there, so
    none is a code. `below(n)` returns a random number from 0 to n-1.
    """
    return "".join(_CROCKFORD[below(10 if place in _DIGITS else 32)] for place in range(6))


def show_code(code: str) -> str:
    """Return `K7Q2FM` in readable form: `K7Q-2FM`."""
    return f"{code[:3]}-{code[3:]}"


def read_code(text: str) -> str | None:
    """Parse a typed code in any case, with or without the hyphen, O/I/L read as 0/1/1. `None` if it is invalid."""
    code = text.strip().upper().replace("-", "").replace("O", "0").replace("I", "1").replace("L", "1")
    return code if len(code) == 6 and all(map(_fits, range(6), code)) else None


def uuid7(now: datetime) -> str:
    """Return a version 7 UUID (RFC 9562) as 22 sortable characters in base 62.

    The usual 36 characters would appear sixteen times in a history.
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
    """`<tenant>.<session>`."""
    return ".".join(key)


def turn_name(key: TurnKey) -> str:
    """`<tenant>.<session>.<turn>`."""
    return ".".join(key)
