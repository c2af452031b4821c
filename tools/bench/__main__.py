"""Runs the benchmark: `python -m tools.bench [--rounds N] [--turns N] [--quick] [--json FILE]`."""

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from signoff.contracts.names import ENGINE
from signoff.formats.replace import replace
from signoff.store.store import Store, open_store
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, run_server
from signoff.worker import freeze_gc
from tools.bench.gates import measure_gates
from tools.bench.memory import measure_memory
from tools.bench.registry import measure_registry
from tools.bench.report import Report, Settings, render, where
from tools.bench.sides import Baseline, Gated
from tools.bench.turns import measure_size, play_rounds

RESULTS = Path("tools/bench/results")
FULL = Settings(rounds=5, turns=150, latency_turns=100, concurrency=50, memory_turns=1_000)
QUICK = Settings(rounds=2, turns=100, latency_turns=20, concurrency=50, memory_turns=100)


async def measure(settings: Settings) -> Report:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="signoff-bench-"))
        url = f"sqlite:///{folder}/signoff.db"
        options = ServerOptions(Path(folder) / "temporal.db", port=free_port(), ui_port=None)
        server = await stack.enter_async_context(run_server(options))
        store = await stack.enter_async_context(open_store(url))
        return await _measure(settings, server, store, url)


async def _measure(settings: Settings, server: ServerHandle, store: Store, url: str) -> Report:
    client = await server.connect()
    hand, ours = Baseline(client, "bench-hand-written"), await Gated.open(client, "bench-signoff", store)
    freeze_gc()
    async with hand.worker(), ours.worker():
        rounds = await play_rounds((hand, ours), settings, server.pid)
        sizes = await measure_size(client, hand), await measure_size(client, ours)
    gates = await measure_gates(store, settings.turns)
    registry = measure_registry()
    print(f"memory of {settings.memory_turns} and {2 * settings.memory_turns} suspended turns", flush=True)
    waiting = Baseline(client, "bench-memory-1"), await Gated.open(client, "bench-memory-2", store)
    memory = (
        await measure_memory(waiting[0], server.address, "bench-memory-1", url, settings.memory_turns),
        await measure_memory(waiting[1], server.address, "bench-memory-2", url, settings.memory_turns),
    )
    return Report(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        engine=ENGINE,
        where=await where(client),
        settings=settings,
        rounds=tuple(rounds),
        sizes=sizes,
        memory=memory,
        gates=gates,
        registry=registry,
        decisions_sent_as_signals=ours.as_signals,
    )


def read_arguments(arguments: list[str]) -> tuple[Settings, Path | None]:
    """Return the settings, and the result file or `None`. A full run has a file by default, other runs have none."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench", description="Signoff compared with a hand-written workflow."
    )
    parser.add_argument("--rounds", type=_positive, help=f"interleaved rounds (default {FULL.rounds})")
    parser.add_argument("--turns", type=_positive, help=f"turns a round ({FULL.turns})")
    parser.add_argument("--concurrency", type=_positive, help=f"how many of them at once ({FULL.concurrency})")
    parser.add_argument("--memory-turns", type=_positive, help=f"suspended turns, then twice ({FULL.memory_turns})")
    parser.add_argument("--quick", action="store_true", help="small and rough; the result is not kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as JSON")
    given = parser.parse_args(arguments)
    base = QUICK if given.quick else FULL
    settings = replace(
        base,
        rounds=given.rounds or base.rounds,
        turns=given.turns or base.turns,
        latency_turns=min(base.latency_turns, given.turns or base.turns),
        concurrency=given.concurrency or base.concurrency,
        memory_turns=given.memory_turns or base.memory_turns,
    )
    kept = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-engine{ENGINE}.json" if settings == FULL else None
    return settings, given.json or kept


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main() -> None:
    settings, file = read_arguments(sys.argv[1:])
    report = asyncio.run(measure(settings))
    print(f"\n{render(report)}")
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
        print(f"\nkept in {file}")


if __name__ == "__main__":
    main()
