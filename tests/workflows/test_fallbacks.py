from dataclasses import replace
from typing import Any

import pytest
from turn_fixtures import (
    AMOUNT_SCHEMA,
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    no,
    pay_tool,
    yes,
)

from signoff.contracts.activity_messages import GateDecision
from signoff.contracts.content import Content
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import CallPart
from signoff.contracts.names import ENGINE
from signoff.contracts.person import Principal
from signoff.contracts.turn import TurnInput, TurnResult
from signoff.people.directory import development_directory
from signoff.registry.actor import Actor
from signoff.registry.hooks import HookContext
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure, ToolResult
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import calls, respond
from signoff.workflows.alarm import Alarm
from signoff.workflows.approval_flow import ApprovalFlow
from signoff.workflows.call_loop import CallLoop
from signoff.workflows.external_runner import ExternalRunner
from signoff.workflows.tool_runner import ToolRunner
from signoff.workflows.turn_state import TurnState

ARGS = {"amount": 20, "to": "Ana"}
SCRIPT = [calls(("rates", ARGS)), respond("done")]
PEOPLE = development_directory([a_person(name) for name in ("ana", "bo")])


def rates(ledger: Ledger, *fallbacks: str, **fields: Any) -> Tool:
    def fail(args: dict[str, Any], ctx: ToolContext) -> ToolFailure:
        return ToolFailure("the market is shut")

    given = {"read_only": True, "fallbacks": fallbacks, "handler": ledger.handler("rates", fail)} | fields
    return pay_tool(ledger, given.pop("requires_approval", False), name="rates", effect="", **given)


def other(ledger: Ledger, name: str, answer: Any = "1.08", asks: Any = False, **fields: Any) -> Tool:
    return pay_tool(ledger, asks, name=name, effect="", handler=ledger.handler(name, answer), **fields)


def failing(text: str) -> Any:
    return lambda args, ctx: ToolFailure(text)


async def ended(turns: RunningTurns, key: TurnKey) -> TurnResult:
    result = await turns.signoff.result(key)
    await turns.replays(key)
    return result


def ran(ledger: Ledger) -> list[str]:
    return [name for name, _, _ in ledger.rows]


@pytest.mark.row("F40")
async def test_fallback_result_replaces_a_failed_tools_result(turn_rig: TurnRig, ledger: Ledger) -> None:
    costly = other(ledger, "older", lambda args, ctx: ToolResult(f"{ctx.call_id}: 1.08", cost=0.25))
    tools = [rates(ledger, "older", "oldest"), costly, other(ledger, "oldest")]
    async with turn_rig.running(tools, SCRIPT) as turns:
        key = await turns.start()
        result = await ended(turns, key)
        results = await turns.results(key)
        view = await turns.signoff.view(key)
    [outcome] = result.calls
    assert (outcome.call, outcome.tool, outcome.code) == ("c1.1", "rates", "ok")
    assert (outcome.fallback, outcome.primary_error) == ("older", "the market is shut")
    assert [(part.call, part.tool, part.value.inline) for part in results] == [("c1.1", "rates", "c1.1001: 1.08")]
    assert results[0].note == "`rates` failed: the market is shut. `older` was tried in its place."
    assert [(name, args) for name, args, _ in ledger.rows] == [("rates", ARGS), ("older", ARGS)]
    assert [(call.call, call.tool, call.state, call.stands_for) for call in view.calls] == [
        ("c1.1", "rates", "ok", ""),
        ("c1.1001", "older", "ok", "c1.1"),
    ]
    assert (result.tool_calls, result.cost) == (2, 0.25)


