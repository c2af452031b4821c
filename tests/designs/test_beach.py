from typing import Any

import pytest
from tables import table

import signoff
from signoff.people import Person
from signoff.testing import (
    Completion,
    CompletionRequest,
    ScriptedModel,
    a_call_context,
    calls,
    execute_parallel,
    respond,
    results,
)
from signoff.tools import BypassRouting, HandlerCall

MODEL = "openai:gpt-5"
PEOPLE = [
    Person(id="ana", roles=("approvers",)),
    Person(id="tom", tier="trusted"),
]
MISSIVE = {
    "name": "missive_list",
    "description": "List the missives of the current session.",
    "inputSchema": {"type": "object", "properties": {"limit": {"type": "integer"}}},
    "scope": "generalist",
    "routing": "routed",
    "requiresApproval": False,
    "tags": ["read", "missive"],
    "peerExposed": False,
}
FLIGHT = {
    "name": "book_flight",
    "description": "Book a flight.",
    "inputSchema": {
        "type": "object",
        "properties": {"flight": {"type": "string"}, "totalCost": {"type": "number"}},
        "required": ["flight", "totalCost"],
    },
    "scope": "generalist",
    "requiresApproval": {"autoApproveIf": "args.totalCost < 50 && ctx.user.tier == 'trusted'"},
}
TOM = {"user": "tom", "tier": "trusted"}
ANA = {"user": "ana", "roles": ["approvers"]}
LISBON = {"flight": "TP 531", "totalCost": 420}


async def list_missives(args: dict[str, Any], context: signoff.ToolContext) -> list[str]:
    return [f"missive {n} of {context.user_id}" for n in range(args.get("limit", 1))]


async def book_flight(args: dict[str, Any], context: signoff.ToolContext) -> str:
    return f"booked {args['flight']}, {context.approval_decision or 'unasked'}"


def answer_flight(request: CompletionRequest) -> Completion:
    read = results(request)
    return respond(str(read[0].value.inline)) if read else calls(("book_flight", LISBON))


def app_of(*tools: dict[str, Any], **more: Any) -> signoff.App:
    app = signoff.App(model=MODEL, people=PEOPLE, approvers=["role:approvers"], **more)
    app.add(*tools)
    return app


def names(app: signoff.App, actor: str = "triage") -> list[str]:
    return [tool.name for tool in app.build().definitions(a_call_context(actor=actor))]


async def test_register_takes_the_mapping_of_the_design() -> None:
    app = app_of({**MISSIVE, "handler": list_missives})
    app.actor("triage", tools=["missive_list"])
    tool = app.build().resolve("missive_list")
    assert tool is not None
    assert (tool.scope, tool.routing, tool.tags, tool.peer_exposed) == (
        "generalist",
        "routed",
        ("read", "missive"),
        False,
    )
    [made] = await execute_parallel(app, [("missive_list", {"limit": 1})], a_call_context(actor="triage"))
    assert made.outcome is not None
    assert made.outcome.value.inline == '["missive 0 of guest"]'


async def test_input_schema_is_checked_before_the_handler() -> None:
    app = app_of({**MISSIVE, "handler": list_missives})
    app.actor("triage", tools=["missive_list"])
    [made] = await execute_parallel(app, [("missive_list", {"limit": "two"})], a_call_context(actor="triage"))
    assert made.outcome is not None
    assert made.outcome.code == "input_invalid"


def test_actor_has_its_listed_tools_and_respond() -> None:
    app = app_of({**MISSIVE, "handler": list_missives}, {**FLIGHT, "handler": book_flight})
    app.actor(name="triage", tools=["missive_list"])
    assert names(app) == ["missive_list", "respond"]


def test_unknown_tool_of_an_actor_is_an_error_at_the_start() -> None:
    app = app_of({**MISSIVE, "handler": list_missives})
    app.actor("triage", tools=["missive_lists"])
    with pytest.raises(signoff.ConfigError, match="did you mean `missive_list`"):
        app.build()


@table(
    ("user", "cost", "kind"),
    (TOM, 49, "run"),
    (TOM, 50, "ask"),
    (ANA, 49, "ask"),
)
async def test_auto_approve_if_skips_the_approval(user: dict[str, Any], cost: int, kind: str) -> None:
    app = app_of({**FLIGHT, "handler": book_flight})
    app.actor("travel", tools=["book_flight"])
    context = a_call_context(actor="travel", user=user)
    [made] = await execute_parallel(app, [("book_flight", {**LISBON, "totalCost": cost})], context)
    assert made.kind == kind


async def test_approved_call_runs_with_the_decision_in_its_context() -> None:
    app = app_of({**FLIGHT, "handler": book_flight})
    app.actor("travel", tools=["book_flight"])
    async with app.test(ScriptedModel(answer_flight)) as test:
        turn = await test.say("book the flight to Lisbon", user="tom")
        request = await turn.request()
        await test.approve(request, by="ana")
        result = await turn.result()
        assert request.tool == "book_flight"
        assert [(call.code, call.decided_by) for call in result.calls] == [("ok", "ana")]
        assert result.parts[0].content.inline == "booked TP 531, approved"


