import asyncio
import logging
from datetime import timedelta

import pytest
from sqlalchemy import update
from turn_fixtures import Ledger, TurnRig, pay_tool

from signoff.activities import reply_sweep
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey
from signoff.store.completions import KEPT, Completions
from signoff.store.leases import in_seconds
from signoff.store.tables import COMPLETIONS


async def test_idle_worker_drops_old_replies(
    turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # No turn runs and the store failed once: an old reply is still dropped. Without `ReplySweep` the last replies
    # of an installation stayed forever, with unmasked arguments.
    monkeypatch.setattr(reply_sweep, "SWEEP_SECONDS", 0.02)
    drop_old, tries = Completions.drop_old, 0

    async def away_at_first(self: Completions) -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailable("away")
        return await drop_old(self)

    monkeypatch.setattr(Completions, "drop_old", away_at_first)
    kept = Completions(turn_rig.store)
    with caplog.at_level(logging.WARNING):
        async with turn_rig.running([pay_tool(Ledger())], []):
            await kept.keep("old", 1, b"reply", SessionKey("main", "s"))
            await kept.keep("young", 1, b"reply", SessionKey("main", "s"))
            aged = update(COMPLETIONS).where(COMPLETIONS.c.key == "old.1")
            at = in_seconds(-(KEPT + timedelta(seconds=1)).total_seconds())
            await turn_rig.store.run(lambda connection: connection.execute(aged.values(kept_at=at)).rowcount)
            async with asyncio.timeout(60):
                while await kept.read("old", 1) is not None:
                    await asyncio.sleep(0.02)
    assert await kept.read("young", 1) is not None
    assert caplog.messages == ["old replies cannot be dropped now: away"]
    before = tries
    await asyncio.sleep(0.1)
    assert tries == before
