"""Writes the gateway's own entries of the record: refused attempts, pages that were opened, what operators did.

Refused attempts are recorded so many a minute of each person, and the rest counted.
"""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from signoff.audit.log import AuditLog
from signoff.audit.rate_limit import RecordRateLimit
from signoff.contracts.audit import AuditEntry
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.limits import ATTEMPT_SENDERS, ATTEMPTS_A_MINUTE
from signoff.formats.replace import replace
from signoff.store.refusal_counts import RefusalKind
from signoff.store.store import Store

_KINDS: Final[Mapping[str, RefusalKind]] = {
    "expired": "late",
    "stale": "stale",
    "not_allowed": "not_allowed",
    "self_approval": "not_allowed",
    "assurance": "not_allowed",
    "scope": "not_allowed",
    "unproved": "unproved",
    "unknown": "unknown",
    "malformed": "malformed",
}
"""Other codes say that somebody was too late by honest chance, or that we could not."""

_log = logging.getLogger(__name__)


async def record(store: Store, *seen: AuditEntry) -> None:
    """Writes entries; where that cannot be, the log says so. For what changes nothing, or has happened already."""
    try:
        await AuditLog(store).append(seen)
    except StoreUnavailable as error:
        for entry in seen:
            _log.warning("not recorded: %s by %r (%s)", entry.kind, entry.subject, error.message)


class AttemptRecords:
    """Records refused attempts within limits: the record is that of somebody else's request.

    One process counts by itself; with several gateways each writes down as many.
    """

    def __init__(self) -> None:
        self._senders: OrderedDict[str, RecordRateLimit] = OrderedDict()

    async def note(self, store: Store, entry: AuditEntry, code: str) -> None:
        """Writes down an attempt of `entry.subject` that was refused with `code`, or counts it.

        Never raises for a store that is away.
        """
        if code in _KINDS:
            store.count_refusal(_KINDS[code])
        more = self._make_rate_limit(f"{entry.tenant}/{entry.subject}").admit(entry.at)
        if more is None:
            return
        data = {**entry.data, "more_before": more} if more else entry.data
        await record(store, replace(entry, data=data))

    def _make_rate_limit(self, sender: str) -> RecordRateLimit:
        found = self._senders.pop(sender, None) or RecordRateLimit(ATTEMPTS_A_MINUTE)
        self._senders[sender] = found
        # Who tries under ever new names needs a login for each.
        if len(self._senders) > ATTEMPT_SENDERS:
            self._senders.popitem(last=False)
        return found
