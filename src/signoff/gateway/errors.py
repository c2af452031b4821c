"""Turns errors into answers: a status, a stable code and one sentence, never a traceback."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from signoff.contracts.errors import ConfigError, Conflict, NotFound, Refused, SignoffError, Unavailable
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.contracts.requests import IDENTITY_FIELDS, PROBLEMS_SHOWN
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


class BadRequest(Refused):
    """Raised for a request that cannot be understood; answered 422, or the `status` given.

    `after` is in how many seconds the same request may be taken, where that is known.
    """

    def __init__(self, message: str, *, status: int = 422, code: str = "malformed", after: int = 0) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.after = after


def status_of(error: SignoffError) -> int:
    """Returns the HTTP status of one of our errors."""
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
    """Returns the headers of the answer to one of our errors."""
    return {"retry-after": str(error.after)} if isinstance(error, BadRequest) and error.after else {}


def fault_of(error: SignoffError) -> Fault:
    """Returns the body for one of our errors."""
    if isinstance(error, Refused):
        return Fault(code=error.code, message=error.message)
    return Fault(code="unavailable" if isinstance(error, Unavailable) else "invalid", message=error.message)


def receipt_status(receipt: Receipt) -> int:
    """Returns the HTTP status that goes with a receipt; the receipt itself is always the body."""
    return 202 if receipt.status == "pending" else _RECEIPT_STATUS[receipt.code]


def sentence(errors: Sequence[Any], person: str = "name the person by `user`") -> str:
    """Says what is wrong with a request's body or parameters, in one sentence naming the fields.

    `person` says how the request names its person. `errors` are pydantic's, of which only place, type and message are
    read: never the value.
    """
    found = [(".".join(str(part) for part in each["loc"] if part != "body"), each) for each in errors]
    identity = [name for name, each in found if each["type"] == "extra_forbidden" and name in IDENTITY_FIELDS]
    if identity:
        named = ", ".join(f"`{name}`" for name in identity)
        return f"{named} cannot be given: {person}, and everything else comes from the directory"
    problems = [_problem(name, each) for name, each in found[:PROBLEMS_SHOWN]]
    return "; ".join(problems) or "the request cannot be read"


def _problem(name: str, error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return f"`{name}` is not known here"
    if error["type"] == "missing":
        return f"`{name}` is missing" if name else "the body is missing; send a JSON object"
    if error["type"] == "json_invalid":
        return "the body is not JSON"
    if error["type"] in ("model_type", "model_attributes_type", "dict_type"):
        # pydantic would name its own classes.
        return f"`{name}` must be a JSON object" if name else "this must be a JSON object"
    text = str(error["msg"]).removeprefix("Value error, ")
    text = text[:1].lower() + text[1:]
    return f"`{name}`: {text}" if name else text
