from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection

from signoff.audit.log import AuditLog, entry_writer
from signoff.contracts.audit import AuditEntry
from signoff.contracts.errors import StoreUnavailable
from signoff.store.store import Store


async def test_rolled_back_entry_is_not_counted(store: Store) -> None:
    entry = AuditEntry(stream="turn/main/s/t", key="k", kind="auto", at=datetime.now(UTC), tenant="main")
    write = entry_writer([entry])

    def fails(connection: Connection) -> None:
        write(connection)
        raise RuntimeError("the disk is full")

    with pytest.raises(StoreUnavailable):
        await store.run(fails)
    assert store.counts.counters == {"signoff_store_failures": {(): 1.0}}
    assert await AuditLog(store).append([entry]) == 1
    assert await AuditLog(store).append([entry]) == 0
    assert store.counts.counters["signoff_gate_outcomes"] == {("allowed", "approval"): 1.0}
