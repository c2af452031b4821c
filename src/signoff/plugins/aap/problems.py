"""Formats refusals for the protocol. An error never lets a call run."""

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import Response

from signoff.contracts.errors import BadRequest
from signoff.contracts.responses import Fault

REQUEST_ID: Final = "x-request-id"
ProblemCode: TypeAlias = Literal[
    "malformed", "too_large", "missing_idempotency_key", "run_by_signoff", "not_found", "idempotency_conflict",
    "already_terminal", "already_consumed", "approval_expired", "not_approved", "not_consumed", "outcome_conflict",
]  # fmt: skip
_STATUS: Final[Mapping[ProblemCode, int]] = {
    "malformed": 400,
    "too_large": 400,
    "missing_idempotency_key": 400,
    "run_by_signoff": 400,
    "not_found": 404,
    "idempotency_conflict": 409,
    "already_terminal": 409,
    "already_consumed": 409,
    "approval_expired": 409,
    "not_approved": 409,
    "not_consumed": 409,
    "outcome_conflict": 409,
}
_KINDS: Final[Mapping[int, str]] = {
    401: "authentication",
    403: "authorization",
    404: "not_found",
    409: "conflict",
    429: "rate_limit",
    500: "internal",
    503: "dependency",
}
_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("type", "code", "message", "request_id")},
            "required": ["type", "code", "message", "request_id"],
        }
    },
    "required": ["error"],
}
_SCHEMA: Final = {"application/json": {"schema": _ERROR}}
PROBLEMS: Final[Mapping[int | str, dict[str, Any]]] = MappingProxyType(
    {status: {"description": "Refused, with why.", "content": _SCHEMA} for status in (400, *_KINDS)}
)
"""The API description of rejected requests."""
_MALFORMED: Final = 400
_BAD_BODY: Final = (413, 415, 422)


class ApprovalProblem(BadRequest):
    """Raised for a forbidden action of an adapter."""

    def __init__(self, code: ProblemCode, message: str) -> None:
        super().__init__(message, status=_STATUS[code], code=code)


def answer_fault(request: Request, fault: Fault, status: int, headers: Mapping[str, str]) -> Response:
    status = _MALFORMED if status in _BAD_BODY else status
    exchange = str(uuid.uuid4())
    kind = _KINDS.get(status, "invalid_request")
    error = {"type": kind, "code": fault.code, "message": fault.message or kind, "request_id": exchange}
    return JSONResponse({"error": error}, status, {**headers, REQUEST_ID: exchange})
