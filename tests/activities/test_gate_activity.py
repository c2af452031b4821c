import dataclasses
import json
import math
from typing import Any

import pytest
from activity_kit import (
    ARGS,
    MARK_KEY,
    PLACE,
    TURN,
    environment,
    free,
    pinned,
    request_of,
    sent,
    task_for,
    worker_deps,
)
from tables import table
from turn_fixtures import GUEST, Ledger, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.digest import digest_mark, question_hash
from signoff.audit.log import AuditLog
from signoff.contracts.activity_messages import GateReply, GateTask, RunOptions, Tally
from signoff.contracts.call import REQUESTER_RULE, REQUIRES_APPROVAL, RuleReference, ToolDenied
from signoff.contracts.content import Content
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import read_code
from signoff.contracts.limits import MAX_CALLS, MAX_TOOLS_AT_ONCE, RESULT_CHARS_PER_BATCH
from signoff.contracts.message import CallPart
from signoff.contracts.person import Person, Principal
from signoff.contracts.turn import Denial, WaitingCall
from signoff.formats.json_schema import SchemaProblem
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule, ShownArguments
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.capabilities import Capabilities
from signoff.registry.handler_adapters import run_elsewhere
from signoff.registry.hooks import Correction, HookContext, Permission
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.registry.program.tool_keywords import BypassRouting
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool
from signoff.store.content_store import to_content
from signoff.store.store import Store

LEDGER = Ledger()


def proposed(tool: str = "pay", args: Any = ARGS, call: str = "c1.1") -> CallPart:
    return CallPart(call=call, tool=tool, args=Content(inline=args))


async def gate(deps: WorkerDeps, *calls: CallPart, **fields: Any) -> GateReply:
    task = GateTask(ctx=fields.pop("ctx", pinned()), calls=calls or (proposed(),), **fields)
    reply = await environment("signoff.gate", is_local=True).run(GateActivity(deps).gate, task)
    return sent(reply)


async def test_batch_is_judged_in_order(store: Store) -> None:
    deps = worker_deps(store, pay_tool(LEDGER), free(LEDGER, name="look"))
    reply = await gate(deps, proposed("look", call="c1.1"), proposed(call="c1.2"), proposed("fly", call="c1.3"))
    assert [(each.call, each.kind) for each in reply.gate_decisions] == [
        ("c1.1", "run"),
        ("c1.2", "ask"),
        ("c1.3", "settled"),
    ]
    assert reply.tally.calls == 3
    assert reply.tally.per_tool == {"look": 1, "pay": 1, "fly": 1}


async def test_call_without_approval_may_run(store: Store) -> None:
    tool = free(LEDGER)
    deps = worker_deps(store, tool)
    gate_decision = (await gate(deps)).gate_decisions[0]
    assert gate_decision.digest == task_for(tool).digest
    assert (gate_decision.request, gate_decision.outcome) == (None, None)
    assert gate_decision.rule == REQUIRES_APPROVAL


