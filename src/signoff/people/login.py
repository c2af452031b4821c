"""Names logins, and gives an id to people whom nobody declared."""

import hashlib
from typing import Final

OIDC: Final = "oidc"
"""The channel whose identities are `ISSUER#SUBJECT`."""
# 128 bits, so that nobody finds a second login with the same id; all 64 digits would not fit the 48 of an id.
_ID_DIGITS: Final = 32


def id_from_login(login: str) -> str:
    """Computes the id of an undeclared person: always the same for a login, and not for anybody to choose."""
    return f"{OIDC}-{hashlib.sha256(login.encode(errors='replace')).hexdigest()[:_ID_DIGITS]}"
