"""Limits on what one tenant may take of an installation, so that a noisy one starves no other."""

import re
from collections.abc import Mapping
from typing import Final

from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.ids import is_id
from signoff.formats.replace import replace

MOST: Final = 100_000
"""The highest number that a limit may have: what is counted is looked at each time."""
PERIODS: Final[Mapping[str, int]] = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_NAMES: Final = ("starts", "waiting", "deliveries")
_OFF: Final = "off"
_NUMBER: Final = re.compile(r"[0-9]{1,9}\Z", re.ASCII)
_EXAMPLE: Final = "starts=100/minute, waiting=2000, deliveries=600/minute; acme: starts=500/minute, waiting=off"


class RateLimit(FrozenModel):
    """At most `count` within any span of a period."""

    count: int
    """How many."""
    period: str
    """The span's name in `PERIODS`."""

    @property
    def milliseconds(self) -> int:
        """Returns the length of the span."""
        return PERIODS[self.period] * 1000


class TenantLimit(FrozenModel):
    """The limits of one tenant; None is none."""

    starts: RateLimit | None = None
    """Turns begun: starts, messages and late results."""
    waiting: int | None = None
    """Requests that wait for people at the same time."""
    deliveries: RateLimit | None = None
    """Tries to send cards, and tries to send events, each by itself."""


class TenantLimits(FrozenModel):
    """The limits of every tenant."""

    each: TenantLimit = TenantLimit()
    """Those of a tenant that has none of its own."""
    own: Mapping[str, TenantLimit] = {}
    """Those of tenants that have some of their own, with `each` for what they leave out."""

    @property
    def limit_deliveries(self) -> bool:
        """Whether deliveries of any tenant are limited."""
        return any(each.deliveries is not None for each in (self.each, *self.own.values()))

    def of(self, tenant: str) -> TenantLimit:
        """Returns the limits of a tenant."""
        return self.own.get(tenant, self.each)


NO_LIMITS: Final = TenantLimits()


def parse_tenant_limits(text: str) -> TenantLimits:
    """Parses `starts=100/minute, waiting=2000; acme: waiting=off`: limits of each tenant, then those of some by name.

    Without words there are none. Raises `ValueError`, one sentence with an example of what may stand there.
    """
    each, own = TenantLimit(), dict[str, TenantLimit]()
    for place, part in enumerate(text.split(";") if text.strip() else ()):
        tenant, named, words = part.rpartition(":")
        if not named and place == 0:
            each = _limit_of(words, each)
            continue
        tenant = tenant.strip()
        if not is_id(tenant):
            raise _problem(f"`{part.strip()}` names no tenant")
        if tenant in own:
            raise _problem(f"the tenant `{tenant}` stands there twice")
        own[tenant] = _limit_of(words, each)
    return TenantLimits(each=each, own=own)


def _limit_of(words: str, base: TenantLimit) -> TenantLimit:
    found: dict[str, RateLimit | int | None] = {}
    for word in words.split(","):
        name, _, value = (each.strip() for each in word.partition("="))
        if name not in _NAMES:
            raise _problem(f"`{word.strip()}` is no limit")
        if name in found:
            raise _problem(f"`{name}` stands there twice")
        found[name] = None if value == _OFF else _count(value) if name == "waiting" else _rate(value)
    return replace(base, **found)


def _rate(value: str) -> RateLimit:
    count, _, period = (each.strip() for each in value.partition("/"))
    if period not in PERIODS:
        raise _problem(f"`{value}` is not so many a {', '.join(PERIODS)}")
    return RateLimit(count=_count(count), period=period)


def _count(value: str) -> int:
    if _NUMBER.match(value) is None or not 1 <= int(value) <= MOST:
        raise _problem(f"`{value}` is no number from 1 to {MOST}")
    return int(value)


def _problem(what: str) -> ValueError:
    return ValueError(f"{what}; write limits as in `{_EXAMPLE}`")
