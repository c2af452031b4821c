"""Lists the values that a card does not draw in full, and proves that somebody saw them.

A card has little room. Whoever approves a call whose card is not whole has to have opened every value of that very
question before: this module makes the pages of these values, and the proof that an answer over the API sends back.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from signoff.approvals.argument_rows import ArgumentLeaf, leaf_line, leaves, suspects_of
from signoff.approvals.redaction import redact_arguments, secret_values
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.limits import ARGUMENTS_BYTES, VALUES_PER_PAGE
from signoff.formats.visible_text import NEWLINE, one_line

_ROOM: Final = 16 * ARGUMENTS_BYTES
"""More characters than arguments have, each of them as the longest mark."""
FILE_CHARS: Final = 2_000
"""From here on a text is told with its size and its hash, by which it can be compared with a file."""
SEEN_CHARS: Final = 12
"""So much of the proof people copy in a terminal, which sends all of it."""
SEEN_NEEDED: Final = "its card does not draw every value: read all of them first"


class FullValue(NamedTuple):
    """One value in full."""

    name: str
    """Its dotted name."""
    label: str
    """Its label."""
    text: str
    """Its text, with marks for whatever is invisible."""
    secret: bool = False
    """Whether it is hidden."""
    size: int = 0
    """Its bytes of UTF-8, for long texts alone."""
    sha256: str = ""
    """The sha-256 of these bytes, for long texts alone."""


def every_value(
    args: Mapping[str, Any], schema: Mapping[str, Any], secrets: Collection[str], texts: Collection[str] = ()
) -> list[FullValue]:
    """Returns every value of a call in its order, in full; of secret ones only that they exist.

    `texts` are values of secret arguments that no other value repeats, beside those of `args` themselves.
    """
    shown = redact_arguments(args, secrets, secret_values(args, secrets).union(texts))
    found = list(leaves(shown, schema, secrets))
    suspects = suspects_of(found)
    return [_value(leaf, suspects) for leaf in found]


def pages_of(values: Sequence[FullValue]) -> list[Sequence[FullValue]]:
    """Splits the values into pages of `VALUES_PER_PAGE`; one page at least."""
    return [values[at : at + VALUES_PER_PAGE] for at in range(0, len(values), VALUES_PER_PAGE)] or [()]


def seen_hash(question_hash: str, shown: Any) -> str:
    """Computes the proof that somebody got every value of a question, sent back with a yes: sha-256 in hex.

    `shown` are the arguments as they were given, with masks for what is secret.
    """
    return sha256_hex([question_hash, shown])


def _value(leaf: ArgumentLeaf, suspects: Collection[str]) -> FullValue:
    name, label = one_line(leaf.name, _ROOM).text, one_line(leaf.label, _ROOM).text
    if leaf.secret:
        return FullValue(name, label, "hidden", secret=True)
    text = leaf_line(leaf, _ROOM, suspects).text.replace(NEWLINE, f"{NEWLINE}\n")
    if not isinstance(leaf.value, str) or len(leaf.value) < FILE_CHARS:
        return FullValue(name, label, text)
    raw = leaf.value.encode(errors="surrogatepass")
    return FullValue(name, label, text, size=len(raw), sha256=hashlib.sha256(raw).hexdigest())
