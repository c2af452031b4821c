import asyncio
from datetime import datetime, timedelta
from pathlib import Path

from tables import table
from temporalio.client import Client

from signoff.contracts.clock import Clock, system_clock
from signoff.engine.clock_check import clock_problem, server_clock_lead, store_clock_lead
from signoff.store.store import open_store

LATE = timedelta(minutes=10)
UNSURE = timedelta(minutes=1)
"""The maximum error of a measurement on a busy machine: a clock answers some time after the question."""


def late() -> datetime:
    return system_clock() - LATE


async def lead_of_server(client: Client, clock: Clock = system_clock) -> timedelta:
    """Repeated: a busy server may not yet have counted the poll that would give the time within a second."""
    while (ahead := await server_clock_lead(client, clock=clock)) is None:
        await asyncio.sleep(0.1)
    return ahead


async def test_clocks_of_one_machine_agree(client: Client, tmp_path: Path) -> None:
    assert abs(await lead_of_server(client)) < UNSURE
    async with open_store(f"sqlite:///{tmp_path}/signoff.db") as store:
        assert abs(await store_clock_lead(store)) < UNSURE


async def test_wrong_local_clock_differs_from_server_and_store(client: Client, tmp_path: Path) -> None:
    ahead = await lead_of_server(client, clock=late)
    assert abs(ahead - LATE) < UNSURE
    async with open_store(f"sqlite:///{tmp_path}/signoff.db") as store:
        assert abs(await store_clock_lead(store, clock=late) - LATE) < UNSURE
    assert clock_problem("the Temporal server", LATE).startswith(
        "the clock of the Temporal server is 600 s ahead of this machine's: set both by NTP"
    )
    assert "until then cards show more time than is left" in clock_problem("the store", LATE)
    assert "the store is 600 s behind" in clock_problem("the store", -LATE)
    assert "until then answers may count as late before their deadline" in clock_problem("the store", -LATE)


@table(("seconds", "expected"), (5, False), (6, True), (-5, False), (-6, True))
def test_difference_of_a_few_seconds_is_ignored(seconds: int, expected: bool) -> None:
    assert bool(clock_problem("the store", timedelta(seconds=seconds))) is expected


def test_server_without_a_time_is_no_problem() -> None:
    assert clock_problem("the Temporal server", None) == ""
