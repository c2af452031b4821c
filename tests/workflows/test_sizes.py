import json
from typing import Any

import pytest
from turn_fixtures import AMOUNT_SCHEMA, ApprovalPolicy, Ledger, TurnRig, no, pay_tool, yes

from signoff.contracts.errors import Refused
from signoff.contracts.limits import (
    ARGUMENTS_BYTES,
    CALLS_BYTES_PER_COMPLETION,
    MAX_NAME_CHARS,
    REQUEST_BODY_BYTES,
    TURN_RESULT_BYTES,
)
from signoff.registry.tool import Tool
from signoff.registry.tool_result import ToolFailure, ToolResult
from signoff.store.content_store import load
from signoff.testing.scripted_model import calls, respond

EURO = "€"
"""Three bytes of UTF-8 in one character."""


def look(ledger: Ledger, name: str = "look", **fields: Any) -> Tool:
    return pay_tool(ledger, False, name=name, effect="", read_only=True, **fields)


def sized(amount: int, size: int) -> dict[str, Any]:
    """Exactly `size` bytes of compact JSON, mostly three-byte characters."""
    args: dict[str, Any] = {"amount": amount, "to": ""}
    left = size - len(json.dumps(args, separators=(",", ":")))
    args["to"] = EURO * (left // 3) + "a" * (left % 3)
    assert len(json.dumps(args, separators=(",", ":"), ensure_ascii=False).encode()) == size
    return args


async def test_arguments_of_64_kib_run_and_one_byte_more_is_refused(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = [calls(("look", sized(1, ARGUMENTS_BYTES)), ("look", sized(2, ARGUMENTS_BYTES + 1))), respond("done")]
    async with turn_rig.running([look(ledger)], script) as turns:
        result = await turns.signoff.result(await turns.start())
    assert [outcome.code for outcome in result.calls] == ["ok", "input_invalid"]
    assert str(ARGUMENTS_BYTES) in result.calls[1].value.inline
    assert [row[1]["amount"] for row in ledger.rows] == [1]


async def test_calls_beyond_one_mib_per_completion_are_refused(turn_rig: TurnRig, ledger: Ledger) -> None:
    size = 60_000
    fit = CALLS_BYTES_PER_COMPLETION // size
    script = [calls(*(("look", sized(n, size)) for n in range(20))), respond("done")]
    async with turn_rig.running([look(ledger)], script) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        described = await turn_rig.client.get_workflow_handle(key.workflow_id).describe()
    assert [outcome.code for outcome in result.calls] == ["ok"] * fit + ["too_many_calls"] * (20 - fit)
    assert len(ledger.rows) == fit
    assert described.raw_description.workflow_execution_info.history_size_bytes < 200_000


@pytest.mark.row("N25")
@pytest.mark.parametrize("failure", [False, True])
async def test_long_result_is_truncated_and_stored(failure: bool, turn_rig: TurnRig, ledger: Ledger) -> None:
    text = EURO * 1_200_000
    answer = ToolFailure(text) if failure else ToolResult(text, structured={"text": text})
    tool = look(ledger, handler=ledger.handler("look", answer))
    async with turn_rig.running([tool], [calls(("look", {"amount": 1})), respond("x")]) as turns:
        result = await turns.signoff.result(await turns.start())
    outcome = result.calls[0]
    assert outcome.code == ("execution_failed" if failure else "ok")
    assert outcome.value.blob is not None
    assert outcome.truncated
    assert outcome.original_chars == 1_200_000
    kept = await load(turn_rig.store, outcome.value)
    assert kept == EURO * 80_000 + "\n[truncated — 1200000 chars total]"
    assert outcome.structured is None


async def test_completions_of_80000_characters_do_not_wedge_the_turn(turn_rig: TurnRig, ledger: Ledger) -> None:
    tool = look(ledger, handler=ledger.handler("look", EURO * 80_000))
    script = [*(calls(("look", {"amount": n})) for n in range(6)), respond("done")]
    async with turn_rig.running([tool], script) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        described = await turn_rig.client.get_workflow_handle(key.workflow_id).describe()
    assert result.state == "complete"
    assert [outcome.code for outcome in result.calls] == ["ok"] * 6
    assert described.raw_description.workflow_execution_info.history_size_bytes < 100_000


async def test_large_message_is_accepted_and_a_larger_one_refused(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = [calls(("look", {"amount": 1})), respond("done")]
    async with turn_rig.running([look(ledger)], script) as turns:
        result = await turns.signoff.result(await turns.start(EURO * 340_000))
        with pytest.raises(Refused, match=str(REQUEST_BODY_BYTES)) as refusal:
            await turns.start(EURO * 360_000)
    assert result.state == "complete"
    assert refusal.value.code == "too_large"


@pytest.mark.parametrize("text", ["\x01" * 100, "🧾" * 100, '"\\' * 60, "\ud800"])
async def test_odd_characters_do_not_prevent_a_start(text: str, turn_rig: TurnRig) -> None:
    async with turn_rig.running([], [respond("hi")]) as turns:
        if text == "\ud800":
            with pytest.raises(Refused, match="cannot carry"):
                await turns.start(text)
            return
        assert (await turns.signoff.result(await turns.start(text))).state == "complete"


async def test_conversation_over_one_mib_ends_the_turn_with_an_error(turn_rig: TurnRig, ledger: Ledger) -> None:
    """The message list is counted in bytes and ends the turn before the server would."""
    tools = [look(ledger), look(ledger, "peek")]
    many = [("look" if n % 2 else "peek", sized(n, 8_000)) for n in range(50)]
    script = [calls(*many)]
    async with turn_rig.running(tools, script) as turns:
        result = await turns.signoff.result(await turns.start(EURO * 300_000))
    assert result.error is not None
    assert (result.state, result.error.code) == ("error", "conversation_limit")
    assert len(ledger.rows) == 50


async def test_fifty_open_cards_with_long_texts_fit_into_workflow_details(turn_rig: TurnRig, ledger: Ledger) -> None:
    approvers = ("role:approvers", *(f"user:{'x' * 44}{n:04}" for n in range(49)))
    policy = ApprovalPolicy(approvers=approvers)
    tools = [pay_tool(ledger, policy, name=name, effect=EURO * 300, title=EURO * 300) for name in ("pay", "wire")]
    args = {"to": EURO * 5_000}
    many = [("pay" if n % 2 else "wire", {"amount": n} | args) for n in range(50)]
    async with turn_rig.running(tools, [calls(*many), respond("done")]) as turns:
        key = await turns.start()
        await turns.suspended(key)
        view = await turns.signoff.view(key)
        receipts = [
            await turns.signoff.decide(answer(key, call.call))
            for call, answer in zip(view.calls, [yes] * 3 + [no] * 47, strict=True)
        ]
        result = await turns.signoff.result(key)
    assert {receipt.status for receipt in receipts} == {"accepted"}
    assert len(ledger.rows) == 3
    assert result.state == "error"


async def test_cards_with_many_values_do_not_wedge_the_turn(turn_rig: TurnRig, ledger: Ledger) -> None:
    schema = AMOUNT_SCHEMA | {"additionalProperties": {"type": "string"}}
    tools = [pay_tool(ledger, name=name, input_schema=schema) for name in ("pay", "wire")]
    many = [
        ("pay" if n % 2 else "wire", {"amount": n} | {f"{EURO}{k}": EURO * 100 for k in range(60)}) for n in range(50)
    ]
    async with turn_rig.running(tools, [calls(*many), respond("done")]) as turns:
        key = await turns.start()
        await turns.suspended(key)
        view = await turns.signoff.view(key)
        await turns.signoff.cancel_turn(key)
        result = await turns.signoff.result(key)
    assert sum(call.approval is not None for call in view.calls) == 50
    assert result.state == "cancelled"


LISTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}


@pytest.mark.parametrize("validation", ["strict", "warn"])
async def test_validation_errors_with_long_names_do_not_wedge_the_turn(
    validation: Any, turn_rig: TurnRig, ledger: Ledger
) -> None:
    tool = look(ledger, input_schema=LISTS, validation=validation)
    many = [("look", {f"{EURO * (MAX_NAME_CHARS - 2)}{n:02}": ["x"] * 6}) for n in range(16)]
    async with turn_rig.running([tool], [calls(*many), respond("done")]) as turns:
        result = await turns.signoff.result(await turns.start())
    assert (result.state, len(result.calls)) == ("complete", 16)
    entries = [outcome.note if validation == "warn" else outcome.value.inline for outcome in result.calls]
    assert all("must be of type integer; and 1 more" in each and len(each) < 1_000 for each in entries)


async def test_dry_run_with_full_arguments_does_not_wedge_the_turn(turn_rig: TurnRig) -> None:
    tool = look(Ledger(), input_schema={"type": "object"})
    many = [("look", {"n": n, "a": ['"' * 490] * 66}) for n in range(16)]
    async with turn_rig.running([tool], [calls(*many), respond("done")]) as turns:
        result = await turns.signoff.result(await turns.start(dry_run=True))
    assert (result.state, len(result.calls)) == ("complete", 16)
    assert all("...[truncated, 649" in outcome.value.inline[-30:] for outcome in result.calls)


async def test_results_with_large_structured_data_and_updates_do_not_wedge_the_turn(
    turn_rig: TurnRig, ledger: Ledger
) -> None:
    beside = {"x": EURO * 2_700}
    answer = ToolResult("v" * 1_500, structured=beside, data_update=beside, context_update=beside)
    tools = [look(ledger, f"look{n}", handler=ledger.handler("look", answer)) for n in range(4)]
    script = [calls(*((f"look{n % 4}", {"amount": n}) for n in some)) for some in (range(38), range(38, 88))]
    async with turn_rig.running(tools, [*script, respond("done")]) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        await turns.replays(key)
    assert result.error is not None
    assert (result.state, result.error.code, len(result.calls)) == ("error", "conversation_limit", 88)
    assert len(result.on_wire()) <= TURN_RESULT_BYTES
    first, last = result.calls[0], result.calls[-1]
    assert (first.structured, first.data_update, first.context_update) == (None, None, None)
    assert first.left_out == ("structured", "data_update", "context_update")
    assert last.structured is not None
    assert (last.structured.inline, last.left_out) == (beside, ())
    assert {outcome.value.inline for outcome in result.calls} == {"v" * 1_500}
