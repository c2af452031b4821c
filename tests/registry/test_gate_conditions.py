import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_kit import a_call, a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import GateDecision, Tally
from signoff.contracts.call import PERMISSION_RULE, CallCode, RuleReference
from signoff.contracts.errors import RegistrationError
from signoff.contracts.usage import UsageLimit
from signoff.formats.json_schema import SchemaProblem
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.policy.compiled_policy import RulesVerdict
from signoff.registry.actor import Route, Step, Surface
from signoff.registry.capabilities import KINDS, Capabilities
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.judged_call import GateName, JudgedCall, denied_decision, settled_decision
from signoff.registry.gates.pipeline import GateFacts, by_verdict, judge
from signoff.registry.hooks import Correction, HookContext, Permission, hook_context
from signoff.registry.scopes.position import Resolution
from signoff.registry.tool import Tool

GOOD: dict[str, Any] = {"flight": "TP 531", "totalCost": 420}
ALL = frozenset(KINDS)


async def asked(*result: Any) -> Any:
    raise AssertionError("nothing pure asks")


def ruled(tool: Tool, args: Any = GOOD, *policies: GlobalRule, **fields: Any) -> JudgedCall:
    approvers = fields.pop("approvers", ("role:approvers",))
    catalog = build_catalog(tools=(tool,), actors=(an_actor(),), policies=policies, default_approvers=approvers)
    dry_run = fields.pop("dry_run", False)
    found = judge(catalog, pinned(), a_call(tool.name), args, Tally(), dry_run=dry_run, known=GateFacts(**fields))
    # In English.
    return found._replace(words=(found.message,) if found.words else ())


def facts(found: JudgedCall) -> tuple[str, str, str]:
    return found.kind, found.gate, found.code


@table(("hour", "kind"), (9, "run"), (21, "ask"))
def test_rule_reads_the_instant_of_judgement(hour: int, kind: str) -> None:
    at = datetime(2026, 3, 2, hour, tzinfo=UTC)
    by_day = a_tool(requires_approval=ApprovalPolicy(auto_approve_if="ctx.now.hour < 18"))
    found = ruled(by_day, at=at)
    assert (found.kind, found.at) == (kind, at)
    at_night = GlobalRule(name="night", rule="ctx.now.hour >= 18", effect="require_approval")
    found = ruled(a_tool(), GOOD, at_night, at=at)
    assert (found.kind, found.at) == (kind, at)
    # A rule that cannot be read applies: without an instant neither lets the call run.
    for unknown in (ruled(by_day), ruled(a_tool(), GOOD, at_night)):
        assert (unknown.kind, unknown.at) == ("ask", None)


@pytest.mark.row("E32")
def test_tool_definition_has_name_description_and_schema() -> None:
    tool = a_tool(available=asked, check_permissions=asked, capabilities=Capabilities(storage=True))
    offer = build_catalog(tools=(tool,), actors=(an_actor(),)).offered_tools("desk", pinned())[0]
    assert offer.model_dump() == {
        "name": "book_flight",
        "description": "Books a flight.",
        "parameters": tool.schema.schema,
        "strict": None,
    }


@pytest.mark.row("E14")
def test_unavailable_tool_is_neither_offered_nor_run() -> None:
    tool = a_tool(available=asked, check_permissions=asked)
    found = ruled(tool, {}, unavailable=frozenset({"book_flight"}))
    assert facts(found) == ("settled", "available", "not_available")
    assert found.message == "Tool book_flight is not currently available"
    catalog = build_catalog(tools=(tool, a_tool("look")), actors=(an_actor(),))
    assert [offer.name for offer in catalog.offered_tools("desk", pinned(), frozenset({"book_flight"}))] == [
        "look",
        "respond",
    ]


