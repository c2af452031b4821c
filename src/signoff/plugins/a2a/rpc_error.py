"""Errors of A2A's JSON-RPC binding."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from signoff.contracts.errors import BadRequest, NotFound, SignoffError, Unavailable

_DOMAIN: Final = "a2a-protocol.org"


class RpcErrorKind(NamedTuple):
    """A kind of error: its code and its reason in the details."""

    code: int
    reason: str


PARSE: Final = RpcErrorKind(-32700, "JSON_PARSE")
INVALID_REQUEST: Final = RpcErrorKind(-32600, "INVALID_REQUEST")
METHOD_NOT_FOUND: Final = RpcErrorKind(-32601, "METHOD_NOT_FOUND")
INVALID_PARAMS: Final = RpcErrorKind(-32602, "INVALID_PARAMS")
INTERNAL: Final = RpcErrorKind(-32603, "INTERNAL_ERROR")
REFUSED: Final = RpcErrorKind(-32000, "REFUSED")
TASK_NOT_FOUND: Final = RpcErrorKind(-32001, "TASK_NOT_FOUND")
TASK_NOT_CANCELABLE: Final = RpcErrorKind(-32002, "TASK_NOT_CANCELABLE")
NO_PUSH: Final = RpcErrorKind(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED")
UNSUPPORTED: Final = RpcErrorKind(-32004, "UNSUPPORTED_OPERATION")
CONTENT_TYPE: Final = RpcErrorKind(-32005, "CONTENT_TYPE_NOT_SUPPORTED")
VERSION: Final = RpcErrorKind(-32009, "VERSION_NOT_SUPPORTED")


class RpcError(Exception):
    """Raised for a request that gets an error of the protocol."""

    def __init__(self, kind: RpcErrorKind, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.metadata: Mapping[str, str] = metadata

    def as_json(self) -> dict[str, Any]:
        detail: dict[str, Any] = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.kind.reason,
            "domain": _DOMAIN,
        }
        if self.metadata:
            detail["metadata"] = dict(self.metadata)
        return {"code": self.kind.code, "message": self.message, "data": [detail]}


def rpc_error_of(error: SignoffError) -> RpcError:
    """A missing task and another peer's task look alike."""
    match error:
        case NotFound():
            return RpcError(TASK_NOT_FOUND, "there is no such task")
        case Unavailable():
            return RpcError(INTERNAL, error.message)
        case BadRequest(status=422):
            return RpcError(INVALID_PARAMS, error.message)
    return RpcError(REFUSED, error.message)
