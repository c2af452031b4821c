import time


def let_pass(seconds: float, why: str) -> None:
    """`why` names the slow operation that no condition or clock can replace. `tests/test_house.py` allows no other long
    pause in a test, and counts these.
    """
    assert why
    time.sleep(seconds)
