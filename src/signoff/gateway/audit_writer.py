"""Writes the gateway's own audit entries: refused attempts, opened pages, operators' acts.

For each person, a few refused attempts a minute are recorded, and the rest counted.
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
"""Other codes report an honest late answer or a fault of the gateway."""

_log = logging.getLogger(__name__)


async def record(store: Store, *seen: AuditEntry) -> None:
    """Log a warning if the store is down. For acts that change nothing or have already happened."""
    try:
        await AuditLog(store).append(seen)
    except StoreUnavailable as error:
        for entry in seen:
            _log.warning("not recorded: %s by %r (%s)", entry.kind, entry.subject, error.message)


class AttemptRecords:
    """Records refused attempts within limits, because they fill the audit log of another person's request.

    Each process counts alone.
    """

    def __init__(self) -> None:
        self._senders: OrderedDict[str, RecordRateLimit] = OrderedDict()

    async def note(self, store: Store, entry: AuditEntry, code: str) -> None:
        """Record or count an attempt of `entry.subject`. Raises nothing if the store is down."""
        if code in _KINDS:
            store.count_refusal(_KINDS[code])
        more = self._make_rate_limit(f"{entry.tenant}/{entry.subject}").admit(entry.at)
        if more is None:
            return
        data = {**entry.data, "more_before": more} if more else entry.data
        await record(store, replace(entry, data=data))

    def _make_rate_limit(self, sender: str) -> RecordRateLimit:
        limit = self._senders.pop(sender, None) or RecordRateLimit(ATTEMPTS_A_MINUTE)
        self._senders[sender] = limit
        # An attacker needs a login for each new name.
        if len(self._senders) > ATTEMPT_SENDERS:
            self._senders.popitem(last=False)
        return limit
