import asyncio
from functools import partial
from typing import Any

import pytest
from some import some
from turn_fixtures import GUEST, Ledger, TurnRig, catalog_of, no, pay_tool, yes

from signoff.audit.log import AuditLog
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.errors import ConfigError, Conflict, NotFound
from signoff.contracts.limits import CALLS_PER_COMPLETION, MAX_CALLS_PER_TOOL, MAX_COMPLETIONS, MAX_IDENTICAL_CALLS
from signoff.contracts.message import user_message
from signoff.contracts.turn import TurnInput, TurnView
from signoff.formats.replace import replace
from signoff.formats.tenant_limits import parse_tenant_limits
from signoff.policy.approval_policy import GlobalRule
from signoff.registry.actor import Actor
from signoff.testing.scripted_model import ScriptedModel, calls, respond, say

PAY = ("pay", {"amount": 20, "to": "Ana"})


def look_tool(ledger: Ledger, **fields: Any) -> Any:
    return pay_tool(ledger, False, name="look", effect="", **fields)


def _waits_for(count: int, view: TurnView) -> bool:
    return len(view.calls) == count and view.state == "suspended"


@pytest.mark.row("N10", "X16")
async def test_ungated_calls_do_not_wait_for_gated_ones(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = [calls(PAY, ("look", {"amount": 1}), ("look", {"amount": 2})), respond("done")]
    async with turn_rig.running([pay_tool(ledger), look_tool(ledger)], script) as turns:
        key = await turns.start()
        await turns.until(key, lambda view: [call.state for call in view.calls] == ["waiting", "ok", "ok"])
        await turns.until(key, lambda _: len(ledger.rows) == 2)
        assert await turns.results(key) == []
        result = await turns.result_after(yes(key))
        results = await turns.results(key)
    assert [row[0] for row in ledger.rows] == ["look", "look", "pay"]
    assert [outcome.call for outcome in result.calls] == ["c1.1", "c1.2", "c1.3"]
    assert [(part.call, part.provider_call, part.code) for part in results] == [
        ("c1.1", "p0", "ok"),
        ("c1.2", "p1", "ok"),
        ("c1.3", "p2", "ok"),
    ]


@pytest.mark.row("N09", "E25")
async def test_results_keep_call_order_for_any_order_of_decisions(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    script = [calls(PAY, ("pay", {"amount": 2}), ("pay", {"amount": 3})), respond("done")]
    async with turn_rig.running([pay_tool(ledger)], script) as turns:
        key = await turns.start()
        await turns.waiting(key, 3)
        for call, answer in (("c1.3", yes), ("c1.1", no), ("c1.2", yes)):
            assert (await turns.signoff.decide(answer(key, call))).status == "accepted"
        result = await turns.signoff.result(key)
        results = await turns.results(key)
    assert [outcome.code for outcome in result.calls] == ["denied", "ok", "ok"]
    assert [part.call for part in results] == ["c1.1", "c1.2", "c1.3"]
    assert sorted(row[1]["amount"] for row in ledger.rows) == [2, 3]


@pytest.mark.row("B74", "N32", "X12")
async def test_denial_reaches_the_model_as_tool_denied(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], [calls(PAY), respond("a pity")]) as turns:
        key = await turns.start_waiting()
        receipt = await turns.signoff.decide(no(key, reason="too expensive"))
        result = await turns.signoff.result(key)
        results = await turns.results(key)
        recorded = {
            each.facts["type"]
            for each in await AuditLog(turn_rig.store).stream(key.workflow_id)
            if "type" in each.facts
        }
    assert (receipt.status, receipt.state) == ("accepted", "denied")
    assert result.state == "complete"
    assert ledger.rows == []
    assert len(results) == 1
    read = results[0].value.inline
    assert (results[0].code, results[0].type, read["type"]) == ("denied", "ToolDenied", "ToolDenied")
    assert [each.type for each in result.calls] == ["ToolDenied"]
    assert recorded == {"ToolDenied"}
    assert (read["source"], read["reason"], read["decided_by"]) == ("human", "too expensive", "approver")
    assert (read["call_id"], read["tool"], read["approval_id"]) == ("c1.1", "pay", receipt.approval_id)


@pytest.mark.row("B74")
async def test_denial_without_reason_shows_the_default_reason(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], [calls(PAY), respond("ok")]) as turns:
        key = await turns.start_waiting()
        result = await turns.result_after(no(key, reason=""))
    assert some(result.calls[0].denied).reason == ""
    assert result.calls[0].value.inline["reason"] == "Denied by user."


