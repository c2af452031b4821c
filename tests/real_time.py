"""The only way for a test to let seconds pass, if nothing else works."""

import time


def let_pass(seconds: float, why: str) -> None:
    """Block for `seconds`. `why` names the slow operation that no condition or clock can replace.

    `tests/test_house.py` allows no other long pause in a test, and counts these."""
    assert why
    time.sleep(seconds)
