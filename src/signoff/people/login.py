"""Names logins, and derives ids for undeclared people."""

import hashlib
from typing import Final

OIDC: Final = "oidc"
"""The channel whose identities are `ISSUER#SUBJECT`."""
# 128 bits prevent finding a second login with the same id. All 64 digits would exceed the 48 characters of an id.
_ID_DIGITS: Final = 32


def id_from_login(login: str) -> str:
    """The id is constant for a login, and the login's owner cannot choose it."""
    return f"{OIDC}-{hashlib.sha256(login.encode(errors='replace')).hexdigest()[:_ID_DIGITS]}"
