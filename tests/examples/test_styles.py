import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tables import table
from temporalio.client import Client
from turn_fixtures import running_turns, yes

from signoff.cli.main import invoke
from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.people.directory import principal_of
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.results.reducers import reduce_result
from signoff.registry.tool_result import ReducerInput, ToolResult
from signoff.store.store import Store

STYLES = ("beach", "adr", "falai", "ethos")
HERE = Path(__file__).parents[2] / "examples" / "styles"
CATALOGS = {style: load_manifest(HERE / style / "signoff.yaml") for style in STYLES}
import styles.falai.desk as falai  # noqa: E402  (the manifests put its folder on the path)
from styles.adr.desk import registry  # noqa: E402
from travel_desk.script import model  # noqa: E402

MOST_LINES = 29
BOOKING = {"flight": "TP 531", "destination": "Lisbon", "totalCost": 420, "passenger": "the traveller"}
BOOKS: dict[str, Any] = {"route": "journey", "step": "book"}
CHANGES: dict[str, Any] = {"route": "changes"}
PLACES = {"flight_search": {"route": "journey", "step": "find"}, "book_flight": BOOKS}
"""The place of the falai desk for a tool. The other desks have no places."""


def place(style: str, tool: str) -> dict[str, Any]:
    return PLACES.get(tool, CHANGES) if style == "falai" else {}


def pinned(style: str, person: str, **where: Any) -> CallContext:
    people = CATALOGS[style].people
    user = principal_of(people.find(person), people)
    return CallContext(actor="desk", session="s", turn="t", tenant="main", user=user, **where)


def judged(style: str, person: str, tool: str, args: dict[str, Any]) -> JudgedCall:
    ctx = pinned(style, person, extra={"data": {"destination": "Lisbon"}}, **place(style, tool))
    return judge(CATALOGS[style], ctx, CallPart(call="c1.1", tool=tool, args=Content(inline=args)), args, Tally())


@pytest.mark.parametrize("style", STYLES)
def test_style_is_short_and_valid(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted(path for path in (HERE / style).iterdir() if path.suffix in (".yaml", ".py"))
    lines = [line for path in files for line in path.read_text().splitlines() if line.strip()]
    assert [path.name for path in files] == ["desk.py", "signoff.yaml"]
    assert len(lines) <= MOST_LINES
    assert invoke(("manifest", "validate", str(HERE / style / "signoff.yaml"))) == 0
    assert "is right: 1 actor, 4 tools" in capsys.readouterr().out


@table("style", *STYLES)
@table(
    ("person", "tool", "args", "kind"),
    ("guest", "flight_search", {"destination": "Lisbon"}, "run"),
    ("traveller", "book_flight", {**BOOKING, "totalCost": 39}, "run"),
    ("traveller", "book_flight", BOOKING, "ask"),
    ("guest", "book_flight", {**BOOKING, "totalCost": 39}, "ask"),
    ("traveller", "cancel_booking", {"booking": "TD-1"}, "ask"),
    ("traveller", "refund", {"booking": "TD-1", "amount": 20}, "ask"),
)
def test_every_style_is_the_same_desk(style: str, person: str, tool: str, args: dict[str, Any], kind: str) -> None:
    assert judged(style, person, tool, args).kind == kind


@pytest.mark.parametrize("style", STYLES)
async def test_style_runs_a_turn_through_approval(
    style: str, client: Client, store: Store, task_queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAVEL_DESK_DB", str(tmp_path / "travel.db"))
    async with running_turns(client, store, task_queue, CATALOGS[style], model) as turns:
        given = {"context": {"data": {"destination": "Lisbon"}}, **place(style, "book_flight")}
        key = await turns.start("book the 420 euro flight to Lisbon", **given)
        view = await turns.waiting(key)
        await turns.signoff.decide(yes(key))
        booked = await turns.signoff.result(key)
        refused = await turns.signoff.result(await turns.start("refund 420 euro for TD-1", **place(style, "refund")))
    assert view.calls[0].tool == "book_flight"
    assert [(each.tool, each.code, each.decided_by) for each in booked.calls] == [("book_flight", "ok", "approver")]
    assert "Booked: TP 531 to Lisbon for 420 EUR" in str(booked.parts[0].content.inline)
    assert [(each.tool, each.code) for each in refused.calls] == [("refund", "denied")]
    assert refused.calls[0].denied is not None
    assert refused.calls[0].denied.source == "policy"
    with sqlite3.connect(tmp_path / "travel.db") as books:
        assert books.execute("SELECT flight, total FROM bookings").fetchall() == [("TP 531", 420.0)]


def test_beachs_dispatch_rules_are_kept() -> None:
    tools = {tool.name: (tool.scope, tool.routing) for tool in CATALOGS["beach"].tools()}
    assert tools.pop("flight_search") == ("specialist", "bypass")
    assert set(tools.values()) == {("generalist", "routed")}


def test_manifest_over_a_registry_in_code_leaves_it_unchanged() -> None:
    assert CATALOGS["adr"].registry.hash == registry.hash
    assert list(registry.list()) == ["book_flight", "cancel_booking", "flight_search", "refund"]


def test_falai_desk_has_the_needed_tools_at_each_place() -> None:
    there = {"data": {"destination": "Lisbon"}}

    def seen(**where: Any) -> list[str]:
        view = CATALOGS["falai"].tool_view(pinned("falai", "guest", **where))
        return [tool.name for tool in view.visible()]

    assert seen(**CHANGES) == ["cancel_booking", "refund"]
    assert "book_flight" not in seen(route="journey", step="find", extra=there)
    assert "book_flight" not in seen(**BOOKS)
    assert "book_flight" in seen(**BOOKS, extra=there)


@pytest.mark.row("F01")
def test_falai_desk_registers_its_tools_for_reuse_by_id() -> None:
    assert [*falai.registry.get_registered()] == ["cancel_booking"]
    assert CATALOGS["falai"].resolve("cancel_booking") == falai.cancel
    assert falai.registry.build().list() == ("cancel_booking",)


def test_ethos_desk_has_a_budget_a_toolset_and_a_reducer() -> None:
    catalog = CATALOGS["ethos"]
    search = catalog.registry.resolve("flight_search")
    assert search is not None
    assert (catalog.actors["desk"].toolset, search.toolset, search.max_result_chars) == ("travel", "travel", 2_000)
    assert (
        reduce_result(catalog.reducers["flight_search"], ToolResult("[1, 2, 3, 4]"), ReducerInput({})).value
        == "[1, 2, 3]"
    )
