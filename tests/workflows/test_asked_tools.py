from pathlib import Path
from typing import Any

import pytest
from some import some
from temporalio.api.enums.v1 import EventType
from turn_fixtures import Ledger, RunningTurns, TurnRig, catalog_of, pay_tool, yes

from signoff.activities.capability_backends import built_in_backends
from signoff.audit.log import AuditLog
from signoff.contracts.activity_messages import ModelReply
from signoff.contracts.call import PERMISSION_RULE
from signoff.contracts.completion import CompletionRequest
from signoff.contracts.ids import TurnKey
from signoff.formats.json_schema import SchemaProblem
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, Surface
from signoff.registry.capabilities import Capabilities
from signoff.registry.catalog import Catalog
from signoff.registry.hooks import Correction, HookContext, Permission
from signoff.registry.tool_context import ToolContext
from signoff.testing.scripted_model import ScriptedModel, calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})


async def replies(turns: RunningTurns, key: TurnKey) -> list[ModelReply]:
    found = []
    history = await turns.client.get_workflow_handle(key.workflow_id).fetch_history()
    models = set()
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            if event.activity_task_scheduled_event_attributes.activity_type.name == "signoff.model":
                models.add(event.event_id)
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            ended = event.activity_task_completed_event_attributes
            if ended.scheduled_event_id in models:
                found += await turns.client.data_converter.decode(ended.result.payloads, [ModelReply])
    return found


@pytest.mark.row("N24", "F11")
async def test_unavailable_tool_is_recorded_and_not_run_after_it_becomes_available(turn_rig: TurnRig) -> None:
    ledger, there, value = Ledger(), [False], []

    async def available(context: HookContext) -> bool:
        return there[-1] and context.user.user == "guest"

    def react(request: CompletionRequest) -> Any:
        value.append([offer.name for offer in request.tools])
        there.append(True)
        return calls(PAY) if len(value) < 3 else respond("done")

    catalog = catalog_of([pay_tool(ledger, False, available=available)])
    async with turn_rig.running(catalog, ScriptedModel(react)) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        recorded = await replies(turns, key)
        await turns.replays(key)
        records = await AuditLog(turn_rig.store).stream(key.workflow_id)
    assert value == [["respond"], ["pay", "respond"], ["pay", "respond"]]
    assert [reply.withheld for reply in recorded] == [("pay",), (), ()]
    assert [(each.code, each.gate) for each in result.calls] == [("not_available", "available"), ("ok", "execute")]
    assert result.calls[0].value.inline == "Tool pay is not currently available"
    assert len(ledger.rows) == 1
    assert any('"gate":"available"' in record.data for record in records)


def guarded(ledger: Ledger, says: list[Permission], **fields: Any) -> Catalog:
    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        return says.pop(0) if len(says) > 1 else says[0]

    return catalog_of([pay_tool(ledger, fields.pop("policy", False), check_permissions=check, **fields)])


@pytest.mark.row("X10")
async def test_permission_override_is_asked_and_covers_one_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = guarded(ledger, [Permission.deny("over the limit", can_override=True)])
    async with turn_rig.running(catalog, [calls(PAY), calls(PAY), respond("done")]) as turns:
        key = await turns.start()
        for call in ("c1.1", "c2.1"):
            await turns.until(key, lambda view, call=call: any(_asks(each, call) for each in view.calls))
            request = await turns.question(key, call)
            assert (request.rule, request.rule_text, request.allow_remember) == (
                PERMISSION_RULE,
                "over the limit",
                False,
            )
            assert len(ledger.rows) == int(call[1]) - 1
            await turns.signoff.decide(yes(key, call))
        result = await turns.signoff.result(key)
        await turns.replays(key)
        records = await AuditLog(turn_rig.store).stream(key.workflow_id)
    assert [(each.code, each.rule, each.decided_by) for each in result.calls] == [
        ("ok", PERMISSION_RULE, "approver")
    ] * 2
    assert len(ledger.rows) == 2
    assert sum('"rule":{"kind":"permission"}' in record.data for record in records if record.kind == "request") == 2


def _asks(call: Any, name: str) -> bool:
    return call.call == name and call.approval is not None and call.approval.state == "pending"


async def test_approved_call_is_denied_after_permission_is_lost(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = guarded(ledger, [Permission.allow(), Permission.deny("closed by now")], policy=True)
    async with turn_rig.running(catalog, [calls(PAY), respond("done")]) as turns:
        key = await turns.start_waiting()
        result = await turns.result_after(yes(key))
    assert [(each.code, each.gate) for each in result.calls] == [("denied", "permission")]
    assert some(result.calls[0].denied).reason == "Permission denied: closed by now"
    assert ledger.rows == []


async def test_approval_does_not_count_as_a_later_override(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = guarded(ledger, [Permission.allow(), Permission.deny("a new limit", can_override=True)], policy=True)
    async with turn_rig.running(catalog, [calls(PAY), respond("done")]) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key))
        view = await turns.until(key, lambda view: _revision(view.calls[0]) == 2)
        request = some(view.calls[0].approval)
        assert (request.rule, ledger.rows) == (PERMISSION_RULE, [])
        result = await turns.result_after(yes(key, revision=2))
    assert [(each.code, each.rule) for each in result.calls] == [("ok", PERMISSION_RULE)]
    assert len(ledger.rows) == 1