@pytest.mark.row("X23")
def test_availability_only_removes_tools() -> None:
    catalog = build_catalog(tools=(a_tool("look"), a_tool("book")), actors=(an_actor(tools=("look",)),))
    away = GateFacts(unavailable=frozenset({"book", "nothing"}))
    assert judge(catalog, pinned(), a_call("book"), GOOD, Tally(), known=away).gate == "allowlist"
    assert judge(catalog, pinned(), a_call("nothing"), GOOD, Tally(), known=away).gate == "resolve"
    assert judge(catalog, pinned(), a_call("look"), GOOD, Tally(), known=away).kind == "run"


@pytest.mark.row("F35")
@table("policy", False, True, ApprovalPolicy(auto_approve_if="true"))
def test_unchecked_permission_lets_no_call_run(policy: Any) -> None:
    tool = a_tool(check_permissions=asked, requires_approval=policy)
    question = ruled(tool)
    assert (facts(question), question.awaits_permission) == (("settled", "permission", "refused"), True)
    assert question.verdict is None
    assert question.explained_kind == "question"
    denied = ruled(tool, permission=Permission.deny("not yours"))
    assert facts(denied) == ("settled", "permission", "denied")
    assert denied.message == "Permission denied: not yours"
    allowed = ruled(tool, permission=Permission.allow())
    assert allowed.kind == ("ask" if policy is True else "run")


def test_invalid_arguments_never_reach_a_permission_check() -> None:
    assert facts(ruled(a_tool(check_permissions=asked), {"flight": 1})) == ("settled", "schema", "input_invalid")


@pytest.mark.row("X10")
@table("policy", False, True, ApprovalPolicy(auto_approve_if="true", approvers=["user:ana"]))
def test_overridable_denial_asks_an_approver(policy: Any) -> None:
    tool = a_tool(check_permissions=asked, requires_approval=policy)
    found = ruled(tool, permission=Permission.deny("not yours", can_override=True))
    assert (found.kind, found.gate, found.objection) == ("ask", "approval", "not yours")
    assert found.verdict is not None
    assert (found.verdict.verdict, found.verdict.rule) == ("ask", PERMISSION_RULE)
    assert found.verdict.why.startswith("not yours")


def test_global_rule_and_override_use_the_route_of_the_policy() -> None:
    routed = ApprovalPolicy(auto_approve_if="args.totalCost < 50.0", route_to="['role:finance']")
    override = Permission.deny("not yours", can_override=True)
    tool = a_tool(check_permissions=asked, requires_approval=routed)
    rule = GlobalRule(name="money", rule="true", effect="require_approval")
    for cost in (20.0, 80.0):
        args = {**GOOD, "totalCost": cost}
        by_rule = ruled(a_tool(requires_approval=routed), args, rule)
        by_check = ruled(tool, args, permission=override)
        for found in (by_rule, by_check):
            assert found.verdict is not None
            assert (found.kind, found.verdict.terms.approvers) == ("ask", ("role:finance",))


def test_rule_denial_cannot_be_overridden() -> None:
    override = Permission.deny("not yours", can_override=True)
    tool = a_tool(check_permissions=asked, requires_approval=ApprovalPolicy(deny_if="args.totalCost > 1.0"))
    assert facts(ruled(tool, permission=override)) == ("settled", "approval", "denied")
    rule = GlobalRule(name="never", rule="true", effect="deny")
    assert facts(ruled(a_tool(check_permissions=asked), GOOD, rule, permission=override))[1] == "tag_policy"


def test_denial_is_final_without_approvers() -> None:
    override = Permission.deny(can_override=True)
    found = ruled(a_tool(check_permissions=asked), permission=override, approvers=())
    assert facts(found) == ("settled", "permission", "denied")
    assert found.message == "Permission denied: this call is not permitted"


NO_BOUND = RulesVerdict("none", None, "no bound reads the arguments")


@pytest.mark.row("E16")
@table("kind", *KINDS)
def test_capability_without_a_backend_is_not_available(kind: str) -> None:
    given: dict[str, Any] = {"network": ("api.example.com",), "secrets": ("TOKEN",), "fs_reach": ("/srv",)}
    given["process"] = ("git",)
    tool = a_tool(capabilities=Capabilities(**{kind: given.get(kind, True)}))
    for backends in (frozenset[str](), ALL - {kind}):
        found = ruled(tool, backends=backends)
        assert facts(found) == ("settled", "capabilities", "not_available")
        assert f"needs {kind}, which is not set up here" in found.message
    assert ruled(tool, backends=frozenset({kind})).kind == "run"


