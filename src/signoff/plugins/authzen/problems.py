"""Formats refusals for AuthZEN."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.requests import Request
from starlette.responses import Response

from signoff.contracts.errors import BadRequest
from signoff.contracts.responses import Fault

ACCESS: Final = "/access"
"""The prefix of the addresses for policy enforcement points."""
EVALUATION: Final = f"{ACCESS}/v1/evaluation"
REQUESTS: Final = f"{ACCESS}/v1/requests"
PROBLEM_TYPE: Final = "urn:openid:authzen:access-request:error:"
ProblemKind: TypeAlias = Literal[
    "not_requestable", "expired_denial", "invalid_denial_binding", "duplicate_request", "unknown_task",
    "invalid_task_state",
]  # fmt: skip
_STATUS: Final[Mapping[ProblemKind, int]] = {
    "not_requestable": 400,
    "expired_denial": 410,
    "invalid_denial_binding": 400,
    "duplicate_request": 409,
    "unknown_task": 404,
    "invalid_task_state": 409,
}
_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status"],
}
_TITLES: Final[Mapping[str, str]] = {
    "not_requestable": "Access is not requestable",
    "expired_denial": "The denial has expired",
    "invalid_denial_binding": "The request does not belong to the denial",
    "duplicate_request": "The key was used for another request",
    "unknown_task": "Unknown task",
    "invalid_task_state": "The task is over",
}
_STATUSES: Final = (400, 401, 403, 404, 409, 410, 411, 413, 415, 422, 429, 503)
EVALUATION_FAULTS: Final[Mapping[int | str, dict[str, Any]]] = MappingProxyType(
    {
        status: {"description": "Not evaluated, with why.", "content": {"text/plain": {"schema": {"type": "string"}}}}
        for status in _STATUSES
    }
)
"""The API description of rejected evaluations."""
PROBLEMS: Final[Mapping[int | str, dict[str, Any]]] = MappingProxyType(
    {
        status: {
            "description": "Refused, with problem details (RFC 9457).",
            "content": {"application/problem+json": {"schema": _PROBLEM}},
        }
        for status in _STATUSES
    }
)
"""The API description of rejected access requests."""
_REQUEST_ID: Final = "x-request-id"
_REQUEST_ID_CHARS: Final = 200


class AccessProblem(BadRequest):
    """Raised for a rejected access request."""

    def __init__(self, kind: ProblemKind, message: str) -> None:
        super().__init__(message, status=_STATUS[kind], code=kind)


def answer_fault(request: Request, fault: Fault, status: int, headers: Mapping[str, str]) -> Response:
    if request.url.path == EVALUATION:
        response: Response = PlainTextResponse(fault.message, status, headers)
    else:
        kind = f"{PROBLEM_TYPE}{fault.code}" if fault.code in _STATUS else "about:blank"
        title = _TITLES.get(fault.code, "The request was refused")
        body = {"type": kind, "title": title, "status": status, "detail": fault.message}
        response = JSONResponse(body, status, headers, media_type="application/problem+json")
    echo_request_id(request, response)
    return response


def echo_request_id(request: Request, response: Response) -> None:
    """Repeat the id of an enforcement point's request, as the specification requires."""
    given = request.headers.get(_REQUEST_ID, "")
    if 0 < len(given) <= _REQUEST_ID_CHARS and given.isascii() and given.isprintable():
        response.headers[_REQUEST_ID] = given