@pytest.mark.row("E60", "N30")
async def test_three_denials_in_a_row_end_the_turn(turn_rig: TurnRig) -> None:
    script = [calls(("pay", {"amount": n})) for n in range(1, 9)]
    async with turn_rig.running([pay_tool(Ledger())], script) as turns:
        key = await turns.start()
        for completion in (1, 2, 3):
            await turns.until(key, partial(_waits_for, completion))
            await turns.signoff.decide(no(key, f"c{completion}.1"))
        result = await turns.signoff.result(key)
    assert result.state == "error"
    assert some(result.error).code == "denial_limit"
    assert result.completions == 3


@pytest.mark.row("E60")
async def test_success_between_denials_resets_the_denial_count(turn_rig: TurnRig) -> None:
    deny = GlobalRule(name="small", rule="tool.name == 'never'", effect="deny", reason="not here")
    tools = [look_tool(Ledger()), pay_tool(Ledger(), False, name="never", effect="")]
    never, look = ("never", {"amount": 1}), ("look", {"amount": 1})
    script = [calls(never), calls(never), calls(look), calls(never), calls(never), respond("enough")]
    async with turn_rig.running(catalog_of(tools, policies=[deny]), script) as turns:
        result = await turns.signoff.result(await turns.start())
    assert result.state == "complete"
    assert [outcome.code for outcome in result.calls] == ["denied", "denied", "ok", "denied", "denied"]


@pytest.mark.row("B52", "Q2", "N03")
async def test_respond_ends_the_turn_and_skips_its_siblings(turn_rig: TurnRig, ledger: Ledger) -> None:
    both = Completion(calls=(*calls(("look", {"amount": 1})).calls, *respond("bye").calls))
    async with turn_rig.running([look_tool(ledger)], [both]) as turns:
        result = await turns.signoff.result(await turns.start())
    assert result.state == "complete"
    assert result.parts[0].content.inline == "bye"
    assert [outcome.code for outcome in result.calls] == ["skipped"]
    assert ledger.rows == []


async def test_plain_text_counts_as_respond(turn_rig: TurnRig) -> None:
    async with turn_rig.running([], [say("hello")]) as turns:
        result = await turns.signoff.result(await turns.start())
    assert (result.state, result.parts[0].content.inline, result.completions) == ("complete", "hello", 1)


async def test_turn_takes_the_state_of_respond(turn_rig: TurnRig) -> None:
    async with turn_rig.running([], [respond("which one?", "clarifying")]) as turns:
        result = await turns.signoff.result(await turns.start())
    assert (result.state, result.parts[0].content.inline) == ("clarifying", "which one?")


@pytest.mark.row("B55")
async def test_invalid_respond_is_returned_once_and_then_taken_as_text(turn_rig: TurnRig) -> None:
    bad = calls(("respond", {"answer": 42}))
    async with turn_rig.running([], [bad, bad, respond("too late")]) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        results = await turns.results(key)
    assert (result.state, result.completions) == ("complete", 2)
    assert result.parts[0].content.inline == '{"answer": 42}'
    assert [(part.call, part.tool, part.code) for part in results] == [("c1.1", "respond", "input_invalid")]
    assert "`text`" in results[0].value.inline


@pytest.mark.row("F51", "E28", "X13")
async def test_invalid_calls_return_an_error_and_run_nothing(turn_rig: TurnRig, ledger: Ledger) -> None:
    wrong = calls(("payy", {"amount": 1}), ("pay", {"amount": "much"}), ("pay", "{amount"), ("pay", {"to": "Ana"}))
    async with turn_rig.running([pay_tool(ledger)], [wrong, respond("sorry")]) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        results = await turns.results(key)
    assert [part.code for part in results] == ["not_available", "input_invalid", "input_invalid", "input_invalid"]
    unknown, mistyped, broken, missing = (part.value.inline for part in results)
    assert "`pay`" in unknown
    assert "`amount`" in mistyped
    assert "JSON" in broken
    assert "amount" in missing
    assert [outcome.approval_id for outcome in result.calls] == [""] * 4
    assert ledger.rows == []


@pytest.mark.row("B45", "N02")
async def test_tool_missing_from_the_actors_list_is_neither_offered_nor_run(turn_rig: TurnRig, ledger: Ledger) -> None:
    seen: list[CompletionRequest] = []

    def react(request: CompletionRequest) -> Completion:
        seen.append(request)
        return calls(("look", {"amount": 1})) if len(seen) == 1 else respond("done")

    actors = [Actor(name="desk", model="scripted", tools=("pay",))]
    catalog = catalog_of([pay_tool(ledger), look_tool(ledger)], actors=actors)
    async with turn_rig.running(catalog, ScriptedModel(react)) as turns:
        result = await turns.signoff.result(await turns.start())
    assert [offered.name for offered in seen[0].tools] == ["pay", "respond"]
    assert [outcome.code for outcome in result.calls] == ["not_available"]
    assert ledger.rows == []