def test_dry_run_is_checked_after_permission_and_capabilities() -> None:
    tool = a_tool(check_permissions=asked, capabilities=Capabilities(storage=True))
    assert ruled(tool, dry_run=True, permission=Permission.deny()).gate == "permission"
    assert ruled(tool, dry_run=True, permission=Permission.allow()).gate == "capabilities"
    assert ruled(tool, dry_run=True, permission=Permission.allow(), backends=ALL).gate == "dry_run"


@pytest.mark.row("X09", "V03")
def test_schema_mismatch_is_refused_noted_or_ignored_by_mode() -> None:
    misfit: dict[str, Any] = {"flight": 1, "totalCost": "much"}
    strict = ruled(a_tool(), misfit)
    assert facts(strict) == ("settled", "schema", "input_invalid")
    assert "`flight` must be of type string" in strict.message
    warned = ruled(a_tool(validation="warn"), misfit)
    assert (warned.kind, warned.corrected) == ("run", None)
    assert warned.note.startswith("The arguments do not fit the schema: `flight` must be of type string")
    off = ruled(a_tool(validation="off", read_only=True), misfit)
    assert (off.kind, off.note) == ("run", "")
    for mode in ("warn", "off"):
        own = a_tool(
            validation=mode, read_only=True, validate_input=lambda args: [SchemaProblem("flight", "is unknown")]
        )
        assert facts(ruled(own, misfit)) == ("settled", "schema", "input_invalid")


