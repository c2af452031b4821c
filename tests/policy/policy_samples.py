from typing import Any

from signoff.policy.approval_policy import ApprovalPolicy, RequiresApproval
from signoff.policy.compiled_policy import CompiledPolicy, compile_policy
from signoff.policy.facts import ToolFacts

TOOL = ToolFacts("book_flight", "travel", "local", ("destructive", "money"))

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "totalCost": {"type": "number"},
        "count": {"type": "integer"},
        "currency": {"type": "string"},
        "flag": {"type": "boolean"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "recipients": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "number"}},
        "legs": {"type": "array", "items": {"$ref": "#/$defs/Leg"}},
        "meta": {"type": "object"},
        "odd": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "optional": {"type": "string"},
        "in": {"type": "string"},
        "my-field": {"type": "string"},
    },
    "required": ["totalCost", "count", "currency", "flag", "note", "recipients", "numbers", "legs", "meta", "odd"],
    "$defs": {
        "Leg": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "nights": {"type": "integer"}},
            "required": ["city"],
        }
    },
}


def arguments(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "totalCost": 49,
        "count": 2,
        "currency": "EUR",
        "flag": False,
        "note": None,
        "recipients": ["ana@example.org", "bo@example.org"],
        "numbers": [1, 2.5],
        "legs": [{"city": "Lisbon", "nights": 3}],
        "meta": {},
        "odd": "x",
    }
    return plain | changes


def context(**user: Any) -> dict[str, Any]:
    person = {"id": "traveller", "name": "T", "tier": "trusted", "roles": ["staff"], "locale": "en"} | user
    return {
        "actor": "desk",
        "session": "s1",
        "turn": "t1",
        "tenant": "main",
        "channel": "",
        "route": "",
        "step": "",
        "user": person,
    }


def compiled(policy: RequiresApproval | None = None, **fields: Any) -> CompiledPolicy:
    return compile_policy(ApprovalPolicy(**fields) if policy is None else policy, tool=TOOL, input_schema=SCHEMA)


def verdict_of(args: dict[str, Any], **fields: Any) -> str:
    return compiled(**fields).judge(args, context()).verdict
