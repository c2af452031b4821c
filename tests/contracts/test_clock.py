"""The clock that every process is given."""

from datetime import UTC, datetime, timedelta

from signoff.contracts.clock import system_clock


def test_the_time_is_the_same_wherever_a_process_runs() -> None:
    """In UTC, and says so."""
    told = system_clock()
    assert told.tzinfo is UTC
    assert abs(told - datetime.now(UTC)) < timedelta(seconds=30)
