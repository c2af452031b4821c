"""Lists the values that a card does not show in full, and proves that a person saw them.

To approve a call with an incomplete card, a person must first have opened every value.
"""

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import chain
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
SEEN_NEEDED: Final = "the card does not show every value; read them all first"


class FullValue(NamedTuple):
    """One value in full."""

    name: str
    """Its dotted name."""
    label: str
    text: str
    """Its text, with marks for invisible characters."""
    secret: bool = False
    size: int = 0
    """Its size in bytes of UTF-8, only for long texts."""
    sha256: str = ""
    """The SHA-256 of these bytes, only for long texts."""


class ValuePages:
    """All values of a call, in order, in pages of `VALUES_PER_PAGE`.

    There is at least one page. Formats only the pages that are read: a call has up to `MAX_VALUES` values.
    """

    def __init__(self, args: Mapping[str, Any], schema: Mapping[str, Any], secrets: Collection[str]) -> None:
        """Mask the arguments named in `secrets`, also where other values repeat their texts."""
        shown = redact_arguments(args, secrets, secret_values(args, secrets))
        self._leaves = list(leaves(shown, schema, secrets))

    @property
    def total(self) -> int:
        return len(self._leaves)

    def __len__(self) -> int:
        return max(1, math.ceil(self.total / VALUES_PER_PAGE))

    def __iter__(self) -> Iterator[list[FullValue]]:
        return (self[page] for page in range(len(self)))

    def __getitem__(self, page: int) -> list[FullValue]:
        """`page` counts from 0."""
        start = page * VALUES_PER_PAGE
        return [_value(leaf, self._suspects) for leaf in self._leaves[start : start + VALUES_PER_PAGE]]

    @cached_property
    def _suspects(self) -> frozenset[str]:
        return suspects_of(self._leaves)


def every_value(args: Mapping[str, Any], schema: Mapping[str, Any], secrets: Collection[str]) -> list[FullValue]:
    return list(chain.from_iterable(ValuePages(args, schema, secrets)))


def seen_hash(question_hash: str, shown: Any) -> str:
    """Return the proof that a person received every value, as SHA-256 in hex.

    `shown` are the arguments as given, with masks for secret values.
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
