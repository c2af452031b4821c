from datetime import UTC, datetime, timedelta

from signoff.contracts.clock import system_clock


def test_system_clock_is_in_utc() -> None:
    found = system_clock()
    assert found.tzinfo is UTC
    assert abs(found - datetime.now(UTC)) < timedelta(seconds=30)
