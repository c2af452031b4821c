"""Finds the nearest names, for messages about an unknown name."""

import difflib
from collections.abc import Iterable

_CUTOFF = 0.7
SHOWN_CHARS = 64
KEYS_LISTED = "`signoff manifest schema --help` lists the keys"


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Returns the known names that are near, the nearest first: two at most."""
    folded = {candidate.casefold(): candidate for candidate in sorted(known)}
    # Cut first: a model may send a name of any length, which difflib compares with each known one in quadratic time.
    near = difflib.get_close_matches(name[:SHOWN_CHARS].casefold(), folded, n=2, cutoff=_CUTOFF)
    return [folded[match] for match in near]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean `x`?` (or `x` or `y`), or nothing when no known name is near."""
    near = nearest_names(name, known)
    return f"; did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""


def cut_text(text: str, chars: int) -> str:
    """Returns `text`, of which no more than `chars` characters are told, and that it is cut."""
    return text if len(text) <= chars else f"{text[:chars]}..."


def quote_name(name: str, chars: int = SHOWN_CHARS) -> str:
    """Returns a name somebody else chose, in backticks, cut to what a message can carry."""
    # A backtick or a line end would let a name leave its quotes and speak as if it were our own message.
    printable = "".join(char if char.isprintable() and char != "`" else "?" for char in name[:chars])
    return f"`{printable}`" if len(name) <= chars else f"`{printable}...`"
