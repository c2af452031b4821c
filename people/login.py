"""Logins: what names one, and the id of whoever has one that nobody declared."""

import hashlib
from typing import Final

OIDC: Final = "oidc"
"""The channel whose identities are `ISSUER#SUBJECT`."""
# 128 bits, so that nobody finds a second login with the same id; all 64 digits would not fit the 48 of an id.
_ID_DIGITS: Final = 32


def id_of(login: str) -> str:
    """The id of a person whom nobody declared: always the same for a login, and not for anybody to choose."""
    return f"{OIDC}-{hashlib.sha256(login.encode(errors='replace')).hexdigest()[:_ID_DIGITS]}"
