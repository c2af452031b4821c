from dataclasses import replace
from datetime import UTC, datetime, timedelta
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
from signoff.tools import (
    HookContext,
    Permission,
    Step,
    ToolRegistryBuilder,
    UsageLimit,
    context_first,
    per_call,
    success_results,
)

PARAMETERS = {"type": "object", "properties": {"words": {"type": "string"}}}
PEOPLE = [Person(id="eva", roles=("finance",), tier="gold"), Person(id="max", tenant="north")]
EVA = {"user": "eva", "roles": ["finance"], "tier": "gold"}


def handler(text: str) -> Any:
    @context_first
    async def run(context: signoff.ToolContext, args: dict[str, Any]) -> str:
        return f"{text} for {context.user_id}"

    return run


def entry(name: str, text: str = "", /, **more: Any) -> dict[str, Any]:
    fields = {"id": name, "description": f"Use {name}.", "parameters": PARAMETERS, "scope": "generalist"}
    return {**fields, "handler": handler(text or name), "readOnly": True, **more}


def own(text: str, **more: Any) -> dict[str, Any]:
    return {key: value for key, value in entry("x", text, **more).items() if key != "id"}


def app_of(*tools: dict[str, Any], **more: Any) -> signoff.App:
    app = signoff.App(model="openai:gpt-5", people=PEOPLE, **more)
    app.add(*tools)
    return app


def at(route: str = "", step: str = "", **more: Any) -> Any:
    data = more.pop("data", {})
    return a_call_context(actor="shop", route=route, step=step, **{"user": EVA, "extra": {"data": data}, **more})


def shown(app: signoff.App, context: Any) -> list[str]:
    return [tool.name for tool in app.build().available(context)]


async def said(app: signoff.App, tool: str, context: Any) -> tuple[str, str]:
    [made] = await execute_parallel(app, [(tool, {"words": "shoes"})], context)
    assert made.outcome is not None
    return made.outcome.code, str(made.outcome.value.inline)


def test_registry_registers_many_tools_and_lists_them() -> None:
    registry = ToolRegistryBuilder()
    made = [signoff.Tool(**entry(name)) for name in ("search", "weather", "email")]
    registry.register(made[0])
    registry.register_many(made[1:])
    assert [*registry.get_registered()] == ["search", "weather", "email"]
    assert (registry.is_registered("weather"), registry.is_registered("missing")) == (True, False)
    app = signoff.App(model="openai:gpt-5", people=PEOPLE, registry=registry.build())
    app.actor("shop")
    assert shown(app, at()) == ["email", "search", "weather"]


def test_name_next_to_an_id_is_the_tools_title() -> None:
    app = app_of(entry("search", name="Search the shop"))
    app.actor("shop")
    tool = app.build().resolve("search")
    assert tool is not None
    assert tool.title == "Search the shop"


@table(
    ("route", "step", "text"),
    ("", "", "Agent for eva"),
    ("order", "", "Route for eva"),
    ("order", "inline", "Step for eva"),
    ("order", "reference", "Registry for eva"),
    ("order", "plain", "Route for eva"),
)
async def test_nearest_level_provides_the_tool(route: str, step: str, text: str) -> None:
    app = app_of(entry("search", "Registry"))
    shop = app.actor("shop", shadowing="allow")
    shop.add(entry("search", "Agent"))
    steps: dict[str, dict[str, Any]] = {
        "inline": {"own_tools": {"search": own("Step")}},
        "reference": {"tools": ["search"]},
        "plain": {},
    }
    shop.route("order", own_tools={"search": own("Route")}, steps=steps)
    assert await said(app, "search", at(route, step)) == ("ok", text)


@table(
    ("route", "step", "text"),
    ("", "", "Agent for eva"),
    ("order", "", "Route for eva"),
    ("order", "inline", "Step for eva"),
)
async def test_tool_objects_are_declared_at_their_level(route: str, step: str, text: str) -> None:
    agent, course, inline = (signoff.Tool(**entry("search", each)) for each in ("Agent", "Route", "Step"))
    app = app_of()
    shop = app.actor("shop", tools=[agent], shadowing="allow")
    shop.route("order", tools=[course], steps={"inline": {"tools": [inline]}})
    assert await said(app, "search", at(route, step)) == ("ok", text)


async def test_registry_is_the_last_level() -> None:
    app = app_of(entry("search", "Registry"))
    app.actor("shop").route("order", steps={"plain": {}})
    assert await said(app, "search", at("order", "plain")) == ("ok", "Registry for eva")


