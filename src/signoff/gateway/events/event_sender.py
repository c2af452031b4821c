"""Delivers events to subscriptions, in order within one turn, and retries failed deliveries."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any, Final, Protocol

from temporalio.client import Client
from temporalio.service import RPCError

from signoff.audit.event_deliveries import EventDeliveries, EventDelivery, is_for
from signoff.calls.agent_calls import MOVING
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.outbound_http import GuardedHttp, read_networks
from signoff.channels.standard_webhooks import read_secret, signed_headers
from signoff.contracts.activity_messages import EventTask
from signoff.contracts.call import WorkflowSignal
from signoff.contracts.errors import (
    BadRequest,
    ConfigError,
    Conflict,
    NotFound,
    Refused,
    ServerUnavailable,
    Unavailable,
)
from signoff.contracts.ids import parse_workflow_id
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.responses import CallAnswer
from signoff.engine.handler_runs import UNFINISHED, run_event_handler
from signoff.formats.replace import replace
from signoff.gateway.calls.call_reader import load_call, read_call
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.events.event_reader import schema_address
from signoff.gateway.events.event_turn import start_event_turn
from signoff.gateway.external_turn import ExternalTurn
from signoff.gateway.vendors.channel_tasks import run_forever
from signoff.registry.actor import Callbacks
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.store.leases import LEASE_SECONDS

_BUSY: Final = (429, 503)
_CONTENT: Final = "application/cloudevents+json"
_QUEUED_SECONDS: Final = 15.0
"""Extra wait for a handler beyond its own time limit."""
_FROZEN_SECONDS: Final = 10.0


class Unfinished(Exception):
    """Raised if a delivery is still open when the wait for it ends.

    `seconds` is the pause before the next try of the same attempt.
    """

    def __init__(self, code: str = "unfinished", seconds: float = 1.0) -> None:
        super().__init__(code)
        self.code = code
        self.seconds = seconds


class EventTarget(Protocol):
    """Receives the events of one subscription."""

    async def give(self, owed: EventDelivery, seconds: float) -> None:
        """Return once the target has the event.

        Raises `NotDelivered`, `ServerUnavailable`, and `Unfinished` after `seconds`.
        """
        ...

    async def close(self) -> None: ...


class WebhookTarget:
    """A URL that receives events by POST, signed according to Standard Webhooks."""

    def __init__(self, deps: GatewayDeps, to: Subscription) -> None:
        self._deps = deps
        self._to = to
        self._http = GuardedHttp(read_networks(to.allow_networks))

    async def give(self, owed: EventDelivery, seconds: float) -> None:
        """The HTTP client has its own time limit."""
        address = schema_address(self._deps.settings.public_url, owed.event.type)
        body = replace(owed.event, dataschema=address).model_dump_json().encode()
        await _post_signed(self._deps, self._http, self._to, self._to.url, owed.event.id, body, _CONTENT)

    async def close(self) -> None:
        await self._http.close()


async def _post_signed(
    deps: GatewayDeps, http: GuardedHttp, to: Subscription, url: str, name: str, body: bytes, content: str
) -> None:
    """Sign with the subscription's secrets. Raises `NotDelivered`."""
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
    """A function that workers call in one activity for each event."""

    def __init__(self, deps: GatewayDeps, to: Subscription) -> None:
        self._client = deps.client
        self._store = deps.store
        self._to = to

    async def give(self, owed: EventDelivery, seconds: float) -> None:
        """The function reads its event from the store."""
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


class ActorTarget:
    """An actor that gets a turn for each event."""

    def __init__(self, deps: GatewayDeps, to: Subscription) -> None:
        self._deps = deps
        self._to = to

    async def give(self, owed: EventDelivery, seconds: float) -> None:
        """Each attempt uses the same turn. During a freeze or over a limit, the event waits."""
        try:
            await start_event_turn(self._deps, self._to, owed.event)
        except Conflict:
            # The same event has started it under another manifest or version.
            _log.warning("event %d has started a turn of `%s` before", owed.event.number, self._to.starts)
        except Refused as error:
            if error.code == "frozen":
                raise Unfinished("frozen", _FROZEN_SECONDS) from None
            if isinstance(error, BadRequest) and error.after:
                raise Unfinished(error.code, error.after) from None
            raise NotDelivered(error.message, code=error.code, again=True) from None

    async def close(self) -> None:
        """See `EventTarget`."""


