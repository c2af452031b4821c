from typing import Any, get_args

from activity_kit import ARGS, environment, pinned, worker_deps
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.audit.log import AuditLog
from signoff.contracts.activity_messages import GateTask, Tally
from signoff.contracts.content import Content
from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import MAX_CALLS
from signoff.contracts.message import CallPart
from signoff.contracts.names import GATE
from signoff.contracts.usage import LimitedUse, UsageLimit
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Actor, Route, Surface
from signoff.registry.capabilities import Capabilities
from signoff.registry.gates.judged_call import GateName
from signoff.registry.hooks import Permission
from signoff.store.store import Store

LEDGER = Ledger()


async def nowhere(context: Any) -> bool:
    return False


async def closed(args: Any, context: Any) -> Permission:
    return Permission.deny("closed")


def for_actor(**fields: Any) -> dict[str, Any]:
    return {"actors": [Actor(name="desk", model="scripted", **fields)]}


DENY = GlobalRule(name="never", rule="true", effect="deny")
STOPS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # gate: code, fields of the tool, of the catalog, of the task
    "shape": ("input_invalid", {}, {}, {"malformed": "the arguments are not valid JSON"}),
    "caps": ("too_many_calls", {}, {}, {"tally": Tally(calls=MAX_CALLS)}),
    "resolve": ("not_available", {}, {}, {"tool": "pya"}),
    "surface": ("not_available", {}, for_actor(surfaces={"slack": Surface(exclude=("pay",))}), {}),
    "tag_policy": ("denied", {}, {"policies": [DENY]}, {}),
    "allowlist": ("not_available", {}, for_actor(tools=()), {}),
    "layer": ("not_available", {}, for_actor(routes=(Route(name="till", mode="only"),)), {}),
    "available": ("not_available", {"available": nowhere}, {}, {}),
    "schema": ("input_invalid", {}, {}, {"args": {"amount": "much"}}),
    "permission": ("denied", {"check_permissions": closed}, {}, {}),
    "capabilities": ("not_available", {"capabilities": Capabilities(process=("git",))}, {}, {}),
    "usage": ("not_available", {"usage_limit": UsageLimit(1, "tenant", 60.0)}, {}, {}),
    "dry_run": ("ok", {}, {}, {"dry_run": True}),
    "approval": ("denied", {"requires_approval": ApprovalPolicy(deny_if="true")}, {}, {}),
}


def test_every_gate_has_a_case() -> None:
    assert tuple(STOPS) == get_args(GateName)


@table("gate", *STOPS)
async def test_outcome_and_audit_log_name_the_gate(store: Store, gate: str) -> None:
    code, tool, catalog, task = STOPS[gate]
    deps = worker_deps(store, pay_tool(LEDGER, tool.get("requires_approval", False), **_rest(tool)), **catalog)
    call = CallPart(
        call="c1.1",
        tool=task.get("tool", "pay"),
        args=Content(inline=task.get("args", ARGS)),
        malformed=task.get("malformed", ""),
    )
    if gate == "usage":
        use = LimitedUse(UsageLimit(1, "tenant", 60.0), "main", "pay", "bo", "s2", "t2", "c1.1")
        await store.claim("other", workflow="turn/main/s2/t2", call="c1.1", tool="pay", use=use)
    ctx = pinned(channel="slack", route="till" if gate == "layer" else "")
    asked = GateTask(ctx=ctx, calls=(call,), tally=task.get("tally", Tally()), dry_run=task.get("dry_run", False))
    outcome = (await environment(GATE, is_local=True).run(GateActivity(deps).gate, asked)).gate_decisions[0].outcome
    records = await AuditLog(store).stream(TurnKey(ctx.tenant, ctx.session, ctx.turn).workflow_id)
    assert outcome is not None
    assert (outcome.gate, outcome.code) == (gate, code)
    assert [f'"gate":"{gate}"' in record.data for record in records] == [True]


def _rest(tool: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tool.items() if name != "requires_approval"}
