"""Descriptions of error answers in the API's description."""

from typing import Any, Final, TypeAlias

from signoff.contracts.receipt import Receipt
from signoff.contracts.responses import Fault

Responses: TypeAlias = dict[int | str, dict[str, Any]]

_FAULTS: Final = {
    400: "The body is not UTF-8, or a request that changes nothing has a body.",
    401: "The token is missing or invalid.",
    403: "The token lacks the scope, the role or the access.",
    404: "There is nothing with this name. The message suggests the nearest names.",
    409: "The id is in use with other input.",
    411: "The body has no length, for example because it is sent in chunks.",
    413: "More than 1 MiB.",
    415: "The content type is not JSON. Required also without a body.",
    422: "The request cannot be understood.",
    429: "The tenant or the caller has reached a limit.",
    503: "The server, the store or all workers are down.",
}
FAULTS: Final[Responses] = {status: {"model": Fault, "description": words} for status, words in _FAULTS.items()}
"""For every route."""
FAULTS[429]["headers"] = {
    "Retry-After": {
        "description": "Seconds until there is room, if known.",
        "schema": {"type": "integer"},
    }
}

_RECEIPTS: Final = {
    200: "Accepted, counted, or a repeat of the same decision.",
    202: "Stored. It takes effect when a worker has checked the edited arguments.",
    403: "The person may not decide this, requested it, or needs a stronger sign-in.",
    404: "No such request.",
    409: "Already decided, expired, cancelled, or replaced by a later revision.",
    422: "The decision is malformed. Nothing was changed.",
    503: "The decision could not be stored.",
}
RECEIPTS: Final[Responses] = FAULTS | {
    # Errors of sign-in and of unreadable requests precede the receipt.
    status: {"model": Receipt | Fault if status in (403, 404, 422, 503) else Receipt, "description": words}
    for status, words in _RECEIPTS.items()
}
"""For routes that decide. The receipt is the body of every answer to a decision."""
