import asyncio
import contextlib
import inspect
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from activity_kit import ARGS, about, asked, environment, pinned, run, sent, summary, task_for, worker_deps
from some import some
from turn_fixtures import Ledger, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.hooks.policy_handlers import terms_at, verdict_of
from signoff.activities.hooks.tool_hooks import judge_past_call
from signoff.audit.log import AuditLog
from signoff.contracts.activity_messages import GateDecision, GateTask
from signoff.contracts.call import PERMISSION_RULE, RuleReference
from signoff.contracts.content import Content
from signoff.contracts.errors import ConfigError
from signoff.contracts.message import CallPart
from signoff.contracts.names import GATE
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule, ShownArguments, Term
from signoff.policy.handler_verdict import HandlerCall, HandlerVerdict
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.tool import Tool
from signoff.store.store import Store
from signoff.testing.questions import keep

RULE = "handler:test_policy_handlers:answer"
SEEN: list[tuple[HandlerCall, dict[str, Any]]] = []
SAYS: list[Any] = []
STILL = threading.Event()
ENDED: list[str] = []


async def answer(call: HandlerCall, context: dict[str, Any]) -> Any:
    SEEN.append((call, context))
    value = SAYS.pop(0) if len(SAYS) > 1 else SAYS[0]
    if isinstance(value, BaseException):
        raise value
    value = value(call, context) if callable(value) else value
    return await value if inspect.isawaitable(value) else value


def answer_sync(call: HandlerCall, context: dict[str, Any]) -> Any:
    SEEN.append((call, context))
    if isinstance(SAYS[0], BaseException):
        raise SAYS[0]
    return SAYS[0]


class Rules:
    async def __call__(self, call: HandlerCall, context: dict[str, Any]) -> str:
        return "auto"


rules = Rules()


async def deaf(call: HandlerCall, context: dict[str, Any]) -> str:
    still, ended = STILL, ENDED
    while not still.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.02)
    ended.append("deaf")
    return "auto"


def stuck(call: HandlerCall, context: dict[str, Any]) -> str:
    # Each test has its own list: a thread left by another test continues for a moment.
    ended = ENDED
    STILL.wait(30)
    ended.append("stuck")
    return "auto"


async def gone(call: HandlerCall, context: dict[str, Any]) -> str:
    raise asyncio.CancelledError


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    global STILL, ENDED
    SEEN.clear()
    SAYS.clear()
    STILL, ENDED = threading.Event(), []
    yield
    STILL.set()


def handled(ledger: Ledger | None = None, function: str = "answer", **fields: Any) -> Tool:
    of_tool = {name: fields.pop(name) for name in ("secrets", "effect", "check_permissions") if name in fields}
    return pay_tool(ledger or Ledger(), ApprovalPolicy(handler=f"test_policy_handlers:{function}", **fields), **of_tool)


async def gate(store: Store, tool: Tool, *args: Any, **fields: Any) -> tuple[GateDecision, ...]:
    calls = tuple(
        CallPart(call=f"c1.{number}", tool="pay", args=Content(inline=each))
        for number, each in enumerate(args or [ARGS], 1)
    )
    activity, task = GateActivity(worker_deps(store, tool, **fields)), GateTask(ctx=pinned(), calls=calls)
    reply = await environment(GATE, is_local=True).run(activity.gate, task)
    return sent(reply).gate_decisions


@pytest.mark.parametrize("function", ["answer", "answer_sync"])
@pytest.mark.parametrize(("answer", "verdict"), [("auto", "run"), ("user", "ask"), ("deny", "settled")])
async def test_gate_follows_the_verdict_of_the_handler(store: Store, function: str, answer: str, verdict: str) -> None:
    SAYS.append(answer)
    (gate_decision,) = await gate(store, handled(function=function))
    (call, context) = SEEN[0]
    assert gate_decision.kind == verdict
    assert (call.tool.name, call.args) == ("pay", ARGS)
    assert (context["user"]["id"], context["tenant"], context["turn"]) == ("guest", "main", "t")
    if verdict == "settled":
        assert gate_decision.outcome is not None
        assert gate_decision.outcome.denied is not None
        assert (gate_decision.outcome.code, gate_decision.outcome.rule.label) == (
            "denied",
            f"handler:test_policy_handlers:{function}",
        )
        assert (gate_decision.outcome.denied.source, gate_decision.outcome.denied.reason) == (
            "policy",
            "`handler` says deny",
        )
    else:
        assert gate_decision.rule.label == f"handler:test_policy_handlers:{function}"


