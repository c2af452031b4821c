import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.contracts.person import Principal
from signoff.people.directory import principal_of
from signoff.registry.catalog import Catalog
from signoff.registry.gates.pipeline import judge
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure

MANIFEST = Path(__file__).parents[2] / "examples" / "travel_desk" / "signoff.yaml"
BOOKING = {"flight": "TP 531", "destination": "Lisbon", "totalCost": 420, "passenger": "the traveller"}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_manifest(MANIFEST)


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "deep" / "travel.db"
    monkeypatch.setenv("TRAVEL_DESK_DB", str(path))
    return path


async def run(catalog: Catalog, tool: str, args: dict[str, Any], key: str = "k1") -> Any:
    user = Principal(user="guest")
    ctx = ToolContext(
        actor_name="desk", session_id="s", turn_id="t", call_id="c1.1", tenant_id="main", user_id="guest", user=user,
        idempotency_key=key,
    )  # fmt: skip
    return await catalog.registry.resolve(tool).handler(args, ctx)


def rows(path: Path, table: str = "bookings") -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.mark.row("B69")
@pytest.mark.parametrize(
    ("person", "tool", "args", "expected"),
    [
        ("guest", "flight_search", {"destination": "Lisbon"}, "run"),
        ("traveller", "book_flight", {**BOOKING, "totalCost": 39}, "run"),
        ("traveller", "book_flight", BOOKING, "ask"),
        ("guest", "book_flight", {**BOOKING, "totalCost": 39}, "ask"),
        ("traveller", "cancel_booking", {"booking": "TD-1"}, "ask"),
        ("traveller", "refund", {"booking": "TD-1", "amount": 420}, "denied"),
        ("traveller", "refund", {"booking": "TD-1", "amount": 20}, "ask"),
        ("traveller", "refund", {"booking": "TD-1", "amount": 0}, "input_invalid"),
    ],
)
def test_policies_decide_as_documented(
    catalog: Catalog, person: str, tool: str, args: dict[str, Any], expected: str
) -> None:
    user = principal_of(catalog.people.find(person), catalog.people)
    ctx = CallContext(actor="desk", session="s", turn="t", tenant="main", user=user)
    found = judge(catalog, ctx, CallPart(call="c1.1", tool=tool, args=Content(inline=args)), args, Tally())
    assert expected in (found.kind, found.code)


async def test_search_finds_by_city_and_price(catalog: Catalog) -> None:
    assert [each["price"] for each in await run(catalog, "flight_search", {"destination": "lisbon"})] == [420.0, 515.0]
    assert await run(catalog, "flight_search", {"destination": "Lisbon", "maxPrice": 400}) == []
    assert [each["price"] for each in await run(catalog, "flight_search", {"destination": "Porto"})] == [39.0]


@pytest.mark.row("N19")
async def test_two_bookings_with_one_key_make_one_row(catalog: Catalog, database: Path) -> None:
    first = await run(catalog, "book_flight", BOOKING)
    assert first == await run(catalog, "book_flight", BOOKING)
    assert (first["booking"], first["currency"], rows(database)) == ("TD-1", "EUR", 1)
    assert (await run(catalog, "book_flight", BOOKING, key="k2"))["booking"] == "TD-2"
    assert rows(database) == 2


async def test_row_exists_while_the_tool_still_sleeps(
    catalog: Catalog, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAVEL_DESK_SLEEP_AFTER_WRITE", "3600")
    task = asyncio.create_task(run(catalog, "book_flight", BOOKING))
    async with asyncio.timeout(60):
        while not _written(database):
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rows(database) == 1


def _written(path: Path) -> bool:
    try:
        return path.exists() and rows(path) == 1
    except sqlite3.OperationalError:
        return False


async def test_cancel_and_refund_act_once(catalog: Catalog, database: Path) -> None:
    booking = (await run(catalog, "book_flight", BOOKING))["booking"]
    assert isinstance(await run(catalog, "refund", {"booking": booking, "amount": 20}), ToolFailure)
    assert await run(catalog, "cancel_booking", {"booking": booking}) == {"booking": booking, "state": "cancelled"}
    assert isinstance(await run(catalog, "cancel_booking", {"booking": booking}), ToolFailure)
    assert isinstance(await run(catalog, "cancel_booking", {"booking": "TD-0"}), ToolFailure)
    assert isinstance(await run(catalog, "refund", {"booking": booking, "amount": 421}), ToolFailure)
    for _ in range(2):
        assert (await run(catalog, "refund", {"booking": booking, "amount": 20}))["refunded"] == 20.0
    assert rows(database, "refunds") == 1


def test_people_are_the_built_in_ones_and_two_more(catalog: Catalog) -> None:
    assert [person.id for person in catalog.people.all()] == ["guest", "approver", "traveller", "manager"]
    assert catalog.people.find("traveller").tier == "trusted"
    assert catalog.people.find("manager").roles == ("approvers",)
