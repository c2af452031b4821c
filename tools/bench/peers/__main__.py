"""Runs the comparison: `python -m tools.bench.peers [--rounds N] [--turns N] [--concurrency N] [--json FILE]`."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psutil

from signoff.contracts.names import ENGINE
from signoff.formats.replace import replace
from signoff.store.store import open_store
from signoff.temporal.embedded_server import ServerOptions, free_port, run_server
from signoff.worker import freeze_gc
from tools.bench.peers.langgraph_side import open_langgraph
from tools.bench.peers.pydantic_side import pydantic_sides
from tools.bench.peers.report import PeerRound, PeerSettings, PeersReport, render
from tools.bench.postgres import running_postgres
from tools.bench.report import where
from tools.bench.sides import AUTOMATIC, HUMAN, Baseline, Gated, Turns
from tools.bench.turns import many, measure_size, one_by_one, percentile

RESULTS: Final = Path("tools/bench/results")
FULL: Final = PeerSettings(rounds=5, turns=100, latency_turns=50, concurrency=50)
PACKAGES: Final = ("pydantic-ai-slim", "langgraph", "langgraph-checkpoint-postgres", "psycopg")


async def measure(settings: PeerSettings) -> PeersReport:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="signoff-bench-"))
        options = ServerOptions(Path(folder) / "temporal.db", port=free_port(), ui_port=None)
        server = await stack.enter_async_context(run_server(options))
        store = await stack.enter_async_context(open_store(f"sqlite:///{folder}/signoff.db"))
        postgres = stack.enter_context(running_postgres("bench"))
        client = await server.connect()
        on_temporal = (
            await Gated.open(client, "bench-signoff", store),
            Baseline(client, "bench-hand-written"),
            *await pydantic_sides(server.address),
        )
        elsewhere = await stack.enter_async_context(open_langgraph(f"postgresql://bench@{postgres}/postgres"))
        freeze_gc()
        for side in on_temporal:
            await stack.enter_async_context(side.worker())
        rounds = await _play((*on_temporal, elsewhere), settings, psutil.Process(server.pid))
        return PeersReport(
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            engine=ENGINE,
            where=await where(client),
            versions={package: version(package) for package in PACKAGES},
            settings=settings,
            rounds=tuple(rounds),
            sizes=tuple([await measure_size(client, side) for side in on_temporal]),
        )


async def _play(sides: Sequence[Turns], settings: PeerSettings, server: psutil.Process) -> list[PeerRound]:
    """The sides take turns within a round. Every other round plays them backwards."""
    # Pydantic AI builds its converters in its first turn. In many turns at once, each would build them.
    await one_by_one(sides, 1)
    for side in sides:
        for kind in (HUMAN, AUTOMATIC):
            await many(side, settings.concurrency, settings.concurrency, server, kind)
    played: list[PeerRound] = []
    for number in range(1, settings.rounds + 1):
        order = sides if number % 2 else sides[::-1]
        rates = {
            (side.name, kind): await many(side, settings.turns, settings.concurrency, server, kind)
            for kind in (HUMAN, AUTOMATIC)
            for side in order
        }
        taken = await one_by_one(sides, settings.latency_turns)
        for side in sides:
            human = rates[side.name, HUMAN]
            played.append(
                PeerRound(
                    number=number,
                    side=side.name,
                    human=human.turns_per_second,
                    automatic=rates[side.name, AUTOMATIC].turns_per_second,
                    p50_ms=percentile(taken[side.name], 50),
                    p95_ms=percentile(taken[side.name], 95),
                    cpu_ms=human.own_cpu_ms,
                )
            )
            print(played[-1].line(), flush=True)
    return played


def read_arguments(arguments: Sequence[str]) -> tuple[PeerSettings, Path]:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.peers", description="Signoff beside its peers.")
    parser.add_argument("--rounds", type=int, default=FULL.rounds, help=f"rounds of all sides ({FULL.rounds})")
    parser.add_argument("--turns", type=int, default=FULL.turns, help=f"turns of each kind a round ({FULL.turns})")
    parser.add_argument(
        "--concurrency", type=int, default=FULL.concurrency, help=f"how many of them at once ({FULL.concurrency})"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there; else to tools/bench/results")
    given = parser.parse_args(arguments)
    settings = replace(
        FULL,
        rounds=given.rounds,
        turns=given.turns,
        latency_turns=min(FULL.latency_turns, given.turns),
        concurrency=given.concurrency,
    )
    return settings, given.json or RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-peers.json"


def main() -> None:
    settings, file = read_arguments(sys.argv[1:])
    report = asyncio.run(measure(settings))
    print(f"\n{render(report)}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    print(f"\nkept in {file}")


if __name__ == "__main__":
    main()