SETTLING: Final = (
    "approval.decided",
    "approval.edited",
    "approval.expired",
    "approval.withdrawn",
    "tool_call.settled",
    "tool_call.refused",
    "tool_call.executed",
    "tool_call.answered",
    "tool_call.failed",
    "tool_call.in_doubt",
)
"""The events that may settle a call."""
_RAN: Final = ("tool_call.executed", "tool_call.failed", "tool_call.in_doubt")
_JSON: Final = "application/json"

RETRY_SECONDS: Final = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 36_000.0)
"""Pauses after each failure, from Standard Webhooks. After the last one, the delivery is given up."""
LOOK_SECONDS: Final = 1.0
_AT_ONCE: Final = 20
_SPARE_SECONDS: Final = 5.0
"""Waits for deliveries end this long before their lease does."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def send_events(deps: GatewayDeps) -> AsyncIterator[None]:
    """Each subscription has its own task until the block ends: some are slow."""
    sending = [
        asyncio.create_task(run_forever(f"the sender of subscription `{to.name}`", EventSender(deps, to).run))
        for to in subscriptions_of(deps)
    ]
    try:
        yield
    finally:
        for each in sending:
            each.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


def subscriptions_of(deps: GatewayDeps) -> list[Subscription]:
    """Includes one for each agent's callbacks in each tenant."""
    subscriptions = list(deps.catalog.subscriptions.values())
    tenants = sorted({DEFAULT_TENANT, *(person.tenant for person in deps.people.all())})
    for name, actor in deps.catalog.actors.items():
        callbacks = None if actor.external is None else actor.external.callbacks
        if callbacks is not None:
            subscriptions += [_callback_subscription(name, callbacks, tenant) for tenant in tenants]
    return subscriptions


class EventSender:
    """Delivers the events of one subscription."""

    def __init__(self, deps: GatewayDeps, to: Subscription) -> None:
        self._deps = deps
        self._to = to
        self._queue = EventDeliveries(deps.store, deps.limits)
        self._target = _target_of(deps, to)

    async def run(self) -> None:
        """Send until cancelled. Raises `StoreUnavailable`, after which it may run again."""
        try:
            while True:
                if not await self.step():
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self._target.close()

    async def step(self) -> int:
        """Queue new events and send due ones. Returns the number of due events. Raises `StoreUnavailable`."""
        await self._deps.events.extend()
        await self._queue.add(self._to)
        ends = time.monotonic() + LEASE_SECONDS - _SPARE_SECONDS
        due = sorted(await self._queue.claim(self._to, _AT_ONCE), key=lambda owed: (_stream(owed), owed.event.number))
        turns = [list(of_turn) for _, of_turn in groupby(due, key=_stream)]
        await asyncio.gather(*(self._send_in_order(of_turn, ends) for of_turn in turns))
        return len(due)

    async def _send_in_order(self, owed: Iterable[EventDelivery], ends: float) -> None:
        """`owed` belongs to one turn. After a failure, send the rest at once."""
        left = iter(owed)
        for each in left:
            if not await self._send(each, ends):
                break
        await asyncio.gather(*(self._send(each, ends) for each in left))

    async def _send(self, owed: EventDelivery, ends: float) -> bool:
        if not is_for(self._to, owed.event):
            # Another manifest queued it, perhaps the newer one: do not forget it, and do not send it.
            await self._queue.give_up(owed.key, "not wanted")
            return False
        seconds = ends - time.monotonic()
        if seconds <= 0:
            # The lease is nearly over: another gateway may already be sending it.
            return False
        try:
            await self._target.give(owed, seconds)
        except Unfinished as error:
            # The delivery has not failed, but its arrival is not confirmed.
            await self._queue.postpone(owed.key, error.code, error.seconds, counts=False)
            return False
        except NotDelivered as error:
            await self._fail(owed, error)
            return False
        except ServerUnavailable as error:
            await self._fail(owed, NotDelivered(error.message, code="server", again=True))
            return False
        self._count("delivered")
        await self._queue.finish(owed.key)
        return True

    async def _fail(self, owed: EventDelivery, error: NotDelivered) -> None:
        if error.code == "secret":
            _log.warning("subscription `%s` is not sent anything: %s", self._to.name, error.message)
        if owed.attempts > len(RETRY_SECONDS):
            _log.warning(
                "event %d is given up for subscription `%s`: %s", owed.event.number, owed.subscription, error.code
            )
            self._count("given_up")
            await self._queue.give_up(owed.key, error.code)
            return
        self._count("failed")
        await self._queue.postpone(owed.key, error.code, max(RETRY_SECONDS[owed.attempts - 1], error.after))

    def _count(self, outcome: str) -> None:
        self._deps.store.counts.count("signoff_event_deliveries", self._to.name, outcome)