@table(
    ("fields", "field", "words"),
    ({"validation": "loose"}, "validation", "allowed: `strict`, `warn`, `off`"),
    ({"validation": "off"}, "validation", "would be unchecked"),
    ({"validation": "off", "read_only": True, "requires_approval": True}, "validation", "use `strict`"),
    ({"validation": "warn", "requires_approval": ApprovalPolicy()}, "validation", "use `strict`"),
    ({"available": "always"}, "available", "`async def (context)`"),
    ({"available": lambda context: True}, "available", "not `async def`"),
    ({"check_permissions": "no"}, "check_permissions", "`async def (args, context)`"),
    ({"capabilities": True}, "capabilities", "a `Capabilities`"),
    ({"capabilities": Capabilities(storage="yes")}, "capabilities.storage", "true or false"),  # type: ignore[arg-type]
    ({"capabilities": Capabilities(network="x.de")}, "capabilities.network", "list of names"),  # type: ignore[arg-type]
    ({"capabilities": Capabilities(network=("https://x.de",))}, "capabilities.network", "no scheme"),
    ({"capabilities": Capabilities(network=("*.x.de",))}, "capabilities.network", "no scheme, path or `*`"),
    ({"capabilities": Capabilities(secrets=("a b",))}, "capabilities.secrets", "neither a variable's name"),
    ({"settings": {"region": "eu"}}, "settings", "no `settings_schema` for them"),
    ({"settings_schema": {"type": "object", "required": ["a"]}}, "settings.a", "does not fit its `settings_schema`"),
    ({"strict": "yes"}, "strict", "true or false"),
    ({"always_include": "yes"}, "always_include", "true or false"),
)
def test_invalid_gate_field_is_refused(fields: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        build_catalog(tools=(a_tool(**fields),))
    assert (refused.value.context["tool_name"], refused.value.context["field"]) == ("book_flight", field)
    assert words in refused.value.message


def test_hook_with_a_wrong_signature_is_refused() -> None:
    """It would fail at each call and block all calls."""

    async def of_nothing() -> bool:
        return True

    for field, takes in (("available", "(context)"), ("check_permissions", "(args, context)")):
        fields: dict[str, Any] = {field: of_nothing}
        with pytest.raises(RegistrationError, match="does not take") as refused:
            build_catalog(tools=(a_tool(**fields),))
        assert takes in refused.value.message


def upper(args: Any) -> list[SchemaProblem] | Correction:
    flight = args["flight"]
    return [] if flight == flight.upper() else Correction({**args, "flight": flight.upper()}, "flights are in capitals")


@pytest.mark.row("F37", "V13")
def test_corrected_arguments_are_judged_like_proposed_ones() -> None:
    policy = ApprovalPolicy(auto_approve_if="args.flight == 'TP 531'")
    tool = a_tool(validate_input=upper, requires_approval=policy)
    found = ruled(tool, {"flight": "tp 531", "totalCost": 1})
    assert (found.kind, found.args({})) == ("run", {"flight": "TP 531", "totalCost": 1})
    assert found.note == "The arguments were corrected (`flight`): flights are in capitals."
    assert '"flight": "TP 531"' in ruled(tool, {"flight": "tp 531", "totalCost": 1}, dry_run=True).message
    plain = ruled(tool)
    assert (plain.kind, plain.corrected, plain.note, plain.args(GOOD)) == ("run", None, "", GOOD)


@table(
    ("corrected", "words"),
    (lambda args: Correction({"flight": 1, "totalCost": 1}), "`flight` must be of type string"),
    (lambda args: Correction({**args, "flight": args["flight"] + "!"}), "keep changing with each correction"),
    (lambda args: Correction({**args, "totalCost": 2**60}), "integer outside"),
    (lambda args: Correction(None), "cannot be checked"),
    (lambda args: None, "cannot be checked"),
)
def test_correction_is_validated_like_a_proposal(corrected: Any, words: str) -> None:
    found = ruled(a_tool(validate_input=corrected))
    assert facts(found) == ("settled", "schema", "input_invalid")
    assert words in found.message


def test_correction_is_copied() -> None:
    kept: dict[str, Any] = {"flight": "TP 9", "totalCost": 1}
    found = ruled(a_tool(validate_input=lambda args: [] if args == kept else Correction(kept)))
    found.args({})["flight"] = "other"
    assert found.args({}) == {"flight": "TP 9", "totalCost": 1} == kept


NAMES = ("book", "look", "wipe", "mcp__github__search", "mcp__files__read", "mcp__maps__route", "chart")
CHANNELS = ("", "whatsapp", "slack")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Catalog, str, frozenset[str]]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    tools = [_drawn(draw, name) for name in names]
    some = st.lists(st.sampled_from(names), unique=True).map(tuple)
    servers = sorted({name.split("__")[1] for name in names if name.startswith("mcp__")})
    plugins = sorted({tool.plugin for tool in tools} - {""})
    toolsets = sorted({tool.toolset for tool in tools} - {""})
    actor = an_actor(
        tools=draw(st.none() | some),
        toolset=draw(st.none() | st.sampled_from(toolsets)) if toolsets else None,
        allowed_plugins=draw(st.none() | _some_of(plugins)),
        allowed_mcp_servers=draw(st.none() | _some_of(servers)),
        allowed_mcp_tools=draw(st.none() | st.just(dict.fromkeys(servers[:1], ()))),
        surfaces={
            channel: Surface(exclude=draw(some)) for channel in draw(st.sets(st.sampled_from(CHANNELS))) if channel
        },
    )
    rules = [
        GlobalRule(name=f"r{number}", rule=f"'{tag}' in tool.tags", effect=effect)
        for number, (tag, effect) in enumerate(
            draw(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["hide", "deny", "require_approval"]))))
        )
    ]
    catalog = build_catalog(tools=tools, actors=(actor,), policies=rules)
    return catalog, draw(st.sampled_from(CHANNELS)), frozenset(draw(st.sets(st.sampled_from(NAMES))))


def _some_of(names: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(names), unique=True).map(tuple) if names else st.just(())


