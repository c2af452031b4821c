"""Finds the nearest names, for messages about an unknown name."""

import difflib
from collections.abc import Iterable

_CUTOFF = 0.7
SHOWN_CHARS = 64
KEYS_LISTED = "`signoff manifest schema --help` lists the keys"


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to two names, the nearest first."""
    folded = {candidate.casefold(): candidate for candidate in sorted(known)}
    # Cut first: difflib takes quadratic time, and a model may send a name of any length.
    near = difflib.get_close_matches(name[:SHOWN_CHARS].casefold(), folded, n=2, cutoff=_CUTOFF)
    return [folded[match] for match in near]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean `x`?` (or `x` or `y`), or "" if no known name is near."""
    near = nearest_names(name, known)
    return f"; did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""


def cut_text(text: str, chars: int) -> str:
    """Mark the text if it was cut."""
    return text if len(text) <= chars else f"{text[:chars]}..."


def quote_name(name: str, chars: int = SHOWN_CHARS) -> str:
    """Put an external name in backticks, cut for messages."""
    # With a backtick or a line end, a name could leave its quotes and pass for our own message.
    printable = "".join(char if char.isprintable() and char != "`" else "?" for char in name[:chars])
    return f"`{printable}`" if len(name) <= chars else f"`{printable}...`"
