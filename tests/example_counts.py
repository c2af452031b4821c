import os

THOROUGH = "SIGNOFF_THOROUGH"
"""Set to 1, every property is tested with all of its examples. Otherwise the costliest use half of them."""


def examples(count: int) -> int:
    return count if os.environ.get(THOROUGH) == "1" else count // 2