@table(("data", "seen"), ({}, []), ({"address": "Rua 1", "paymentDetails": "card"}, ["pay"]))
def test_step_waits_for_its_required_data(data: dict[str, str], seen: list[str]) -> None:
    app = app_of(entry("pay"), entry("browse"))
    steps: dict[str, dict[str, Any]] = {
        "gather": {"collect": {"address": {"type": "string"}, "paymentDetails": {"type": "string"}}},
        "process": {"mode": "only", "tools": ["pay"], "requires": ["address", "paymentDetails"]},
    }
    app.actor("shop").route("checkout", steps=steps)
    assert shown(app, at("checkout", "process", data=data)) == seen


async def by_category(context: HookContext, data: dict[str, Any]) -> list[str]:
    category = data.get("category")
    return [name for name, tool in context.tools.items() if tool.metadata.get("category") == category]


@table(("category", "seen"), ("books", "read"), ("shoes", "try_on"))
async def test_select_chooses_tools_by_custom_metadata(category: str, seen: str) -> None:
    tools = [entry("read", metadata={"category": "books"}), entry("try_on", metadata={"category": "shoes"})]
    app = app_of(*tools)
    app.actor("shop").route("lazy", mode="only", tools=["read", "try_on"], select=by_category)
    codes = {name: (await said(app, name, at("lazy", data={"category": category})))[0] for name in ("read", "try_on")}
    assert [name for name, code in codes.items() if code == "ok"] == [seen]


@context_first
async def secure(context: signoff.ToolContext, args: dict[str, Any]) -> str:
    if "finance" not in context.user.roles:
        raise PermissionError("Insufficient permissions")
    return "paid"


@table(("user", "code"), (EVA, "ok"), ({"user": "guest", "name": "Guest"}, "execution_failed"))
async def test_secure_tool_fails_without_the_permission(user: dict[str, Any], code: str) -> None:
    app = app_of(entry("payout", handler=secure))
    app.actor("shop")
    found, text = await said(app, "payout", at(user=user))
    assert (found, "Insufficient permissions" in text) == (code, code != "ok")


async def test_filtered_route_hides_its_tools_and_gives_the_reason() -> None:
    app = app_of(entry("ledger", tags=["finance"]), entry("browse"))
    filtered: dict[str, Any] = {"tool_filter": "ctx.user.tier == 'platinum'", "tool_filter_reason": "MFA required"}
    shop = app.actor("shop")
    shop.route("open", mode="only", tools=["ledger"])
    shop.route("finance", mode="only", tools=["ledger"], **filtered)
    assert shown(app, at("open")) == ["ledger"]
    assert shown(app, at("finance")) == []
    code, text = await said(app, "ledger", at("finance"))
    assert (code, "MFA required" in text) == ("not_available", True)


def scoped(context: signoff.ToolContext) -> Any:
    user, tenant = context.user_id, context.tenant_id

    async def files(args: dict[str, Any], context: signoff.ToolContext) -> str:
        return f"files of {user} in {tenant}"

    async def notes(args: dict[str, Any], context: signoff.ToolContext) -> str:
        return f"notes of {user} in {tenant}"

    return {"files": files, "notes": notes}


@table(
    ("context", "text"),
    ({"user": EVA}, "of eva in main"),
    ({"user": {"user": "max"}, "tenant": "north"}, "of max in north"),
)
async def test_scoped_tools_are_built_for_user_and_tenant_of_the_call(context: dict[str, Any], text: str) -> None:
    app = app_of(entry("files", handler=per_call(scoped, "files")))
    app.add({"name": "notes", "description": "Read notes.", "per_call": scoped, "input_schema": PARAMETERS})
    app.actor("shop")
    for name in ("files", "notes"):
        assert await said(app, name, at(**context)) == ("ok", f"{name} {text}")


@success_results
@context_first
async def verify(context: signoff.ToolContext, args: dict[str, Any]) -> dict[str, Any]:
    return {"data": "not verified", "success": False, "error": "no such card", "contextUpdate": {"checked": True}}


async def test_failed_result_keeps_its_data_and_its_context_update() -> None:
    app = app_of(entry("verify", handler=verify, updates=["checked"]), context={"checked": {"type": "boolean"}})
    app.actor("shop")
    [made] = await execute_parallel(app, [("verify", {})], at())
    assert made.outcome is not None
    assert made.outcome.context_update is not None
    assert made.outcome.context_update.inline == {"checked": True}
    assert "no such card" in str(made.outcome.value.inline)
    assert "not verified" in str(made.outcome.value.inline)


