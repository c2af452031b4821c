"""Compares an external call with a hand-written workflow for the same work.

Run it: `python -m tools.bench.external_calls [--rounds N] [--calls N] [--json FILE]`.
"""

import argparse
import asyncio
from pathlib import Path

from tools.bench.external_calls.measurement import CALLS, ROUNDS, measure
from tools.bench.external_calls.report import render


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.external_calls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"interleaved rounds (default {ROUNDS})")
    parser.add_argument("--calls", type=int, default=CALLS, help=f"calls of each kind a round ({CALLS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as JSON")
    given = parser.parse_args()
    report = asyncio.run(measure(given.rounds, given.calls))
    print(f"\n{render(report)}")
    if given.json is not None:
        given.json.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
