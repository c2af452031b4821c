"""Sends subscriptions the events they are owed, signed as Standard Webhooks, and tries again what did not arrive."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from signoff.audit.event_deliveries import EventDeliveries, EventDelivery, is_for
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.outbound_http import GuardedHttp, read_networks
from signoff.channels.standard_webhooks import read_secret, signed_headers
from signoff.contracts.errors import ConfigError, Unavailable
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.events.event_reader import schema_address
from signoff.gateway.vendors.channel_tasks import run_forever
from signoff.registry.manifest.subscription_sections import Subscription

RETRY_SECONDS: Final = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 36_000.0)
"""How long is waited after each failure, as Standard Webhooks advises; after the last it is given up."""
LOOK_SECONDS: Final = 1.0
_AT_ONCE: Final = 20
_BUSY: Final = (429, 503)
_CONTENT: Final = "application/cloudevents+json"
_log = logging.getLogger(__name__)


@asynccontextmanager
async def send_events(deps: GatewayDeps) -> AsyncIterator[None]:
    """Sends the catalog's subscriptions what they are owed, until the block ends: each by itself, as some are slow."""
    sending = [
        asyncio.create_task(run_forever(f"the sender of subscription `{name}`", EventSender(deps, to).run))
        for name, to in deps.catalog.subscriptions.items()
    ]
    try:
        yield
    finally:
        for each in sending:
            each.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


class EventSender:
    """Sends what is owed to one subscription."""

    def __init__(self, deps: GatewayDeps, to: Subscription) -> None:
        self._deps = deps
        self._to = to
        self._queue = EventDeliveries(deps.store)
        self._http = GuardedHttp(read_networks(to.allow_networks))

    async def run(self) -> None:
        """Sends for as long as it is not cancelled. Raises `StoreUnavailable`, and may be run again."""
        try:
            while True:
                if not await self.step():
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self._http.close()

    async def step(self) -> int:
        """Adds what happened since, and sends what is due; returns how much that was. Raises `StoreUnavailable`."""
        await self._deps.events.extend()
        await self._queue.add(self._to)
        due = await self._queue.claim(self._to, _AT_ONCE)
        await asyncio.gather(*map(self._send, due))
        return len(due)

    async def _send(self, owed: EventDelivery) -> None:
        if not is_for(self._to, owed.event):
            # It was added by another manifest, which may be the newer one: not forgotten, but not sent either.
            await self._queue.give_up(owed.key, "not wanted")
            return
        try:
            status, after = await self._post(owed)
        except NotDelivered as error:
            await self._fail(owed, error.code, error.after)
        except (ConfigError, Unavailable) as error:
            _log.warning(
                "subscription `%s` is not sent anything: %s", self._to.name, self._deps.secrets.redact(error.message)
            )
            await self._fail(owed, "secret", 0.0)
        else:
            if 200 <= status < 300:
                await self._queue.finish(owed.key)
            else:
                await self._fail(owed, str(status), after if status in _BUSY else 0.0)

    async def _post(self, owed: EventDelivery) -> tuple[int, float]:
        to = self._to
        references = [each for each in (to.secret, to.previous_secret) if each]
        secrets = [read_secret(await self._deps.secrets.read(each, tenant=to.tenant)) for each in references]
        address = schema_address(self._deps.settings.public_url, owed.event.type)
        body = owed.event.model_copy(update={"dataschema": address}).model_dump_json().encode()
        headers = signed_headers(secrets, owed.event.id, self._deps.clock(), body) | {"content-type": _CONTENT}
        answer = await self._http.post(to.url, body, headers)
        return answer.status, answer.retry_after

    async def _fail(self, owed: EventDelivery, code: str, after: float) -> None:
        if owed.attempts > len(RETRY_SECONDS):
            _log.warning("event %d is given up for subscription `%s`: %s", owed.event.number, owed.subscription, code)
            await self._queue.give_up(owed.key, code)
            return
        await self._queue.postpone(owed.key, code, max(RETRY_SECONDS[owed.attempts - 1], after))
