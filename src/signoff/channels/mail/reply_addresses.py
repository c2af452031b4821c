"""Creates and parses addresses and message ids that name a delivery and prove their origin.

An address is `approvals+<token>.<proof>@domain`. It identifies the card, never the author: forwarding an email reveals
it.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

# 16 letters of base32 without padding. With 14 letters of the mailbox's name, `+`, 32 of the token and a dot, that is
# RFC 5321's limit of 64 octets for a local part.
_PROOF_BYTES: Final = 10
_SEPARATOR: Final = "+"
_QUESTION: Final = "question"


class ReplyAddresses:
    """All addresses are in lower case, and a local part has at most 64 octets."""

    def __init__(self, answered_at: str, secret: bytes) -> None:
        self._bare = answered_at
        self._local, _, self._domain = answered_at.partition("@")
        self._secret = secret
        self._question = f".{_QUESTION}@{self._domain}>"
        named = r"([a-z0-9]{1,32}\.[a-z2-7]{16})"
        self._address = re.compile(rf"{re.escape(self._local + _SEPARATOR)}{named}@{re.escape(self._domain)}")
        self._id = re.compile(rf"<{named}(?:\.[a-z0-9.]{{1,60}})?@{re.escape(self._domain)}>")

    @property
    def bare(self) -> str:
        """The address without a token, which names no delivery."""
        return self._bare

    @property
    def domain(self) -> str:
        return self._domain

    def address(self, token: str) -> str:
        return f"{self._local}{_SEPARATOR}{self._compute_proof(token)}@{self._domain}"

    def message_id(self, token: str, what: str = "") -> str:
        """Return the id of an email about a delivery: its card, or a later email `what` (letters, digits and dots)."""
        return f"<{self._compute_proof(token)}{'.' if what else ''}{what}@{self._domain}>"

    def question_id(self, name: str) -> str:
        """Return the id of a reply to an email about no delivery."""
        return self.message_id(name, _QUESTION)

    def is_question(self, message_id: str) -> bool:
        return message_id.endswith(self._question) and bool(self._read(self._id, (message_id,)))

    def is_ours(self, address: str) -> bool:
        """Return whether email to an address is for Signoff, with or without a delivery's token."""
        local, _, domain = address.lower().rpartition("@")
        return domain == self._domain and local.partition(_SEPARATOR)[0] == self._local

    def tokens(self, addresses: Iterable[str]) -> tuple[str, ...]:
        """Return the tokens of the named deliveries, each once."""
        return self._read(self._address, (address.lower() for address in addresses))

    def tokens_of_ids(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return the tokens of the named deliveries, each once, in order."""
        return self._read(self._id, (each for each in ids if not each.endswith(self._question)))

    def _read(self, pattern: re.Pattern[str], texts: Iterable[str]) -> tuple[str, ...]:
        names = (match[1] for text in texts if (match := pattern.fullmatch(text)) is not None)
        tokens = ((named.partition(".")[0], named) for named in names)
        good = (token for token, named in tokens if hmac.compare_digest(self._compute_proof(token), named))
        return tuple(dict.fromkeys(good))

    def _compute_proof(self, token: str) -> str:
        # Use base32 in lower case: some senders change the case of a local part, which would break base64.
        proof = hmac.digest(self._secret, f"reply/{token}".encode(), hashlib.sha256)[:_PROOF_BYTES]
        return f"{token}.{base64.b32encode(proof).decode('ascii').lower()}"
