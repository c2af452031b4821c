"""How a tool's own check of its input corrects what a model wrote (V13)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Corrected:
    """Arguments to use in place of those given; `why` is a sentence for people and the model.

    They are checked again, once, and then judged, shown, bound and run as if they had been proposed. Say it only of
    what is surely meant: the same arguments must always be corrected to the same ones.
    """

    args: Mapping[str, Any]
    why: str = ""
