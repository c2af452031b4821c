import asyncio
from typing import Any

import pytest
from session_rig import Talk, talk
from turn_fixtures import Ledger, RunningTurns, TurnRig, pay_tool, yes

from signoff.audit.log import AuditLog
from signoff.contracts.call import CallOutcome
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.content import Content
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import ResultPart
from signoff.contracts.turn import TurnResult
from signoff.contracts.updates import Updates
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, Route, Step
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.handler_adapters import success_results
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolResult
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond

SCHEMA = {"type": "object", "properties": {"city": {}, "project": {"type": "string"}}}
AT = {"route": "trip", "step": "buy"}
BOOK = ("book", {"amount": 20})
SMALL_RUN = 60


def choose(city: Any, project: str = "") -> tuple[str, dict[str, Any]]:
    return "choose", {"city": city} | ({"project": project} if project else {})


async def chosen(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    await asyncio.sleep(0.1 if args["city"] == "slow" else 0)
    project = {"project": args["project"]} if "project" in args else None
    return ToolResult(f"to {args['city']}", data_update={"city": args["city"]}, context_update=project)


def trips(ledger: Ledger, policy: ApprovalPolicy | bool = False, **fields: Any) -> Catalog:
    given = {"name": "choose", "effect": "", "input_schema": SCHEMA, "handler": chosen, "updates": ("city", "project")}
    collecting: Tool = pay_tool(ledger, **{"requires_approval": False} | given | fields)
    steps = (
        Step(name="ask", collect={"city": {"type": "string"}}),
        Step(name="buy", tools=("book",), requires=("city",)),
    )
    other = (Step(name="ask", collect={"city": {"type": "string"}}),)
    return build_catalog(
        tools=[collecting, pay_tool(ledger, policy, name="book", effect="")],
        actors=[
            Actor(name="desk", model="scripted", routes=(Route(name="trip", steps=steps),)),
            Actor(name="other", model="scripted", routes=(Route(name="trip", steps=other),)),
        ],
        context={"project": {"type": "string"}},
    )


def react(request: CompletionRequest) -> Completion:
    entries = [part for each in request.messages for part in each.parts if isinstance(part, ResultPart)]
    if entries:
        return respond(f"{entries[-1].tool}: {entries[-1].code}")
    what, _, city = last_user_text(request).partition(" ")
    return calls(choose(city) if what == "choose" else BOOK)


def ends(result: TurnResult) -> list[tuple[str, str, str]]:
    return [(each.tool, each.code, each.gate) for each in result.calls]


async def updates(turns: RunningTurns, key: TurnKey) -> list[dict[str, Any]]:
    facts = [each.facts for each in await AuditLog(turns.store).stream(key.workflow_id) if each.kind == "outcome"]
    return [{name: each[name] for name in ("updates", "untaken") if name in each} for each in facts]


async def turn(turns: RunningTurns, **fields: Any) -> tuple[TurnKey, TurnResult]:
    """Check that the turn at the step that waits for the city replays."""
    key = await turns.start(**AT | fields)
    result = await turns.signoff.result(key)
    await turns.replays(key)
    return key, result


@pytest.mark.row("F03", "F44")
async def test_collected_data_opens_the_step_in_the_same_turn(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = [calls(choose("slow"), choose("Porto"), BOOK), calls(BOOK), respond("done")]
    async with turn_rig.running(trips(ledger), script) as turns:
        key, result = await turn(turns)
        assert await updates(turns, key) == [{"updates": ["data.city"]}, {"updates": ["data.city"]}, {}]
    assert ends(result) == [
        ("choose", "ok", "execute"),
        ("choose", "ok", "execute"),
        ("book", "not_available", "layer"),
        ("book", "ok", "execute"),
    ]
    assert [each.updates for each in result.calls[:2]] == [Updates(data={"city": c}) for c in ("slow", "Porto")]
    assert [row[0] for row in ledger.rows] == ["book"]


@pytest.mark.row("F44")
async def test_policy_reads_the_updates_of_a_tool(turn_rig: TurnRig, ledger: Ledger) -> None:
    policy = ApprovalPolicy(deny_if="ctx.project == 'closed'", auto_approve_if="ctx.project == 'open'")
    script = [calls(choose("Porto", "open")), calls(BOOK), calls(choose("Porto", "closed")), calls(BOOK), respond("no")]
    async with turn_rig.running(trips(ledger, policy), script) as turns:
        key, result = await turn(turns)
        value = await updates(turns, key)
    assert [each[1] for each in ends(result)] == ["ok", "ok", "ok", "denied"]
    assert value[0] == {"updates": ["data.city", "project"]}
    assert [row[0] for row in ledger.rows] == ["book"]


@pytest.mark.row("F44")
async def test_invalid_update_fails_its_call_and_changes_nothing(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    script = [calls(choose(3, "open")), calls(BOOK), respond("done")]
    async with turn_rig.running(trips(ledger), script) as turns:
        key, result = await turn(turns)
        assert await updates(turns, key) == [{}]
    assert ends(result) == [("choose", "execution_failed", "update"), ("book", "not_available", "layer")]
    failed: CallOutcome = result.calls[0]
    assert str(failed.value.inline).startswith("update_invalid: `choose` ran and took effect, but the")
    assert (failed.updates, failed.data_update, failed.context_update) == (None, None, None)


@pytest.mark.row("F44")
async def test_undeclared_update_is_left_out(turn_rig: TurnRig, caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    script = [calls(choose("Porto", "open")), calls(BOOK), respond("done")]
    async with turn_rig.running(trips(ledger, updates=("project",)), script) as turns:
        _, result = await turn(turns)
    assert [each[1] for each in ends(result)] == ["ok", "not_available"]
    assert any("an update of choose is left out, nothing declares it: data.city" in each for each in caplog.messages)
    async with turn_rig.running(trips(ledger), script) as turns:
        key, result = await turn(turns, context={"data": {"city": None}})
        value = await updates(turns, key)
    assert [each[1] for each in ends(result)] == ["ok", "not_available"]
    assert {"updates": ["data.city"], "untaken": "given"} in value
    assert result.calls[0].updates == Updates(data={"city": "Porto"}, context={"project": "open"})


async def test_edit_is_judged_at_the_turns_current_step(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = [calls(choose("Porto")), calls(BOOK), respond("done")]
    async with turn_rig.running(trips(ledger, ApprovalPolicy(edit="approve")), script) as turns:
        key = await turns.start_waiting(**AT)
        receipt = await turns.signoff.decide(yes(key, "c2.1", edited_args={"amount": 10}))
        assert (receipt.status, receipt.code) == ("accepted", "")
        result = await turns.signoff.result(key)
        await turns.replays(key)
    assert [each[1] for each in ends(result)] == ["ok", "ok"]
    assert [row[1] for row in ledger.rows] == [{"amount": 10}]


async def test_updates_add_no_history_event(turn_rig: TurnRig) -> None:
    script = [calls(choose("Porto", "open")), respond("done")]
    found = []
    for names in ((), ("city", "project")):
        async with turn_rig.running(trips(Ledger(), updates=names), script) as turns:
            key, result = await turn(turns)
            found.append((result.calls[0].updates is not None, await turns.events(key)))
    (before, plain), (after, changed) = found
    assert (before, after) == (False, True)
    assert plain == changed


@pytest.mark.row("F03")
async def test_failed_call_keeps_its_updates(turn_rig: TurnRig, ledger: Ledger) -> None:
    # `success: false` with `contextUpdate`, `dataUpdate` and `meta`: a rule reads the context, a step waits for the
    # data, audit log and transcript show `meta`, and the model reads the error.
    async def checked(args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        found = {"dataUpdate": {"city": args["city"]}, "contextUpdate": {"project": "closed"}}
        return {"success": False, "error": "sold out", **found, "meta": {"asked": 3}}

    policy = ApprovalPolicy(deny_if="ctx.project == 'closed'")
    script = [calls(choose("Porto")), calls(BOOK), respond("done")]
    catalog = trips(ledger, policy, handler=success_results(checked))
    async with turn_rig.running(catalog, script) as turns:
        key, result = await turn(turns)
        assert await updates(turns, key) == [{"updates": ["data.city", "project"]}]
        entries = [
            each.facts["meta"]
            for each in await AuditLog(turn_rig.store).stream(key.workflow_id)
            if "meta" in each.facts
        ]
        view = await turns.signoff.view(key)
    assert ends(result) == [("choose", "execution_failed", "execute"), ("book", "denied", "approval")]
    assert result.calls[0].value.inline == "sold out"
    assert entries == [{"asked": 3}]
    assert [each.outcome.meta for each in view.calls if each.outcome] == [Content(inline={"asked": 3}), None]


async def ready(session: Talk, text: str, turn_id: str, **fields: Any) -> str:
    await session.say(text, turn_id, **AT | fields)
    return await session.answer(turn_id)


@pytest.mark.row("F03")
async def test_session_keeps_updates_for_later_turns_and_runs(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running(trips(ledger), ScriptedModel(react)) as turns:
        session = talk(turns)
        await session.begin(events_per_run=SMALL_RUN)
        assert await ready(session, "book", "a") == "book: not_available"
        assert await ready(session, "choose Porto", "b") == "choose: ok"
        assert await ready(session, "book", "c") == "book: ok"
        assert await ready(session, "book", "d", context={"data": {"city": None}}) == "book: not_available"
        number = 0
        while await session.runs() < 3:
            number += 1
            assert await ready(session, "book", f"n{number}") == "book: ok"
        await turns.replays(session.turn_key("c"))
        other = talk(turns)
        assert await ready(other, "book", "a") == "book: not_available"
    assert len(ledger.rows) == 1 + number


async def test_cancelled_turn_keeps_its_updates_in_the_session(turn_rig: TurnRig, ledger: Ledger) -> None:
    def stops(request: CompletionRequest) -> Completion:
        text = last_user_text(request)
        entries = [part for each in request.messages for part in each.parts if isinstance(part, ResultPart)]
        if text == "go":
            return calls(BOOK) if entries else calls(choose("Porto"))
        return react(request)

    asks = trips(ledger, ApprovalPolicy())
    async with turn_rig.running(asks, ScriptedModel(stops)) as turns:
        session = talk(turns)
        await session.say("go", "a", **AT)
        key = session.turn_key("a")
        await turns.waiting(key)
        await turns.signoff.cancel_turn(key)
        await session.turn("a", "cancelled")
        await session.say("book", "b", **AT)
        assert (await turns.waiting(session.turn_key("b"))).calls[0].tool == "book"
        await session.add("a", "book", "i1")
        assert (await turns.waiting(session.turn_key("a-2"))).calls[0].tool == "book"
        assert ledger.rows == []
