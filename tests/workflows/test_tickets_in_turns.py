import asyncio
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from turn_fixtures import ApprovalPolicy, Ledger, RunningTurns, TurnRig, catalog_of, no, pay_tool, running_turns, yes

from signoff.contracts.call import CallOutcome
from signoff.contracts.content import BlobRef
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.turn import TurnView
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolResult
from signoff.store.store import Also, Store
from signoff.store.tickets import ticket_key
from signoff.testing.scripted_model import calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})
SCRIPT = [calls(PAY), respond("done")]
IN_DOUBT = "It is not known whether this happened; do not repeat it."
FREE = ApprovalPolicy(auto_approve_if="args.amount < 50.0")


async def test_reset_of_an_automatic_turn_pays_once(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger, FREE)], SCRIPT) as turns:
        key = await turns.start()
        first = await turns.signoff.result(key)
        await turns.reset(key)
        second = await turns.signoff.result(key)
    assert second.calls == first.calls
    assert len(ledger.rows) == 1


async def test_reset_to_before_the_request_does_not_ask_again_and_pays_once(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key))
        first = await turns.signoff.result(key)
        await turns.reset(key)
        again = await turns.signoff.result(key)
        view = await turns.signoff.view(key)
    assert [outcome.code for outcome in again.calls] == ["ok"]
    assert again.calls[0].value == first.calls[0].value
    assert view.calls[0].approval is None
    assert len(ledger.rows) == 1


async def test_reset_to_before_the_decision_pays_once(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key))
        await turns.signoff.result(key)
        await turns.reset(key, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED)
        await turns.until(key, lambda view: bool(view.calls) and view.calls[0].approval is not None)
        await turns.signoff.decide(yes(key))
        again = await turns.signoff.result(key)
    assert [outcome.code for outcome in again.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def claimed_elsewhere(turns: RunningTurns, key: TurnKey, view: TurnView) -> str:
    """Claim the waiting call's ticket like a worker that is then lost, and return its key."""
    request = view.calls[0].approval
    assert request is not None
    ticket = ticket_key(request.digest, 1)
    assert (await turns.store.claim(ticket, workflow=key.workflow_id, call="c1.1", tool="pay")).kind == "fresh"
    return ticket


@pytest.mark.row("N19")
async def test_idempotent_tool_runs_again_under_the_same_key(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger, idempotent=True)], SCRIPT) as turns:
        key = await turns.start()
        ticket = await claimed_elsewhere(turns, key, await turns.waiting(key))
        result = await turns.result_after(yes(key))
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert [row[2] for row in ledger.rows] == [ticket]


def failing(ledger: Ledger, error: Exception, times: int = 100) -> Any:
    async def run(args: dict[str, Any], ctx: ToolContext) -> str:
        ledger.rows.append(("pay", args, ctx.idempotency_key))
        if len(ledger.rows) <= times:
            raise error
        return "paid"

    return run


@pytest.mark.row("N19")
async def test_handler_exception_is_a_result_and_is_not_retried(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [
        pay_tool(ledger, FREE, handler=failing(ledger, ValueError("no such account"))),
        pay_tool(ledger, FREE, name="wire", handler=failing(ledger, ConnectionError("cut"))),
    ]
    script = [calls(PAY, ("wire", {"amount": 1})), respond("done")]
    async with turn_rig.running(tools, script) as turns:
        result = await turns.signoff.result(await turns.start())
        codes = [(outcome.code, outcome.value.inline) for outcome in result.calls]
    assert codes == [("execution_failed", "no such account"), ("execution_failed", "cut")]
    assert len(ledger.rows) == 2


@pytest.mark.parametrize(("times", "code"), [(2, "ok"), (9, "execution_failed")])
async def test_transient_exception_of_an_idempotent_tool_is_retried_at_most_twice(
    times: int, code: str, turn_rig: TurnRig, ledger: Ledger
) -> None:
    tool = pay_tool(ledger, FREE, idempotent=True, handler=failing(ledger, ConnectionError("cut"), times))
    async with turn_rig.running([tool], SCRIPT) as turns:
        result = await turns.signoff.result(await turns.start())
    assert [outcome.code for outcome in result.calls] == [code]
    assert len(ledger.rows) == 3
    assert len({row[2] for row in ledger.rows}) == 1


@pytest.mark.parametrize(("read_only", "code"), [(False, "in_doubt"), (True, "execution_failed")])
async def test_tool_timeout_leaves_outcome_unknown_unless_it_only_reads(
    read_only: bool, code: str, turn_rig: TurnRig, ledger: Ledger
) -> None:
    async def endless(args: dict[str, Any], ctx: ToolContext) -> str:
        ledger.rows.append(("pay", args, ctx.idempotency_key))
        await asyncio.Event().wait()
        return "never"

    tool = pay_tool(ledger, FREE, handler=endless, timeout=0.1, read_only=read_only)
    async with turn_rig.running([tool], SCRIPT) as turns:
        key = await turns.start()
        if not read_only:
            await turns.waiting(key)
            await turns.signoff.decide(no(key))
        result = await turns.signoff.result(key)
        results = await turns.results(key)
    assert [outcome.code for outcome in result.calls] == [code]
    assert (results[0].value.inline == IN_DOUBT) == (not read_only)
    assert len(ledger.rows) == (3 if read_only else 1)


class _Flaky(Store):
    refuse_record = 1
    refuse_blobs = 0

    async def record(self, key: str, outcome: CallOutcome, *, also: Also | None = None) -> CallOutcome:
        if self.refuse_record > 0:
            self.refuse_record -= 1
            raise StoreUnavailable("the store is away")
        return await super().record(key, outcome, also=also)

    async def put_blob(self, body: bytes, place: SessionKey | None) -> BlobRef:
        if self.refuse_blobs > 0:
            self.refuse_blobs -= 1
            raise StoreUnavailable("the store is away")
        return await super().put_blob(body, place)


async def test_outcome_waits_for_an_unavailable_store(
    client: Client, tmp_path: Any, task_queue: str, ledger: Ledger
) -> None:
    store = await _Flaky.open(f"sqlite:///{tmp_path}/flaky.db")
    assert isinstance(store, _Flaky)

    async def paid(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        ledger.rows.append(("pay", args, ctx.idempotency_key))
        store.refuse_blobs = 1
        return ToolResult("€" * 20_000)

    tool = pay_tool(ledger, FREE, handler=paid)
    try:
        async with running_turns(client, store, task_queue, catalog_of([tool]), SCRIPT) as turns:
            result = await turns.signoff.result(await turns.start())
            ticket = await store.read_ticket(ledger.rows[0][2])
    finally:
        await store.close()
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert (store.refuse_record, store.refuse_blobs) == (0, 0)
    assert len(ledger.rows) == 1
    assert ticket is not None
    assert ticket.state == "done"
