"""Tries the present policies on past calls from the audit log, and shows the result."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from signoff.approvals.argument_rows import plural
from signoff.audit.call_history import past_calls
from signoff.audit.log import AuditLog
from signoff.audit.record import moment_text
from signoff.cli.local.installation import find_installation, reach_server
from signoff.cli.terminal.output import Output
from signoff.cli.terminal.tables import clean
from signoff.engine.policy_simulation import NOT_LOOKED_AT, SimulatedCall, Would, simulate
from signoff.store.store import working_store

_SIGNS: Final[Mapping[Would, str]] = {"run": "█", "ask": "▒", "deny": "·"}
_BAR_CHARS: Final = 24


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
    return [*words, NOT_LOOKED_AT, "", _draw_bars(known)] if known else words


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
