from typing import Any

from signoff.evaluation.case_file import EvaluationCase
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, instructions_hash
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "pin": {"type": "string"}},
    "required": ["amount"],
    "additionalProperties": False,
}
AT = "2026-11-24T10:00:00+00:00"
ASKS = ApprovalPolicy(auto_approve_if="args.amount < 50.0", approvers=("role:finance",))
ACTOR = Actor(name="desk", model="scripted:nowhere:model", instructions="Pay what is owed.")


async def never(args: dict[str, Any], ctx: ToolContext) -> Any:
    raise AssertionError("an evaluation ran a tool")


def a_tool(name: str = "pay", **fields: Any) -> Tool:
    given: dict[str, Any] = {
        "name": name,
        "description": "Pays.",
        "input_schema": SCHEMA,
        "handler": never,
        "scope": "generalist",
        "requires_approval": ASKS,
    }
    return Tool(**{**given, **fields})


def a_catalog(*tools: Tool, **fields: Any) -> Catalog:
    actor = Actor(**{"name": "desk", "model": ACTOR.model, "instructions": ACTOR.instructions, **fields})
    return build_catalog(tools=tools or (a_tool(),), actors=(actor,))


def a_call(amount: float = 20, verdict: str = "run", call: str = "c1.1", **fields: Any) -> dict[str, Any]:
    asked = {"decision": {"verdict": "approved", "by": "ana"}} if verdict == "ask" else {}
    given: dict[str, Any] = {
        "call": call,
        "tool": "pay",
        "args": {"amount": amount},
        "verdict": verdict,
        "rule": {"name": "auto_approve_if"},
        "result": {"code": "ok", "value": f"paid {amount}"},
        **asked,
    }
    return {**given, **fields}


def a_case(*calls: dict[str, Any], **fields: Any) -> EvaluationCase:
    given: dict[str, Any] = {
        "name": "pay what is owed",
        "recorded": {"turn": "turn/main/s1/t1", "instructions": instructions_hash(ACTOR, "", "")},
        "actor": "desk",
        "user": {"user": "guest"},
        "messages": [{"role": "user", "text": "pay"}],
        "completions": [{"at": AT, "calls": list(calls)}, {"at": AT}],
        "ending": "complete",
        "answer": "done",
        **fields,
    }
    return EvaluationCase.model_validate(given)