def _drawn(draw: st.DrawFn, name: str) -> Tool:
    return a_tool(
        name,
        tags=tuple(draw(st.sets(st.sampled_from("ab")))),
        plugin=draw(st.sampled_from(["", "", "maps"])),
        toolset=draw(st.sampled_from(["", "travel"])),
        requires_approval=draw(st.booleans()),
        available=draw(st.sampled_from([None, asked])),
    )


@pytest.mark.row("N02")
@settings(max_examples=examples(120), deadline=None)
@given(world=worlds())
def test_advertised_tools_are_exactly_the_executable_ones(world: tuple[Catalog, str, frozenset[str]]) -> None:
    # For every catalog, actor, filter, surface, rule and availability, in both directions. Only calls denied by a
    # rule are offered and do not run, so that the model learns the reason.
    catalog, channel, away = world
    ctx = pinned(channel=channel)
    advertised = {offer.name for offer in catalog.offered_tools("desk", ctx, away)} - {"respond"}
    known = GateFacts(unavailable=away)
    found = {name: judge(catalog, ctx, a_call(name), GOOD, Tally(), known=known) for name in NAMES}
    executable = {name for name, each in found.items() if each.kind in ("run", "ask")}
    denied = {name for name, each in found.items() if facts(each) == ("settled", "tag_policy", "denied")}
    assert executable == advertised - denied
    assert {name for name, each in found.items() if each.code == "not_available"} == set(NAMES) - executable - denied
    assert denied <= advertised | away


def test_hook_context_holds_the_pinned_fields() -> None:
    ctx = pinned(channel="slack", route="r", step="s1")
    result = hook_context(ctx)
    assert result == HookContext(
        tenant="main", user=ctx.user, actor="desk", session="s", turn="t", channel="slack", route="r", step="s1"
    )
    with pytest.raises(AttributeError):
        result.tenant = "other"  # type: ignore[misc]


def summary(code: CallCode, gate: GateName, message: str, tool: Tool | None = None) -> JudgedCall:
    return settled_decision(a_call(), gate, code, message, tool)


def test_missing_capability_message_names_the_tool() -> None:
    tool = a_tool(capabilities=Capabilities(network=("api.example.com",), storage=True))
    away = ruled(tool, unavailable=frozenset({tool.name}))
    assert away == summary("not_available", "available", "Tool book_flight is not currently available", tool)
    needs = ", ".join(tool.capabilities.kinds)
    assert set(tool.capabilities.kinds) == {"network", "storage"}
    message = f"`book_flight` needs {needs}, which is not set up here; continue without it"
    assert ruled(tool) == summary("not_available", "capabilities", message, tool)


def test_permission_refusals_have_exact_messages() -> None:
    tool = a_tool(check_permissions=asked)
    message = "nobody has asked whether `book_flight` is permitted"
    assert ruled(tool) == summary("refused", "permission", message, tool)._replace(awaits_permission=True)
    why = "Permission denied: not yours"
    denied = ruled(tool, permission=Permission.deny("not yours"))
    assert denied == denied_decision(a_call(), "permission", why, tool)


@table("policy", False, True, ApprovalPolicy(require_approval_if="args.totalCost > 1.0"))
def test_override_request_shows_both_reasons_and_no_unrelated_rule(policy: Any) -> None:
    """Gate 14: only the check's reason if the policy would approve the call, else it precedes the policy's own."""
    override = Permission.deny("not yours", can_override=True)
    found = ruled(a_tool(check_permissions=asked, requires_approval=policy), permission=override).verdict
    without = ruled(a_tool(requires_approval=policy)).verdict
    assert found is not None
    assert without is not None
    assert found.why == ("not yours" if policy is False else f"not yours; {without.why}")
    assert (found.rule, found.rule_text) == (PERMISSION_RULE, "")


def test_limited_tool_needs_a_known_usage_count() -> None:
    tool = a_tool(usage_limit=UsageLimit(1, "user", 60.0))
    nobody = "the uses of `book_flight` were not counted; do without it"
    assert ruled(tool) == summary("not_available", "usage", nobody, tool)
    spent = ruled(tool, spent={"c1.1": "used up until noon"})
    assert spent == summary("not_available", "usage", "used up until noon", tool)
    for free in ({}, {"c1.2": "used up"}):
        assert ruled(tool, spent=free).kind == "run"
    assert ruled(tool, spent={"c1.1": "used up"}, dry_run=True).gate == "usage"
    assert ruled(a_tool()).kind == "run"


