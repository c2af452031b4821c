from datetime import UTC, datetime
from typing import Any

import pytest
from tables import table
from temporalio.client import Client
from turn_fixtures import Ledger, RunningTurns, catalog_of, pay_tool, running_turns, yes

from signoff.audit.log import AuditLog
from signoff.audit.record import record_from_entry
from signoff.contracts.audit import AuditEntry
from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import INLINE_BYTES
from signoff.engine.history_reader import load_history, read_history, specialist_results
from signoff.evaluation.case_file import EvaluationCase
from signoff.evaluation.case_player import PlayResult, play
from signoff.evaluation.case_recorder import case_from_history
from signoff.evaluation.difference import find_differences
from signoff.registry.catalog import Catalog
from signoff.registry.tool import Tool
from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond

SPECIALIST: dict[str, Any] = {"scope": "specialist", "justification": "only the desk pays"}
ONE = {"amount": 1, "to": "Ana"}


def free(name: str, answer: Any = "paid", **fields: Any) -> Tool:
    return pay_tool(Ledger(), False, name=name, handler=Ledger().handler(name, answer), **fields)


async def case_of(turns: RunningTurns, key: TurnKey, catalog: Catalog) -> tuple[EvaluationCase, dict[str, str]]:
    history = await read_history(turns.client, key.workflow_id)
    assert history is not None
    specialists = specialist_results(await AuditLog(turns.store).stream(key.workflow_id))
    return case_from_history(await load_history(turns.store, history), catalog, specialists), specialists


async def same(case: EvaluationCase, catalog: Catalog) -> PlayResult:
    played = await play(case, catalog)
    assert find_differences(case, played, catalog.actors["desk"]) == ()
    return played


@pytest.mark.row("B41")
async def test_specialists_call_is_answered_from_its_log(client: Client, store: Store, task_queue: str) -> None:
    """By the log's `specialist_execution`, the text that the model read."""
    catalog = catalog_of([free("own", {"paid": 1}, **SPECIALIST), free("all")])
    script = [calls(("own", ONE), ("all", ONE)), respond("so")]
    async with running_turns(client, store, task_queue, catalog, script) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        case, specialists = await case_of(turns, key, catalog)
    assert specialists == {"c1.1": result.calls[0].value.inline}
    recorded = [call.result.value for call in case.completions[0].calls if call.result is not None]
    assert recorded == [outcome.value.inline for outcome in result.calls]
    assert [call.answered for call in (await same(case, catalog)).calls] == ["record", "record"]


@table(
    ("kind", "differing", "found"),
    ("outcome", {}, {"c1.1": "paid"}),
    ("execution", {}, {}),
    ("outcome", {"record": "other"}, {}),
    ("outcome", {"code": "execution_failed"}, {}),
    ("outcome", {"result_chars": 5_000}, {}),
    ("outcome", {"result": None}, {}),
    ("outcome", {"by": "turn"}, {}),
    ("outcome", {"approval": "nothing"}, {}),
)
def test_only_complete_results_recorded_by_a_worker_are_used(
    kind: Any, differing: dict[str, Any], found: dict[str, str]
) -> None:
    facts = {"record": "specialist_execution", "code": "ok", "result": "paid", "approval": "main.s.t.c1.1"} | differing
    entry = AuditEntry(stream="turn/main/s/t", key="k", kind=kind, at=datetime(2026, 11, 24, tzinfo=UTC), data=facts)
    assert specialist_results([record_from_entry(entry)]) == found


async def test_values_in_the_store_are_part_of_a_case(client: Client, store: Store, task_queue: str) -> None:
    long = "é" * INLINE_BYTES
    catalog = catalog_of([pay_tool(Ledger(), handler=Ledger().handler("pay", long))])
    script = [calls(("pay", {"amount": 1, "to": long})), respond(long)]
    async with running_turns(client, store, task_queue, catalog, script) as turns:
        key = await turns.start()
        await turns.waiting(key)
        await turns.signoff.decide(yes(key))
        await turns.signoff.result(key)
        case, _ = await case_of(turns, key, catalog)
    [call] = case.completions[0].calls
    assert call.result is not None
    assert call.decision is not None
    assert (call.args["to"], call.result.value, case.answer) == (long, long, long)
    assert (call.verdict, call.decision.verdict, call.decision.by) == ("ask", "approved", "approver")
    await same(case, catalog)


async def test_unknown_workflow_has_no_history(client: Client) -> None:
    assert await read_history(client, "turn/main/none/none") is None
