import dataclasses
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from tests.tables import table

import signoff
from signoff import ConfigError, Tool, ToolContext
from signoff.formats.declared_fields import IN_CODE, declared_fields
from signoff.people.directory import DevelopmentDirectory, FixedDirectory
from signoff.policy.facts import ToolFacts
from signoff.policy.handler_verdict import HandlerCall
from signoff.registry.actor import Actor, Step, tool_uses
from signoff.registry.manifest.tool_section import ToolSection
from signoff.registry.program.declarations import ActorOptions, ToolFields
from signoff.registry.registry import ToolRegistry
from signoff.registry.results.reducers import BUILT_IN, ToolReducer
from signoff.testing import a_call_context, execute_parallel

MODEL = "openai:gpt-5"
TOOL = ToolFacts(name="third", scope="generalist", routing="routed", tags=())


async def refund(customer: str, amount: float, ctx: ToolContext) -> str:
    """Refund a customer."""
    return f"refunded {amount} to {customer}"


def lookup(customer: str) -> str:
    """Look a customer up."""
    return threading.current_thread().name


def an_app(**more: Any) -> signoff.App:
    return signoff.App(model=MODEL, **more)


def test_decorator_returns_the_function_and_declares_a_generalist() -> None:
    app = an_app()
    assert app.tool(refund) is refund
    assert app.tool(effect="Look {customer} up", read_only=True)(lookup) is lookup
    catalog = app.build()
    assert [(tool.name, tool.scope) for tool in catalog.tools()] == [("lookup", "generalist"), ("refund", "generalist")]
    assert app.build() is catalog


def test_short_forms_make_one_policy() -> None:
    app = an_app()
    app.tool(auto_approve_if="args.amount <= 10.0", deny_if="args.amount > 99.0", approvers=["role:finance"])(refund)
    policy = app.build().policy("refund").rules
    assert (policy.auto_approve_if, policy.deny_if) == ("args.amount <= 10.0", "args.amount > 99.0")
    assert policy.approvers == ("role:finance",)


def test_tool_of_an_actor_is_a_specialist_of_that_actor_only() -> None:
    app = an_app()
    app.tool(refund)
    clerk = app.actor("clerk", tools=[refund])
    app.actor("guide")
    clerk.tool(justification="The clerk alone reads the notes of the shop.", read_only=True)(lookup)
    catalog = app.build()
    assert catalog.actor("clerk").own_names == {"lookup"}
    assert catalog.actor("clerk").tools == ("refund", "lookup")
    assert catalog.actor("guide").own_names == frozenset()
    assert catalog.resolve("lookup") is None


async def test_plain_function_runs_in_a_thread() -> None:
    app = an_app()
    app.tool(lookup)
    tool = app.build().resolve("lookup")
    assert tool is not None
    context: Any = None
    assert await tool.handler({"customer": "ana"}, context) != threading.main_thread().name


def test_function_under_another_decorator_is_found_by_its_wrapped_function() -> None:
    app = an_app()
    wrapped = app.tool(refund)

    async def measured(*args: Any, **values: Any) -> Any:
        return await refund(*args, **values)

    measured.__wrapped__ = wrapped  # type: ignore[attr-defined]
    app.actor("clerk", tools=[measured])
    assert app.build().actor("clerk").tools == ("refund",)


def test_dict_with_foreign_keys_makes_the_same_tool_as_keywords() -> None:
    schema = {"type": "object", "properties": {"euro": {"type": "number"}}, "required": ["euro"]}

    async def pay(args: dict[str, Any], context: ToolContext) -> str:
        return "paid"

    app = an_app()
    app.add({
        "id": "pay", "name": "Pay money", "description": "Pay an amount.", "parameters": schema, "execute": pay,
        "autoApproveIf": "args.euro < 5.0", "maxResultChars": 50,
    })  # fmt: skip
    tool = app.build().resolve("pay")
    assert tool is not None
    assert (tool.scope, tool.max_result_chars, tool.input_schema) == ("generalist", 50, schema)
    assert tool.title == "Pay money"
    assert app.build().policy("pay").rules.auto_approve_if == "args.euro < 5.0"


