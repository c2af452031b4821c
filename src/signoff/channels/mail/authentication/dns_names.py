"""Checks DNS names, and looks up their TXT records."""

import asyncio
import contextlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence

import dns.asyncresolver
import dns.exception
import dns.resolver

from signoff.contracts.limits import (
    MAIL_LOOKUP_SECONDS,
    MAIL_LOOKUPS_AT_ONCE,
    MAIL_NAMES_KEPT,
    MAIL_NAMES_SECONDS,
    MAIL_SILENCE_SECONDS,
)

TxtLookup = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the TXT records of a DNS name without final dot, each with its strings joined. Empty if there are none.

Raises `LookupError` or `OSError` if the DNS does not answer.
"""
KnownTxt = Callable[[str], Sequence[str]]
"""The same for names whose records are known already. It raises for all others."""
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,62})\.){1,20}[a-z0-9-]{2,63}")


def dns_name(text: str) -> str:
    """Return `text` in lower case if it is a host name of at least two labels, else ""."""
    lowered = text.strip().lower()
    return lowered if len(lowered) <= 253 and _NAME.fullmatch(lowered) else ""


def reaches(domain: str, other: str) -> bool:
    """Return whether `domain` is `other` or a parent of it, and therefore can create any name in it.

    DMARC also lets a subdomain sign for its parent within one organisation. This function does not: a subdomain is
    easily given away. Use the mail server's verdict for that.
    """
    return bool(domain) and (other == domain or other.endswith(f".{domain}"))


async def lookup_txt(name: str) -> list[str]:
    """Raises `OSError` if the DNS does not answer."""
    try:
        answer = await dns.asyncresolver.resolve(name, "TXT", lifetime=MAIL_LOOKUP_SECONDS)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        # Both mean that there is no record. Any other error proves nothing.
        return []
    except dns.exception.DNSException as error:
        raise OSError(f"the DNS does not answer for `{name}`") from error
    return [b"".join(record.strings).decode("utf-8", "replace") for record in answer]


def txt_lookup_of(found: Mapping[str, Sequence[str] | None]) -> KnownTxt:
    """Look up among known records. None means that the DNS did not answer."""

    def txt(name: str) -> Sequence[str]:
        records = found.get(name)
        if records is None:
            raise OSError(f"the DNS does not answer for `{name}`")
        return records

    return txt


class DnsNames:
    """Looks up the names of emails with `txt`, and caches records and failures for a while."""

    def __init__(self, txt: TxtLookup, clock: Callable[[], float] = time.monotonic) -> None:
        self._txt = txt
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Sequence[str] | None]] = OrderedDict()

    async def find(self, names: Sequence[str]) -> dict[str, Sequence[str] | None]:
        """Look up within `MAIL_LOOKUP_SECONDS`. None for names without answer."""
        records: dict[str, Sequence[str] | None] = dict.fromkeys(names)
        wanted = iter(list(records))

        async def look() -> None:
            # Several tasks share one iterator: each looks up the next free name.
            for name in wanted:
                records[name] = await self._one(name)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAIL_LOOKUP_SECONDS), asyncio.TaskGroup() as group:
                for _ in range(MAIL_LOOKUPS_AT_ONCE):
                    group.create_task(look())
        return records

    async def _one(self, name: str) -> Sequence[str] | None:
        kept = self._kept.get(name)
        if kept is not None and self._clock() < kept[0]:
            return kept[1]
        begun = self._clock()
        records: Sequence[str] | None = None
        try:
            records = await self._txt(name)
        except asyncio.CancelledError:
            # The email's time limit has passed. A name that started shortly before it may still have an answer.
            if self._clock() - begun >= MAIL_LOOKUP_SECONDS / 2:
                self._keep(name, None)
            raise
        except (LookupError, OSError):
            records = None
        self._keep(name, records)
        return records

    def _keep(self, name: str, records: Sequence[str] | None) -> None:
        seconds = MAIL_SILENCE_SECONDS if records is None else MAIL_NAMES_SECONDS
        self._kept[name] = self._clock() + seconds, records
        self._kept.move_to_end(name)
        if len(self._kept) > MAIL_NAMES_KEPT:
            self._kept.popitem(last=False)
