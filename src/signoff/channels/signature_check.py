"""Checks the sender of a request, in constant time and over bytes.

Without a secret, every request is forged. Raises only `Forged`, for any header: an attacker can send any.
"""

import base64
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from signoff.channels.channel_errors import Forged
from signoff.channels.envelopes import InboundRequest

REPLAY_SECONDS: Final = 300.0
"""How far a vendor's signed time may be from ours, either way. A message dated ahead could be replayed for longer."""
# `int` accepts blanks and digits of any script, and fails beyond 4,300 digits.
_MOMENT: Final = re.compile(rb"[0-9]{1,12}\Z")

Digest = Literal["sha1", "sha256"]


def hmac_hex(secret: bytes, content: bytes, digest: Digest = "sha256") -> str:
    """Return the HMAC of `content` in lower-case hexadecimal digits."""
    return hmac.digest(secret, content, digest).hex()


def hmac_base64(secret: bytes, content: bytes, digest: Digest = "sha256") -> str:
    """Return the HMAC of `content` in base64."""
    return base64.b64encode(hmac.digest(secret, content, digest)).decode()


def is_same(given: str | bytes, *right: str | bytes) -> bool:
    """Compare in constant time. Empty values never match."""
    # Compare bytes: `compare_digest` raises a `TypeError` for text beyond ASCII.
    matches = [hmac.compare_digest(_bytes(given), _bytes(each)) for each in right if each]
    return any(matches)


def check_same(given: str | bytes, *right: str | bytes) -> None:
    """Check in constant time that `given` equals one of `right`. Raises `Forged`.

    Empty values never match.
    """
    if not is_same(given, *right):
        raise Forged("it is not signed as it should be")


def check_time(stamp: str | bytes, now: datetime, seconds: float = REPLAY_SECONDS) -> None:
    """Check that `stamp`, seconds since 1970 in digits, is within `seconds` of `now`. Raises `Forged`."""
    written = _bytes(stamp)
    if not _MOMENT.match(written):
        raise Forged("it has no time that could be signed")
    if abs(now.timestamp() - int(written)) > seconds:
        raise Forged("it is too old, or its sender's clock is wrong")


@dataclass(frozen=True)
class HmacSignature:
    """A vendor's signature of its messages: an HMAC in the header `header`, after `prefix`, by one of `secrets`.

    With a `time_header`, the signed content begins with `before`, in which `{time}` stands for that header's value. A
    message more than `REPLAY_SECONDS` from our time is then forged. Names of headers are in lower case.
    """

    header: str
    secrets: Sequence[bytes] = field(repr=False)
    """The keys; one must match. `sign` uses the first one."""
    prefix: str = ""
    time_header: str = ""
    before: str = ""
    """The beginning of the signed content; `{time}` stands for the time."""
    digest: Digest = "sha256"

    def sign(self, body: bytes, at: datetime) -> dict[str, str]:
        """Return the headers of `body` as the vendor sends them, signed by the first secret."""
        stamp = {self.time_header: str(int(at.timestamp()))} if self.time_header else {}
        return {**stamp, self.header: self._right(self.secrets[0], body, stamp.get(self.time_header, ""))}

    def check(self, raw: InboundRequest, now: datetime) -> None:
        """Check that the vendor signed `raw`, byte for byte. Raises `Forged`, always if there is no secret."""
        stamp = raw.headers.get(self.time_header, "") if self.time_header else ""
        if self.time_header:
            check_time(stamp, now)
        check_same(
            raw.headers.get(self.header, ""), *(self._right(each, raw.body, stamp) for each in self.secrets if each)
        )

    def _right(self, secret: bytes, body: bytes, stamp: str) -> str:
        before = self.before.format(time=stamp).encode()
        return self.prefix + hmac_hex(secret, before + body, self.digest)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "replace")
