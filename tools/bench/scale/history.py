"""Measures searches over a million synthetic decided requests."""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, cast

from sqlalchemy import Connection, text

from signoff.contracts.approval import ApprovalRequest, Card, CardRow, Vote
from signoff.contracts.person import Person, Principal
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.history.past_reader import PastFilter, PastReader
from signoff.gateway.history.request_indexer import past_row
from signoff.gateway.history.similar import COMPARED
from signoff.people.eligibility import rights
from signoff.store.history.past_requests import SLOTS, PastRow, build_insert, insert_values, put_past
from signoff.store.store import Store
from signoff.store.tables import PAST_REQUESTS
from signoff.testing.builders import a_decision, a_request
from tools.bench.scale.report import Spread, spreads
from tools.bench.scale.synthetic import EVERYONE, FEW, SHARE, analyze

NUMBER: Final = 1_000_000
REPETITIONS: Final = 7
PIECE: Final = 10_000
"""Rows in one transaction."""
KINDS: Final = 1_000
"""Different requests. Others have the same card, but other names and numbers."""
CUSTOMERS: Final = 2_000
MONTHS: Final = timedelta(days=730)
"""Time over which the ends are spread."""
_DENIED: Final = 10
_PEOPLE: Final = 50
_TOOLS: Final = 10
_OLD: Final = 100
"""The oldest of so many parts has the word `legacy`."""
_READERS: Final = {
    "all": Person(id="oz", roles=("auditor",)),
    "98 %": Person(id="someone", roles=(EVERYONE.removeprefix("role:"),)),
    "2 %": Person(id="someone", roles=(FEW.removeprefix("role:"),)),
    "0": Person(id="someone"),
}
"""A reader by the share of readable requests."""
_ANSWERER: Final = Person(id="p7", roles=(EVERYONE.removeprefix("role:"),))


@dataclass(frozen=True)
class _Deps:
    """The parts of the gateway that a search needs."""

    store: Store
    development: bool = False

    def rights(self, person: Person) -> tuple[str, ...]:
        return rights(person, ())


async def measure_history(store: Store, number: int, repetitions: int = REPETITIONS) -> dict[str, Spread]:
    now, began = datetime.now(UTC), time.perf_counter()
    await fill_history(store, number, now)
    print(f"{number:,} decided requests after {time.perf_counter() - began:.0f} s", flush=True)
    deps = cast(GatewayDeps, _Deps(store))
    taken: dict[str, list[float]] = defaultdict(list)

    async def note(name: str, work: Callable[[], Awaitable[Any]]) -> None:
        began = time.perf_counter()
        await work()
        taken[f"{name}, ms"].append((time.perf_counter() - began) * 1000)

    kind = _kinds(now)[0]
    half = str(insert_values(_row(number // 2, number, now, kind), 0)["number"])
    for _ in range(repetitions):
        for share, person in _READERS.items():
            reader = PastReader(deps, "main", person)
            for words, chosen in _searches(now).items():
                await note(f"{words}, reader of {share}", partial(reader.find, chosen))
        own = PastReader(deps, "main", _ANSWERER)
        await note("frequent word, page in the middle", partial(own.find, PastFilter("pay"), after=half))
        await note("own answers", partial(own.find, PastFilter(scope="mine")))
        await note("similar approvals of a card", partial(own.find_own, "tool5", "approved", COMPARED))
        await note("one more request", partial(store.run, partial(put_past, row=_row(0, number, now, kind))))
    return spreads(taken)


def _searches(now: datetime) -> dict[str, PastFilter]:
    return {
        "no word": PastFilter(),
        "frequent word": PastFilter("pay"),
        "two frequent words": PastFilter("pay invoice"),
        "word of a two-thousandth": PastFilter("customer77"),
        "word of one": PastFilter("n123456"),
        "word of none": PastFilter("absent"),
        "old word of a hundredth": PastFilter("legacy"),
        "frequent word, denied, one tool": PastFilter("pay", tool="tool0", state="denied"),
        "frequent word, one old month": PastFilter("pay", since=now - MONTHS / 2, until=now - MONTHS / 2 + MONTHS / 24),
    }


async def fill_history(store: Store, number: int, now: datetime) -> None:
    """Add `number` decided requests to an empty store, the newest with the smallest number."""
    kinds = _kinds(now)

    def write(first: int, connection: Connection) -> None:
        rows = (_row(each, number, now, kinds[each % KINDS]) for each in range(first, min(first + PIECE, number + 1)))
        values = [insert_values(row, place % SLOTS) for place, row in enumerate(rows)]
        connection.execute(build_insert(connection.dialect.name), values)

    await store.run(partial(_index_words, drop=True))
    for first in range(1, number + 1, PIECE):
        await store.run(partial(write, first))
    await store.run(partial(_index_words, drop=False))
    await analyze(store)


def _index_words(connection: Connection, *, drop: bool) -> None:
    """PostgreSQL makes an index over rows much faster than row by row. SQLite's index has no such way."""
    if connection.dialect.name != "postgresql":
        return
    connection.execute(text("SET LOCAL maintenance_work_mem = '512MB'"))
    (index,) = (each for each in PAST_REQUESTS.indexes if each.name == "past_requests_words")
    if drop:
        index.drop(connection)
    else:
        index.create(connection)


def _kinds(now: datetime) -> list[PastRow]:
    return [past_row(_request(each, now)) for each in range(KINDS)]


def _request(number: int, now: datetime) -> ApprovalRequest:
    verdict: Literal["approved", "denied"] = "denied" if number % _DENIED == 0 else "approved"
    approver = f"p{number % _PEOPLE}"
    decision = a_decision(subject=approver, verdict=verdict)
    shown = {"amount": f"{number}.50", "currency": "EUR", "account": f"DE89 3704 {number}", "note": "invoice"}
    return a_request(
        tool=f"tool{number // _DENIED % _TOOLS}",
        card=Card(
            effect=f"Pay {number}.50 EUR to the account of a supplier",
            rows=tuple(CardRow(name=name, label=name, value=value) for name, value in shown.items()),
        ),
        approvers=(FEW if number % SHARE == 1 else EVERYONE,),
        requester=Principal(user=f"user{number}", name="Guest"),
        state=verdict,
        decided_by=approver,
        decided_channel="slack",
        decided_at=now,
        votes=(Vote(subject=approver, verdict=verdict, channel="slack", at=now, decision=decision),),
    )


def _row(number: int, of: int, now: datetime, kind: PastRow) -> PastRow:
    approval = f"main.s.t{number}.c1.1"
    words = [f"n{number}", f"customer{number % CUSTOMERS}", *(["legacy"] if number > of - of // _OLD else [])]
    return replace(
        kind,
        approval=approval,
        stream=f"turn/main/s/t{number}",
        over_at=now - MONTHS * number / of,
        body=kind.body.replace(kind.approval, approval),
        words=(*kind.words, *words),
    )
