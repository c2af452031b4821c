"""Computes figures about requests. Pure."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

from signoff.contracts.responses import DayFigures, DecisionRate, InsightWarning, Share, WaitingCard, WaitingFigures
from signoff.store.history.past_counts import PastCount

SOON: Final = timedelta(hours=24)
FAST_SECONDS: Final = 3
"""Too short to read a card."""
FAST_PERCENT: Final = 90
FAST_LEAST: Final = 50
UNANSWERED_PERCENT: Final = 10
UNANSWERED_LEAST: Final = 5
LISTED_NAMES: Final = 50
_AGES: Final = (("1h", 3_600.0), ("4h", 14_400.0), ("1d", 86_400.0), ("more", math.inf))
_DECIDED: Final = ("approved", "denied")
_NAMED: Final = "global:"


def waiting_figures(
    cards: Sequence[WaitingCard], now: datetime, *, limit: int, persons: Collection[str] | None
) -> WaitingFigures:
    """`cards` are at most `limit` and one more. Among approvers, names `persons` alone, or all with `None`."""
    counted = cards[:limit]
    ages = [max(0.0, (now - card.opened_at).total_seconds()) for card in counted if card.opened_at is not None]
    entries = Counter(entry for card in counted for entry in set(card.approvers) if _is_shown(entry, persons))
    return WaitingFigures(
        count=len(counted),
        more=len(cards) > limit,
        expiring=sum(card.expires_at is not None and card.expires_at - now <= SOON for card in counted),
        oldest=max(ages, default=None),
        by_age=tuple(Share(name=name, count=count) for name, count in _count_ages(ages)),
        by_approver=_shares(entries),
    )


def _count_ages(ages: Sequence[float]) -> Iterator[tuple[str, int]]:
    least = -math.inf
    for name, most in _AGES:
        yield name, sum(least < age <= most for age in ages)
        least = most


def _is_shown(entry: str, persons: Collection[str] | None) -> bool:
    kind, _, name = entry.partition(":")
    return kind != "user" or persons is None or name in persons


def first_moment(now: datetime, days: int, zone: tzinfo) -> datetime:
    """Return the start of the first of `days` days, today included, in UTC."""
    first = now.astimezone(zone).date() - timedelta(days=days - 1)
    return datetime.combine(first, time(), zone).astimezone(UTC)


def same_time_before(moment: datetime, days: int, zone: tzinfo) -> datetime:
    """The clock of `zone` shows the same time, `days` earlier."""
    return (moment.astimezone(zone) - timedelta(days=days)).astimezone(UTC)


def day_figures(
    slices: Mapping[str, Mapping[datetime, int]],
    since: datetime,
    days: int,
    zone: tzinfo,
    edges: Collection[datetime] = (),
) -> tuple[DayFigures, ...]:
    """`slices` has the requests of each state by their slice. Leaves out days before one of `edges`."""
    first = since.astimezone(zone).date()
    from_day = max((each.astimezone(zone).date() for each in edges), default=first)
    every = [first + timedelta(days=number) for number in range(days)]
    found: dict[date, Counter[str]] = {day: Counter() for day in every if day >= from_day}
    for state, counts in slices.items():
        for start, requests in counts.items():
            day = found.get(start.astimezone(zone).date())
            if day is not None and start >= since:
                day[state] += requests
    return tuple(
        DayFigures(day=day, approved=states["approved"], denied=states["denied"], unanswered=states["timed_out"])
        for day, states in found.items()
    )


def decision_rates(counts: Iterable[PastCount], name_of: Callable[[PastCount], str]) -> tuple[DecisionRate, ...]:
    """Return a row for each name except "", the most requests first."""
    found: dict[str, Counter[str]] = {}
    for each in counts:
        if name := name_of(each):
            found.setdefault(name, Counter())[each.state] += each.requests
    rates = [
        DecisionRate(name=name, approved=states["approved"], denied=states["denied"], unanswered=states["timed_out"])
        for name, states in found.items()
    ]
    shown = [each for each in rates if each.approved + each.denied + each.unanswered]
    return tuple(
        sorted(shown, key=lambda each: (-(each.approved + each.denied + each.unanswered), each.name))[:LISTED_NAMES]
    )


def rule_name(count: PastCount) -> str:
    if not count.rule or count.rule.startswith(_NAMED):
        return count.rule
    return f"{count.tool}: {count.rule}"


def channel_shares(counts: Iterable[PastCount]) -> tuple[Share, ...]:
    found = Counter[str]()
    for each in counts:
        if each.state in _DECIDED and each.channel:
            found[each.channel] += each.requests
    return _shares(found)


def _shares(found: Counter[str]) -> tuple[Share, ...]:
    ordered = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    return tuple(Share(name=name, count=count) for name, count in ordered[:LISTED_NAMES])


def total_of(counts: Iterable[PastCount], *states: str) -> int:
    return sum(each.requests for each in counts if each.state in states)


def seconds_to_decide(counts: Iterable[PastCount], percent: int) -> float | None:
    """Return a percentile of the decisions. `None` without decisions."""
    found = Counter[int]()
    for each in counts:
        if each.state in _DECIDED and each.seconds is not None:
            found[max(0, each.seconds)] += each.requests
    rank, seen = math.ceil(found.total() * percent / 100), 0
    for seconds, count in sorted(found.items()):
        seen += count
        if seen >= rank:
            return float(seconds)
    return None


def find_warnings(counts: Sequence[PastCount]) -> tuple[InsightWarning, ...]:
    tools: dict[str, list[PastCount]] = {}
    people: dict[str, list[PastCount]] = {}
    for each in counts:
        tools.setdefault(each.tool, []).append(each)
        if each.person:
            people.setdefault(each.person, []).append(each)
    found = [
        *(_fast(own, tool=name) for name, own in sorted(tools.items())),
        *(_fast(own, person=name) for name, own in sorted(people.items())),
        *(_unanswered(name, own) for name, own in sorted(tools.items())),
    ]
    return tuple(each for each in found if each is not None)


def _fast(counts: Sequence[PastCount], *, tool: str = "", person: str = "") -> InsightWarning | None:
    decided = total_of(counts, *_DECIDED)
    fast = sum(
        each.requests
        for each in counts
        if each.state == "approved" and each.seconds is not None and each.seconds <= FAST_SECONDS
    )
    if decided < FAST_LEAST or fast * 100 < decided * FAST_PERCENT:
        return None
    percent = fast * 100 // decided
    return InsightWarning(kind="fast", tool=tool, person=person, percent=percent, count=decided, seconds=FAST_SECONDS)


def _unanswered(tool: str, counts: Sequence[PastCount]) -> InsightWarning | None:
    ended, expired = total_of(counts, *_DECIDED, "timed_out"), total_of(counts, "timed_out")
    if expired < UNANSWERED_LEAST or expired * 100 < ended * UNANSWERED_PERCENT:
        return None
    return InsightWarning(kind="unanswered", tool=tool, percent=expired * 100 // ended, count=ended)