@pytest.mark.row("B49", "E48")
async def test_turn_is_limited_to_twenty_completions_and_five_identical_calls(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    async with turn_rig.running([look_tool(ledger)], [calls(("look", {"amount": 1}))]) as d:
        result = await d.signoff.result(await d.start())
    assert (result.state, some(result.error).code) == ("error", "completion_limit")
    assert result.completions == MAX_COMPLETIONS == 20
    assert len(ledger.rows) == MAX_IDENTICAL_CALLS == 5
    assert [outcome.code for outcome in result.calls] == ["ok"] * 5 + ["too_many_calls"] * 15


async def test_call_beyond_the_waiting_limit_is_refused_and_the_turn_continues(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    script = [calls(PAY, ("pay", {"amount": 2, "to": "Bo"})), respond("done")]
    limits = parse_tenant_limits("waiting=1")
    async with turn_rig.running([pay_tool(ledger)], script, tenant_limits=limits) as turns:
        key = await turns.start_waiting()
        result = await turns.result_after(yes(key))
        results = await turns.results(key)
    assert [outcome.code for outcome in result.calls] == ["ok", "too_many_calls"]
    assert [part.code for part in results] == ["ok", "too_many_calls"]
    assert len(ledger.rows) == 1


@pytest.mark.row("E48", "N03")
async def test_completion_is_limited_to_fifty_calls_and_a_tool_to_twenty_five(
    turn_rig: TurnRig, ledger: Ledger
) -> None:
    tools = [look_tool(ledger), pay_tool(ledger, False, name="peek", effect="")]
    many = [("look" if n % 2 else "peek", {"amount": n}) for n in range(52)]
    more = [("look", {"amount": 100})]
    script = [calls(*many), calls(*more), respond("done")]
    async with turn_rig.running(tools, script) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        results = await turns.results(key)
    codes = [outcome.code for outcome in result.calls]
    assert codes == ["ok"] * CALLS_PER_COMPLETION + ["too_many_calls"] * 3
    assert sum(name == "look" for name, _, _ in ledger.rows) == MAX_CALLS_PER_TOOL == 25
    assert len({part.call for part in results}) == len(results) == 53


@pytest.mark.row("E17")
async def test_dry_run_executes_nothing_and_asks_no_approver(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [pay_tool(ledger), look_tool(ledger)]
    async with turn_rig.running(tools, [calls(PAY, ("look", {"amount": 1})), respond("ok")]) as turns:
        key = await turns.start(dry_run=True)
        result = await turns.signoff.result(key)
        view = await turns.signoff.view(key)
    assert result.state == "complete"
    assert [outcome.gate for outcome in result.calls] == ["dry_run", "dry_run"]
    assert result.calls[0].value.inline.startswith("[dry-run] pay would be called with")
    assert all(call.approval is None for call in view.calls)
    assert ledger.rows == []


@pytest.mark.row("N01")
async def test_unknown_actor_fails_with_the_nearest_name(turn_rig: TurnRig) -> None:
    async with turn_rig.running([], [respond("hi")]) as turns:
        key = await turns.start(actor="desks")
        with pytest.raises(ConfigError, match=r"no actor `desks`.*`desk`"):
            await turns.signoff.result(key)


async def test_repeated_start_is_one_turn_and_other_input_a_conflict(turn_rig: TurnRig) -> None:
    turn = TurnInput(
        engine=1,
        session_id="s1",
        turn_id=turn_rig.task_queue,
        actor="desk",
        messages=(user_message("hi"),),
        principal=GUEST,
    )
    asked: list[CompletionRequest] = []

    def react(request: CompletionRequest) -> Completion:
        asked.append(request)
        return respond("hello")

    async with turn_rig.running([], ScriptedModel(react)) as turns:
        first, second = await asyncio.gather(turns.signoff.start_turn(turn), turns.signoff.start_turn(turn))
        await turns.signoff.result(first)
        third = await turns.signoff.start_turn(turn)
        with pytest.raises(Conflict, match="other input"):
            await turns.signoff.start_turn(replace(turn, messages=(user_message("other"),)))
    assert first == second == third
    assert len(asked) == 1


async def test_unknown_turn_is_not_found(turn_rig: TurnRig) -> None:
    async with turn_rig.running([], [respond("hi")]) as turns:
        key = await turns.start()
        gone = key._replace(turn="nothing")
        for attempt in (turns.signoff.view(gone), turns.signoff.result(gone), turns.signoff.cancel_turn(gone)):
            with pytest.raises(NotFound):
                await attempt
