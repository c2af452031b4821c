"""A flood of refusals is counted, and only some of it is written down."""

from datetime import UTC, datetime, timedelta

from signoff.audit.rate_limit import RecordRateLimit
from signoff.contracts.limits import REFUSALS_A_MINUTE

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_some_in_each_minute_are_written_down_and_the_next_tells_of_the_rest() -> None:
    sparing = RecordRateLimit()
    assert [sparing.admit(NOON + timedelta(seconds=at)) for at in range(REFUSALS_A_MINUTE)] == [0] * REFUSALS_A_MINUTE
    assert [sparing.admit(NOON + timedelta(seconds=59)) for _ in range(7)] == [None] * 7
    assert [sparing.admit(NOON + timedelta(seconds=60)) for _ in range(2)] == [7, 0]
