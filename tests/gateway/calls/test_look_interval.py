"""Tickets are looked at soon where one call is awaited, and seldom where many are or one takes long."""

from contextlib import suppress

from signoff.gateway.load_limits import LookInterval


def test_one_call_is_looked_at_soon_and_less_often_the_longer_it_takes() -> None:
    looks = LookInterval()
    with looks.awaiting():
        assert [looks.seconds(each) for each in (0, 0.03, 0.08, 8)] == [0.004, 0.004, 0.01, 1.0]


def test_many_calls_are_looked_at_as_often_together_as_one() -> None:
    looks = LookInterval()
    with looks.awaiting():
        with looks.awaiting():
            assert looks.seconds(0) == 0.008
        with suppress(ValueError), looks.awaiting():
            raise ValueError
        assert looks.seconds(0) == 0.004
