from typing import Any

from activity_kit import TURN, worker_deps
from tables import table
from turn_fixtures import GUEST, Ledger, pay_tool

from signoff.activities.results.read_rest_tool import bind_to_store, how_to_read_on, read_rest
from signoff.registry.actor import Actor
from signoff.registry.built_in_tools import READ_REST_TOOL
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure
from signoff.store.store import Store
from signoff.store.truncated_results import TruncatedResults
from signoff.testing import a_tool_context


def _context(budget: int = 400, **fields: Any) -> ToolContext:
    given = {"session_id": TURN.session, "turn_id": TURN.turn, "tenant_id": TURN.tenant, "idempotency_key": ""}
    return a_tool_context(**given | {"user_id": GUEST.user, "user": GUEST, "result_budget_chars": budget} | fields)


@table("budget", 400, 401, 80_000)
@table("total", 1, 399, 1_000, 200_000)
async def test_each_piece_fits_its_budget_and_names_the_next_start(store: Store, budget: int, total: int) -> None:
    """The line about the piece counts too, so that a piece is never cut again."""
    text = "".join(chr(97 + number % 26) for number in range(total))
    handle = await TruncatedResults(store).keep(TURN, "book", text)
    pieces, start = "", 0
    while start < total:
        found = await read_rest(store, {"handle": handle, "start": start}, _context(budget))
        assert isinstance(found, str)
        assert len(found) <= budget
        line, _, piece = found.partition("\n")
        end = start + len(piece)
        more = f"go on with start={end}" if end < total else "this is its end"
        assert line == f"Characters {start} to {end} of {total}; {more}"
        pieces, start = pieces + piece, end
    assert pieces == text


@table(
    ("start", "fields", "words"),
    (0, {"turn_id": "other"}, "no such handle in this turn"),
    (0, {"tenant_id": "other"}, "no such handle in this turn"),
    (5, {}, "the text has 5 characters; start below that"),
    (10**18, {}, "the text has 5 characters; start below that"),
)
async def test_unreadable_rest_is_an_input_error_of_the_model(
    store: Store, start: int, fields: dict[str, str], words: str
) -> None:
    handle = await TruncatedResults(store).keep(TURN, "book", "abcde")
    found = await read_rest(store, {"handle": handle, "start": start}, _context(**fields))
    assert isinstance(found, ToolFailure)
    assert (found.code, words in found.message) == ("input_invalid", True)


async def test_start_may_be_written_as_a_float(store: Store) -> None:
    handle = await TruncatedResults(store).keep(TURN, "book", "abcde")
    assert await read_rest(store, {"handle": handle, "start": 2.0}, _context()) == (
        "Characters 2 to 5 of 5; this is its end\ncde"
    )


async def test_only_the_built_in_read_tool_is_bound_to_a_store(store: Store) -> None:
    tool = pay_tool(Ledger())
    assert bind_to_store(tool, store) is tool
    mine = bind_to_store(READ_REST_TOOL, store)
    assert mine.definition == READ_REST_TOOL.definition
    found = await mine.handler({"handle": "x" * 64, "start": 0}, _context())
    assert isinstance(found, ToolFailure)
    deps = worker_deps(store, actors=[Actor(name="desk", model="scripted", read_rest=True)])
    assert deps.catalog.registry.resolve("read_rest") is READ_REST_TOOL


def test_hint_about_the_rest_gives_the_exact_call() -> None:
    assert how_to_read_on("abc", 7) == 'The rest is read by read_rest(handle="abc", start=7).'
