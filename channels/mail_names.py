"""Names in the DNS: what one is, who speaks for whom, and how texts under one are looked up."""

import re
import time
from collections.abc import Callable, Sequence
from typing import Final

import dns.exception
import dns.resolver

TxtLookup = Callable[[str], Sequence[str]]
"""TXT records of a DNS name without final dot, each with its strings joined; empty where there are none.

Raises `LookupError` or `OSError` where nobody knows. It may block.
"""
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,62})\.){1,20}[a-z0-9-]{2,63}")
PATIENCE: Final = 5.0
"""Seconds for one name."""
BUDGET: Final = 20.0
"""Seconds for all names of one mail; what stands in it is a stranger's, and so may be where the names lead."""


def dns_name(text: str) -> str:
    """`text` in lower case if it is a host's name of two labels or more, else nothing."""
    lowered = text.strip().lower()
    return lowered if len(lowered) <= 253 and _NAME.fullmatch(lowered) else ""


def reaches(domain: str, other: str) -> bool:
    """Whether `domain` may speak for mail from `other`: it is it, or stands above it and so can make any name in it.

    DMARC also lets a name below speak for the one above within one organisation. Where organisations begin is only
    known from a list that grows old, so that is left to the mail server, whose verdict may be used instead.
    """
    return bool(domain) and (other == domain or other.endswith(f".{domain}"))


def lookup_txt(name: str) -> list[str]:
    """TXT records by this machine's resolver. Blocks up to 5 s. Raises `OSError` where nobody knows."""
    try:
        answer = dns.resolver.resolve(name, "TXT", lifetime=PATIENCE)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        # Both say that there is no record. All else is not to know, by which nothing is proved.
        return []
    except dns.exception.DNSException as error:
        raise OSError(f"the DNS does not answer for `{name}`") from error
    return [b"".join(record.strings).decode("utf-8", "replace") for record in answer]


def sparing(txt: TxtLookup, budget: float = BUDGET) -> TxtLookup:
    """`txt` for one mail: each name is looked up once, also one that nobody knows, and after `budget` seconds none."""
    until = time.monotonic() + budget
    known: dict[str, Sequence[str] | None] = {}

    def once(name: str) -> Sequence[str]:
        if name not in known:
            try:
                known[name] = txt(name) if time.monotonic() < until else None
            except (LookupError, OSError):
                known[name] = None
        found = known[name]
        if found is None:
            raise OSError(f"the DNS does not answer for `{name}`")
        return found

    return once
