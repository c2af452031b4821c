from datetime import UTC, datetime, timedelta

from signoff.audit.rate_limit import RecordRateLimit
from signoff.contracts.limits import REFUSALS_A_MINUTE

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_few_refusals_per_minute_are_recorded_and_the_rest_counted() -> None:
    sparing = RecordRateLimit()
    assert [sparing.admit(NOON + timedelta(seconds=at)) for at in range(REFUSALS_A_MINUTE)] == [0] * REFUSALS_A_MINUTE
    assert [sparing.admit(NOON + timedelta(seconds=59)) for _ in range(7)] == [None] * 7
    assert [sparing.admit(NOON + timedelta(seconds=60)) for _ in range(2)] == [7, 0]
