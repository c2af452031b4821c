"""Holds what begins turns to the limit of its tenant, for all gateways of one store together."""

import math

from signoff.contracts.errors import BadRequest
from signoff.formats.tenant_limits import TenantLimits
from signoff.store.limits.counted_acts import StartCounts
from signoff.store.store import Store


class StartLimit:
    """Counts starts in the store, and refuses those beyond the limit of their tenant."""

    def __init__(self, store: Store, limits: TenantLimits) -> None:
        self._store = store
        self._limits = limits

    async def take(self, tenant: str, *name: str) -> None:
        """Counts one start of a tenant; the same `name` again, within the time of the limit, is the same start.

        Raises `BadRequest` (429, `too_many_starts`) where the tenant has none left, and `StoreUnavailable`.
        """
        rate = self._limits.of(tenant).starts
        if rate is None:
            return
        starts, named = StartCounts(tenant, rate), "/".join(name)
        # Looked at before it is counted: who is refused takes no lock, so that a flood holds up nobody's writing.
        again = await self._store.read(lambda connection: starts.possible_in(connection, named))
        if not again:
            again = await self._store.run(lambda connection: starts.take(connection, named))
        if again:
            self._store.counts.count("signoff_starts_refused", tenant)
            seconds = math.ceil(again)
            raise BadRequest(
                f"the tenant `{tenant}` has begun as many turns as it may ({rate.count}/{rate.period}): try again in "
                f"{seconds} s",
                status=429,
                code="too_many_starts",
                after=seconds,
            )
