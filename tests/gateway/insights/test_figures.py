from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tables import table

from signoff.contracts.responses import DayFigures, DecisionRate, InsightWarning, Share, WaitingCard
from signoff.gateway.insights.figures import (
    FAST_LEAST,
    channel_shares,
    day_figures,
    decision_rates,
    find_warnings,
    first_moment,
    rule_name,
    same_time_before,
    seconds_to_decide,
    total_of,
    waiting_figures,
)
from signoff.store.history.past_counts import PastCount

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def past(count: int = 1, **fields: Any) -> PastCount:
    given = {
        "tool": "pay", "rule": "", "state": "approved", "person": "", "channel": "inbox", "seconds": 60, **fields,
    }  # fmt: skip
    return PastCount(**given, requests=count)


def card(age: timedelta, left: timedelta = 48 * HOUR, *approvers: str) -> WaitingCard:
    return WaitingCard(id=f"{age}", code="K7Q2FM", approvers=approvers, opened_at=NOW - age, expires_at=NOW + left)


def test_waiting_requests_are_counted_by_age_deadline_and_approver() -> None:
    cards = [
        card(HOUR / 2, HOUR, "role:finance"),
        card(HOUR, 24 * HOUR, "role:finance", "user:ana"),
        card(3 * HOUR, 25 * HOUR, "user:bo"),
        card(30 * HOUR),
    ]
    found = waiting_figures(cards, NOW, limit=9, persons=None)
    assert (found.count, found.more, found.expiring, found.oldest) == (4, False, 2, 30 * 3_600)
    assert [(each.name, each.count) for each in found.by_age] == [("1h", 2), ("4h", 1), ("1d", 0), ("more", 1)]
    assert found.by_approver == (
        Share(name="role:finance", count=2), Share(name="user:ana", count=1), Share(name="user:bo", count=1),
    )  # fmt: skip


def test_other_people_are_not_named_among_approvers() -> None:
    cards = [card(HOUR, HOUR, "role:finance", "user:ana", "user:bo")]
    found = waiting_figures(cards, NOW, limit=9, persons={"bo"})
    assert {each.name for each in found.by_approver} == {"role:finance", "user:bo"}


def test_waiting_requests_beyond_the_limit_are_not_counted() -> None:
    found = waiting_figures([card(HOUR), card(2 * HOUR), card(3 * HOUR)], NOW, limit=2, persons=None)
    assert (found.count, found.more, found.oldest) == (2, True, 7_200)
    empty = waiting_figures([], NOW, limit=2, persons=None)
    assert (empty.count, empty.more, empty.oldest) == (0, False, None)


def test_rates_list_the_most_frequent_names_first() -> None:
    counts = [
        past(3), past(1, state="denied"), past(2, state="timed_out"), past(9, tool="gift"),
        past(5, tool="void", state="cancelled"),
    ]  # fmt: skip
    assert decision_rates(counts, lambda each: each.tool) == (
        DecisionRate(name="gift", approved=9, denied=0, unanswered=0),
        DecisionRate(name="pay", approved=3, denied=1, unanswered=2),
    )
    assert decision_rates(counts, lambda each: each.person) == ()


@table(
    ("rule", "name"),
    ("", ""),
    ("requires_approval", "pay: requires_approval"),
    ("global:night", "global:night"),
)
def test_policy_rules_are_named_with_their_tool(rule: str, name: str) -> None:
    assert rule_name(past(rule=rule)) == name


def test_channels_count_decisions_of_people_alone() -> None:
    counts = [past(2), past(1, state="denied", channel="slack"), past(5, state="timed_out"), past(4, channel="")]
    assert channel_shares(counts) == (Share(name="inbox", count=2), Share(name="slack", count=1))
    assert total_of(counts, "approved", "denied") == 7


@table(
    ("percent", "seconds"),
    (50, 10.0),
    (95, 300.0),
    (100, 300.0),
)
def test_percentiles_are_the_times_of_decisions(percent: int, seconds: float) -> None:
    counts = [
        past(9, seconds=10), past(3, seconds=60, state="denied"), past(2, seconds=300),
        past(90, seconds=1, state="timed_out"), past(90, seconds=None),
    ]  # fmt: skip
    assert seconds_to_decide(counts, percent) == seconds


def test_percentile_without_decisions_is_unknown() -> None:
    assert seconds_to_decide([past(3, state="timed_out")], 50) is None


def test_quick_approvals_of_a_tool_and_a_person_are_warned_of() -> None:
    counts = [past(198, seconds=3, person="ana"), past(2, seconds=4, person="bo"), past(90, seconds=900, tool="gift")]
    assert find_warnings(counts) == (
        InsightWarning(kind="fast", tool="pay", percent=99, count=200, seconds=3),
        InsightWarning(kind="fast", person="ana", percent=100, count=198, seconds=3),
    )


@table(
    "counts",
    [past(FAST_LEAST - 1, seconds=1)],
    [past(89, seconds=1), past(11, seconds=9)],
    [past(89, seconds=1), past(11, seconds=1, state="denied")],
    [past(200, seconds=None)],
    [past(4, state="timed_out")],
    [past(5, state="timed_out"), past(46)],
)
def test_few_quick_or_unanswered_requests_are_no_warning(counts: list[PastCount]) -> None:
    assert find_warnings(counts) == ()


def test_unanswered_requests_of_a_tool_are_warned_of() -> None:
    (found,) = find_warnings([past(5, state="timed_out"), past(45)])
    assert found == InsightWarning(kind="unanswered", tool="pay", percent=10, count=50)


@table(
    ("zone", "first"),
    ("UTC", datetime(2026, 3, 24, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 3, 23, 23, tzinfo=UTC)),
    ("Asia/Kathmandu", datetime(2026, 3, 24, 18, 15, tzinfo=UTC)),
    ("America/St_Johns", datetime(2026, 3, 24, 2, 30, tzinfo=UTC)),
)
def test_span_starts_at_midnight_of_the_readers_zone(zone: str, first: datetime) -> None:
    assert first_moment(datetime(2026, 3, 30, 20, tzinfo=UTC), 7, ZoneInfo(zone)) == first


def test_requests_are_counted_by_day_of_the_readers_zone() -> None:
    berlin, late = ZoneInfo("Europe/Berlin"), datetime(2026, 3, 28, 23, tzinfo=UTC)
    since = datetime(2026, 3, 27, 23, tzinfo=UTC)
    slices = {
        "approved": {since - HOUR: 9, since: 1, late - HOUR / 4: 2, late: 3, late + 22.75 * HOUR: 4},
        "timed_out": {late + 23 * HOUR: 5},
    }
    assert day_figures(slices, since, 3, berlin) == (
        DayFigures(day=date(2026, 3, 28), approved=3),
        DayFigures(day=date(2026, 3, 29), approved=7),
        DayFigures(day=date(2026, 3, 30), unanswered=5),
    )
    # The newest requests alone were counted, of one state from the second day on.
    edges = (late - HOUR, late + HOUR)
    assert [each.day.day for each in day_figures(slices, since, 3, berlin, edges)] == [29, 30]


def test_same_time_before_has_the_same_time_of_day_in_the_readers_zone() -> None:
    moment = datetime(2026, 4, 10, 12, tzinfo=UTC)
    assert same_time_before(moment, 30, ZoneInfo("Europe/Berlin")) == datetime(2026, 3, 11, 13, tzinfo=UTC)
    assert same_time_before(moment, 30, UTC) == moment - timedelta(days=30)
