"""Signs and verifies messages by Standard Webhooks (https://www.standardwebhooks.com).

The HMAC-SHA256 signs `id.timestamp.body`. A message has several signatures while a secret is being replaced.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from signoff.channels.channel_errors import Forged
from signoff.channels.signature_check import check_time, hmac_base64, is_same
from signoff.contracts.errors import ConfigError

ID_HEADER: Final = "webhook-id"
TIME_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"

_PREFIX: Final = "whsec_"
# The specification's limits. A shorter key could be guessed from one signed message.
_LEAST_BYTES, _MOST_BYTES = 24, 64
_VERSION: Final = "v1,"
_ID: Final = re.compile(r"[!-~]{1,200}\Z")
# At most a few secrets are in use at once, and each signature in the header costs a comparison with each.
_SIGNATURES_CHARS: Final = 2_000


def read_secret(written: str) -> bytes:
    """Return the key of a written secret: `whsec_` and base64 of 24 to 64 bytes. Raises `ConfigError`, without the
    secret in its message.
    """
    try:
        bare = written.removeprefix(_PREFIX).rstrip("=")
        # Be strict: otherwise Python skips invalid characters, and a mistyped secret would become a different key.
        key = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        how = f"`{_PREFIX}` and {_LEAST_BYTES} to {_MOST_BYTES} bytes in base64"
        raise ConfigError(f"a signing secret is {how}, such as `openssl rand -base64 32` makes them")
    return key


def signed_headers(secrets: Sequence[bytes], message: str, at: datetime, body: bytes) -> dict[str, str]:
    """One signature per secret lets the receiver change secrets."""
    moment = str(int(at.timestamp()))
    signatures = " ".join(_VERSION + _signature(secret, message, moment, body) for secret in secrets)
    return {ID_HEADER: message, TIME_HEADER: moment, SIGNATURE_HEADER: signatures}


def verify_id(secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: datetime) -> str:
    """Return the id of a message with a signature by one of `secrets` that is neither too old nor too new.

    Header names are in lower case. Raises only `Forged`. Without secrets, every message is forged.
    """
    message, moment = headers.get(ID_HEADER, ""), headers.get(TIME_HEADER, "")
    if not _ID.match(message):
        raise Forged("the message has no id that could be signed")
    check_time(moment, now)
    wanted = [_signature(secret, message, moment, body) for secret in secrets]
    if not any(is_same(each, *wanted) for each in _read_signatures(headers.get(SIGNATURE_HEADER, ""))):
        raise Forged("no signature of the message is by a secret that is known here")
    return message


def _signature(secret: bytes, message: str, moment: str, body: bytes) -> str:
    return hmac_base64(secret, f"{message}.{moment}.".encode() + body)


def _read_signatures(header: str) -> list[str]:
    """Return the signatures of the known version. Others are skipped."""
    if len(header) > _SIGNATURES_CHARS:
        return []
    return [each.removeprefix(_VERSION) for each in header.split(" ") if each.startswith(_VERSION)]
