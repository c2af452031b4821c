"""Gives one event to whom a subscription names: posts it to an address, or has a worker call a function with it."""

from typing import Final, Protocol

from signoff.audit.event_deliveries import EventDelivery
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.outbound_http import GuardedHttp, read_networks
from signoff.channels.standard_webhooks import read_secret, signed_headers
from signoff.contracts.activity_messages import EventTask
from signoff.contracts.errors import ConfigError, Unavailable
from signoff.engine.handler_runs import UNFINISHED, run_event_handler
from signoff.formats.replace import replace
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.events.event_reader import schema_address
from signoff.registry.manifest.subscription_sections import Subscription

_BUSY: Final = (429, 503)
_CONTENT: Final = "application/cloudevents+json"
_QUEUED_SECONDS: Final = 15.0
"""How long beyond its own time a handler is waited for."""


class Unfinished(Exception):
    """Raised where somebody may yet take an event, and nobody waits any longer."""


class EventTarget(Protocol):
    """Takes the events of one subscription."""

    async def give(self, owed: EventDelivery, seconds: float) -> None:
        """Gives it one event, and returns once it has it.

        Raises `NotDelivered`, `ServerUnavailable`, and `Unfinished` once `seconds` are over.
        """
        ...

    async def close(self) -> None:
        """Closes what it holds open."""
        ...


class WebhookTarget:
    """An address that events are posted to, signed as Standard Webhooks."""

    def __init__(self, deps: GatewayDeps, to: Subscription) -> None:
        self._deps = deps
        self._to = to
        self._http = GuardedHttp(read_networks(to.allow_networks))

    async def give(self, owed: EventDelivery, seconds: float) -> None:
        """See `EventTarget`; the client has a limit of its own."""
        address = schema_address(self._deps.settings.public_url, owed.event.type)
        body = replace(owed.event, dataschema=address).model_dump_json().encode()
        await post_signed(self._deps, self._http, self._to, self._to.url, owed.event.id, body, _CONTENT)

    async def close(self) -> None:
        """See `EventTarget`."""
        await self._http.close()


async def post_signed(
    deps: GatewayDeps, http: GuardedHttp, to: Subscription, url: str, name: str, body: bytes, content: str
) -> None:
    """Posts a message under its `name`, signed by the secrets of a subscription. Raises `NotDelivered`."""
    references = [each for each in (to.secret, to.previous_secret) if each]
    try:
        secrets = [read_secret(await deps.secrets.read(each, tenant=to.tenant)) for each in references]
    except (ConfigError, Unavailable) as error:
        raise NotDelivered(deps.secrets.redact(error.message), code="secret", again=True) from None
    headers = signed_headers(secrets, name, deps.clock(), body) | {"content-type": content}
    answer = await http.post(url, body, headers)
    if not 200 <= answer.status < 300:
        after = answer.retry_after if answer.status in _BUSY else 0.0
        raise NotDelivered("it answered otherwise", code=str(answer.status), again=True, after=after)


class HandlerTarget:
    """A function that workers call, each time in an activity of its own."""

    def __init__(self, deps: GatewayDeps, to: Subscription) -> None:
        self._client = deps.client
        self._store = deps.store
        self._to = to

    async def give(self, owed: EventDelivery, seconds: float) -> None:
        """See `EventTarget`; the function reads its event from the store."""
        task = EventTask(delivery=owed.key, subscription=self._to.name, seconds=self._to.timeout)
        patience = min(seconds, self._to.timeout + _QUEUED_SECONDS)
        client, store = self._client, self._store.id
        code = await run_event_handler(client.temporal, client.task_queue, store, task, patience)
        if code == UNFINISHED:
            raise Unfinished
        if code:
            raise NotDelivered("its handler failed", code=code, again=True)

    async def close(self) -> None:
        """See `EventTarget`."""