async def test_usage_limit_counts_successful_calls() -> None:
    app = app_of(entry("search", usageLimit={"count": 1, "per": "user", "period": "1d"}))
    app.actor("shop")
    model = ScriptedModel(lambda request: respond("ok") if results(request) else calls(("search", {"words": "a"})))
    async with app.test(model) as test:
        codes = []
        for user in ("eva", "eva", "guest"):
            result = await (await test.say("search", user=user)).result()
            codes += [call.code for call in result.calls]
        assert [code == "ok" for code in codes] == [True, False, True]


async def test_metrics_wrap_a_tool_on_success_and_failure() -> None:
    tool = signoff.Tool(**entry("payout", handler=secure))
    seen: list[tuple[str, bool]] = []

    async def measured(args: dict[str, Any], context: signoff.ToolContext) -> Any:
        try:
            result = await tool.handler(args, context)
        except Exception:
            seen.append((tool.name, False))
            raise
        seen.append((tool.name, True))
        return result

    app = signoff.App(model="openai:gpt-5", people=PEOPLE, registry=[replace(tool, handler=measured)])
    app.actor("shop")
    for user in (EVA, {"user": "guest", "name": "Guest"}):
        await said(app, "payout", at(user=user))
    assert seen == [("payout", True), ("payout", False)]


async def routes_of(context: HookContext, data: dict[str, Any]) -> list[str]:
    return {"main": ["retail"], "north": ["wholesale"]}.get(context.tenant, [])


@table(("route", "code"), ("retail", "ok"), ("wholesale", "not_available"))
async def test_each_tenant_has_its_own_routes(route: str, code: str) -> None:
    app = app_of(entry("browse"))
    shop = app.actor("shop", route_select=routes_of)
    for name in ("retail", "wholesale"):
        shop.route(name, tools=["browse"])
    assert (await said(app, "browse", at(route)))[0] == code


def test_tool_of_one_id_at_two_levels_needs_shadowing() -> None:
    app = app_of(entry("search", "Registry"))
    app.actor("shop").route("order", own_tools={"search": own("Route")})
    with pytest.raises(signoff.ConfigError, match="shadow"):
        app.build()


async def test_each_step_has_its_prompt_and_shares_collected_data() -> None:
    steps = [
        Step(name="gather", prompt="Ask for the address.", collect={"address": {"type": "string"}}),
        Step(name="process", instructions="Take the payment.", requires=("address",), tools=("pay",)),
    ]
    limit = UsageLimit(count=5, per="user", period=60.0)
    app = app_of(entry("pay", usageLimit=limit))
    app.actor("shop", instructions="You keep a shop.").route("checkout", steps=steps)
    prompts: list[str] = []

    def react(request: CompletionRequest) -> Completion:
        prompts.append(request.instructions)
        return respond("ok")

    async with app.test(ScriptedModel(react)) as test:
        for step in ("gather", "process"):
            await (await test.say("I want to pay", user="eva", route="checkout", step=step)).result()
    assert ["Ask for the address." in each for each in prompts] == [True, False]
    assert ["Take the payment." in each for each in prompts] == [False, True]
    assert all("You keep a shop." in each for each in prompts)


