"""Kills a running installation at seeded moments, then checks its journals: `make kills SEED=7 MINUTES=12`."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tools.bench.kills.checker import check_run, read_run
from tools.bench.kills.installation import Installation
from tools.bench.kills.journal import NEMESIS, RECORD, WORKLOAD, Journal, Planned, Verified
from tools.bench.kills.nemesis import Nemesis
from tools.bench.kills.workload import Workload
from tools.bench.scale.stack import StackFailed

_DRAIN_SECONDS = 240.0
"""The time for the last calls after the last kill."""
_SEEDS = 1_000_000


async def play(seed: int, seconds: float, store: str, folder: Path) -> None:
    """Write the journals to `folder`."""
    workload, nemesis = Journal(folder / WORKLOAD), Journal(folder / NEMESIS)
    workload.write(Planned(seed=seed, seconds=seconds, store=store.partition(":")[0] or "sqlite"))
    async with Installation.open(folder, store) as installation:
        tokens = installation.stack.tokens
        async with Workload(installation.address, tokens, workload, folder, seed) as load:
            calls = asyncio.create_task(load.run())
            striking = Nemesis(installation, nemesis, seed)
            await striking.run(seconds)
            load.stop()
            watching = asyncio.create_task(striking.watch())
            # A call that has not ended by then has no `Ended`, which the checker reports.
            await asyncio.wait({calls}, timeout=_DRAIN_SECONDS)
            watching.cancel()
            calls.cancel()
            ended = await asyncio.gather(calls, watching, return_exceptions=True)
        await _export(installation, workload, folder)
    if isinstance(ended[0], Exception):
        raise ended[0]


async def _export(installation: Installation, journal: Journal, folder: Path) -> None:
    await installation.stack.run("audit", "export", "--out", str(folder / RECORD))
    keys = folder / "worker" / "public-keys.json"
    try:
        await installation.stack.run("audit", "verify", str(folder / RECORD), "--keys", str(keys))
    except StackFailed as error:
        journal.write(Verified(ok=False, words=str(error)))
    else:
        journal.write(Verified(ok=True, words=""))


def _store_url(given: str) -> str:
    if given in {"", "sqlite"}:
        return ""
    if not given.startswith("postgresql://"):
        raise argparse.ArgumentTypeError("use `sqlite` or `postgresql://USER@HOST/NAME`, an empty database")
    return given


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="the same kills again; random when left out")
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument(
        "--store",
        type=_store_url,
        default="",
        help="the postgresql:// URL of an empty database; `sqlite`, or left out, a new file",
    )
    parser.add_argument("--journals", type=Path, help="an empty folder that keeps the journals; else a temporary one")
    parser.add_argument(
        "--check", type=Path, metavar="FOLDER", help="check the journals of an earlier run, run nothing"
    )
    return parser.parse_args()


def main() -> int:
    """Return 1 if the checker finds a fault."""
    arguments = read_arguments()
    if arguments.check is not None:
        return _report(arguments.check)
    seed = SystemRandom().randrange(_SEEDS) if arguments.seed is None else arguments.seed
    again = f"make kills SEED={seed} MINUTES={arguments.minutes:g}" + (
        f" STORE={arguments.store}" if arguments.store else ""
    )
    print(f"Seed {seed}. Run again with: {again}", flush=True)
    print(
        f"The kills take {arguments.minutes:g} minutes, the last calls up to {_DRAIN_SECONDS / 60:g} more.", flush=True
    )
    folder = arguments.journals or Path(tempfile.mkdtemp(prefix="signoff-kills-"))
    folder.mkdir(exist_ok=True, parents=True)
    failed = 1
    try:
        asyncio.run(play(seed, arguments.minutes * 60, arguments.store, folder))
        failed = _report(folder)
    finally:
        if failed:
            print(f"FAILED with seed {seed}. Run again with: {again}\nThe journals are in {folder}", flush=True)
        elif arguments.journals is None:
            shutil.rmtree(folder)
    return failed


def _report(folder: Path) -> int:
    run = read_run(folder)
    faults = check_run(run)
    print(run.figures())
    for fault in faults:
        print(fault)
    print("No fault." if not faults else f"{len(faults)} faults.", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
