"""Plans who is told of a request, on which channel, and when. Sends nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.person import ContactPreferences, Person
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.registry.manifest.channel_sections import RoutingRules

SPARE: Final = timedelta(minutes=1)
"""What somebody needs at least to answer: a rest that ends later than this before the deadline is not waited for."""


class PlannedCard(NamedTuple):
    """One card to come."""

    person: Person
    """For whom."""
    channel: str
    """On which channel."""
    address: str
    """At which address."""
    rank: int
    """Its place among the person's channels."""
    due_at: datetime
    """From when on, in UTC."""


@dataclass(frozen=True)
class RoutePlan:
    """The cards of a request."""

    cards: tuple[PlannedCard, ...]
    """What is to be sent, in order."""
    unreached: tuple[Person, ...]
    """People whom no channel reaches: they find the request in the inbox only."""


def find_asked(request: ApprovalRequest, people: Directory, now: datetime) -> tuple[Person, ...]:
    """Returns everybody who may answer `request` now, for themselves or for somebody else, in order of the
    directory.
    """
    spec = approver_spec_of(request)
    return tuple(
        person for person in people.all(request.tenant) if not resolve_eligibility(person, people, spec, now).code
    )


def plan(
    request: ApprovalRequest,
    people: Iterable[Person],
    identities: Mapping[str, str],
    rules: RoutingRules,
    now: datetime,
) -> RoutePlan:
    """Plans how `people` are told of `request`. `identities` gives for each channel the kind of identity it reaches.

    The first channel at once, or when the person's rest ends; each next one only if the one before was not read within
    `rules.fallback_after`. With `rules.all` they are told on all of them at once.
    """
    cards: list[PlannedCard] = []
    unreached: list[Person] = []
    for person in people:
        found = [
            (name, person.identities[identities[name]][0])
            for name in _in_order(request.notify, person.reach)
            if name in identities and person.identities.get(identities[name])
        ]
        if not found:
            unreached.append(person)
            continue
        begins = due(person.reach, now, request.expires_at)
        for rank, (name, address) in enumerate(found):
            at = begins if rules.all else begins + rank * timedelta(seconds=rules.fallback_after)
            cards.append(PlannedCard(person, name, address, rank, at))
    return RoutePlan(tuple(cards), tuple(unreached))


def due(reach: ContactPreferences | None, now: datetime, deadline: datetime | None) -> datetime:
    """Returns when somebody may be told: now, or as their quiet hours end, unless that would be too late to answer."""
    if reach is None:
        return now
    ends = rest_ends(reach, now)
    if ends is None or (deadline is not None and ends + SPARE > deadline):
        return now
    return ends


def rest_ends(reach: ContactPreferences, now: datetime) -> datetime | None:
    """Returns the end of the quiet hours that `now` (UTC) falls in, in UTC; None outside of them.

    A rest is from `quiet_from` to `quiet_to` on the wall clock of the person's zone, over midnight where the second is
    the earlier one. The whole of each of `quiet_days` is one too. Rests that touch are one.
    """
    zone = ZoneInfo(reach.timezone)
    moment = now
    # Each round leaves one rest; a week of nothing but rest is no rest at all, or nobody were ever told.
    for _ in range(2 * _WEEK):
        ends = _rest_at(reach, moment.astimezone(zone))
        if ends is None:
            return None if moment == now else moment
        moment = ends.astimezone(now.tzinfo)
    return None


_WEEK: Final = 7
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _rest_at(reach: ContactPreferences, local: datetime) -> datetime | None:
    if _DAYS[local.weekday()] in reach.quiet_days:
        return _at(local, time(0), 1)
    if not reach.quiet_from or not reach.quiet_to:
        return None
    begins, ends = time.fromisoformat(reach.quiet_from), time.fromisoformat(reach.quiet_to)
    clock = local.time()
    # Two equal times are no rest at all, and not one from day to day that never ends.
    if begins <= ends:
        return _at(local, ends, 0) if begins <= clock < ends else None
    if clock >= begins:
        return _at(local, ends, 1)
    return _at(local, ends, 0) if clock < ends else None


def _at(local: datetime, clock: time, days: int) -> datetime:
    """Returns a time on the wall clock of that zone: on the night when clocks change, it is the clock that counts."""
    return datetime.combine(local.date() + timedelta(days=days), clock, tzinfo=local.tzinfo)


def _in_order(notify: Sequence[str], reach: ContactPreferences | None) -> tuple[str, ...]:
    """Returns the channels of a request, in the order of the person where they have one; only those of both."""
    if reach is None or not reach.channels:
        return tuple(dict.fromkeys(notify))
    return tuple(name for name in dict.fromkeys(reach.channels) if name in notify)
