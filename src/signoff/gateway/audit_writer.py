"""Writes the gateway's own entries of the record: refused attempts, pages that were opened, what operators did."""

import logging

from signoff.audit.log import AuditLog
from signoff.contracts.audit import AuditEntry
from signoff.contracts.errors import StoreUnavailable
from signoff.store.store import Store

_log = logging.getLogger(__name__)


async def record(store: Store, *seen: AuditEntry) -> None:
    """Writes entries; where that cannot be, the log says so. For what changes nothing, or has happened already."""
    try:
        await AuditLog(store).append(seen)
    except StoreUnavailable as error:
        for entry in seen:
            _log.warning("not recorded: %s by %r (%s)", entry.kind, entry.subject, error.message)
