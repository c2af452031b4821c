"""Measures lists, gauges, decisions and claims over a million synthetic questions."""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

from sqlalchemy import Connection

from signoff.contracts.decision import Decision
from signoff.keys.signatures import Verifier
from signoff.store.database import Found
from signoff.store.gauges.backlog_reader import BacklogReader
from signoff.store.gauges.backlog_readings import BacklogReadings
from signoff.store.questions.request_lists import RequestLists
from signoff.store.request_reader import RequestReader
from signoff.store.store import Store
from signoff.testing.questions import answer
from tools.bench.scale.report import Spread, spreads
from tools.bench.scale.synthetic import EVERYONE, FEW, ONE, fill_questions, name_of

NUMBER: Final = 1_000_000
REPETITIONS: Final = 7
PAGE: Final = 50
_GAUGES: Final = 3
_READERS: Final = {"0": "role:nobody", "1": ONE, "2 %": FEW, "98 %": EVERYONE, "all": None}
"""An entry by the share of questions that it has. `None` reads all."""


async def measure_million(store: Store, number: int, repetitions: int = REPETITIONS) -> dict[str, Spread]:
    began = time.perf_counter()
    await fill_questions(store, number)
    print(f"{number:,} questions after {time.perf_counter() - began:.0f} s", flush=True)
    taken: dict[str, list[float]] = defaultdict(list)

    async def note(name: str, work: Callable[[], Awaitable[Any]]) -> None:
        began = time.perf_counter()
        await work()
        taken[f"{name}, ms"].append((time.perf_counter() - began) * 1000)

    watch = _Watch(store)
    lists = RequestLists(cast(Store, watch))
    requests = RequestReader(store, _no_verifier, development=True)
    readings = BacklogReadings(store)
    await readings.renew()
    for turn in range(repetitions):
        for share, entry in _READERS.items():
            entries = None if entry is None else ("user:ana", entry, "role:other")
            watch.seconds = 0.0
            await _first(lists, entries)
            taken[f"statements of a list's first piece, of {share}, ms"].append(watch.seconds * 1000)
            page = partial(requests.list_waiting, "main", readers=entries, limit=PAGE)
            await note(f"page of {PAGE}, of {share}", page)
        await note("gauges of a scrape", readings.last)
        name = name_of(number - turn)
        decision = Decision(approval_id=name, revision=1, verdict="approved", subject="ana", delivery_id="d")
        await note("a decision", partial(answer, store, decision))
        claim = partial(store.claim, name, workflow="turn/main/s/t", call=name, tool="pay", nonce=name)
        await note("a claim", claim)
    for _ in range(_GAUGES):
        await note("a measurement of the gauges, by one gateway", BacklogReader(store).read)
    return spreads(taken)


class _Watch:
    """Passes a list's work to a store, and counts the seconds of its transactions alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.run_in_thread = store.run_in_thread
        self.seconds = 0.0

    async def read(self, work: Callable[[Connection], Found]) -> Found:
        began = time.perf_counter()
        found = await self._store.read(work)
        self.seconds += time.perf_counter() - began
        return found


async def _first(lists: RequestLists, readers: tuple[str, ...] | None) -> None:
    pieces = lists.iterate_waiting("main", readers=readers)
    await anext(pieces)
    await pieces.aclose()


def _no_verifier() -> Verifier:
    raise RuntimeError("synthetic requesters have no signature")