@pytest.mark.row("E43")
def test_reducers_of_an_app_belong_to_a_known_tool() -> None:
    app = an_app(reducers=[ToolReducer("refund", BUILT_IN["terminal"])])
    app.tool(refund)
    assert app.build().reducers == {"refund": BUILT_IN["terminal"]}
    twins = [ToolReducer("refund", BUILT_IN["terminal"]), ToolReducer("refund", BUILT_IN["read_file"])]
    with pytest.raises(ConfigError, match="Reducer already registered for tool 'refund'"):
        an_app(reducers=twins)
    own = an_app(reducers=twins[:1])
    own.tool(reducer="terminal")(refund)
    with pytest.raises(ConfigError, match=r"test_program\.py:.*Reducer already registered for tool 'refund'"):
        own.build()
    with pytest.raises(ConfigError, match="there is a reducer for the unknown tool `refund`"):
        an_app(reducers=twins[:1]).build()


def test_tools_of_another_module_are_included_with_their_prefix() -> None:
    part, app = signoff.Tools(), an_app()
    app.include(part, prefix="shop_")
    part.tool(refund)
    app.actor("clerk", tools=[refund])
    assert app.build().actor("clerk").tools == ("shop_refund",)


def scoped(context: signoff.ToolContext) -> dict[str, Any]:
    async def files(args: dict[str, Any], context: signoff.ToolContext) -> str:
        return f"files of {context.user_id}"

    async def notes(args: dict[str, Any], context: signoff.ToolContext) -> str:
        return f"notes of {context.user_id}"

    return {"files": files, "notes": notes}


@table(
    ("key", "factory"),
    ("per_call", scoped),
    ("perCall", scoped),
    ("per_call", f"{__name__}:scoped"),
)
async def test_factory_of_several_tools_is_included_with_a_prefix(key: str, factory: object) -> None:
    inner, part, app = signoff.Tools(), signoff.Tools(), an_app()
    for name in ("files", "notes"):
        inner.add({"name": name, "description": "Read.", key: factory, "input_schema": {"type": "object"}})
    part.include(inner, prefix="user_")
    app.include(part, prefix="shop_")
    app.actor("clerk")
    assert {tool.name for tool in app.build().tools()} == {"shop_user_files", "shop_user_notes"}
    for name in ("files", "notes"):
        [made] = await execute_parallel(app, [(f"shop_user_{name}", {})], a_call_context(actor="clerk"))
        assert made.outcome is not None
        assert (made.outcome.code, made.outcome.value.inline) == ("ok", f"{name} of guest")


def test_declared_tool_is_included_with_a_prefix() -> None:
    part, app = signoff.Tools(), an_app()
    declared = signoff.tool(scope="generalist")(refund)
    part.add(declared)
    app.include(part, prefix="shop_")
    app.actor("clerk", tools=[declared])
    found = app.build().resolve("shop_refund")
    assert found is not None
    assert (found.name, found.handler, app.build().actor("clerk").tools) == (
        "shop_refund",
        declared.handler,
        ("shop_refund",),
    )


def test_prefix_keeps_the_place_of_an_unknown_factory() -> None:
    part, app = signoff.Tools(), an_app()
    part.add({"name": "files", "description": "Read.", "per_call": "nowhere:make", "input_schema": {"type": "object"}})
    app.include(part, prefix="shop_")
    with pytest.raises(ConfigError, match=r"test_program\.py:.*`per_call` of tool `shop_files`"):
        app.build()


@table(
    "registry",
    lambda tool: ToolRegistry([tool]),
    lambda tool: [tool],
    lambda tool: _Resolver(tool),
)
def test_registry_list_and_resolver_all_provide_tools(registry: Callable[[Tool], Any]) -> None:
    declared = signoff.tool(scope="generalist")(refund)
    app = an_app(registry=registry(declared))
    app.actor("clerk", tools=["refund"])
    assert app.build().resolve("refund") == declared


class _Resolver:
    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def resolve(self, name: str) -> Tool | None:
        return self._tool if name == self._tool.name else None