async def test_call_that_needs_approval_has_a_complete_request(store: Store) -> None:
    policy = ApprovalPolicy(
        require_approval_if="args.amount > 10.0",
        auto_approve_if="true",
        approvers=("role:finance", "user:ana"),
        quorum=2,
        veto=False,
        allow_self_approval=True,
        timeout=600,
        grant_ttl=60,
        min_assurance="session",
        accept_unsigned=True,
        confirm="type",
        level="admin",
        show=ShownArguments(secret=("to",)),
    )
    tool = pay_tool(LEDGER, policy, title="Payment", effect="Pay {amount}")
    deps = worker_deps(store, tool)
    gate_decision = (await gate(deps, agent_says="as you asked")).gate_decisions[0]
    request = request_of(gate_decision.request)
    digest = task_for(tool).digest
    assert (request.id, read_code(request.code)) == ("main.s.t.c1.1", request.code)
    assert (request.revision, request.digest, gate_decision.digest) == (1, digest, digest)
    assert request.question_hash == question_hash(request)
    assert request.definition == definition_hash(tool)
    assert (request.tenant, request.session, request.turn) == tuple(TURN)
    assert (request.actor, request.call, request.tool) == ("desk", "c1.1", "pay")
    assert (request.args.inline, request.secrets) == (ARGS, ("to",))
    assert (request.rule, request.rule_text) == (RuleReference(name="require_approval_if"), "args.amount > 10.0")
    assert request.rule == gate_decision.rule
    assert request.policy_hash == deps.catalog.policy("pay").hash
    assert request.approvers == ("role:finance", "user:ana")
    assert (request.quorum, request.veto, request.allow_self, request.edit) == (2, False, True, "off")
    assert (request.confirm, request.min_assurance, request.accept_unsigned) == ("type", "session", True)
    assert (request.level, request.requester, request.state) == ("admin", GUEST, "pending")
    assert (request.timeout, request.grant_ttl) == (600.0, 60.0)
    card = request.card
    assert (card.effect, card.tool_title) == ("Pay 20", "Payment")
    assert (card.note, card.agent_says) == ("", "as you asked")
    assert card.mark == digest_mark(digest, MARK_KEY)
    assert [(row.name, row.value, row.secret, row.format) for row in card.rows] == [
        ("amount", "20", False, "number"),
        ("to", "hidden, 3 characters", True, "string"),
    ]


async def test_card_shows_only_the_arguments_the_policy_allows(store: Store) -> None:
    tool = pay_tool(LEDGER, ApprovalPolicy(show=ShownArguments(only=("amount",))))
    card = request_of((await gate(worker_deps(store, tool))).gate_decisions[0].request).card
    assert [row.name for row in card.rows] == ["amount", ""]


async def test_request_without_a_policy_uses_the_defaults(store: Store) -> None:
    deps = worker_deps(store, pay_tool(LEDGER), default_approvers=("role:boss",))
    gate_decision = (await gate(deps)).gate_decisions[0]
    request = request_of(gate_decision.request)
    assert (request.approvers, request.quorum, request.veto) == (("role:boss",), 1, True)
    assert (request.timeout, request.grant_ttl, request.revision) == (86_400.0, 86_400.0, 1)
    assert (request.allow_self, request.min_assurance, request.accept_unsigned) == (False, "channel", False)
    assert request.rule_text
    assert request.card.tool_title == "pay"
    assert (request.card.note, request.card.agent_says) == ("", "")


@table(
    ("changes", "sure"),
    ({}, True),
    ({"roles": ("finance",)}, False),
    ({"tier": "standard"}, False),
    ({"user": "subscription:other"}, False),
    ({"user": "feed"}, False),
)
async def test_declared_subscription_is_believed_only_without_personal_rights(
    store: Store, changes: dict[str, Any], sure: bool
) -> None:
    feed = Subscription("feed", ("freeze.*",), starts="desk")
    deps = worker_deps(store, free(LEDGER), profile="production", people=[], subscriptions=[feed])
    user = Principal(**{"user": feed.requester, "tier": "", "issued_at": deps.clock(), **changes})
    assert (await deps.doubt(pinned(user=user)) == "") is sure
    assert (await deps.doubt(pinned(user=user, tenant="acme"))) != ""


async def test_requester_that_contradicts_the_directory_is_asked_about(store: Store) -> None:
    tool = free(LEDGER)
    gate_decision = (await gate(worker_deps(store, tool, people=[Person(id="guest", tier="trusted")]))).gate_decisions[
        0
    ]
    assert (gate_decision.kind, gate_decision.rule) == ("ask", REQUESTER_RULE)
    assert request_of(gate_decision.request).rule_text == "the requester does not match the directory"


