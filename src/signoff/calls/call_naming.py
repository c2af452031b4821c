"""Prefixes a refusal of a call with the agent's own id of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from signoff.contracts.errors import BadRequest, Conflict, Refused
from signoff.formats.nearest_name import quote_name

_CHARS: Final = 200
_CONFLICT: Final = 409
_VERDICTS: Final = frozenset({"denied", "lapsed", "stale", "frozen", "ended"})
"""The agent's model reads these messages as the verdict on its call, and has never seen the id."""


@contextmanager
def naming(field: str, own_id: str | None) -> Iterator[None]:
    """Prefix the conflicts of a call with the agent's own id of it. `field` is the agent's name for the id."""
    try:
        yield
    except Refused as error:
        is_conflict = isinstance(error, Conflict) or (isinstance(error, BadRequest) and error.status == _CONFLICT)
        if own_id and is_conflict and error.code not in _VERDICTS:
            error.message = f"{field} {quote_name(own_id, _CHARS)}: {error.message}"
        raise