def test_policy_function_is_called_without_an_import_by_name() -> None:
    def ask(call: HandlerCall, context: dict[str, Any]) -> str:
        return "ask"

    app = an_app()
    app.tool(requires_approval=ask)(refund)
    catalog = app.build()
    assert catalog.handlers["refund"] is ask
    assert catalog.policy("refund").rules.handler == f"{__name__}:ask"


def test_python_values_are_read_like_manifest_values() -> None:
    app = an_app(people=[{"id": "ana", "roles": ["approvers"]}])
    app.tool(timeout=timedelta(seconds=30), hours="Mo-Fr 08:00-18:00 Europe/Lisbon", tags=("money",))(refund)
    clerk = app.actor("clerk", tools=[refund], limits={"calls": 3}, tags=("desk",))
    clerk.route("returns", tools=[refund], steps={"ask": {"tools": [refund], "collect": {"order": {"type": "string"}}}})
    app.policy("no-nights", "tool.name == 'refund'", effect="require_approval", reason="refunds are looked at")
    catalog = app.build()
    tool, actor = catalog.resolve("refund"), catalog.actor("clerk")
    assert tool is not None
    assert (tool.timeout, tool.tags, len(tool.hours)) == (30.0, ("money",), 1)
    assert (actor.limits.calls, actor.tags) == (3, ("desk",))
    assert [step.name for step in actor.routes[0].steps] == ["ask"]
    assert [rule.name for rule in catalog.declared_rules] == ["no-nights"]
    assert catalog.people.find("ana") is not None


@table(
    "given",
    {"steps": {"ask": {"prompt": "Ask for the order."}}},
    {"steps": [Step(name="ask", prompt="Ask for the order.")]},
    {"steps": [dataclasses.replace(Step(name="ask", prompt="Ask for the order."), description="The order.")]},
)
def test_prompt_is_an_alias_of_instructions(given: dict[str, Any]) -> None:
    app = an_app()
    app.actor("clerk").route("returns", prompt="Take it back.", **given)
    [route] = app.build().actor("clerk").routes
    assert (route.instructions, route.steps[0].instructions) == ("Take it back.", "Ask for the order.")


def test_prompt_that_differs_from_the_instructions_is_refused() -> None:
    both: dict[str, str] = {"prompt": "Ask.", "instructions": "Wait."}
    app = an_app()
    app.actor("clerk").route("returns", steps={"ask": both})
    with pytest.raises(ConfigError, match=r"test_program\.py:.*mean the same and differ; keep one"):
        app.build()
    with pytest.raises(ConfigError, match="`instructions` and `prompt` of `ask` mean the same and differ"):
        Step(name="ask", **both)


def own_at(catalog: signoff.Catalog) -> dict[str, list[str]]:
    actor = catalog.actor("clerk")
    places = {"": actor.own_tools} | {route.name: route.tools for route in actor.routes}
    places |= {f"{route.name}/{step.name}": step.tools for route in actor.routes for step in route.steps}
    return {
        place: [use.name for use in tool_uses(listed) if not isinstance(use.tool, str)]
        for place, listed in places.items()
        if listed
    }


def test_tool_of_a_route_exists_only_there() -> None:
    app = an_app()
    route = app.actor("clerk").route("returns", tools=[lookup], steps={"ask": {"tools": [lookup]}})
    assert route.tool(justification="Returns alone look customers up.", read_only=True)(lookup) is lookup
    catalog = app.build()
    assert own_at(catalog) == {"returns": ["lookup"], "returns/ask": []}
    assert catalog.resolve("lookup") is None
    with pytest.raises(ConfigError, match="nothing can be declared after that"):
        route.tool(refund)


def test_tool_object_in_a_list_is_declared_in_that_place() -> None:
    agent, course, step = (
        signoff.tool(name=name, scope="generalist", read_only=True)(lookup) for name in ("agent", "course", "step")
    )
    app = an_app()
    clerk = app.actor("clerk", tools=[agent])
    clerk.route("returns", tools=[course, agent], steps={"ask": {"tools": [step, course]}})
    catalog = app.build()
    assert own_at(catalog) == {"": ["agent"], "returns": ["course"], "returns/ask": ["step"]}
    assert catalog.actor("clerk").tools == ("agent", "course", "step")
    assert [use.name for use in tool_uses(catalog.actor("clerk").routes[0].steps[0].tools)] == ["step", "course"]
    assert not catalog.tools()