async def test_denied_call_reaches_the_model_as_tool_denied() -> None:
    app = app_of({**FLIGHT, "handler": book_flight})
    app.actor("travel", tools=["book_flight"])
    async with app.test(ScriptedModel(answer_flight)) as test:
        turn = await test.say("book the flight to Lisbon", user="tom")
        await test.deny(await turn.request(), "too dear", by="ana")
        result = await turn.result()
        [call] = result.calls
        assert call.denied is not None
        assert (call.denied.type, call.denied.tool, call.denied.reason) == ("ToolDenied", "book_flight", "too dear")
        assert "too dear" in str(result.parts[0].content.inline)


def policy_handler(call: HandlerCall, context: dict[str, Any]) -> str:
    if call.args["totalCost"] < 50:
        return "auto"
    return "admin" if call.args["totalCost"] > 1000 else "user"


@table(("cost", "kind"), (49, "run"), (420, "ask"), (2000, "ask"))
async def test_policy_handler_function_decides_by_cost(cost: int, kind: str) -> None:
    app = app_of({**FLIGHT, "requiresApproval": policy_handler, "handler": book_flight})
    app.actor("travel", tools=["book_flight"])
    context = a_call_context(actor="travel", user=TOM)
    [made] = await execute_parallel(app, [("book_flight", {**LISBON, "totalCost": cost})], context)
    assert made.kind == kind


@table(("scope", "seen"), ("admin", ["wipe", "respond"]), ("", ["respond"]))
def test_configure_policy_hides_destructive_tools(scope: str, seen: list[str]) -> None:
    rule = {"rule": "actor.scope != 'admin' && tool.tags.includes('destructive')", "effect": "hide"}
    app = app_of({**MISSIVE, "name": "wipe", "tags": ["destructive"], "handler": list_missives}, policies=[rule])
    app.actor("triage", tools=["wipe"], scope=scope)
    assert names(app) == seen


@table(
    ("fields", "field"),
    ({"routing": "bypass", "bypassRouting": {"reason": "It reads a local cache."}}, "routing"),
    ({"scope": "specialist"}, "justification"),
    ({"scope": "specialist", "justification": "todo"}, "justification"),
    ({"scope": "specialist", "justification": "Of this actor alone.", "routing": "bypass"}, "bypass_routing"),
    ({"scope": "specialist", "justification": "Of this actor alone.", "peerExposed": True}, "peer_exposed"),
    ({"name": "respond"}, "name"),
)
def test_invalid_pair_of_scope_and_routing_is_rejected_at_the_start(fields: dict[str, Any], field: str) -> None:
    app = app_of({**MISSIVE, "handler": list_missives, **fields})
    app.actor("triage")
    with pytest.raises(signoff.ConfigError) as refused:
        app.build()
    assert refused.value.context["field"] == field


def test_second_tool_with_the_same_name_is_rejected_at_registration() -> None:
    app = app_of({**MISSIVE, "handler": list_missives})
    with pytest.raises(signoff.ConfigError, match=r"tool `missive_list` is declared at .* already"):
        app.add({**MISSIVE, "handler": list_missives})


async def test_routed_call_is_an_event_of_its_actor() -> None:
    app = app_of({**FLIGHT, "handler": book_flight, "requiresApproval": False})
    app.actor("travel", tools=["book_flight"])
    async with app.test(ScriptedModel(answer_flight)) as test:
        await (await test.say("book the flight to Lisbon", user="tom")).result()
        events = (await test.client.events()).events
        assert [each.source for each in events if each.type.endswith("tool_call:book_flight")] == ["actor:travel"]


async def test_bypass_of_a_specialist_runs_without_an_event() -> None:
    why = {"justification": "The mailbox is of this one actor alone.", "bypassRouting": {"reason": "It reads a cache."}}
    app = app_of()
    mine = {**FLIGHT, **why, "handler": book_flight, "scope": "specialist", "routing": "bypass", "readOnly": True}
    app.actor("travel").add({**mine, "requiresApproval": False})
    async with app.test(ScriptedModel(answer_flight)) as test:
        result = await (await test.say("book the flight to Lisbon", user="tom")).result()
        events = (await test.client.events()).events
        assert [call.code for call in result.calls] == ["ok"]
        assert [each for each in events if "tool_call:" in each.type] == []


@table(("reason", "right"), ("It only reads a local cache.", True), ("tbd", False))
def test_bypass_of_a_tool_in_code_needs_a_reason(reason: str, right: bool) -> None:
    fields: dict[str, Any] = {**FLIGHT, "handler": book_flight, "justification": "Of this one actor alone."}
    fields |= {"scope": "specialist", "routing": "bypass", "bypassRouting": BypassRouting(reason)}
    app = signoff.App(model=MODEL, people=PEOPLE, approvers=["role:approvers"])
    app.actor("travel")
    app.add(signoff.Tool(**fields))
    if right:
        assert names(app, "travel") == ["book_flight", "respond"]
    else:
        with pytest.raises(signoff.ConfigError, match="reason"):
            app.build()
