"""Answers that the Agent Approval Protocol allows, as JSON schemas. Sources: its description (version 1, September
2026), and the fields that its Python client 0.3.3 also reads: `server`, and an approval's consumption.
"""

from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker

_UUID: Final = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
_TIME: Final = {"type": "string", "format": "date-time", "pattern": "Z$"}
_TEXT: Final = {"type": "string", "minLength": 1}


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _state(name: str, **more: Any) -> dict[str, Any]:
    decided = {"type": "object", "properties": {"status": {"const": name}}}
    return {"required": ["decision"], "properties": {"status": {"const": name}, "decision": decided, **more}}


_OUTCOME: Final = _closed(
    ["status", "reported_at"], status={"enum": ["succeeded", "failed"]}, note=_TEXT, reported_at=_TIME
)
_DECISION: Final = {
    **_closed(
        ["status", "decided_at"],
        status={"enum": ["approved", "denied", "expired", "cancelled"]},
        note=_TEXT,
        decided_at=_TIME,
        expires_at=_TIME,
    ),
    "oneOf": [
        {"required": ["expires_at"], "properties": {"status": {"const": "approved"}}},
        {"properties": {"status": {"enum": ["denied", "expired", "cancelled"]}, "expires_at": False}},
    ],
}
_REQUEST: Final = {
    **_closed(
        ["id", "tool", "arguments", "timeout", "status", "created_at", "deadline_at"],
        id=_UUID,
        tool=_TEXT,
        server=_TEXT,
        arguments={"type": "object"},
        timeout={"type": "string", "pattern": "^[1-9][0-9]*(s|m|h)$"},
        agent_reasoning={"type": "string"},
        context={"type": "object"},
        status={"enum": ["pending", "approved", "denied", "expired", "cancelled"]},
        created_at=_TIME,
        deadline_at=_TIME,
        decision=_DECISION,
        consumption=_closed(["consumed_at"], consumed_at=_TIME, outcome=_OUTCOME),
    ),
    "oneOf": [
        {"properties": {"status": {"const": "pending"}, "decision": False, "consumption": False}},
        _state("approved"),
        _state("denied", consumption=False),
        _state("expired", consumption=False),
        _state("cancelled", consumption=False),
    ],
}
_KINDS: Final = {
    400: "invalid_request",
    401: "authentication",
    403: "authorization",
    404: "not_found",
    409: "conflict",
    429: "rate_limit",
    500: "internal",
    503: "dependency",
}
_ERROR: Final = _closed(
    ["type", "code", "message", "request_id"],
    type={"enum": list(_KINDS.values())},
    code={"type": "string", "pattern": "^[a-z][a-z0-9]*(_[a-z0-9]+)*$"},
    message=_TEXT,
    param=_TEXT,
    request_id=_UUID,
)
_FORMATS: Final = FormatChecker()


def answer_problems(status: int, headers: Any, body: Any) -> list[str]:
    exchange = headers.get("x-request-id", "")
    if status in (200, 201):
        schema = _REQUEST
        problems = []
    else:
        schema = _closed(["error"], error=_ERROR)
        told = body.get("error", {})
        problems = [] if told.get("type") == _KINDS.get(status) else [f"{status} is told as {told}"]
        problems += [] if told.get("request_id") == exchange else ["the exchange's id is not that of the header"]
    found = Draft202012Validator(schema, format_checker=_FORMATS).iter_errors(body)
    wrong_id = [each.message for each in Draft202012Validator(_UUID).iter_errors(exchange)]
    return [*problems, *wrong_id, *(each.message for each in found)]