def test_listed_tool_known_to_the_app_is_only_referenced() -> None:
    known = signoff.tool(name="known", scope="generalist", read_only=True)(lookup)
    app = an_app()
    app.add(known)
    app.actor("clerk", tools=[known]).route("returns", tools=[known], steps={"ask": {"tools": [known]}})
    catalog = app.build()
    assert own_at(catalog) == {"returns": [], "returns/ask": []}
    assert [tool.name for tool in catalog.tools()] == ["known"]


def test_tool_of_a_route_may_not_shadow_another_without_permission() -> None:
    app = an_app()
    app.tool(read_only=True)(lookup)
    route = app.actor("clerk").route("returns")
    route.tool(justification="Returns alone look customers up.", read_only=True)(lookup)
    with pytest.raises(ConfigError, match=r"test_program\.py:.*shadow"):
        app.build()


def _own_twice(app: signoff.App) -> None:
    own = {"lookup": {"handler": lookup, "scope": "generalist", "read_only": True}}
    app.actor("clerk").route("returns", own_tools=own).tool(justification="It alone looks up.")(lookup)


def _listed_twice(app: signoff.App) -> None:
    twins = [signoff.tool(name="find", scope="generalist", title=title)(lookup) for title in ("One", "Two")]
    app.actor("clerk", tools=twins)


def test_subscription_sends_to_an_address_or_a_function() -> None:
    async def note(event: signoff.CloudEvent) -> None:
        return None

    app = an_app()
    app.subscribe("approval.*", to=note)
    app.subscribe("tool_call.executed", to="https://example.org/hook", secret="env:HOOK_SECRET", name="books")
    found = app.build().subscriptions
    assert (found["subscription-1"].handler, found["subscription-1"].events) == (note, ("approval.*",))
    assert (found["books"].url, found["books"].events) == ("https://example.org/hook", ("tool_call.executed",))


def test_subscription_starts_an_actor() -> None:
    app = an_app()
    app.actor("watcher", tools=[])
    app.subscribe("tool_call.executed", to="actor:watcher", turns_per_minute=2)
    found = app.build().subscriptions["subscription-1"]
    assert (found.starts, found.turns_per_minute, found.url) == ("watcher", 2, "")


def test_routing_default_names_the_channels() -> None:
    app = an_app(routing={"default": ["desk"]})
    app.channel("desk", kind="webhook", url="https://desk.example.org/", secret="env:DESK_SECRET")
    assert app.build().channels.routing.default == ("desk",)


def test_directory_object_is_used_for_people() -> None:
    people = FixedDirectory(())
    found = an_app(people=people).build().people
    assert isinstance(found, DevelopmentDirectory)


def test_same_program_has_the_same_hash_on_every_build() -> None:
    def build() -> str:
        app = an_app()
        app.tool(auto_approve_if="args.amount <= 10.0")(refund)
        app.actor("clerk", tools=[refund])
        return app.build().hash

    assert build() == build()


def _twins(app: signoff.App) -> None:
    app.tool(refund)
    app.tool(name="refund")(lookup)


def _no_tool(app: signoff.App) -> None:
    app.actor("clerk", tools=[lookup])


def _untyped(app: signoff.App) -> None:
    async def untyped(city) -> str:  # type: ignore[no-untyped-def]
        """Do it."""
        return ""

    app.tool(untyped)


def _wrong_hook(app: signoff.App) -> None:
    async def available() -> bool:
        return True

    app.tool(available=available)(refund)  # type: ignore[arg-type]


def _wrong_policy(app: signoff.App) -> None:
    def judge(call: HandlerCall) -> str:
        return "ask"

    app.tool(requires_approval=judge)(refund)  # type: ignore[arg-type]


def _late(app: signoff.App) -> None:
    app.build()
    app.tool(refund)