async def test_callable_object_works_as_a_handler(store: Store) -> None:
    assert (await gate(store, handled(function="rules")))[0].kind == "run"


async def test_card_shows_the_handler_reason_with_masked_arguments(store: Store) -> None:
    SAYS.append(HandlerVerdict("ask", "admin", "Ana is a new payee"))
    (gate_decision,) = await gate(
        store, handled(approvers=("role:finance",), show=ShownArguments(secret=("to",)), effect="Pay")
    )
    assert gate_decision.request is not None
    request = gate_decision.request
    assert (request.rule.label, request.rule_text) == (f"{RULE} (admin)", "ask admin: [hidden] is a new payee")
    assert (request.approvers, request.level) == (("role:admin",), "admin")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ValueError("Ana owes 20"), "failed (ValueError)"),
        (SystemExit(3), "failed (HandlerEnded)"),
        (KeyboardInterrupt(), "failed (HandlerEnded)"),
        (True, "returned a bool that is no answer"),
        ("yes", "returned a str that is no answer"),
        (None, "returned a NoneType that is no answer"),
    ],
)
@pytest.mark.parametrize("function", ["answer", "answer_sync"])
async def test_invalid_handler_answer_asks_an_approver(store: Store, function: str, answer: Any, why: str) -> None:
    SAYS.append(answer)
    (gate_decision,) = await gate(store, handled(function=function, auto_approve_if="true"))
    assert gate_decision.request is not None
    assert (gate_decision.kind, gate_decision.rule.label) == (
        "ask",
        f"handler:test_policy_handlers:{function} (failed)",
    )
    assert gate_decision.request.rule_text == f"ask: `handler` {why}, so the call needs approval"


async def test_handler_that_cancels_itself_asks_an_approver(store: Store) -> None:
    (gate_decision,) = await gate(store, handled(function="gone"))
    assert (gate_decision.kind, gate_decision.rule.label) == ("ask", "handler:test_policy_handlers:gone (failed)")


@pytest.mark.parametrize("function", ["deaf", "stuck"])
async def test_hanging_handler_is_abandoned_after_its_timeout(store: Store, function: str) -> None:
    tool = handled(function=function, auto_approve_if="true")
    catalog = worker_deps(store, tool).catalog
    rules_say = catalog.policy("pay").judge(ARGS, {})
    verdict = await verdict_of(catalog, tool, ARGS, {}, rules_say, seconds=0.05)
    assert ENDED == []
    assert (verdict.verdict, verdict.why) == (
        "ask",
        "`handler` gave no answer within 0.05 s, so the call needs approval",
    )


async def test_handlers_of_a_batch_run_concurrently(store: Store) -> None:
    together = asyncio.Event()
    words = ["auto", "ask", "deny"]

    async def meet(*_: Any) -> str:
        word = words.pop()
        if not words:
            together.set()
        await together.wait()
        return word

    SAYS.append(meet)
    gate_decisions = await gate(store, handled(), {"amount": 1}, {"amount": 2}, {"amount": 3})
    assert sorted(gate_decision.kind for gate_decision in gate_decisions) == ["ask", "run", "settled"]
    assert [gate_decision.call for gate_decision in gate_decisions] == ["c1.1", "c1.2", "c1.3"]


async def test_handler_cannot_change_the_arguments_of_the_call(store: Store, ledger: Ledger) -> None:
    def grow(call: HandlerCall, context: dict[str, Any]) -> str:
        call.args["amount"] = 1_000_000
        context["user"]["id"] = "ceo"
        return "auto"

    SAYS.append(grow)
    tool = handled(ledger)
    assert (await gate(store, tool))[0].digest == task_for(tool).digest
    assert summary(await run(worker_deps(store, tool), tool, task_for(tool))) == ("ok", "paid")
    assert [row[1] for row in ledger.rows] == [ARGS]
    assert SEEN[1][1]["user"]["id"] == "ceo"


