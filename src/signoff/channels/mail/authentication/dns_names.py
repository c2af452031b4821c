"""Checks names in the DNS, and looks up the texts under them."""

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
"""TXT records of a DNS name without final dot, each with its strings joined; empty where there are none.

Raises `LookupError` or `OSError` where nobody knows.
"""
KnownTxt = Callable[[str], Sequence[str]]
"""The same of names that have been looked up. It raises for all others."""
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,62})\.){1,20}[a-z0-9-]{2,63}")


def dns_name(text: str) -> str:
    """Returns `text` in lower case if it is a host's name of two labels or more, else ""."""
    lowered = text.strip().lower()
    return lowered if len(lowered) <= 253 and _NAME.fullmatch(lowered) else ""


def reaches(domain: str, other: str) -> bool:
    """Returns whether `domain` is `other` or stands above it, and so can make any name in it.

    DMARC also lets a name below speak for the one above within one organisation. Here it does not: a name below is
    easily given away. The mail server's verdict may be used instead.
    """
    return bool(domain) and (other == domain or other.endswith(f".{domain}"))


async def lookup_txt(name: str) -> list[str]:
    """Looks up TXT records by this machine's resolver. Raises `OSError` where nobody knows."""
    try:
        answer = await dns.asyncresolver.resolve(name, "TXT", lifetime=MAIL_LOOKUP_SECONDS)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        # Both say that there is no record. All else is not to know, by which nothing is proved.
        return []
    except dns.exception.DNSException as error:
        raise OSError(f"the DNS does not answer for `{name}`") from error
    return [b"".join(record.strings).decode("utf-8", "replace") for record in answer]


def txt_lookup_of(found: Mapping[str, Sequence[str] | None]) -> KnownTxt:
    """Returns a lookup over findings by name; None is a name of which nobody knows."""

    def txt(name: str) -> Sequence[str]:
        records = found.get(name)
        if records is None:
            raise OSError(f"the DNS does not answer for `{name}`")
        return records

    return txt


class DnsNames:
    """Looks up the names of mails by `txt`, and remembers findings and failures for a while."""

    def __init__(self, txt: TxtLookup, clock: Callable[[], float] = time.monotonic) -> None:
        self._txt = txt
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Sequence[str] | None]] = OrderedDict()

    async def find(self, names: Sequence[str]) -> dict[str, Sequence[str] | None]:
        """Returns the records of all `names` of one mail, within `MAIL_LOOKUP_SECONDS`; None of what nobody knew by
        then.
        """
        found: dict[str, Sequence[str] | None] = dict.fromkeys(names)
        wanted = iter(list(found))

        async def look() -> None:
            # Several take from one iterator: each looks up the next name that nobody has begun with.
            for name in wanted:
                found[name] = await self._one(name)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAIL_LOOKUP_SECONDS), asyncio.TaskGroup() as group:
                for _ in range(MAIL_LOOKUPS_AT_ONCE):
                    group.create_task(look())
        return found

    async def _one(self, name: str) -> Sequence[str] | None:
        kept = self._kept.get(name)
        if kept is not None and self._clock() < kept[0]:
            return kept[1]
        begun = self._clock()
        records: Sequence[str] | None = None
        try:
            records = await self._txt(name)
        except asyncio.CancelledError:
            # The mail's time is over. One that was begun with at its end has not shown that nobody answers for it.
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