@pytest.mark.row("F40", "F41")
async def test_fallbacks_run_in_order_and_have_no_fallbacks(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [
        rates(ledger, "older", "hidden", "oldest"),
        other(ledger, "older", failing("no file"), read_only=True, fallbacks=("spare",)),
        other(ledger, "oldest", failing("no such day"), read_only=True),
        other(ledger, "hidden"),
        other(ledger, "spare"),
    ]
    actor = Actor(name="desk", model="scripted", tools=("rates", "older", "oldest"))
    catalog = catalog_of(tools, actors=[actor])
    async with turn_rig.running(catalog, SCRIPT) as turns:
        key = await turns.start()
        result = await ended(turns, key)
        results = await turns.results(key)
    # A fallback off the actor's list is treated as missing and ends the search.
    assert ran(ledger) == ["rates", "older"]
    [outcome] = result.calls
    assert (outcome.code, outcome.fallback, outcome.value.inline) == ("execution_failed", "older", "no file")
    assert results[0].note.startswith("`rates` failed: the market is shut. `hidden` could not be used: ")
    assert results[0].note.endswith("`older` was tried in its place.")


@pytest.mark.row("F40", "N06")
async def test_fallback_asks_for_approval_like_any_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [rates(ledger, "pay"), other(ledger, "pay", "paid", asks=True)]
    async with turn_rig.running(tools, SCRIPT) as turns:
        key = await turns.start()
        view = await turns.waiting(key)
        asked = view.calls[1].approval
        assert asked is not None
        assert ran(ledger) == ["rates"]
        assert (asked.call, asked.tool) == ("c1.1001", "pay")
        assert asked.card.note == "this is a fallback of `rates`"
        await turns.signoff.decide(yes(key, "c1.1001"))
        result = await ended(turns, key)
    [outcome] = result.calls
    assert (outcome.call, outcome.code, outcome.fallback, outcome.decided_by) == ("c1.1", "ok", "pay", "approver")
    assert outcome.approval_id == asked.id
    assert ran(ledger) == ["rates", "pay"]


@pytest.mark.row("F40")
async def test_denied_fallback_denies_the_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [rates(ledger, "pay", "older"), other(ledger, "pay", asks=True), other(ledger, "older")]
    async with turn_rig.running(tools, SCRIPT) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(no(key, "c1.1001"))
        result = await ended(turns, key)
    [outcome] = result.calls
    assert (outcome.code, outcome.fallback, ran(ledger)) == ("denied", "pay", ["rates"])


@pytest.mark.row("F40", "N19")
async def test_denied_or_invalid_call_has_no_fallback(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [rates(ledger, "older", requires_approval=True), other(ledger, "older")]
    script = [calls(("rates", ARGS), ("rates", {"amount": "?"})), respond("done")]
    async with turn_rig.running(tools, script) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(no(key))
        result = await ended(turns, key)
    assert [outcome.code for outcome in result.calls] == ["denied", "input_invalid"]
    assert ledger.rows == []


@pytest.mark.row("F40")
async def test_fallback_with_possible_effect_ends_the_search(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [rates(ledger, "pay", "wire"), other(ledger, "pay", failing("line dropped")), other(ledger, "wire")]
    async with turn_rig.running(tools, SCRIPT) as turns:
        result = await ended(turns, await turns.start())
    assert ran(ledger) == ["rates", "pay"]
    assert (result.calls[0].code, result.calls[0].fallback) == ("execution_failed", "pay")


async def test_edited_call_has_no_fallback(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [rates(ledger, "older", requires_approval=ApprovalPolicy(edit="approve")), other(ledger, "older")]
    async with turn_rig.running(tools, SCRIPT) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, edited_args={"amount": 5, "to": "Ana"}))
        result = await ended(turns, key)
    assert [(each.code, each.edited_by) for each in result.calls] == [("execution_failed", "approver")]
    assert ran(ledger) == ["rates"]


async def test_arguments_edited_for_a_fallback_are_not_reused(turn_rig: TurnRig, ledger: Ledger) -> None:
    """The next fallback would run by rule with the model's arguments, which the approver has replaced."""
    tools = [
        rates(ledger, "older", "oldest"),
        other(ledger, "older", failing("no file"), asks=ApprovalPolicy(edit="approve"), idempotent=True),
        other(ledger, "oldest"),
    ]
    async with turn_rig.running(tools, SCRIPT) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, "c1.1001", edited_args={"amount": 5, "to": "Bo"}))
        result = await ended(turns, key)
    [outcome] = result.calls
    assert (outcome.code, outcome.fallback, outcome.edited_by) == ("execution_failed", "older", "approver")
    assert [(name, args["amount"]) for name, args, _ in ledger.rows] == [("rates", 20), ("older", 5)]


async def test_edit_keeps_its_call_from_fallbacks_after_a_new_revision(turn_rig: TurnRig, ledger: Ledger) -> None:
    before = rates(ledger, "older", requires_approval=ApprovalPolicy(edit="approve", quorum=2))
    asked_first, asked_then = (
        catalog_of([each, other(ledger, "older")]) for each in (before, replace(before, version="2"))
    )
    async with turn_rig.running(asked_first, SCRIPT, people=PEOPLE) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": 5, "to": "Ana"}))
    async with turn_rig.running(asked_then, SCRIPT, people=PEOPLE) as turns:
        await turns.signoff.decide(yes(key, subject="bo", revision=2))
        await turns.until(key, lambda view: view.calls[0].approval.revision == 3)
        for who in ("ana", "bo"):
            await turns.signoff.decide(yes(key, subject=who, revision=3))
        result = await ended(turns, key)
    assert [(each.code, each.fallback) for each in result.calls] == [("execution_failed", "")]
    assert [(name, args["amount"]) for name, args, _ in ledger.rows] == [("rates", 5)]


async def test_fallbacks_follow_the_definition_of_the_tool_that_ran(turn_rig: TurnRig, ledger: Ledger) -> None:
    before = rates(ledger, "older", read_only=False, idempotent=True, requires_approval=True)
    async with turn_rig.running([before, other(ledger, "older")], SCRIPT) as turns:
        key = await turns.start_waiting()
    after = replace(before, idempotent=False, fallbacks=())
    async with turn_rig.running([after, other(ledger, "older")], SCRIPT) as turns:
        await turns.signoff.decide(yes(key))
        await turns.until(key, lambda view: view.calls[0].approval.revision == 2)
        await turns.signoff.decide(yes(key, revision=2))
        result = await ended(turns, key)
    assert [(each.code, each.fallback) for each in result.calls] == [("execution_failed", "")]
    assert ran(ledger) == ["rates"]