def _unknown_field(app: signoff.App) -> None:
    app.tool(efect="Refund")(refund)  # type: ignore[call-arg]


def _misspelt_short_form(app: signoff.App) -> None:
    app.tool(auto_aprove_if="true")(refund)  # type: ignore[call-arg]


def _wrong_rule(app: signoff.App) -> None:
    app.policy("r", "tool.nam == 'x'", effect="deny")


def _wrong_cel(app: signoff.App) -> None:
    app.tool(auto_approve_if="args.total < 3.0")(refund)


def _misspelt_person(app: signoff.App) -> None:
    app._people = [{"id": "ana", "role": "approvers"}]


def _two_policies(app: signoff.App) -> None:
    app.tool(requires_approval=True, deny_if="args.amount > 3.0")(refund)


def _actor_twice(app: signoff.App) -> None:
    app.actor("clerk")
    app.actor("clerk")


def _no_function(app: signoff.App) -> None:
    app.tool("refund")  # type: ignore[call-overload]


@table(
    ("declare", "words"),
    (_twins, "tool `refund` is declared at "),
    (_no_tool, "actor `clerk` lists `lookup`, which is no tool; declare it with `@app.tool`"),
    (_untyped, "has no type for its argument `city`"),
    (_wrong_hook, "needs `available` to be `async def (context)`"),
    (_wrong_policy, "the policy of tool `refund` is a function that does not take `(call, context)`"),
    (_late, "nothing can be declared after that; declare it before"),
    (_unknown_field, "tool `refund` has no field `efect`; did you mean `effect`?"),
    (_misspelt_short_form, "tool `refund` has no field `auto_aprove_if`; did you mean `auto_approve_if`?"),
    (_wrong_rule, "no field `tool.nam`; did you mean `tool.name`?"),
    (_wrong_cel, "`args.total`"),
    (_misspelt_person, "unknown key `role` of a person; did you mean `roles`?"),
    (_two_policies, "has `requires_approval` beside `deny_if`; write both into one policy"),
    (_own_twice, "tool `lookup` is in `own_tools` of the same place; keep one"),
    (_listed_twice, "tool `find` is declared at "),
    (_actor_twice, "actor `clerk` is declared at "),
    (_no_function, "`@tool` is for functions, and `'refund'` is none; pass a `Tool` to `add`"),
)
def test_invalid_declaration_names_its_file_and_line(declare: Callable[[signoff.App], None], words: str) -> None:
    app = an_app()

    def build() -> None:
        declare(app)
        app.build()

    with pytest.raises(ConfigError) as refused:
        build()
    assert words in refused.value.message
    assert refused.value.message.partition(":")[0].endswith("test_program.py")
    assert int(refused.value.message.split(":")[1]) > 0


@table(
    ("declare", "words"),
    (lambda app: an_app(aprovers=["role:desk"]), "`App` has no keyword `aprovers`; did you mean `approvers`?"),
    (lambda app: signoff.App("shop"), "`App` takes its arguments by name"),
    (lambda app: app.actor(nam="clerk"), "`app.actor` has no keyword `nam`; did you mean `name`?"),
    (lambda app: app.actor(), "`app.actor` needs `name`"),
    (lambda app: app.actor("clerk", instrutions="Help."), "did you mean `instructions`?"),
    (lambda app: app.actor("clerk").route("r", tols=[]), "`route` has no keyword `tols`; did you mean `tools`?"),
    (lambda app: app.policy("r", "true", efect="deny"), "`app.policy` has no keyword `efect`; did you mean `effect`?"),
    (lambda app: app.policy("r", "true"), "`app.policy` needs `effect`"),
    (lambda app: app.policy("r", "true", "deny"), "`app.policy` takes its arguments by name, but for `name` and"),
    (lambda app: app.policy("r", "true", name="q", effect="deny"), "`app.policy` has `name` twice"),
    (lambda app: app.channel("desk", knd="webhook"), "`app.channel` has no keyword `knd`; did you mean `kind`?"),
    (lambda app: app.subscribe("*", to="actor:watcher"), "is to the actor `watcher`, which is not declared"),
    (lambda app: app.subscribe("*", too=print), "`app.subscribe` has no keyword `too`; did you mean `to`?"),
    (lambda app: app.include(signoff.Tools(), prfix="a"), "`include` has no keyword `prfix`; did you mean `prefix`?"),
    (lambda app: app.tool(auto_approve_if=True)(refund), "`auto_approve_if` of tool `refund` must be text"),
    (lambda app: app.tool(deny_if="")(refund), "`deny_if` of tool `refund` must be text"),
    (lambda app: app.tool(approvers="role:desk")(refund), "`approvers` of tool `refund` must be a list"),
    (lambda app: app.tool(approvers=["desk"])(refund), "tool `refund`: `approvers.0` `desk` is not an approver"),
)
def test_invalid_argument_is_named_with_file_and_line(declare: Callable[[Any], object], words: str) -> None:
    app = an_app()

    def build() -> None:
        declare(app)
        app.build()

    with pytest.raises(ConfigError) as refused:
        build()
    assert words in refused.value.message
    assert "requires_approval" not in refused.value.message
    assert refused.value.message.partition(":")[0].endswith("test_program.py")