OPTIONS = RunOptions(
    summary="Pay 20 to Ana",
    start_to_close=315.0,
    grant_ttl=86_400.0,
    budget_chars=RESULT_CHARS_PER_BATCH,
    local=False,
    at_once=MAX_TOOLS_AT_ONCE,
    attempts=1,
)
READS: dict[str, Any] = {"read_only": True, "attempts": 3}
BYPASS: dict[str, Any] = {
    "scope": "specialist",
    "routing": "bypass",
    "bypass_routing": BypassRouting(reason="only ever reads the price list"),
    "justification": "the price desk alone looks prices up",
}


@table(
    ("tool", "expected"),
    (free(LEDGER), {}),
    (free(LEDGER, timeout=7), {"start_to_close": 22.0}),
    (free(LEDGER, idempotent=True), {"idempotent": True, "attempts": 3}),
    (free(LEDGER, read_only=True), READS),
    (free(LEDGER, idempotent=True, attempts=5), {"idempotent": True, "attempts": 5}),
    (free(LEDGER, concurrency="exclusive"), {"exclusive": True}),
    (free(LEDGER, effect="", title="Payment"), {"summary": "Payment: amount 20, to Ana"}),
    (free(LEDGER, effect="Pay {amount}", secrets=("to",)), {"summary": "Pay 20"}),
    (free(LEDGER, effect="", secrets=("to",)), {"summary": "pay: amount 20, to hidden"}),
    (
        pay_tool(LEDGER, ApprovalPolicy(show=ShownArguments(secret=("to",))), effect=""),
        {"summary": "pay: amount 20, to hidden"},
    ),
    (free(LEDGER, task_queue="gpu"), {"task_queue": "gpu"}),
    (free(LEDGER, max_result_chars=99), {"budget_chars": 99}),
    (free(LEDGER, max_result_chars=RESULT_CHARS_PER_BATCH + 1), {}),
    (pay_tool(LEDGER, ApprovalPolicy(grant_ttl=60)), {"grant_ttl": 60.0}),
    (free(LEDGER, **BYPASS), {}),
    (free(LEDGER, read_only=True, **BYPASS), READS | {"local": True}),
    (pay_tool(LEDGER, ApprovalPolicy(auto_approve_if="true"), read_only=True, **BYPASS), READS),
    (pay_tool(LEDGER, read_only=True, **BYPASS), READS),
)
async def test_run_options_follow_the_tool(store: Store, tool: Tool, expected: dict[str, Any]) -> None:
    gate_decision = (await gate(worker_deps(store, tool))).gate_decisions[0]
    assert gate_decision.options == replace(OPTIONS, **expected)