def _target_of(deps: GatewayDeps, to: Subscription) -> EventTarget:
    if to.of_actor_alone:
        agent = deps.catalog.actors[to.actor].external
        return CallbackTarget(deps, to, Callbacks() if agent is None or agent.callbacks is None else agent.callbacks)
    if to.starts:
        return ActorTarget(deps, to)
    return WebhookTarget(deps, to) if to.handler is None else HandlerTarget(deps, to)


def _stream(owed: EventDelivery) -> str:
    return owed.event.id.rpartition("/")[0]


def _callback_subscription(agent: str, callbacks: Callbacks, tenant: str) -> Subscription:
    return Subscription(
        # Names in a manifest have no dot.
        name=f"{agent}.callbacks",
        events=SETTLING,
        secret=callbacks.secret,
        previous_secret=callbacks.previous_secret,
        allow_networks=callbacks.allow_networks,
        tenant=tenant,
        actor=agent,
        of_actor_alone=True,
    )


class CallbackTarget:
    """The callbacks of one agent's calls. A call without a callback sends none."""

    def __init__(self, deps: GatewayDeps, to: Subscription, callbacks: Callbacks) -> None:
        self._deps = deps
        self._to = to
        self._callbacks = callbacks
        self._http = GuardedHttp(read_networks(callbacks.allow_networks))

    async def give(self, owed: EventDelivery, seconds: float) -> None:
        """An event that settles no call sends no callback."""
        key = parse_workflow_id(owed.event.id.rpartition("/")[0])
        try:
            turn = None if key is None else await load_call(self._deps, ".".join(key), self._to.actor, self._to.tenant)
        except NotFound:
            turn = None
        callback = None if turn is None else turn.call.callback
        if turn is None or callback is None:
            return
        # Check again: the declaration may have changed since the proposal.
        if not self._callbacks.allows(callback):
            raise NotDelivered("its agent's declaration allows no such callback", code="not_allowed", again=False)
        answer = await self._read_settled(turn, owed.event.type)
        if answer is None:
            return
        message = {"id": answer.id, "state": answer.state, "tool": answer.tool, "callback": {"state": callback.state}}
        if callback.workflow is not None:
            await self._send_signal(callback.workflow, message)
            return
        # The same name for every attempt and every event with this state: receivers deduplicate by it.
        name = f"{answer.id}.{answer.state}"
        await _post_signed(self._deps, self._http, self._to, callback.url, name, json.dumps(message).encode(), _JSON)

    async def close(self) -> None:
        await self._http.close()

    async def _read_settled(self, turn: ExternalTurn, event: str) -> CallAnswer | None:
        """Return `None` if another event follows, or the agent reported the call.

        Raises `Unfinished` if its turn has not yet taken the decision.
        """
        answer = await read_call(self._deps, turn)
        if answer.state in MOVING:
            # A running call, or a new question, sends its own event at its end.
            if answer.state == "running" or answer.code:
                return None
            raise Unfinished
        if event in _RAN and any(each.owner for each in await self._deps.store.tickets_of_turn(turn.key.workflow_id)):
            return None
        return answer

    async def _send_signal(self, to: WorkflowSignal, message: dict[str, Any]) -> None:
        # Unencrypted: the receiver has its own keys, and a codec may fail forever on payloads with foreign ones.
        temporal = self._deps.client.temporal
        plain = Client(temporal.service_client, namespace=temporal.namespace)
        handle = plain.get_workflow_handle(to.id, run_id=to.run_id or None)
        try:
            await handle.signal(to.signal, message)
        except RPCError as error:
            code = error.status.name.lower()
            raise NotDelivered("the workflow takes no signal", code=code, again=True) from None
