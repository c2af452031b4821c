"""Signs the gateway's checkpoints: how far the record has come, now and then and at its end."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from signoff.audit.checkpoints import Checkpoints
from signoff.contracts.errors import StoreUnavailable
from signoff.keys.signatures import Signer
from signoff.store.store import Store

CHECKPOINT_SECONDS: Final = 60.0
"""How long a record may wait until a checkpoint covers it, while a gateway runs."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def keep_checkpoints(
    store: Store, signer: Signer | None, *, every: float = CHECKPOINT_SECONDS
) -> AsyncIterator[None]:
    """Signs a checkpoint each `every` seconds in which something was recorded, and one at the end of the block.

    None is written without a signer. A store that is away is tried again, and never ends the block.
    """
    if signer is None:
        yield
        return
    keeping = asyncio.create_task(_keep(store, signer, every))
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await _take(store, signer)


async def _keep(store: Store, signer: Signer, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await _take(store, signer)


async def _take(store: Store, signer: Signer) -> None:
    try:
        await Checkpoints(store).take(signer)
    except StoreUnavailable as error:
        _log.warning("no checkpoint of the record was written: %s", error.message)
