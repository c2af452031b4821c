import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from activity_kit import (
    ARGS,
    TURN,
    about,
    asked,
    environment,
    pinned,
    request_of,
    run,
    summary,
    task_for,
    worker_deps,
)
from some import some
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.hooks.permissions import permission_of
from signoff.activities.hooks.tool_hooks import judge_call, judge_past_call, unavailable_tools, withheld_tools
from signoff.activities.model_activity import ModelActivity
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import GateReply, GateTask, ModelReply, ModelTask
from signoff.contracts.call import PERMISSION_RULE
from signoff.contracts.completion import CompletionRequest
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart, user_message
from signoff.contracts.names import GATE
from signoff.contracts.usage import UsageLimit
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Actor
from signoff.registry.hooks import Correction, HookContext, Permission, hook_context, override_hash
from signoff.registry.tool import Tool
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.testing.questions import keep
from signoff.testing.scripted_model import ScriptedModel, calls

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)

LEDGER = Ledger()
SOON = 0.05


class Switch:
    def __init__(self, says: Any = True) -> None:
        self.says = says
        self.asked: list[HookContext] = []

    async def __call__(self, context: HookContext) -> Any:
        self.asked.append(context)
        if isinstance(self.says, BaseException):
            raise self.says
        return await self.says() if callable(self.says) else self.says


class Guard(Switch):
    async def __call__(self, args: dict[str, Any], context: HookContext) -> Any:  # type: ignore[override]
        args["amount"] = 1_000_000
        return await super().__call__(context)


async def forever() -> Any:
    await asyncio.Event().wait()


def tool(name: str = "pay", **fields: Any) -> Tool:
    return pay_tool(LEDGER, fields.pop("requires_approval", False), name=name, **fields)


async def gated(deps: WorkerDeps, *names: str, **fields: Any) -> GateReply:
    asked = [CallPart(call=f"c1.{at}", tool=name, args=Content(inline=ARGS)) for at, name in enumerate(names, 1)]
    task = GateTask(ctx=pinned(), calls=tuple(asked), **fields)
    return await environment(GATE, is_local=True).run(GateActivity(deps).gate, task)


@pytest.mark.row("E04")
@table("says", False, None, 1, "yes", [True], ValueError("down"), SystemExit(1), forever)
async def test_tool_is_available_only_if_its_function_returns_true(store: Store, says: Any) -> None:
    deps = worker_deps(store, tool(available=Switch(says)), tool("wire", available=Switch()), tool("look"))
    asked = ("pay", "wire", "look", "nothing", "pay")
    assert await unavailable_tools(deps.catalog, pinned(), asked, SOON, at=NOW) == {"pay"}


async def test_availability_functions_run_concurrently(store: Store) -> None:
    """Fifty tools answer only after the last one is called: called in sequence, all would be unavailable."""
    names = [f"t{number}" for number in range(50)]
    together = asyncio.Barrier(len(names))

    async def meets() -> bool:
        await together.wait()
        return True

    deps = worker_deps(store, *(tool(name, available=Switch(meets)) for name in names))
    assert await unavailable_tools(deps.catalog, pinned(), names, 30.0, at=NOW) == set()


async def test_availability_is_checked_only_for_tools_the_actor_can_see(store: Store) -> None:
    switches = {name: Switch() for name in ("pay", "hidden", "other")}
    hide = GlobalRule(name="h", rule="tool.name == 'hidden'", effect="hide")
    actors = [Actor(name="desk", model="scripted", tools=("pay", "hidden"))]
    tools = [tool(name, available=switch) for name, switch in switches.items()]
    deps = worker_deps(store, *tools, actors=actors, policies=[hide])
    ctx = pinned(channel="slack")
    assert await unavailable_tools(deps.catalog, ctx, switches, at=NOW) == frozenset()
    assert await withheld_tools(deps.catalog, ctx, at=NOW) == frozenset()
    assert {name: len(switch.asked) for name, switch in switches.items()} == {"pay": 2, "hidden": 0, "other": 0}
    context = switches["pay"].asked[0]
    assert (context.tenant, context.user, context.actor, context.channel) == ("main", ctx.user, "desk", "slack")


