"""Makes version 7 UUIDs: ids that sort by the time they were made."""

import secrets
import uuid
from datetime import datetime
from typing import Final

_MILLISECONDS: Final = (1 << 48) - 1


def uuid7(now: datetime) -> str:
    """Makes a version 7 UUID (RFC 9562) of the millisecond `now`, as 36 characters."""
    number = (int(now.timestamp() * 1000) & _MILLISECONDS) << 80 | secrets.randbits(80)
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))