async def test_handler_receives_deep_copies_of_arguments_and_context(store: Store) -> None:
    def grow(call: HandlerCall, context: dict[str, Any]) -> str:
        call.args["lines"].append(1_000_000)
        context["user"]["roles"].append("ceo")
        return "auto"

    SAYS.append(grow)
    schema = {"type": "object", "properties": {"lines": {"type": "array", "items": {"type": "number"}}}}
    tool = pay_tool(Ledger(), ApprovalPolicy(handler="test_policy_handlers:answer"), input_schema=schema, effect="Pay")
    args: dict[str, Any] = {"lines": [20]}
    ctx: dict[str, Any] = {"user": {"roles": ["guests"]}}
    catalog = worker_deps(store, tool).catalog
    assert (await verdict_of(catalog, tool, args, ctx, catalog.policy("pay").judge(args, ctx))).verdict == "auto"
    ((call, context),) = SEEN
    assert (call.args, context) == ({"lines": [20, 1_000_000]}, {"user": {"roles": ["guests", "ceo"]}})
    assert (args, ctx) == ({"lines": [20]}, {"user": {"roles": ["guests"]}})


async def test_log_names_the_failed_handler_and_its_error(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    SAYS.extend([ValueError("Ana owes 20"), "auto"])
    tool = handled()
    for _ in range(2):
        await gate(store, tool)
    message = (
        "handler:test_policy_handlers:answer of tool pay: `handler` failed (ValueError), so the call needs approval"
    )
    assert [record.getMessage() for record in caplog.records if record.name == "signoff.activities"] == [message]


@pytest.mark.parametrize(
    ("effect", "verdict", "asked"), [("require_approval", "ask", 1), ("deny", "settled", 0), ("hide", "settled", 0)]
)
async def test_global_rules_override_an_approval_by_the_handler(
    store: Store, effect: Any, verdict: str, asked: int
) -> None:
    SAYS.append("auto")
    (gate_decision,) = await gate(store, handled(), policies=[GlobalRule(name="all", rule="true", effect=effect)])
    assert (gate_decision.kind, len(SEEN)) == (verdict, asked)
    assert gate_decision.rule == (RuleReference(kind="global", name="all") if effect == "require_approval" else None)


async def test_handler_cannot_approve_a_call_the_permission_check_denies(store: Store) -> None:
    async def objects(args: Any, context: HookContext) -> Permission:
        return Permission.deny("not yours", can_override=True)

    SAYS.append("auto")
    (gate_decision,) = await gate(store, handled(check_permissions=objects))
    assert (gate_decision.kind, gate_decision.rule, some(gate_decision.request).rule_text) == (
        "ask",
        PERMISSION_RULE,
        "not yours",
    )


MORNING, EVENING = (datetime(2026, 11, 3, hour, tzinfo=UTC) for hour in (9, 22))
ARGS_ASK_ANA = ApprovalPolicy(route_to="args.amount > 10 ? ['user:ana'] : ['user:bo']")
CLOCK_ASKS = ApprovalPolicy(route_to="ctx.now.hour < 12 ? ['user:ana'] : ['user:bo']")
CLOCK_DENIES = ApprovalPolicy(deny_if="ctx.now.hour < 12", approvers=("user:bo",))
HANDLER_ASKS = ApprovalPolicy(handler="test_policy_handlers:answer", approvers=("user:bo",))


def by_hour(call: HandlerCall, context: dict[str, Any]) -> HandlerVerdict:
    return HandlerVerdict("ask", "admin" if context["now"]["hour"] < 12 else "user")


@pytest.mark.parametrize(
    ("policy", "judged", "at", "approvers", "handler_calls"),
    [
        (ARGS_ASK_ANA, MORNING, MORNING, ("user:ana",), 0),
        (ARGS_ASK_ANA, EVENING, MORNING, ("user:ana",), 0),
        (CLOCK_ASKS, MORNING, MORNING, ("user:ana",), 0),
        (CLOCK_ASKS, EVENING, MORNING, ("user:ana",), 0),
        (CLOCK_ASKS, MORNING, EVENING, ("user:bo",), 0),
        (CLOCK_DENIES, EVENING, MORNING, None, 0),
        (CLOCK_DENIES, MORNING, EVENING, ("user:bo",), 0),
        (HANDLER_ASKS, MORNING, MORNING, ("role:admin",), 1),
        (HANDLER_ASKS, EVENING, MORNING, ("role:admin",), 2),
        (HANDLER_ASKS, MORNING, EVENING, ("user:bo",), 2),
    ],
)
async def test_terms_are_judged_at_the_time_of_the_question(
    store: Store,
    policy: ApprovalPolicy,
    judged: datetime,
    at: datetime,
    approvers: tuple[str, ...] | None,
    handler_calls: int,
) -> None:
    SAYS.append(by_hour)
    tool = pay_tool(Ledger(), policy)
    catalog, call = worker_deps(store, tool).catalog, CallPart(call="c1.1", tool="pay", args=Content(inline=ARGS))
    found = await judge_past_call(catalog, pinned(), call, dict(ARGS), judged)
    terms = await terms_at(catalog, pinned(), dict(ARGS), found, tool, at)
    assert (terms and terms.approvers) == approvers
    assert len(SEEN) == handler_calls


async def test_handler_denial_overrides_a_global_rule_that_asks(store: Store) -> None:
    SAYS.append("deny")
    rule = GlobalRule(name="all", rule="true", effect="require_approval")
    (gate_decision,) = await gate(store, handled(), policies=[rule])
    assert gate_decision.kind == "settled"


async def test_handler_does_not_see_calls_denied_by_rules(store: Store) -> None:
    SAYS.append("auto")
    denied, wrong = await gate(store, handled(deny_if="args.amount > 10.0"), ARGS, {"amount": "much"})
    assert [denied.outcome and denied.outcome.code, wrong.outcome and wrong.outcome.code] == ["denied", "input_invalid"]
    assert SEEN == []


@pytest.mark.parametrize(("answer", "again"), [("ask", "policy"), ("admin", "policy"), (ValueError(), "policy")])
async def test_auto_approved_call_stops_if_the_handler_no_longer_approves(
    store: Store, answer: Any, again: str
) -> None:
    SAYS.append(answer)
    ledger = Ledger()
    tool = handled(ledger)
    reply = await run(worker_deps(store, tool), tool, task_for(tool))
    assert (reply.again, ledger.rows) == (again, [])


async def test_handler_denial_at_run_time_denies_the_call(store: Store, ledger: Ledger) -> None:
    SAYS.append(HandlerVerdict("deny", reason="the payee is blocked"))
    tool = handled(ledger)
    for revision in (None, 1):
        reply = await run(worker_deps(store, tool), tool, task_for(tool, revision=revision))
        assert reply.outcome is not None
        assert (reply.outcome.code, some(reply.outcome.denied).reason) == ("denied", "the payee is blocked")
    assert ledger.rows == []


@pytest.mark.parametrize("says", ["auto", "ask", ValueError()])
async def test_approved_call_runs_without_handler_consent(store: Store, says: Any, ledger: Ledger) -> None:
    SAYS.append(says)
    tool = handled(ledger)
    deps = worker_deps(store, tool)
    await keep(store, about(await asked(deps, tool)))
    assert summary(await run(deps, tool, task_for(tool, revision=1)))[0] == "ok"


async def test_audit_log_names_the_handler_that_approved(store: Store) -> None:
    SAYS.append("auto")
    tool = handled()
    await run(worker_deps(store, tool), tool, task_for(tool))
    records = await AuditLog(store).stream("turn/main/s/t")
    auto = next(record for record in records if record.kind == "auto")
    body = json.loads(auto.data)
    assert body["rule"] == {"kind": "handler", "handler": RULE.removeprefix("handler:")}
    assert body["engines"].endswith(f", {RULE}")


def test_unknown_handler_name_fails_at_build(store: Store) -> None:
    with pytest.raises(ConfigError, match=r"has no `answr`; did you mean `answer`\?") as caught:
        worker_deps(store, handled(function="answr"))
    assert caught.value.context["field"] == "requires_approval.handler"
    assert caught.value.context["tool_name"] == "pay"


async def test_reason_for_stricter_terms_hides_masked_arguments(store: Store) -> None:
    SAYS.append(HandlerVerdict("ask", stricter=Term(min_assurance="mfa", reason="Ana is a new payee")))
    (gate_decision,) = await gate(store, handled(show=ShownArguments(secret=("to",)), effect="Pay"))
    assert gate_decision.request is not None
    (applied,) = gate_decision.request.applied
    assert applied.reason == "[hidden] is a new payee"
    assert gate_decision.request.min_assurance == "mfa"
