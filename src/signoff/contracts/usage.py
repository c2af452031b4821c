"""Limits on a tool's uses, one use of a limited tool, and the message about an exhausted limit."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

from pydantic import Field

Per: TypeAlias = Literal["user", "session", "tenant"]

PERS: Final[tuple[Per, ...]] = ("user", "session", "tenant")
LONGEST: Final = 366 * 86_400.0
_OF: Final = {"user": "for this user", "session": "in this session", "tenant": "in this tenant"}
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True)
class UsageLimit:
    """At most `count` uses for one user, session or tenant within any period."""

    count: Annotated[int, Field(ge=1, description="How many uses.")]
    per: Annotated[Per, Field(description="The scope of the count.")]
    period: Annotated[float, Field(description="Within any span of this length, in seconds.")]

    @property
    def problem(self) -> str:
        """Return the mistake in this limit as a sentence, or ""."""
        # `True` is an int to Python, and nothing else checks a declaration in code.
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            return "`count` must be a whole number from 1 on"
        if self.per not in PERS:
            return "`per` must be `user`, `session` or `tenant`"
        if isinstance(self.period, bool) or not isinstance(self.period, int | float):
            return "`period` must be a number of seconds"
        return "" if 0 < self.period <= LONGEST else "`period` must be more than 0 and at most 366 days"

    @property
    def content(self) -> dict[str, object]:
        """The content that hashes cover."""
        period = int(self.period) if self.period == int(self.period) else self.period
        return {"count": self.count, "per": self.per, "period": period}


class LimitedUse(NamedTuple):
    """One use of a limited tool."""

    limit: UsageLimit
    tenant: str
    tool: str
    """The tool's activity, or the first of several with one count. For a registry tool, its name."""
    person: str
    session: str
    turn: str
    call: str


def exhausted_message(name: str, limit: UsageLimit, again: datetime) -> str:
    """`again` is the time of the next use."""
    times = "once" if limit.count == 1 else f"{limit.count} times"
    # Round up: at that second a use must be available.
    at = (again + timedelta(seconds=1)).replace(microsecond=0) if again.microsecond else again
    within = f"{_OF[limit.per]} within {_duration(limit.period)}"
    return (
        f"Tool {name} was used {times} {within}, which is all it may be; it is possible again at {at:%Y-%m-%d %H:%M:%S}"
        " UTC. Do without it until then"
    )


def _duration(seconds: float) -> str:
    left, words = math.ceil(seconds), []
    for size, unit in _UNITS:
        amount, left = divmod(left, size)
        if amount:
            words.append(f"{amount}{unit}")
    return "".join(words)
