"""How many examples the costliest properties are tried on."""

import os

THOROUGH = "SIGNOFF_THOROUGH"
"""Set to 1, every property is tried on all of its examples; else the costliest on half of them."""


def examples(count: int) -> int:
    """The examples of a property that is worth `count` of them where time is no matter."""
    return count if os.environ.get(THOROUGH) == "1" else count // 2
