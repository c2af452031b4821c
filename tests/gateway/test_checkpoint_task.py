import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from signoff.approvals.audit_events import admin_entry
from signoff.audit.checkpoints import Checkpoints
from signoff.audit.log import AuditLog
from signoff.gateway.runtime import keep_checkpoints
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.store.store import Store

SIGNER = Signer(PrivateKeys(keys=(new_key(datetime.now(UTC) - timedelta(days=1)),)))
AT = datetime(2026, 3, 1, tzinfo=UTC)


async def recorded(store: Store, name: str) -> None:
    await AuditLog(store).append([admin_entry("main", name, "ana", AT)])


async def numbers(store: Store) -> list[int]:
    found = [point async for point in Checkpoints(store).all()]
    assert all(point.holds(SIGNER.verifier()) for point in found)
    return [point.statement.number for point in found]


async def test_records_are_covered_by_a_checkpoint_soon_and_at_shutdown(store: Store) -> None:
    async with keep_checkpoints(store, SIGNER, every=0.02):
        await recorded(store, "freeze")
        async with asyncio.timeout(60):
            while await numbers(store) != [1]:
                await asyncio.sleep(0.01)
    assert await numbers(store) == [1]
    async with keep_checkpoints(store, SIGNER, every=600):
        await recorded(store, "unfreeze")
    assert await numbers(store) == [1, 2]


async def test_gateway_without_a_key_writes_no_checkpoint(store: Store) -> None:
    async with keep_checkpoints(store, None, every=0.001):
        await recorded(store, "freeze")
        await asyncio.sleep(0.02)
    assert await numbers(store) == []


async def test_unavailable_store_does_not_stop_the_gateway(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    await recorded(store, "freeze")
    await store.close()
    with caplog.at_level(logging.WARNING):
        async with keep_checkpoints(store, SIGNER, every=0.005):
            async with asyncio.timeout(60):
                while caplog.text.count("no checkpoint of the record was written") < 2:
                    await asyncio.sleep(0.005)
    assert {record.levelname for record in caplog.records} == {"WARNING"}
