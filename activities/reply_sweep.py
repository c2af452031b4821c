"""Deletes stored model replies in time, even if no later reply arrives: they hold unmasked arguments."""

import asyncio
import logging
from typing import Final

from signoff.contracts.errors import StoreUnavailable
from signoff.store.completions import Completions
from signoff.store.store import Store

SWEEP_SECONDS: Final = 300.0
_log = logging.getLogger(__name__)


class ReplySweep:
    """Looks every `SWEEP_SECONDS` for expired replies. Several workers with one store share the work."""

    def __init__(self, store: Store) -> None:
        self._completions = Completions(store)

    async def run(self) -> None:
        """Sweep until cancelled. If the store is unavailable, try again the next time."""
        while True:
            try:
                await self._completions.drop_old()
            except StoreUnavailable as error:
                _log.warning("old replies cannot be dropped now: %s", error.message)
            await asyncio.sleep(SWEEP_SECONDS)
