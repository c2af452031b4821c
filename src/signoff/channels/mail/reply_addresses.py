"""Makes and reads addresses and message ids that name a delivery and prove their origin:
`approvals+<token>.<proof>@domain`.

They say which card is answered, never who answers: whoever forwards a mail gives them away.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

# 16 letters of base32 without padding. With 14 of the mailbox's name, `+`, 32 of the token and a dot that fills the 64
# octets that RFC 5321 gives a local part.
_PROOF_BYTES: Final = 10
_SEPARATOR: Final = "+"
_QUESTION: Final = "question"


class ReplyAddresses:
    """Makes and reads reply addresses. All are in lower case, and a local part has at most 64 octets."""

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
        """Returns the address itself, which names no delivery."""
        return self._bare

    @property
    def domain(self) -> str:
        """Returns the domain of all of them."""
        return self._domain

    def address(self, token: str) -> str:
        """Makes the address for answers about a delivery."""
        return f"{self._local}{_SEPARATOR}{self._compute_proof(token)}@{self._domain}"

    def message_id(self, token: str, what: str = "") -> str:
        """Makes the id of a mail about a delivery: of its card, or of `what` (letters, digits and dots) follows it."""
        return f"<{self._compute_proof(token)}{'.' if what else ''}{what}@{self._domain}>"

    def question_id(self, name: str) -> str:
        """Makes the id of a mail that answers one about no delivery."""
        return self.message_id(name, _QUESTION)

    def is_question(self, message_id: str) -> bool:
        """Returns whether `question_id` made an id."""
        return message_id.endswith(self._question) and bool(self._read(self._id, (message_id,)))

    def is_ours(self, address: str) -> bool:
        """Returns whether mail to it is for us, whether or not it names a delivery."""
        local, _, domain = address.lower().rpartition("@")
        return domain == self._domain and local.partition(_SEPARATOR)[0] == self._local

    def tokens(self, addresses: Iterable[str]) -> tuple[str, ...]:
        """Returns the deliveries that addresses name, each once."""
        return self._read(self._address, (address.lower() for address in addresses))

    def tokens_of_ids(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Returns the deliveries that message ids name, each once, in their order."""
        return self._read(self._id, (each for each in ids if not each.endswith(self._question)))

    def _read(self, pattern: re.Pattern[str], texts: Iterable[str]) -> tuple[str, ...]:
        found = (match[1] for text in texts if (match := pattern.fullmatch(text)) is not None)
        tokens = ((named.partition(".")[0], named) for named in found)
        good = (token for token, named in tokens if hmac.compare_digest(self._compute_proof(token), named))
        return tuple(dict.fromkeys(good))

    def _compute_proof(self, token: str) -> str:
        # Base32 in lower case, since some senders change the case of a local part, which base64 does not survive.
        proof = hmac.digest(self._secret, f"reply/{token}".encode(), hashlib.sha256)[:_PROOF_BYTES]
        return f"{token}.{base64.b32encode(proof).decode('ascii').lower()}"