async def test_override_covers_only_the_reason_on_its_card(turn_rig: TurnRig, ledger: Ledger) -> None:
    says = [Permission.deny(why, can_override=True) for why in ("over the limit", "under investigation")]
    async with turn_rig.running(guarded(ledger, says), [calls(PAY), respond("done")]) as turns:
        key = await turns.start_waiting()
        first = await turns.question(key)
        await turns.signoff.decide(yes(key))
        await turns.until(key, lambda view: _revision(view.calls[0]) == 2)
        second = await turns.question(key)
        assert (first.rule_text, second.rule_text, ledger.rows) == ("over the limit", "under investigation", [])
        result = await turns.result_after(yes(key, revision=2))
        await turns.replays(key)
    assert [(each.code, each.rule) for each in result.calls] == [("ok", PERMISSION_RULE)]
    assert len(ledger.rows) == 1


async def test_edit_cannot_override_a_denied_permission(turn_rig: TurnRig, ledger: Ledger) -> None:
    """The editor has not seen the tool's objection."""

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        listed = args["to"] == "Mallory"
        return Permission.deny("on the sanctions list", can_override=True) if listed else Permission.allow()

    catalog = catalog_of([pay_tool(ledger, ApprovalPolicy(edit="approve"), check_permissions=check)])
    async with turn_rig.running(catalog, [calls(PAY), respond("done")]) as turns:
        key = await turns.start_waiting()
        refused = await turns.signoff.decide(yes(key, edited_args={"amount": 20, "to": "Mallory"}))
        assert (refused.status, refused.state, refused.code) == ("refused", "pending", "malformed")
        assert refused.message == "the tool does not permit these arguments: on the sanctions list"
        result = await turns.result_after(yes(key, edited_args={"amount": 10, "to": "Ana"}))
    assert [(each.code, each.edited_by) for each in result.calls] == [("ok", "approver")]
    assert [args for _, args, _ in ledger.rows] == [{"amount": 10, "to": "Ana"}]


def _revision(call: Any) -> int:
    return call.approval.revision if call.approval is not None and call.approval.state == "pending" else 0


@pytest.mark.row("E19")
async def test_tool_runs_with_its_declared_capabilities(
    turn_rig: TurnRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    monkeypatch.setenv("PAY_TOKEN", "s3cret")

    async def pay(args: dict[str, Any], context: ToolContext) -> str:
        given = context.capabilities
        await given.storage.write(f"{context.call_id}.txt", (await given.secrets.get("PAY_TOKEN")).encode())
        return ", ".join(await given.storage.list())

    catalog = catalog_of(
        [
            pay_tool(ledger, False, handler=pay, capabilities=Capabilities(secrets=("PAY_TOKEN",), storage=True)),
            pay_tool(ledger, False, name="shell", capabilities=Capabilities(process=("git",))),
        ]
    )
    script = [calls(PAY, ("shell", PAY[1])), respond("done")]
    backends = {name: each for name, each in built_in_backends(tmp_path / "files").items() if name != "process"}
    async with turn_rig.running(catalog, script, backends=backends) as turns:
        result = await turns.signoff.result(await turns.start())
    assert [(each.code, each.gate) for each in result.calls] == [("ok", "execute"), ("not_available", "capabilities")]
    assert result.calls[0].value.inline == "c1.1.txt"
    assert (tmp_path / "files" / "main" / "c1.1.txt").read_text() == "s3cret"
    assert ledger.rows == []


def capitals(args: Any) -> list[SchemaProblem] | Correction:
    name = args["to"]
    return [] if name == name.title() else Correction({**args, "to": name.title()}, "names have a capital")


@pytest.mark.row("V13")
@pytest.mark.parametrize("asks", [True, False])
async def test_corrected_arguments_are_shown_approved_and_run(turn_rig: TurnRig, asks: bool) -> None:
    ledger = Ledger()
    catalog = catalog_of([pay_tool(ledger, asks and ApprovalPolicy(edit="approve"), validate_input=capitals)])
    script = [calls(("pay", {"amount": 20, "to": "ana"})), respond("done")]
    note = "The arguments were corrected (`to`): names have a capital."
    async with turn_rig.running(catalog, script) as turns:
        key = await turns.start()
        if asks:
            request = some((await turns.waiting(key)).calls[0].approval)
            assert (request.card.effect, request.card.note) == ("Pay 20 to Ana", note)
            assert request.args.inline == {"amount": 20, "to": "Ana"}
            refused = await turns.signoff.decide(yes(key, edited_args={"amount": 5, "to": "bo"}))
            assert (refused.status, refused.code) == ("refused", "malformed")
            assert "would reject these arguments" in refused.message
            await turns.signoff.decide(yes(key))
        result = await turns.signoff.result(key)
        await turns.replays(key)
        records = await AuditLog(turn_rig.store).stream(key.workflow_id)
    assert [(each.code, each.note) for each in result.calls] == [("ok", note)]
    assert [args for _, args, _ in ledger.rows] == [{"amount": 20, "to": "Ana"}]
    assert any(note in record.data for record in records if record.kind == "execution")


async def test_tool_excluded_from_a_surface_is_unavailable_there(turn_rig: TurnRig) -> None:
    ledger, value = Ledger(), []

    def react(request: CompletionRequest) -> Any:
        value.append([offer.name for offer in request.tools])
        return calls(PAY) if len(request.messages) == 1 else respond("done")

    out = {"whatsapp": Surface(exclude=("pay",))}
    catalog = catalog_of(
        [pay_tool(ledger, ApprovalPolicy(auto_approve_if="true"))],
        actors=[Actor(name="desk", model="scripted", surfaces=out)],
    )
    async with turn_rig.running(catalog, ScriptedModel(react)) as turns:
        there = await turns.signoff.result(await turns.start(channel="whatsapp"))
        here = await turns.signoff.result(await turns.start(channel="slack"))
    assert [(each.code, each.gate) for each in there.calls] == [("not_available", "surface")]
    assert [each.code for each in here.calls] == ["ok"]
    assert value == [["respond"]] * 2 + [["pay", "respond"]] * 2
    assert len(ledger.rows) == 1
