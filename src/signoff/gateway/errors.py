"""Turns errors into answers: a status, a stable code and one sentence, without a traceback."""

from collections.abc import Mapping
from typing import Final

from signoff.contracts.errors import BadRequest, ConfigError, Conflict, NotFound, Refused, SignoffError, Unavailable
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.contracts.responses import Fault

_RECEIPT_STATUS: Final[Mapping[ReceiptCode, int]] = {
    "": 200,
    "duplicate": 200,
    "already_decided": 409,
    "expired": 409,
    "cancelled": 409,
    "stale": 409,
    "not_allowed": 403,
    "self_approval": 403,
    "assurance": 403,
    "unknown": 404,
    "unavailable": 503,
    "malformed": 422,
}
_REFUSED_STATUS: Final[Mapping[str, int]] = {"unauthenticated": 401, "too_large": 413, "malformed": 422}


def status_of(error: SignoffError) -> int:
    match error:
        case BadRequest():
            return error.status
        case NotFound():
            return 404
        case Conflict():
            return 409
        case Refused():
            return _REFUSED_STATUS.get(error.code, 403)
        case Unavailable():
            return 503
        case ConfigError():
            return 422
    return 500


def headers_of(error: SignoffError) -> dict[str, str]:
    return {"retry-after": str(error.after)} if isinstance(error, BadRequest) and error.after else {}


def fault_of(error: SignoffError) -> Fault:
    if isinstance(error, Refused):
        return Fault(code=error.code, message=error.message)
    return Fault(code="unavailable" if isinstance(error, Unavailable) else "invalid", message=error.message)


def receipt_status(receipt: Receipt) -> int:
    """The receipt itself is always the body."""
    return 202 if receipt.status == "pending" else _RECEIPT_STATUS[receipt.code]
