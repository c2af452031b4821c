"""Limits on one tenant's use of an installation.

A noisy tenant cannot starve others.
"""

import re
from collections.abc import Mapping
from typing import Final

from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.ids import is_id
from signoff.formats.replace import replace

MOST: Final = 100_000
"""The maximum of a limit, because everything counted is read each time."""
PERIODS: Final[Mapping[str, int]] = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_NAMES: Final = ("starts", "waiting", "deliveries")
_OFF: Final = "off"
_NUMBER: Final = re.compile(r"[0-9]{1,9}\Z", re.ASCII)
_EXAMPLE: Final = "starts=100/minute, waiting=2000, deliveries=600/minute; acme: starts=500/minute, waiting=off"


class RateLimit(FrozenModel):
    """At most `count` within any time span of one period."""

    count: int
    period: str
    """The period's name in `PERIODS`."""

    @property
    def milliseconds(self) -> int:
        return PERIODS[self.period] * 1000


class TenantLimit(FrozenModel):
    """The limits of one tenant. `None` means no limit."""

    starts: RateLimit | None = None
    """Turns started by starts, messages and late results."""
    waiting: int | None = None
    """Requests that wait for approvers at the same time."""
    deliveries: RateLimit | None = None
    """Attempts to send cards, and attempts to send events, counted separately."""


class TenantLimits(FrozenModel):
    """The limits of all tenants."""

    each: TenantLimit = TenantLimit()
    """The limits of tenants without their own."""
    own: Mapping[str, TenantLimit] = {}
    """The limits of tenants with their own. Missing ones are taken from `each`."""

    @property
    def limit_deliveries(self) -> bool:
        return any(each.deliveries is not None for each in (self.each, *self.own.values()))

    def of(self, tenant: str) -> TenantLimit:
        return self.own.get(tenant, self.each)


NO_LIMITS: Final = TenantLimits()


def parse_tenant_limits(text: str) -> TenantLimits:
    """Parse limits of all tenants, then of single tenants: `starts=100/minute, waiting=2000; acme: waiting=off`.

    An empty text means no limits. Raises `ValueError` with an example.
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
    limits: dict[str, RateLimit | int | None] = {}
    for word in words.split(","):
        name, _, value = (each.strip() for each in word.partition("="))
        if name not in _NAMES:
            raise _problem(f"`{word.strip()}` is no limit")
        if name in limits:
            raise _problem(f"`{name}` stands there twice")
        limits[name] = None if value == _OFF else _count(value) if name == "waiting" else _rate(value)
    return replace(base, **limits)


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
