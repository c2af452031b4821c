from datetime import UTC, datetime, timedelta

from signoff.contracts.clock import system_clock


def test_the_time_is_the_same_wherever_a_process_runs() -> None:
    found = system_clock()
    assert found.tzinfo is UTC
    assert abs(found - datetime.now(UTC)) < timedelta(seconds=30)
