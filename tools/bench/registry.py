"""Measures the registry alone: building a large catalog, and the gates for a batch of calls. No server, no CEL."""

import gc
import time

from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.contracts.person import Principal
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.pipeline import judge, next_tally
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from tools.bench.report import RegistryTime
from tools.bench.turns import percentile

LARGE = 10_000
SMALL = 1_000
BATCH = 20
_BATCHES = 50
_BUILDS = 3


def measure_registry() -> RegistryTime:
    """Measure building a catalog of 10,000 tools (median of three), and p50 of judging 20 calls against 1,000.

    Both are processor times of one thread, nearly independent of the machine's other load. Every tenth tool always
    asks. Tools are made before the clock starts.
    """
    built = [_built() for _ in range(_BUILDS)]
    known = build_catalog(tools=_tools(SMALL), actors=[Actor(name="desk", model="scripted:none:none")])
    batches = [_batch(known, number) for number in range(_BATCHES)]
    return RegistryTime(build_s=percentile(built, 50), batch_p50_ms=percentile(batches, 50))


def _built() -> float:
    tools = _tools(LARGE)
    gc.collect()
    began = time.process_time()
    build_catalog(tools=tools, actors=[Actor(name="desk", model="scripted:none:none")])
    return time.process_time() - began


def _tools(number: int) -> list[Tool]:
    return [
        Tool(
            name=f"tool_{index}",
            description=f"Does the work number {index}.",
            input_schema={
                "type": "object",
                "properties": {
                    "to": {"type": "string", "description": "Who."},
                    f"amount_{index}": {"type": "number", "exclusiveMinimum": 0},
                },
                "required": ["to"],
                "additionalProperties": False,
            },
            handler=_handler,
            scope="generalist",
            tags=("work",),
            requires_approval=index % 10 == 0,
        )
        for index in range(number)
    ]


async def _handler(args: dict[str, object], context: ToolContext) -> str:
    return "done"


def _batch(known: Catalog, number: int) -> float:
    """Return milliseconds. The turn is new to this process."""
    ctx = CallContext(actor="desk", session="s", turn=f"t{number}", tenant="main", user=Principal(user="guest"))
    calls = [
        (
            CallPart(
                call=f"c1.{index}", tool=f"tool_{(number + index * 7) % SMALL}", args=Content(inline={"to": "Ana"})
            ),
            {"to": "Ana"},
        )
        for index in range(1, BATCH + 1)
    ]
    tally = Tally()
    began = time.process_time()
    for call, args in calls:
        found = judge(known, ctx, call, args, tally)
        if found.gate != "approval":
            raise RuntimeError(f"the gate `{found.gate}` objects to a call that is right")
        tally = next_tally(tally, call, args, found)
    return (time.process_time() - began) * 1000


def main() -> None:
    found = measure_registry()
    print(f"a catalog of {LARGE:,} tools: {found.build_s:.2f} s")
    print(f"{BATCH} calls against {SMALL:,} tools: p50 {found.batch_p50_ms:.2f} ms")


if __name__ == "__main__":
    main()
