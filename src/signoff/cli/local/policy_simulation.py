"""A policy tried on the calls of the past: the record says which there were, the turns' histories what they said."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from temporalio.client import Client

from signoff.approvals.digest import digest_in_context
from signoff.audit.call_history import PastCall
from signoff.cli.local.history_reader import read_history
from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.message import CallPart
from signoff.registry.capabilities import KINDS
from signoff.registry.catalog import Catalog
from signoff.registry.gates.argument_check import final_arguments
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.store.content_store import load
from signoff.store.store import Store

Would = Literal["run", "ask", "deny", "unknown"]

NOT_LOOKED_AT: Final = (
    "not looked at: whether a tool was there, within its hours, used up or frozen, and answers that people had "
    "remembered"
)


class SimulatedCall(NamedTuple):
    """One past call under the policies of now. `why` is the rule, or why it cannot be known."""

    past: PastCall
    would: Would
    why: str


class _Proposed(NamedTuple):
    """A call as the model made it, in the context as it stood then: what tools and the session had changed included."""

    ctx: CallContext
    call: CallPart


_Turn: TypeAlias = Mapping[str, _Proposed]


async def simulate(client: Client, store: Store, catalog: Catalog, past: Iterable[PastCall]) -> list[SimulatedCall]:
    """Judges each call anew, with the context and the arguments that its turn's history holds.

    They count only if they have the digest that was recorded. Where a history is gone, by the server's retention, or
    people had changed the arguments, or a handler would answer, or the call stood in for another, the verdict is
    `unknown`. What `NOT_LOOKED_AT` says is taken to have stood in no call's way. Raises `ServerUnavailable`.
    """
    turns: dict[str, _Turn | None] = {}
    tried = []
    for call in past:
        if call.stream not in turns:
            turns[call.stream] = await _turn(client, call.stream)
        tried.append(await _try_call(store, catalog, call, turns[call.stream]))
    return tried


async def _try_call(store: Store, catalog: Catalog, past: PastCall, turn: _Turn | None) -> SimulatedCall:
    if turn is None:
        return SimulatedCall(past, "unknown", "its history is gone")
    proposed = turn.get(past.call)
    if proposed is None:
        return SimulatedCall(past, "unknown", "no model proposed it: it stood in for a call that had failed")
    ctx, call = proposed
    tool = catalog.tool_view(ctx).tool(past.tool)
    try:
        args = await load(store, call.args)
        digest = digest_in_context(
            ctx,
            call=past.call,
            tool=past.tool,
            definition=past.definition,
            # The digest is over what would run, which a tool's own check may have corrected.
            args=args if tool is None else final_arguments(tool, args),
        )
    except (StoreUnavailable, NotCanonical, TypeError, ValueError):
        return SimulatedCall(past, "unknown", "the arguments cannot be read")
    if digest != past.digest:
        return SimulatedCall(past, "unknown", "the arguments are not those that were recorded: people had changed them")
    found = judge(
        catalog,
        ctx,
        call,
        args,
        Tally(),
        known=GateFacts(backends=frozenset(KINDS), spent={}, at=datetime.fromisoformat(past.at)),
    )
    if found.awaits_permission:
        return SimulatedCall(
            past, "unknown", "its tool checks permissions, and is asked about what is proposed now only"
        )
    if found.before_handler is not None:
        return SimulatedCall(
            past, "unknown", "its policy has a handler, which is asked about what is proposed now only"
        )
    if found.kind == "settled" or found.verdict is None:
        return SimulatedCall(past, "deny", found.message)
    return SimulatedCall(past, "run" if found.kind == "run" else "ask", found.verdict.rule.label)


async def _turn(client: Client, workflow_id: str) -> _Turn | None:
    """Reads the proposed calls from the history of a turn; None when there is none."""
    history = await read_history(client, workflow_id)
    if history is None:
        return None
    return {
        part.call: _Proposed(step.task.ctx, part)
        for step in history.steps
        for part in step.reply.message.parts
        if isinstance(part, CallPart)
    }