def test_known_verdict_decides_the_call() -> None:
    tool = a_tool()
    catalog = build_catalog(tools=(tool,), actors=(an_actor(),))
    verdict = catalog.policy(tool.activity).judge(GOOD, {})
    found = by_verdict(catalog.tool_view(pinned()), a_call(), tool, verdict, NO_BOUND)
    assert found == JudgedCall(GateDecision(call="c1.1", kind="run"), tool=tool, verdict=verdict)


def test_tool_that_waits_for_step_data_does_not_run() -> None:
    step = Step(name="pay", tools=("book_flight",), requires=("quote",))
    actor = an_actor(tools=("look", "book_flight"), routes=(Route(name="trip", steps=(step,)),))
    schema = {"quote": {"type": "number"}}
    catalog = build_catalog(tools=(a_tool(), a_tool("look")), actors=(actor,), context=schema)
    waits, there = pinned(route="trip", step="pay"), pinned(route="trip", step="pay", extra={"quote": 1})
    message = "Unknown tool: book_flight; use one of the tools you were given"
    found = judge(catalog, waits, a_call(), GOOD, Tally())
    assert found == summary("not_available", "layer", message)
    assert judge(catalog, there, a_call(), GOOD, Tally()).kind == "run"
    frozen = GlobalRule(name="frozen", rule="tool.name == 'book_flight'", effect="deny", reason="money is frozen")
    denies = build_catalog(tools=(a_tool(), a_tool("look")), actors=(actor,), context=schema, policies=(frozen,))
    assert judge(denies, waits, a_call(), GOOD, Tally()) == summary("not_available", "tag_policy", message)
    assert judge(denies, there, a_call(), GOOD, Tally()).code == "denied"


@table("effect", "hide", "deny", "require_approval")
def test_strictest_rule_over_a_tool_or_its_shadowed_one_decides(effect: Any) -> None:
    for near, far in (("money",), ()), ((), ("money",)):
        rule = GlobalRule(name="money", rule="'money' in tool.tags", effect=effect)
        route = Route(name="r", tools=(a_tool(tags=near),))
        actor = an_actor(routes=(route,), shadowing="allow")
        catalog = build_catalog(tools=(a_tool(tags=far),), actors=(actor,), policies=(rule,))
        sight = catalog.tool_view(pinned(route="r"))
        tool = sight.tool("book_flight")
        assert tool is not None
        assert tool.activity == "book_flight@desk.r"
        assert sight.rules_verdict(tool).effect == effect


def test_global_verdict_without_a_rule_still_asks() -> None:
    tool = a_tool()
    catalog = build_catalog(tools=(tool,), actors=(an_actor(),))
    nameless = RulesVerdict("require_approval", None, "nobody knows why")
    sight = dataclasses.replace(catalog.tool_view(pinned()), rule_verdicts={tool.activity: nameless})
    own = sight.verdict(catalog.policy(tool.activity), GOOD)
    found = by_verdict(sight, a_call(), tool, own, NO_BOUND)
    assert own.verdict == "auto"
    assert found.kind == "ask"
    assert found.verdict == dataclasses.replace(
        own, verdict="ask", rule=RuleReference(kind="global"), rule_text="", reasons=(nameless.why,)
    )


def test_unknown_actor_has_no_place() -> None:
    """A name still means the registry's tool, so that a waiting call keeps one."""
    tool = a_tool()
    sight = build_catalog(tools=(tool,), actors=(an_actor(),)).tool_view(pinned("gone"))
    found = sight.resolution("book_flight")
    assert found == Resolution("book_flight", (), 0, tool, "the actor's position is unknown")
    assert (found.visible_tool, sight.sees(tool), sight.visible()) == (None, False, ())
