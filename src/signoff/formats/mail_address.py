"""The normal form of email addresses, compared everywhere in Signoff."""

import re
from typing import Final

import idna

_CHARS: Final = 254
_PLAIN: Final = re.compile(
    r"[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,128}@(?:[a-z0-9](?:[a-z0-9-]{0,62}))(?:\.[a-z0-9-]{1,63}){1,20}"
)


def plain_address(address: str) -> str:
    """Return the normal form of `address`, or "".

    It is in lower case, with an international domain as `xn--`. Quotes, routes, comments, names, `mailto:` and
    non-ASCII letters before the `@` have none. Each would be a second spelling of a person's address.
    """
    address = address.strip()
    local, _, domain = address.rpartition("@")
    if not address.isascii():
        domain = _ascii_domain(domain)
    # Check this before lower-casing, which converts some other letters to ASCII.
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
