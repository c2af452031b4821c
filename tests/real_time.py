"""The one way in which a test lets seconds pass, for what nothing else can bring about."""

import time


def let_pass(seconds: float, why: str) -> None:
    """Blocks for `seconds`; `why` says what takes that long and neither a condition nor a clock can replace.

    `tests/test_house.py` allows no other long pause in a test, and counts these.
    """
    assert why
    time.sleep(seconds)
