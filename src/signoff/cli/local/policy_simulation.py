"""Tries the present policies on past calls from the audit log, with arguments from the histories of turns."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from temporalio.client import Client

from signoff.approvals.argument_rows import plural
from signoff.approvals.digest import digest_in_context
from signoff.audit.call_history import PastCall, past_calls
from signoff.audit.log import AuditLog
from signoff.audit.record import moment_text
from signoff.cli.local.history_reader import read_history
from signoff.cli.local.installation import find_installation, reach_server
from signoff.cli.terminal.output import Output
from signoff.cli.terminal.tables import clean
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
from signoff.store.store import Store, working_store

Would = Literal["run", "ask", "deny", "unknown"]

_SIGNS: Final[Mapping[Would, str]] = {"run": "█", "ask": "▒", "deny": "·"}
_BAR_CHARS: Final = 24
_NOT_LOOKED_AT: Final = (
    "not looked at: whether a tool was there, within its hours, used up or frozen, and answers that people had "
    "remembered"
)


class SimulatedCall(NamedTuple):
    """A past call under the present policies. `why` is the rule, or the reason for `unknown`."""

    past: PastCall
    would: Would
    why: str


class _Proposed(NamedTuple):
    """A call as the model proposed it, with its context then, including changes by tools and the session."""

    ctx: CallContext
    call: CallPart


_Turn: TypeAlias = Mapping[str, _Proposed]


async def simulate(client: Client, store: Store, catalog: Catalog, past: Iterable[PastCall]) -> list[SimulatedCall]:
    """Judge each past call again, with the context and arguments from its turn's history.

    Arguments count only if they match the recorded digest. The verdict is `unknown` if the server's retention deleted
    the history, people edited the arguments, a handler would answer, or the call is a fallback. The conditions in
    `_NOT_LOOKED_AT` are assumed to hold. Raises `ServerUnavailable`.
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
        return SimulatedCall(past, "unknown", "no model proposed it: it was the fallback of a failed call")
    ctx, call = proposed
    tool = catalog.tool_view(ctx).tool(past.tool)
    try:
        args = await load(store, call.args)
        digest = digest_in_context(
            ctx,
            call=past.call,
            tool=past.tool,
            definition=past.definition,
            # The digest covers the arguments that would run; a tool's own check may have corrected them.
            args=args if tool is None else final_arguments(tool, args),
        )
    except (StoreUnavailable, NotCanonical, TypeError, ValueError):
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
    return {
        part.call: _Proposed(step.ctx, part)
        for step in history.steps
        for part in step.reply.message.parts
        if isinstance(part, CallPart)
    }


async def show_simulation(out: Output, source: str, begin: datetime, tenant: str, address: str | None) -> None:
    """Judge the recorded calls since `begin`, and print the result."""
    place = find_installation(source)
    client = await reach_server(place.settings, address)
    async with working_store(place.settings) as store:
        past = await past_calls(AuditLog(store), moment_text(begin), tenant=tenant)
        tried = await simulate(client, store, place.catalog, past)
    out.show([_tried_json(each) for each in tried], *_tried_words(tried))


def _tried_json(tried: SimulatedCall) -> dict[str, Any]:
    return tried.past.model_dump() | {"would": tried.would, "why": tried.why}


def _tried_words(tried: list[SimulatedCall]) -> list[RenderableType]:
    known = [each for each in tried if each.would != "unknown"]
    freed = [each for each in known if each.would == "run" and each.past.became != "auto"]
    against = [each for each in freed if each.past.became == "denied"]
    asked = [each for each in known if each.would == "ask" and each.past.became == "auto"]
    denied = [each for each in known if each.would == "deny"]
    words: list[RenderableType] = [
        f"{plural(len(tried), 'recorded call')}, of which {len(known)} can be judged again",
        f"{len(freed)} that needed approval would run without it; {len(against)} of these had been denied",
        f"{len(asked)} that ran by rule would be asked, {plural(len(denied), 'call')} would be denied",
    ]
    words += [
        Text(
            f"denied by {each.past.by}, would run by {each.why}: {each.past.tool} {each.past.call}, {each.past.stream}"
        )
        for each in against
    ]
    lost = Counter(each.why for each in tried if each.would == "unknown")
    words += [f"{count} cannot be judged: {why}" for why, count in lost.items()]
    return [*words, _NOT_LOOKED_AT, "", _draw_bars(known)] if known else words


def _draw_bars(known: list[SimulatedCall]) -> Table:
    tools: dict[str, Counter[Would]] = {}
    for each in known:
        tools.setdefault(each.past.tool, Counter())[each.would] += 1
    most = max(found.total() for found in tools.values())
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("Tool", overflow="fold")
    table.add_column("")
    for would in _SIGNS:
        table.add_column(f"{_SIGNS[would]} {would.capitalize()}", justify="right")
    for tool, found in sorted(tools.items(), key=lambda each: (-each[1].total(), each[0])):
        bar = "".join(sign * -(-found[would] * _BAR_CHARS // most) for would, sign in _SIGNS.items())
        table.add_row(clean(tool), bar, *(str(found[would]) for would in _SIGNS))
    return table
