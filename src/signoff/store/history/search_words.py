"""Makes the search words of past requests, the same for both databases.

They are the words of a request's text, and one mark for each reader, tool, person and so on. Rights and filters are
therefore part of every search, like the words of its text.
"""

import re
import unicodedata
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

WORD_CHARS: Final = 40
"""Characters of a word that count."""
MAX_WORDS: Final = 1_000
"""Words of one text that are kept."""
MARK_SIGN: Final = "\N{SECTION SIGN}"
"""No word begins like a mark: only letters and digits are words."""
_MARK_BYTES: Final = 16
# Chinese and Japanese put no spaces between words: each of these characters counts as a word.
_ALONE: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD: Final = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]+")
MarkKind: TypeAlias = Literal[
    "reader", "asker", "kind", "tool", "actor", "person", "state", "channel", "answer", "tenant", "month", "value"
]


def words_of(text: str) -> tuple[str, ...]:
    """Return the different words of a text, in order, without case and accents."""
    plain = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    found = dict.fromkeys(each[:WORD_CHARS] for each in _WORD.findall(plain.casefold()))
    return tuple(found)[:MAX_WORDS]


def mark(tenant: str, kind: MarkKind, *values: str) -> str:
    """Return the word of a property. Marks of different tenants differ."""
    named = "\0".join((tenant, kind, *values))
    return MARK_SIGN + blake2b(named.encode(), digest_size=_MARK_BYTES).hexdigest()


def marks(tenant: str, kind: MarkKind, values: Iterable[str]) -> frozenset[str]:
    return frozenset(mark(tenant, kind, each) for each in values)