async def test_tools_withheld_from_the_model_are_recorded(store: Store) -> None:
    seen: list[CompletionRequest] = []

    def react(request: CompletionRequest) -> Any:
        seen.append(request)
        return calls(("pay", ARGS))

    switch = Switch(False)
    deps = worker_deps(store, tool(available=switch), tool("look"), drivers={"scripted": ScriptedModel(react)})
    replies: list[ModelReply] = []
    for completion, switch.says in enumerate((False, True), start=1):
        task = ModelTask(ctx=pinned(), completion=completion, messages=(user_message("go"),))
        replies.append(await environment("signoff.model").run(ModelActivity(deps).model, task))
    assert [reply.withheld for reply in replies] == [("pay",), ()]
    assert [[offer.name for offer in request.tools] for request in seen] == [
        ["look", "respond"],
        ["look", "pay", "respond"],
    ]


async def test_withheld_tool_does_not_run_even_if_available_again(store: Store) -> None:
    switch = Switch(True)
    deps = worker_deps(store, tool(available=switch), tool("look"))
    reply = await gated(deps, "pay", "look", withheld=("pay",))
    assert [gate_decision.kind for gate_decision in reply.gate_decisions] == ["settled", "run"]
    outcome = some(reply.gate_decisions[0].outcome)
    assert (outcome.code, outcome.gate) == ("not_available", "available")
    assert outcome.value.inline == "Tool pay is not currently available"
    assert switch.asked == []


async def test_tool_that_became_unavailable_stops_at_gate_and_at_run(store: Store) -> None:
    switch = Switch(False)
    declared = tool(available=switch, requires_approval=True)
    deps = worker_deps(store, declared)
    await keep(store, about(await asked(deps, declared)))
    settled = some((await gated(deps, "pay")).gate_decisions[0].outcome)
    assert (settled.code, settled.gate) == ("not_available", "available")
    reply = await run(deps, declared, task_for(declared, revision=1))
    assert reply.outcome is not None
    assert (reply.outcome.code, reply.outcome.gate) == ("not_available", "available")
    switch.says = True
    assert summary(await run(deps, declared, task_for(declared, revision=1)))[0] == "ok"
    assert len(switch.asked) == 4


async def test_hooks_do_not_run_for_a_forged_requester(store: Store) -> None:
    switch, guard = Switch(), Guard(Permission.allow())
    deps = worker_deps(store, tool(available=switch, check_permissions=guard), profile="production")
    reply = await gated(deps, "pay")
    assert [gate_decision.outcome.code for gate_decision in reply.gate_decisions if gate_decision.outcome] == [
        "refused"
    ]
    assert (switch.asked, guard.asked) == ([], [])


