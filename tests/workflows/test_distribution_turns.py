from typing import Any

import pytest
from turn_fixtures import Ledger, TurnRig, catalog_of, no, pay_tool

from signoff.audit.export import export_lines
from signoff.audit.log import AuditLog
from signoff.audit.timeline import timeline
from signoff.policy.approval_policy import GlobalRule
from signoff.registry.program.tool_keywords import BypassRouting
from signoff.registry.results.destinations import Delivery, Destination
from signoff.registry.tool import Tool
from signoff.registry.tool_result import AnnotatedRecord, Annotations, RecordField, identity
from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond

ONE = {"amount": 1, "to": "Lisbon"}
RECORD = AnnotatedRecord({"fare": RecordField(120), "margin": RecordField("thirty", Annotations(privacy="private"))})
OWN: dict[str, Any] = {"scope": "specialist", "justification": "only the desk does this"}
BYPASS: dict[str, Any] = {**OWN, "routing": "bypass", "bypass_routing": BypassRouting("nobody else may hear of it")}


def named(name: str, answer: Any = "done", asks: bool = False, **fields: Any) -> Tool:
    return pay_tool(Ledger(), asks, name=name, effect="", handler=Ledger().handler(name, answer), **fields)


async def recorded(store: Store, stream: str, kind: str) -> dict[str, dict[str, Any]]:
    return {each.facts["tool"]: each.facts for each in await AuditLog(store).stream(stream) if each.kind == kind}


@pytest.mark.row("B42")
async def test_specialist_calls_are_dispatched_as_declared_and_recorded_alike(turn_rig: TurnRig) -> None:
    tools = [named("look", read_only=True, **BYPASS), named("note", **BYPASS), named("own", **OWN), named("all")]
    batch = calls(*((tool.name, ONE) for tool in tools))
    async with turn_rig.running(tools, [batch, respond("so")]) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        events = await turns.events(key)
        await turns.replays(key)
    assert [each.code for each in result.calls] == ["ok"] * 4
    assert events.count("ACTIVITY_TASK_SCHEDULED") == result.completions + 3
    began = await recorded(turn_rig.store, key.workflow_id, "execution")
    assert {name: (each.get("event", ""), each.get("private", False)) for name, each in began.items()} == {
        "look": ("", False),
        "note": ("", False),
        "own": ("tool_call:own", True),
        "all": ("tool_call:all", False),
    }
    ended = await recorded(turn_rig.store, key.workflow_id, "outcome")
    assert {name: each.get("arguments") for name, each in ended.items()} == {
        **dict.fromkeys(("look", "note", "own"), ONE),
        "all": None,
    }
    lines = [line async for line in export_lines(turn_rig.store, stream=key.workflow_id)]
    assert sum('"record":"specialist_execution"' in line and '"Lisbon"' in line for line in lines) == 3
    # The timeline shows that a call happened, but not its arguments.
    words = [moment.what for moment in timeline(await AuditLog(turn_rig.store).stream(key.workflow_id))]
    assert [each.partition(" ")[0] for each in words if "as a private event" in each] == ["own"]
    assert "Lisbon" not in str(words)


@pytest.mark.row("B31", "B32", "B34")
async def test_model_reads_its_view_although_another_destination_fails(turn_rig: TurnRig) -> None:
    got: list[Delivery] = []

    async def keep(delivery: Delivery) -> None:
        got.append(delivery)

    async def fail(delivery: Delivery) -> None:
        raise ConnectionError

    to = [
        Destination(name="cache", filter=identity, sink=keep),
        Destination(name="ui-streaming", filter=identity, sink=fail),
    ]
    catalog = catalog_of([named("fares", RECORD)], destinations=to)
    async with turn_rig.running(catalog, [calls(("fares", ONE)), respond("so")]) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        results = await turns.results(key)
        history = await turn_rig.client.get_workflow_handle(key.workflow_id).fetch_history()
    assert [part.value.inline for part in results] == ['{"fare":120}']
    assert (result.calls[0].code, result.state) == ("ok", "complete")
    assert [each.record.values for each in got] == [{"fare": 120, "margin": "thirty"}]
    kept = b"".join(event.SerializeToString() for event in history.events)
    assert (b"fare" in kept, b"thirty" in kept) == (True, False)


@pytest.mark.row("N20")
async def test_denied_and_bypass_calls_are_recorded(turn_rig: TurnRig) -> None:
    tools = [named("look", read_only=True, **BYPASS), named("asked", asks=True, **OWN), named("ruled", tags=("ice",))]
    rules = [GlobalRule(name="frozen", rule="'ice' in tool.tags", effect="deny")]
    batch = calls(*((tool.name, ONE) for tool in tools))
    async with turn_rig.running(catalog_of(tools, policies=rules), [batch, respond("so")]) as turns:
        key = await turns.start_waiting()
        result = await turns.result_after(no(key, "c1.2"))
    assert [each.code for each in result.calls] == ["ok", "denied", "denied"]
    assert set(await recorded(turn_rig.store, key.workflow_id, "outcome")) == {"look"}
    assert (await recorded(turn_rig.store, key.workflow_id, "ending"))["asked"]["state"] == "denied"
    assert (await recorded(turn_rig.store, key.workflow_id, "verdict"))["ruled"]["code"] == "denied"
