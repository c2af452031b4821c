"""Signs and verifies messages over HTTP by Standard Webhooks (https://www.standardwebhooks.com).

Signed is `id.timestamp.body`, by HMAC-SHA256. Several signatures stand beside each other while a secret is replaced.
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
# As the specification has it; a shorter key could be guessed from one signed message.
_LEAST_BYTES, _MOST_BYTES = 24, 64
_VERSION: Final = "v1,"
_ID: Final = re.compile(r"[!-~]{1,200}\Z")
# A few secrets at most are in use at once; each signature that is given costs a comparison with each.
_SIGNATURES_CHARS: Final = 2_000


def read_secret(written: str) -> bytes:
    """Returns the key behind a secret as it is handed around, `whsec_` and base64 of 24 to 64 bytes.

    Raises `ConfigError`, without the secret.
    """
    try:
        bare = written.removeprefix(_PREFIX).rstrip("=")
        # Not strict, Python skips what is no Base64, and a secret with a slip in it would become another one.
        key = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        how = f"`{_PREFIX}` and {_LEAST_BYTES} to {_MOST_BYTES} bytes in base64"
        raise ConfigError(f"a signing secret is {how}, such as `openssl rand -base64 32` makes them")
    return key


def signed_headers(secrets: Sequence[bytes], message: str, at: datetime, body: bytes) -> dict[str, str]:
    """Returns the three headers of a message: one signature for each secret, so that its receiver can change over."""
    moment = str(int(at.timestamp()))
    signatures = " ".join(_VERSION + _signature(secret, message, moment, body) for secret in secrets)
    return {ID_HEADER: message, TIME_HEADER: moment, SIGNATURE_HEADER: signatures}


def verify_id(secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now: datetime) -> str:
    """Returns the id of a message whose signature is by one of `secrets` and not too old or too new.

    Header names are in lower case. Raises `Forged` and nothing else; without secrets everything is forged.
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
    """Returns the signatures of the version that is known; others are skipped."""
    if len(header) > _SIGNATURES_CHARS:
        return []
    return [each.removeprefix(_VERSION) for each in header.split(" ") if each.startswith(_VERSION)]