@table(
    ("fields", "expected"),
    ({"mode": "sequential"}, {"at_once": 1, "local": True}),
    ({"on_failure": "abort_siblings"}, {"aborts": True, "local": False}),
)
async def test_run_options_follow_the_actor(store: Store, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    actor = Actor(name="desk", model="scripted", **fields)
    gate_decision = (
        await gate(worker_deps(store, free(LEDGER, read_only=True, **BYPASS), actors=[actor]))
    ).gate_decisions[0]
    assert gate_decision.options == replace(OPTIONS, **READS | expected)


CONTINUES = ApprovalPolicy(while_waiting="continue")
AGENT: dict[str, Any] = {"model": "", "external": ExternalAgent(acts_for=("user:guest",))}
OUTSIDE: dict[str, Any] = {"runs": "external", "handler": run_elsewhere}


@table(
    ("tool", "actor", "expected"),
    (free(LEDGER, name="other"), {"own_tools": (free(LEDGER),)}, {"activity": "pay@desk"}),
    (free(LEDGER, return_direct=True), {}, {"return_direct": True}),
    (pay_tool(LEDGER, CONTINUES), {}, {"while_waiting": "continue"}),
    (pay_tool(LEDGER, CONTINUES), AGENT, {}),
    (free(LEDGER, **OUTSIDE), AGENT, {"external": True, "report_within": 300.0}),
    (
        free(LEDGER, **OUTSIDE, timeout=7, unreported="ask"),
        AGENT,
        {"external": True, "start_to_close": 22.0, "report_within": 7.0, "ask_unreported": True},
    ),
)
async def test_activity_and_actor_options_follow_the_declaration(
    store: Store, tool: Tool, actor: dict[str, Any], expected: dict[str, Any]
) -> None:
    desk = Actor(name="desk", **{"model": "scripted"} | actor)
    options = (await gate(worker_deps(store, tool, actors=[desk]))).gate_decisions[0].options
    assert options == replace(OPTIONS, **{"attempts": options.attempts} | expected)


@table(
    ("tool", "call", "note"),
    ("spare", "c1.1001", "this is a fallback of `pay`"),
    ("spare", "c1.1", ""),
    ("other", "c1.1001", ""),
)
async def test_card_of_a_fallback_names_the_replaced_tool(store: Store, tool: str, call: str, note: str) -> None:
    tools = [pay_tool(LEDGER, name=name) for name in ("spare", "other")]
    deps = worker_deps(store, pay_tool(LEDGER, fallbacks=("spare",), idempotent=True), *tools)
    found = (await gate(deps, proposed(tool, call=call))).gate_decisions[0]
    assert request_of(found.request).card.note == note


LOGIN = {"type": "object", "properties": {"pin": {"type": "string", "writeOnly": True}}, "required": ["pin"]}


@table("secret", True, False)
async def test_note_of_a_correction_hides_secrets(store: Store, secret: bool) -> None:
    def fix(args: Any) -> list[SchemaProblem] | Correction:
        return [] if args["pin"] == "sesame-9" else Correction({"pin": "sesame-9"}, f"not {args['pin']}")

    schema = LOGIN if secret else LOGIN | {"properties": {"pin": {"type": "string"}}}
    tool = pay_tool(LEDGER, input_schema=schema, effect="Log in", validate_input=fix)
    found = (await gate(worker_deps(store, tool), proposed(args={"pin": "opensesame"}))).gate_decisions[0]
    note = request_of(found.request).card.note
    assert ("opensesame" in note) is not secret
    assert note.startswith("The arguments were corrected")


async def test_options_record_the_fallbacks_of_a_tool(store: Store) -> None:
    async def never(context: HookContext) -> bool:
        return False

    tool = free(LEDGER, read_only=True, fallbacks=("spare",), **BYPASS)
    there = (await gate(worker_deps(store, tool, free(LEDGER, name="spare")))).gate_decisions[0]
    without = worker_deps(store, dataclasses.replace(tool, available=never), free(LEDGER, name="spare"))
    gone = (await gate(without)).gate_decisions[0]
    expected = replace(OPTIONS, **READS | {"fallbacks": ("spare",)})
    assert (there.kind, there.options) == ("run", expected)
    assert (gone.kind, gone.options) == ("settled", expected)
    assert gone.outcome is not None
    assert (gone.outcome.code, gone.outcome.gate) == ("not_available", "available")


async def test_doubted_read_is_not_a_local_activity(store: Store) -> None:
    deps = worker_deps(store, free(LEDGER, read_only=True, **BYPASS), people=[Person(id="guest", tier="trusted")])
    gate_decision = (await gate(deps)).gate_decisions[0]
    assert (gate_decision.kind, gate_decision.options.local) == ("ask", False)


@pytest.mark.row("E10")
@table("calls", 0, 1, 3, 7)
@table(("setting", "own", "total"), (None, None, 80_000), (9_000, None, 9_000), (9_000, 100, 100), (None, 5, 5))
async def test_result_budget_is_the_total_divided_by_the_calls(
    store: Store, calls: int, setting: int | None, own: int | None, total: int
) -> None:
    deps = worker_deps(store, free(LEDGER), actors=[Actor(name="desk", model="scripted", result_chars=own)])
    if setting is not None:
        deps = dataclasses.replace(deps, result_chars=setting)
    assert deps.result_budget("desk", calls) == math.floor(total / max(calls, 1))
    if calls:
        reply = await gate(deps, *(proposed(call=f"c1.{n}", args={"amount": n}) for n in range(calls)))
        shares = [each.options.budget_chars for each in reply.gate_decisions]
        assert shares == [math.floor(total / max(calls, 1))] * calls


async def test_call_limits_count_within_a_batch(store: Store) -> None:
    deps = worker_deps(store, free(LEDGER))
    calls = (proposed(), proposed(call="c1.2", args={"amount": 2}))
    reply = await gate(deps, *calls, tally=Tally(calls=MAX_CALLS - 1))
    assert [each.kind for each in reply.gate_decisions] == ["run", "settled"]
    outcome = reply.gate_decisions[1].outcome
    assert (outcome.call, outcome.tool, outcome.code, outcome.gate) == ("c1.2", "pay", "too_many_calls", "caps")
    assert "1000 calls" in outcome.value.inline
    assert reply.tally.calls == MAX_CALLS + 1


@table(
    ("tool", "policies", "rule", "reason"),
    (free(LEDGER), [GlobalRule(name="r", rule="true", effect="deny", reason="frozen")], None, "frozen"),
    (
        pay_tool(LEDGER, ApprovalPolicy(deny_if="args.amount > 10.0")),
        [],
        RuleReference(name="deny_if"),
        "`deny_if` is true, so the call is denied",
    ),
)
async def test_denied_call_gives_the_model_the_reason(
    store: Store, tool: Tool, policies: Any, rule: RuleReference | None, reason: str
) -> None:
    gate_decision = (await gate(worker_deps(store, tool, policies=policies))).gate_decisions[0]
    outcome = gate_decision.outcome
    assert (gate_decision.kind, outcome.code, outcome.rule) == ("settled", "denied", rule)
    assert outcome.denied == ToolDenied(source="policy", tool="pay", call_id="c1.1", reason=outcome.denied.reason)
    assert outcome.value.inline == json.loads(outcome.denied.model_dump_json())
    assert (outcome.denied.reason == reason) or reason.split(",")[0] in outcome.denied.reason
    assert gate_decision.request is None


async def test_invalid_arguments_go_back_to_the_model(store: Store) -> None:
    gate_decision = (
        await gate(worker_deps(store, pay_tool(LEDGER)), proposed(args={"amount": "much"}))
    ).gate_decisions[0]
    assert (gate_decision.kind, gate_decision.outcome.code, gate_decision.outcome.gate) == (
        "settled",
        "input_invalid",
        "schema",
    )
    assert "`amount`" in gate_decision.outcome.value.inline
    assert (gate_decision.outcome.denied, gate_decision.outcome.rule, gate_decision.digest) == (None, None, "")


async def test_dry_run_asks_no_approver(store: Store) -> None:
    reply = await gate(worker_deps(store, pay_tool(LEDGER)), dry_run=True)
    outcome = reply.gate_decisions[0].outcome
    assert (outcome.code, outcome.gate) == ("ok", "dry_run")
    assert outcome.value.inline.startswith("[dry-run] pay would be called")


async def test_stored_arguments_are_judged_in_full(store: Store) -> None:
    tool = pay_tool(LEDGER)
    args = {"amount": 1, "to": "é" * 10_000}
    content = await to_content(store, args, PLACE)
    assert content.blob is not None
    gate_decision = (
        await gate(worker_deps(store, tool), CallPart(call="c1.1", tool="pay", args=content))
    ).gate_decisions[0]
    assert gate_decision.digest == task_for(tool, args).digest
    assert request_of(gate_decision.request).args == content


async def test_missing_blob_is_a_store_failure(store: Store, tmp_path: Any) -> None:
    content = await to_content(store, {"amount": 1, "to": "x" * 10_000}, PLACE)
    other = await Store.open(f"sqlite:///{tmp_path}/other.db")
    try:
        with pytest.raises(StoreUnavailable, match="is not in this store"):
            await gate(worker_deps(other, pay_tool(LEDGER)), CallPart(call="c1.1", tool="pay", args=content))
    finally:
        await other.close()


async def test_call_already_waiting_for_approval_is_not_asked_again(store: Store) -> None:
    deps = worker_deps(store, pay_tool(LEDGER))
    first = (await gate(deps)).gate_decisions[0]
    assert first.question is not None
    waiting = WaitingCall(action=first.action, approval_id="a1", code="K7Q2FM")
    again = proposed(call="c2.1", args=dict(reversed(ARGS.items())))
    other = proposed(call="c2.2", args=ARGS | {"amount": 21})
    same, asks = (await gate(deps, again, other, waiting=(waiting,))).gate_decisions
    assert same.outcome is not None
    assert (same.kind, same.question, same.outcome.code) == ("settled", None, "waiting")
    assert (same.outcome.value.inline, same.outcome.approval_id) == ("waiting for approval, K7Q-2FM", "a1")
    assert asks.kind == "ask"


async def test_earlier_denial_takes_precedence_over_a_waiting_request(store: Store) -> None:
    deps = worker_deps(store, pay_tool(LEDGER))
    action = (await gate(deps)).gate_decisions[0].action
    waiting = WaitingCall(action=action, approval_id="a1", code="K7Q2FM")
    denial = Denial(action=action, approval_id="a0", decided_by="ana")
    gate_decision = (await gate(deps, proposed(call="c2.1"), waiting=(waiting,), denied=(denial,))).gate_decisions[0]
    assert gate_decision.outcome is not None
    assert (gate_decision.outcome.code, gate_decision.outcome.denied and gate_decision.outcome.denied.source) == (
        "denied",
        "repeat",
    )


async def test_denied_call_does_not_run_by_a_rule(store: Store) -> None:
    deps = worker_deps(store, free(LEDGER))
    action = (await gate(deps)).gate_decisions[0].action
    denial = Denial(action=action, approval_id="a0", decided_by="ana")
    found = (await gate(deps, proposed(call="c2.1"), denied=(denial,))).gate_decisions[0]
    assert (found.kind, found.outcome and found.outcome.code) == ("settled", "denied")


async def test_traced_call_is_logged_with_the_recorded_line(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    deps = dataclasses.replace(worker_deps(store, free(LEDGER)), trace=True)
    with caplog.at_level("INFO"):
        await gate(deps)
    (line,) = [each.facts["line"] for each in await AuditLog(store).stream(TURN.workflow_id) if each.kind == "trace"]
    logged = [each.getMessage() for each in caplog.records if each.getMessage().startswith("actor ")]
    assert [each.partition(" ({")[0] for each in logged] == [f"actor desk, call c1.1: {line}"]


async def test_cached_permission_is_checked_once(store: Store) -> None:
    asked: list[Any] = []

    async def check(args: Any, context: HookContext) -> Permission:
        asked.append(args)
        return Permission.allow()

    deps = worker_deps(store, free(LEDGER, check_permissions=check, cache_permission=60))
    for call in ("c1.1", "c1.2"):
        assert (await gate(deps, proposed(call=call))).gate_decisions[0].kind == "run"
    assert asked == [ARGS]


async def test_tool_with_a_missing_capability_is_not_available(store: Store) -> None:
    lacks = free(LEDGER, capabilities=Capabilities(network=("api.example",)))
    has = free(LEDGER, name="look", capabilities=Capabilities(secrets=("TOKEN",)))
    reply = await gate(worker_deps(store, lacks, has), proposed(), proposed("look", call="c1.2"))
    missing, there = reply.gate_decisions
    assert missing.outcome is not None
    assert (missing.outcome.code, there.kind) == ("not_available", "run")