@pytest.mark.row("F13")
@table(
    ("says", "words"),
    (True, "returned a bool that is no answer"),
    (None, "returned a NoneType that is no answer"),
    (Permission(1, "", False), "returned a Permission that is no answer"),  # type: ignore[arg-type]
    (Permission(False, 5), "returned a Permission that is no answer"),  # type: ignore[arg-type]
    (Permission(False, "no", "yes"), "returned a Permission that is no answer"),  # type: ignore[arg-type]
    (PermissionError("not the owner"), "failed (PermissionError)"),
    (forever, "gave no answer within 0.05 s"),
)
async def test_invalid_permission_answer_denies_the_call(
    store: Store, says: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await permission_of(tool(check_permissions=Guard(says)), dict(ARGS), hook_context(pinned()), SOON)
    assert answer == Permission.deny(f"the permission check {words}")
    assert caplog.messages == [f"tool pay: the permission check {words}"]


async def test_permission_check_receives_the_requester_and_a_copy_of_arguments(store: Store) -> None:
    asked: list[HookContext] = []

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        asked.append(context)
        args["to"].clear()
        return Permission.allow()

    given: dict[str, Any] = {"amount": 20, "to": ["Ana"]}
    ctx = pinned(channel="slack")
    assert await permission_of(tool(check_permissions=check), given, hook_context(ctx)) == Permission.allow()
    assert (asked, given["to"]) == ([hook_context(ctx)], ["Ana"])


@table("cached", True, False)
async def test_judging_a_call_reuses_a_cached_permission(store: Store, cached: bool) -> None:
    guard = Guard(Permission.allow())
    declared = tool(check_permissions=guard, cache_permission=60.0)
    deps = worker_deps(store, declared, context={"user.limit": {"type": "number"}})
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
    ctx = pinned(extra={"user.limit": 7})
    for _ in range(2):
        reader = {"permissions": deps.permissions} if cached else {}
        found = await judge_call(deps.catalog, ctx, call, dict(ARGS), deps.kinds, at=NOW, **reader)
        assert found.kind == "run"
    assert [context.context for context in guard.asked] == [{"user": {"limit": 7}}] * (1 if cached else 2)


@table(
    "fields",
    {},
    {"usage_limit": UsageLimit(9, "tenant", 60.0)},
    {"check_permissions": Guard(Permission.deny("not now"))},
    {"available": Switch(False)},
)
@table(("hour", "asks"), (9, "user:ana"), (22, "user:bo"))
async def test_past_call_is_judged_at_its_instant_and_ignores_present_hooks(
    store: Store, fields: dict[str, Any], hour: int, asks: str
) -> None:
    policy = ApprovalPolicy(route_to="ctx.now.hour < 12 ? ['user:ana'] : ['user:bo']")
    deps = worker_deps(store, tool(requires_approval=policy, **fields))
    call = CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
    at = NOW.replace(hour=hour)
    found = await judge_past_call(deps.catalog, pinned(), call, dict(ARGS), at)
    assert (found.kind, found.at, some(found.verdict).terms.approvers) == ("ask", at, (asks,))
    # The instant is unknown: rules that read it fail, and the policy's own approvers are asked.
    unknown = await judge_past_call(deps.catalog, pinned(), call, dict(ARGS), None)
    assert (unknown.at, some(unknown.verdict).terms.approvers) == (None, ("role:approvers",))


async def test_long_permission_reason_is_truncated(store: Store) -> None:
    guard = Guard(Permission.deny("n" * 501))
    assert (await permission_of(tool(check_permissions=guard), dict(ARGS), hook_context(pinned()))).reason == "n" * 500


@table(
    ("says", "words"),
    (ValueError("secret"), "failed (ValueError)"),
    (1, "returned a int that is no answer"),
    (forever, "gave no answer within 0.05 s"),
    (False, ""),
    (True, ""),
)
async def test_log_gives_the_reason_for_an_unavailable_tool(
    store: Store, says: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    deps = worker_deps(store, tool(available=Switch(says)))
    limit = SOON if says is forever else None
    away = await unavailable_tools(deps.catalog, pinned(), ("pay",), limit, at=NOW)
    assert away == ({"pay"} if says is not True else set())
    assert caplog.messages == ([f"tool pay is not available: `available` {words}"] if words else [])


async def test_dry_run_checks_permission_and_runs_nothing(store: Store) -> None:
    guard = Guard(Permission.allow())
    deps = worker_deps(store, tool(check_permissions=guard, requires_approval=True))
    settled = some((await gated(deps, "pay", dry_run=True)).gate_decisions[0].outcome)
    assert (settled.code, settled.gate, len(guard.asked)) == ("ok", "dry_run", 1)


async def test_permission_check_gets_a_copy_and_its_reason_hides_secrets(store: Store) -> None:
    guard = Guard(Permission.deny("Ana is not to be paid", can_override=True))
    given = dict(ARGS)
    answer = await permission_of(
        tool(check_permissions=guard, secrets=("to",), effect=""), given, hook_context(pinned())
    )
    assert (answer.reason, given) == ("[hidden] is not to be paid", ARGS)
    assert await permission_of(tool(), given, hook_context(pinned())) == Permission.allow()


async def test_denied_permission_settles_the_call_at_its_gate(store: Store) -> None:
    deps = worker_deps(store, tool(check_permissions=Guard(Permission.deny("not yours"))), tool("look"))
    first, second = (await gated(deps, "pay", "look")).gate_decisions
    assert (first.kind, second.kind) == ("settled", "run")
    assert first.outcome is not None
    assert first.outcome.denied is not None
    assert (first.outcome.code, first.outcome.gate) == ("denied", "permission")
    assert (first.outcome.denied.source, first.outcome.denied.reason) == ("policy", "Permission denied: not yours")


async def test_permission_override_asks_the_approvers_of_the_policy_once(store: Store) -> None:
    override = Guard(Permission.deny("not yours", can_override=True))
    policy = ApprovalPolicy(auto_approve_if="true", approvers=["user:ana"], allow_remember=True)
    deps = worker_deps(
        store, tool(check_permissions=override, requires_approval=policy), tool("wire", check_permissions=override)
    )
    named, default = (await gated(deps, "pay", "wire")).gate_decisions
    request = request_of(named.request)
    assert (request.rule, request.rule_text, request.allow_remember) == (PERMISSION_RULE, "not yours", False)
    assert (request.approvers, request_of(default.request).approvers) == (("user:ana",), ("role:approvers",))


async def test_call_runs_only_with_an_approved_override(store: Store) -> None:
    guard = Guard(Permission.deny("not yours", can_override=True))
    declared = tool(check_permissions=guard)
    deps = worker_deps(store, declared)
    by_rule = await run(deps, declared, task_for(declared))
    assert by_rule.again == "policy"
    # The row of the question decides.
    for revision, override in enumerate(("", override_hash("too late")), 1):
        request = await asked(deps, declared, override=override)
        await keep(store, about(request))
        other = await run(deps, declared, task_for(declared, revision=revision))
        assert other.again == "policy"
        assert "override it" in other.note
        await Questions(store).end(request.id, revision, "superseded")
    await keep(store, about(await asked(deps, declared)))
    approved = task_for(declared, revision=3)
    guard.says = Permission.deny("not yours at all")
    stopped = await run(deps, declared, approved)
    assert stopped.outcome is not None
    assert (stopped.outcome.code, stopped.outcome.gate) == ("denied", "permission")
    guard.says = Permission.deny("not yours", can_override=True)
    before = len(LEDGER.rows)
    assert summary(await run(deps, declared, approved))[0] == "ok"
    assert len(LEDGER.rows) == before + 1


async def test_tolerated_schema_mismatch_is_noted_in_result_and_card(store: Store) -> None:
    odd = {"amount": "much"}
    declared = tool(validation="warn")
    asks = tool("wire", validation="warn", requires_approval=True)
    deps = worker_deps(store, declared, asks)
    reply = await run(deps, declared, task_for(declared, args=odd))
    assert reply.outcome is not None
    assert reply.outcome.note == "The arguments do not fit the schema: `amount` must be of type number."
    call = CallPart(call="c1.2", tool="wire", args=Content(inline=odd))
    task = GateTask(ctx=pinned(), calls=(call,))
    gate_decision = (await environment(GATE, is_local=True).run(GateActivity(deps).gate, task)).gate_decisions[0]
    assert request_of(gate_decision.request).card.note == reply.outcome.note


async def test_in_doubt_question_shows_the_arguments_that_ran(store: Store) -> None:
    def round_down(args: Any) -> Any:
        return [] if args["amount"] == 20 else Correction({**args, "amount": 20})

    deps = worker_deps(store, tool(validate_input=round_down))
    call = CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": 20.5, "to": "Ana"}))
    digest = task_for(deps.catalog.every_tool[0]).digest
    await store.claim(digest, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    task = GateTask(ctx=pinned(), calls=(call,), doubt=1, doubt_of=digest)
    gate_decision = (await environment(GATE, is_local=True).run(GateActivity(deps).gate, task)).gate_decisions[0]
    request = request_of(gate_decision.request)
    assert (request.kind, request.card.effect, request.args.inline) == ("in_doubt", "Pay 20 to Ana", ARGS)
