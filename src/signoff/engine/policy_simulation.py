"""Judges past calls by the present policies, with arguments from the histories of turns."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from temporalio.client import Client

from signoff.approvals.digest import digest_in_context
from signoff.audit.call_history import PastCall
from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey, call_id, parse_workflow_id
from signoff.contracts.message import CallPart
from signoff.engine.history_reader import read_history
from signoff.registry.capabilities import KINDS
from signoff.registry.catalog import Catalog
from signoff.registry.gates.argument_check import final_arguments
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.store.content_store import load_in
from signoff.store.store import Store
from signoff.workflows.turn_state import TurnState

Would: TypeAlias = Literal["run", "ask", "deny", "unknown"]

NOT_LOOKED_AT: Final = (
    "not looked at: whether a tool was there, within its hours, used up or frozen, and answers that people had "
    "remembered"
)


class SimulatedCall(NamedTuple):
    """A past call under the present policies. `why` is the rule, or the reason for `unknown`."""

    past: PastCall
    would: Would
    why: str


class _Proposed(NamedTuple):
    """A proposed call with its context then, including changes by tools and the session."""

    ctx: CallContext
    call: CallPart


_Turn: TypeAlias = Mapping[str, _Proposed]


async def simulate(client: Client, store: Store, catalog: Catalog, past: Iterable[PastCall]) -> list[SimulatedCall]:
    """Judge each past call again, by turn, as `simulate_turn`."""
    turns: dict[str, list[PastCall]] = {}
    for call in past:
        turns.setdefault(call.stream, []).append(call)
    tried: list[SimulatedCall] = []
    for stream, calls in turns.items():
        tried += await simulate_turn(client, store, catalog, stream, calls)
    return tried


async def simulate_turn(
    client: Client, store: Store, catalog: Catalog, stream: str, past: Sequence[PastCall]
) -> list[SimulatedCall]:
    """Judge the calls of one turn again, with the context and arguments from its history.

    The verdict is `unknown` without a history, if the arguments do not match the recorded digest, if a handler would
    answer, or for a fallback. The conditions in `NOT_LOOKED_AT` are assumed to hold. Raises `ServerUnavailable`.
    """
    key, turn = parse_workflow_id(stream), await _turn(client, stream)
    if key is None or turn is None:
        return [SimulatedCall(call, "unknown", "its history is gone") for call in past]
    tried: list[SimulatedCall] = []
    for call in past:
        proposed = turn.get(call.call)
        if proposed is None:
            why = "no model proposed it: it was the fallback of a failed call"
            tried.append(SimulatedCall(call, "unknown", why))
            continue
        try:
            # Anyone who can write to Temporal can name content of other sessions.
            args = await load_in(store, proposed.call.args, SessionKey(key.tenant, key.session))
        except StoreUnavailable:
            tried.append(SimulatedCall(call, "unknown", "the arguments cannot be read"))
            continue
        # In a thread: rules of many calls must not hold up the other work of a gateway.
        tried.append(await asyncio.to_thread(_judge, catalog, call, proposed, args))
    return tried


def _judge(catalog: Catalog, past: PastCall, proposed: _Proposed, args: Any) -> SimulatedCall:
    ctx, call = proposed
    tool = catalog.tool_view(ctx).tool(past.tool)
    try:
        digest = digest_in_context(
            ctx,
            call=past.call,
            tool=past.tool,
            definition=past.definition,
            # The digest covers the arguments that would run; a tool's own check may have corrected them.
            args=args if tool is None else final_arguments(tool, args),
        )
    except (NotCanonical, TypeError, ValueError):
        return SimulatedCall(past, "unknown", "the arguments cannot be read")
    if digest != past.digest:
        return SimulatedCall(past, "unknown", "the arguments differ from the recorded ones: people had edited them")
    found = judge(
        catalog,
        ctx,
        call,
        args,
        Tally(),
        known=GateFacts(backends=frozenset(KINDS), spent={}, at=datetime.fromisoformat(past.at)),
    )
    if found.awaits_permission:
        return SimulatedCall(past, "unknown", "its tool checks permissions, and is asked only about present calls")
    if found.before_handler is not None:
        return SimulatedCall(past, "unknown", "its policy has a handler, which is asked only about present calls")
    if found.kind == "settled" or found.verdict is None:
        return SimulatedCall(past, "deny", found.message)
    return SimulatedCall(past, "run" if found.kind == "run" else "ask", found.verdict.rule.label)


async def _turn(client: Client, workflow_id: str) -> _Turn | None:
    """Return `None` without a history."""
    history = await read_history(client, workflow_id)
    if history is None:
        return None
    external = history.turn.external
    if external is not None:
        # A local activity judges it, which leaves no task in the history.
        call = CallPart(call=call_id(1, 1), tool=external.tool, args=external.args)
        return {call.call: _Proposed(TurnState(history.turn).ctx, call)}
    return {
        part.call: _Proposed(step.ctx, part)
        for step in history.steps
        for part in step.reply.message.parts
        if isinstance(part, CallPart)
    }
