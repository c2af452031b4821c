"""Tells whoever the proposal of a call named that the call is settled: by a signed POST, or a signal to a workflow."""

import json
from typing import Any, Final

from temporalio.client import Client
from temporalio.service import RPCError

from signoff.audit.event_deliveries import EventDelivery
from signoff.calls.agent_calls import MOVING
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.outbound_http import GuardedHttp, read_networks
from signoff.contracts.call import WorkflowSignal
from signoff.contracts.errors import NotFound
from signoff.contracts.ids import parse_workflow_id
from signoff.contracts.responses import CallAnswer
from signoff.gateway.calls.call_reader import load_call, read_call
from signoff.gateway.calls.external_turn import ExternalTurn
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.events.event_targets import Unfinished, post_signed
from signoff.registry.manifest.callbacks import Callbacks
from signoff.registry.manifest.subscription_sections import Subscription

SETTLING: Final = (
    "approval.decided",
    "approval.edited",
    "approval.expired",
    "approval.withdrawn",
    "tool_call.settled",
    "tool_call.refused",
    "tool_call.executed",
    "tool_call.failed",
    "tool_call.in_doubt",
)
"""The events with which a call may be settled."""
_RAN: Final = ("tool_call.executed", "tool_call.failed", "tool_call.in_doubt")
_JSON: Final = "application/json"


def callback_subscription(agent: str, callbacks: Callbacks, tenant: str) -> Subscription:
    """Returns the subscription by which the callbacks of an agent are owed, tried again and given up like events."""
    return Subscription(
        # No subscription of a manifest has a dot in its name.
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
    """The callbacks of one agent's calls; of a call that names none nothing is told."""

    def __init__(self, deps: GatewayDeps, to: Subscription, callbacks: Callbacks) -> None:
        self._deps = deps
        self._to = to
        self._callbacks = callbacks
        self._http = GuardedHttp(read_networks(callbacks.allow_networks))

    async def give(self, owed: EventDelivery, seconds: float) -> None:
        """See `EventTarget`; what has settled no call is no matter of its callback."""
        key = parse_workflow_id(owed.event.id.rpartition("/")[0])
        try:
            turn = None if key is None else await load_call(self._deps, ".".join(key), self._to.actor, self._to.tenant)
        except NotFound:
            turn = None
        callback = None if turn is None else turn.call.callback
        if turn is None or callback is None:
            return
        # Judged again: the declaration may be another one since the call was proposed.
        if not self._callbacks.allows(callback):
            raise NotDelivered("its agent's declaration allows no such callback", code="not_allowed", again=False)
        answer = await self._read_settled(turn, owed.event.type)
        if answer is None:
            return
        message = {"id": answer.id, "state": answer.state, "tool": answer.tool, "callback": {"state": callback.state}}
        if callback.workflow is not None:
            await self._send_signal(callback.workflow, message)
            return
        # The same at every try, and of every event that says the same: its receiver knows it by that.
        name = f"{answer.id}.{answer.state}"
        await post_signed(self._deps, self._http, self._to, callback.url, name, json.dumps(message).encode(), _JSON)

    async def close(self) -> None:
        """See `EventTarget`."""
        await self._http.close()

    async def _read_settled(self, turn: ExternalTurn, event: str) -> CallAnswer | None:
        """Returns the call where it is settled; None where another event will say so, or its agent did itself.

        Raises `Unfinished` where its turn has yet to take what was decided.
        """
        answer = await read_call(self._deps, turn)
        if answer.state in MOVING:
            # It runs, or people are asked, perhaps anew: what comes of that has an event of its own.
            if answer.state == "running" or answer.code:
                return None
            raise Unfinished
        if event in _RAN and any(each.owner for each in await self._deps.store.tickets_of_turn(turn.key.workflow_id)):
            return None
        return answer

    async def _send_signal(self, to: WorkflowSignal, message: dict[str, Any]) -> None:
        # In the clear: its receiver's keys are its own, and a codec that meets those of others may fail for ever.
        temporal = self._deps.client.temporal
        plain = Client(temporal.service_client, namespace=temporal.namespace)
        handle = plain.get_workflow_handle(to.id, run_id=to.run_id or None)
        try:
            await handle.signal(to.signal, message)
        except RPCError as error:
            code = error.status.name.lower()
            raise NotDelivered("the workflow takes no signal", code=code, again=True) from None
