"""The one normal form of email addresses, which every part of Signoff compares."""

import re
from typing import Final

import idna

_CHARS: Final = 254
_PLAIN: Final = re.compile(
    r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,128}@(?:[a-z0-9](?:[a-z0-9-]{0,62}))(?:\.[a-z0-9-]{1,63}){1,20}"
)


def plain_address(address: str) -> str:
    """Return the normal form of `address`: lower case, an international domain as `xn--`; "" where it has none.

    Quotes, routes, comments, names, `mailto:` and letters other than ASCII before the `@` have none. Each would be a
    second spelling of somebody's address.
    """
    address = address.strip()
    local, _, domain = address.rpartition("@")
    if not address.isascii():
        domain = _ascii_domain(domain)
    # Checked before lower-casing, which makes ASCII letters of some others.
    if not local.isascii() or not domain or len(local) + len(domain) >= _CHARS:
        return ""
    lowered = f"{local}@{domain}".lower()
    plain = _PLAIN.fullmatch(lowered) and ".." not in lowered and not lowered.startswith(".") and ".@" not in lowered
    return lowered if plain else ""


def _ascii_domain(domain: str) -> str:
    try:
        return idna.encode(domain, uts46=True, std3_rules=True).decode("ascii") if len(domain) < _CHARS else ""
    except idna.IDNAError:
        return ""
