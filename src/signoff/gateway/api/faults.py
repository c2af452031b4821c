"""What the API's description says of answers that are errors."""

from typing import Any, Final, TypeAlias

from signoff.contracts.receipt import Receipt
from signoff.contracts.responses import Fault

Responses: TypeAlias = dict[int | str, dict[str, Any]]

_FAULTS: Final = {
    400: "The body is not text in UTF-8, or there is one where nothing is changed.",
    401: "No token, or one that counts for nobody.",
    403: "This needs another scope or role, or is somebody else's.",
    404: "Nothing of that name; the nearest names are offered.",
    409: "The id is taken by something with other input.",
    411: "No length of the body, as where it comes in chunks.",
    413: "More than 1 MiB.",
    415: "Not sent as JSON; also where there is nothing to send.",
    422: "The request cannot be understood.",
    429: "The tenant, or whoever asks, has as many as they may.",
    503: "The server, the store or every worker is away.",
}
FAULTS: Final[Responses] = {status: {"model": Fault, "description": words} for status, words in _FAULTS.items()}
"""Of every route."""
FAULTS[429]["headers"] = {
    "Retry-After": {
        "description": "In how many seconds there is room, where that is known.",
        "schema": {"type": "integer"},
    }
}

_RECEIPTS: Final = {
    200: "Accepted, counted, or a repetition of the same answer.",
    202: "On its way; it takes effect when a worker is back.",
    403: "This person may not, may not approve their own, or was not identified strongly enough.",
    404: "No such request.",
    409: "Already decided, expired, cancelled, or asked again since.",
    422: "No decision: nothing was changed.",
    503: "Nobody could take the answer.",
}
RECEIPTS: Final[Responses] = FAULTS | {
    # Whoever is not let in, or sends what nobody can read, has not come as far as a receipt.
    status: {"model": Receipt | Fault if status in (403, 404, 422, 503) else Receipt, "description": words}
    for status, words in _RECEIPTS.items()
}
"""Of the routes that decide: the receipt is the body of every answer to a decision."""
