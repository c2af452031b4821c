"""Runs an experiment: `python -m tools.bench.scale EXPERIMENT [--store URL] [--json FILE]`."""

import argparse
import asyncio
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from signoff.contracts.names import ENGINE
from signoff.formats.replace import replace
from signoff.store.store import open_store
from tools.bench.scale.agents import AGENTS, measure_agents
from tools.bench.scale.cards import NUMBERS as CARDS
from tools.bench.scale.cards import ROUNDS, SECONDS, measure_cards
from tools.bench.scale.commands import measure_commands
from tools.bench.scale.history import measure_history
from tools.bench.scale.load import measure_burst, measure_decisions
from tools.bench.scale.million import NUMBER, measure_million
from tools.bench.scale.outage import measure_outage
from tools.bench.scale.report import ScaleReport, render
from tools.bench.scale.stack import Stack
from tools.bench.scale.waiting import REPETITIONS, measure_waiting

RESULTS = Path("tools/bench/results")
NUMBERS = (1_000, 3_000, 10_000)
A_MINUTE = 1_000
STARTS = 5_000
EXPERIMENTS = ("waiting", "decisions", "burst", "agents", "cards", "million", "history", "commands", "outage")


async def measure(arguments: argparse.Namespace) -> ScaleReport:
    report = ScaleReport(
        experiment=arguments.experiment,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        engine=ENGINE,
        cpus=os.cpu_count() or 0,
        store="PostgreSQL" if arguments.store else "SQLite",
    )
    with tempfile.TemporaryDirectory(prefix="signoff-scale-") as folder:
        if arguments.experiment == "commands":
            return replace(report, figures=measure_commands(Path(folder), arguments.repetitions))
        if arguments.experiment in ("cards", "million", "history"):
            async with open_store(arguments.store or f"sqlite:///{folder}/signoff.db") as store:
                if arguments.experiment == "million":
                    return replace(report, figures=await measure_million(store, arguments.questions))
                if arguments.experiment == "history":
                    return replace(report, figures=await measure_history(store, arguments.questions))
                points = await measure_cards(store, sorted(arguments.cards), arguments.rounds, arguments.seconds)
                return replace(report, points=tuple(points))
        async with Stack.open(Path(folder), arguments.store) as stack:
            if arguments.experiment == "waiting":
                points = await measure_waiting(stack, sorted(arguments.turns), arguments.repetitions)
                return replace(report, points=tuple(points))
            if arguments.experiment == "agents":
                figures = await measure_agents(stack, arguments.agents)
            elif arguments.experiment == "outage":
                figures = await measure_outage(stack)
            elif arguments.experiment == "decisions":
                figures = await measure_decisions(stack, arguments.a_minute, arguments.minutes)
            else:
                figures = await measure_burst(stack, arguments.starts)
            return replace(report, figures=figures)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.scale", description="Signoff under many waiting turns."
    )
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--store", default="", help="an empty PostgreSQL database; SQLite when left out")
    parser.add_argument("--turns", type=int, nargs="+", default=NUMBERS, help="for `waiting`: the numbers of turns")
    parser.add_argument(
        "--repetitions", type=int, default=REPETITIONS, help="for `waiting` and `commands`: repetitions of each"
    )
    parser.add_argument("--a-minute", type=int, default=A_MINUTE, help="for `decisions`")
    parser.add_argument("--minutes", type=float, default=1.0, help="for `decisions`; at most 1,000 decisions in all")
    parser.add_argument("--starts", type=int, default=STARTS, help="for `burst`")
    parser.add_argument("--agents", type=int, default=AGENTS, help="for `agents`: the number of waits")
    parser.add_argument("--cards", type=int, nargs="+", default=CARDS, help="for `cards`: the numbers of due cards")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="for `cards`: rounds at each number")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for `cards`: how long a round sends")
    parser.add_argument("--questions", type=int, default=NUMBER, help="for `million` and `history`")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there; else to tools/bench/results")
    return parser.parse_args()


def main() -> None:
    arguments = read_arguments()
    report = asyncio.run(measure(arguments))
    print(f"\n{render(report)}")
    name = f"{report.date}-scale-{report.experiment}-{report.store.lower()}.json"
    file = arguments.json or RESULTS / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