def test_tool_without_a_scope_gets_the_scope_of_its_place() -> None:
    app = an_app(registry=[signoff.tool(refund)])
    app.add(signoff.tool(read_only=True, name="find")(lookup))
    clerk = app.actor("clerk")
    clerk.add(signoff.tool(justification="The clerk alone looks customers up.", read_only=True)(lookup))
    catalog = app.build()
    assert {tool.name: tool.scope for tool in catalog.tools()} == {"find": "generalist", "refund": "generalist"}
    assert [tool.scope for tool in catalog.actor("clerk").own] == ["specialist"]


def test_tool_without_a_scope_is_refused_outside_an_app() -> None:
    with pytest.raises(ConfigError, match="scope"):
        ToolRegistry([signoff.tool(refund)])


def test_rule_without_a_name_is_named_by_its_text(tmp_path: Path) -> None:
    texts = [f"tool.name == '{name}'" for name in ("first", "second", "third")]
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text(f'version: 1\npolicies: [{{rule: "{texts[2]}", effect: deny}}]\n', encoding="utf-8")
    app = an_app(policies=[{"rule": texts[0], "effect": "hide"}], manifest=manifest)
    app.policy(rule=texts[1], effect="require_approval")
    with pytest.raises(ConfigError, match=r"the rule `tool.name == 'second'` is declared at .* already"):
        app.policy(rule=texts[1], effect="deny")
    with pytest.raises(ConfigError, match=r"`app.policy` needs `rule`; a rule without a name is `app.policy\(rule="):
        app.policy("tool.name == 'second'", effect="deny")  # type: ignore[call-overload]
    catalog = app.build()
    assert sorted(rule.name for rule in catalog.declared_rules) == sorted(texts)
    verdict = catalog.rules.judge(actor={"name": "a", "tags": []}, tool=TOOL, ctx={})
    assert verdict.why == f"rule `{texts[2]}` is true"


def test_error_in_a_rule_without_a_name_has_its_line(tmp_path: Path) -> None:
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text("version: 1\npolicies:\n  - effect: deny\n    rule: tool.nam == 'x'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"signoff\.yaml:4: .*did you mean `tool.name`"):
        an_app(manifest=manifest).build()


def test_decorator_keywords_are_the_manifest_keys_of_a_tool() -> None:
    short_forms = {"auto_approve_if", "deny_if", "approvers"}
    by_place = {"handler", "scope", "per_call"}
    assert get_type_hints(ToolFields).keys() - short_forms == ToolSection.model_fields.keys() - by_place


def test_actor_keywords_are_the_fields_of_its_record() -> None:
    fields = {field.name for field in dataclasses.fields(Actor)}
    by_argument = {"name", "model", "instructions", "tools", "own_tools", "routes"}
    assert get_type_hints(ActorOptions).keys() == fields - by_argument
    assert declared_fields(Actor)["route_select"].spec.key is IN_CODE