async def test_trace_names_the_winning_level(caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(entry("search", "Registry"))
    app.actor("shop", shadowing="allow").route("order", own_tools={"search": own("Route")}, steps={"pick": {}})
    model = ScriptedModel(lambda request: respond("ok") if results(request) else calls(("search", {"words": "a"})))
    caplog.set_level("INFO")
    async with app.test(model) as test:
        await (await test.say("search", user="eva", route="order", step="pick", trace=True)).result()
    assert "tool `search` in step pick: search@shop.order (route > registry)" in caplog.text


@table(("days", "code"), (0, "ok"), (3, "not_available"))
async def test_tool_with_business_hours_is_available_on_its_days(days: int, code: str) -> None:
    # Two days each, so that midnight may pass during the test.
    names = [(datetime.now(UTC) + timedelta(days=days + more)).strftime("%a")[:2] for more in (0, 1)]
    app = app_of(entry("call", hours=[f"{name} 00:00-24:00 UTC" for name in names]))
    app.actor("shop")
    assert (await said(app, "call", at()))[0] == code


@success_results
@context_first
async def gather(context: signoff.ToolContext, args: dict[str, Any]) -> dict[str, Any]:
    return {"data": "noted", "dataUpdate": {"address": args["words"]}}


async def test_data_update_of_a_tool_provides_the_steps_required_data() -> None:
    app = app_of(entry("gather", handler=gather, updates=["address"]), entry("pay"))
    step = {"requires": ["address"], "tools": ["pay"], "collect": {"address": {"type": "string"}}}
    app.actor("shop").route("checkout", tools=["gather"], steps={"process": step})
    offered: list[bool] = []

    def react(request: CompletionRequest) -> Completion:
        offered.append("pay" in [tool.name for tool in request.tools])
        return respond("ok") if results(request) else calls(("gather", {"words": "Rua 1"}))

    async with app.test(ScriptedModel(react)) as test:
        await (await test.say("to Rua 1", user="eva", route="checkout", step="process")).result()
    assert offered == [False, True]


async def of_finance(args: dict[str, Any], context: HookContext) -> Permission:
    return Permission("finance" in context.user.roles, "of finance alone")


@table(("user", "code"), (EVA, "ok"), ({"user": "guest", "name": "Guest"}, "denied"))
async def test_tool_of_a_plugin_checks_its_permission(user: dict[str, Any], code: str) -> None:
    app = app_of(entry("ledger", plugin="books", check_permissions=of_finance))
    app.actor("shop", allowed_plugins=["books"])
    assert (await said(app, "ledger", at(user=user)))[0] == code


@success_results
@context_first
async def pay(context: signoff.ToolContext, args: dict[str, Any]) -> dict[str, Any]:
    if args["words"] == "declined":
        return {"success": False, "error": "declined", "dataUpdate": {"paymentDetails": None}, "next": "payment"}
    return {"data": f"paid to {context.data['address']}", "next": "done"}


CHECKOUT: dict[str, dict[str, Any]] = {
    "delivery": {"prompt": "Where to?", "collect": ["address"]},
    "payment": {"prompt": "How will you pay?", "collect": {"paymentDetails": {"type": "string"}}},
    "process": {"prompt": "Pay.", "requires": ["address", "paymentDetails"], "mode": "only", "tools": ["pay"]},
    "done": {"prompt": "Thank them.", "mode": "only"},
}


@pytest.mark.row("F14")
async def test_booking_moves_through_its_steps() -> None:
    app = app_of(entry("pay", handler=pay, updates=["paymentDetails"]), entry("browse"))
    app.actor("shop", instructions="You keep a shop.").route("checkout", steps=CHECKOUT)
    script = iter(
        [
            respond("Where to?"),
            calls(("collect", {"address": "Rua 1"})),
            respond("How will you pay?"),
            calls(("collect", {"paymentDetails": "old card"})),
            calls(("pay", {"words": "declined"})),
            respond("That was declined. How else?"),
            calls(("collect", {"paymentDetails": "new card"})),
            calls(("pay", {"words": "paid"})),
            respond("Thank you."),
        ]
    )
    seen: list[tuple[str, list[str]]] = []

    def react(request: CompletionRequest) -> Completion:
        seen.append((request.instructions.rpartition("\n\n")[2], [tool.name for tool in request.tools]))
        return next(script)

    places = []
    async with app.test(ScriptedModel(react)) as test:
        for number, words in enumerate(("I want to pay", "to Rua 1", "by my old card", "by my new card")):
            await (await test.say(words, user="eva", session="s", route="" if number else "checkout")).result()
            places.append((await test.client.session("s")).step)
    assert places == ["delivery", "payment", "payment", "done"]
    delivery, payment = (
        ("Where to?", ["collect", "browse", "pay"]),
        ("How will you pay?", ["collect", "browse", "pay"]),
    )
    process, done = ("Pay.", ["pay"]), ("Thank them.", list[str]())
    told = [(prompt, [name for name in names if name != "respond"]) for prompt, names in seen]
    assert told == [delivery, delivery, payment, payment, process, payment, payment, process, done]


def test_tool_named_collect_is_an_error_with_its_place() -> None:
    app = app_of(entry("collect"))
    app.actor("shop")
    with pytest.raises(signoff.ConfigError, match=r"test_falai\.py:\d+: tool `collect` has a reserved name"):
        app.build()