async def test_tool_with_invalid_output_has_no_fallback(turn_rig: TurnRig, ledger: Ledger) -> None:
    """Its result breaks the output schema, but its effect has happened: a second tool would repeat it."""
    done = {"handler": ledger.handler("rates", "booked"), "output_schema": {"type": "object"}}
    tool = rates(ledger, "older", read_only=False, idempotent=True, **done)
    async with turn_rig.running([tool, other(ledger, "older")], SCRIPT) as turns:
        result = await ended(turns, await turns.start())
    assert [(each.code, each.gate, each.fallback) for each in result.calls] == [("execution_failed", "output", "")]
    assert ran(ledger) == ["rates"]


async def test_cancelled_turn_does_not_wait_for_a_fallbacks_approval() -> None:
    turn = TurnInput(
        engine=ENGINE, session_id="s", turn_id="t", actor="desk", messages=(), principal=Principal(user="guest")
    )
    state = TurnState(turn)
    approvals = ApprovalFlow(state, lambda: None)
    tools = ToolRunner(state, ExternalRunner(state, approvals.hold_lock, Alarm()))
    loop = CallLoop(state, approvals, tools, lambda: None)
    state.stopped = True
    call = CallPart(call="c1.1001", tool="older", args=Content(inline=ARGS))
    outcome = await loop._settle(call, GateDecision(call=call.call, kind="ask"))
    assert (outcome.call, outcome.code) == ("c1.1001", "skipped")


async def test_fallback_arguments_are_checked_against_its_own_schema(turn_rig: TurnRig, ledger: Ledger) -> None:
    narrow = AMOUNT_SCHEMA | {"properties": {"amount": {"type": "number"}}}
    tools = [rates(ledger, "older"), other(ledger, "older", input_schema=narrow)]
    async with turn_rig.running(tools, SCRIPT) as turns:
        key = await turns.start()
        result = await ended(turns, key)
        results = await turns.results(key)
    [outcome] = result.calls
    assert (outcome.code, outcome.value.inline, outcome.fallback) == ("execution_failed", "the market is shut", "")
    assert results[0].note.startswith("`older` could not be used: the arguments of `older` are not valid")
    assert ran(ledger) == ["rates"]


@pytest.mark.row("F40")
@pytest.mark.parametrize("code", ["input_invalid", "not_available"])
async def test_fallback_that_reports_a_gate_code_counts_as_failed(code: Any, turn_rig: TurnRig) -> None:
    ledger = Ledger()
    says = other(ledger, "pay", lambda args, ctx: ToolFailure("no such account", code))
    tools = [rates(ledger, "pay", "older"), says, other(ledger, "older")]
    async with turn_rig.running(tools, SCRIPT) as turns:
        key = await turns.start()
        result = await ended(turns, key)
        results = await turns.results(key)
    [outcome] = result.calls
    assert (outcome.code, outcome.value.inline, outcome.fallback) == (code, "no such account", "pay")
    assert outcome.primary_error == "the market is shut"
    assert results[0].note == "`rates` failed: the market is shut. `pay` was tried in its place."
    assert ran(ledger) == ["rates", "pay"]


async def test_failed_fallback_stops_the_siblings(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    says = other(ledger, "older", lambda args, ctx: ToolFailure("no such day", "input_invalid"))
    asked = other(ledger, "wire", asks=True)
    actor = Actor(name="desk", model="scripted", on_failure="abort_siblings")
    catalog = catalog_of([rates(ledger, "older"), says, asked], actors=[actor])
    script = [calls(("rates", ARGS), ("wire", ARGS)), respond("done")]
    async with turn_rig.running(catalog, script) as turns:
        result = await ended(turns, await turns.start())
    assert [(each.code, each.fallback) for each in result.calls] == [("input_invalid", "older"), ("skipped", "")]


@pytest.mark.row("F40")
async def test_fallback_replaces_an_unavailable_tool(turn_rig: TurnRig, ledger: Ledger) -> None:
    async def never(context: HookContext) -> bool:
        return False

    tools = [rates(ledger, "older", available=never), other(ledger, "older")]
    async with turn_rig.running(tools, SCRIPT) as turns:
        key = await turns.start()
        result = await ended(turns, key)
        results = await turns.results(key)
    [outcome] = result.calls
    assert (outcome.code, outcome.fallback, ran(ledger)) == ("ok", "older", ["older"])
    assert results[0].note == (
        "`rates` could not be used: Tool rates is not currently available. `older` was tried in its place."
    )


@pytest.mark.row("E48")
async def test_repeated_calls_are_limited_despite_fallbacks(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [rates(ledger, "older"), other(ledger, "older")]
    script = [*[calls(("rates", ARGS))] * 6, respond("done")]
    async with turn_rig.running(tools, script) as turns:
        result = await ended(turns, await turns.start())
    assert [outcome.code for outcome in result.calls] == ["ok"] * 5 + ["too_many_calls"]
    assert ran(ledger) == ["rates", "older"] * 5
    assert result.tool_calls == 11
