"""Lists the values that a card does not show in full, and proves that a person saw them.

A card has little room. To approve a call with an incomplete card, a person must first have opened every value of that
question. This module builds the pages of these values, and the proof that a decision over the API sends back.
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
"""More characters than arguments can have, even if each becomes the longest mark."""
FILE_CHARS: Final = 2_000
"""Texts of at least this length have their size and hash, to compare with a file."""
SEEN_CHARS: Final = 12
"""The length of the part of the proof that people copy. The terminal sends all of it."""
SEEN_NEEDED: Final = "its card does not draw every value: read all of them first"


class FullValue(NamedTuple):
    """One value in full."""

    name: str
    """Its dotted name."""
    label: str
    """Its label."""
    text: str
    """Its text, with marks for invisible characters."""
    secret: bool = False
    """Whether it is masked."""
    size: int = 0
    """Its size in bytes of UTF-8, only for long texts."""
    sha256: str = ""
    """The SHA-256 of these bytes, only for long texts."""


def every_value(
    args: Mapping[str, Any], schema: Mapping[str, Any], secrets: Collection[str], texts: Collection[str] = ()
) -> list[FullValue]:
    """Return all values of a call in order, in full.

    Secret values are masked.

    `texts` are values of secret arguments of other calls. No value repeats these or the secret values in `args`.
    """
    shown = redact_arguments(args, secrets, secret_values(args, secrets).union(texts))
    leaves_shown = list(leaves(shown, schema, secrets))
    suspects = suspects_of(leaves_shown)
    return [_value(leaf, suspects) for leaf in leaves_shown]


def pages_of(values: Sequence[FullValue]) -> list[Sequence[FullValue]]:
    """Split the values into pages of `VALUES_PER_PAGE`. There is at least one page."""
    return [values[at : at + VALUES_PER_PAGE] for at in range(0, len(values), VALUES_PER_PAGE)] or [()]


def seen_hash(question_hash: str, shown: Any) -> str:
    """Return the proof that a person received every value of a question, as SHA-256 in hex.

    It is sent back with an approval. `shown` are the arguments as given, with masks for secret values.
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
