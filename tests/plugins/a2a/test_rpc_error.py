from a2a.utils.errors import A2A_ERROR_MAPPING, JSON_RPC_ERROR_CODE_MAP
from tables import table

from signoff.contracts.errors import BadRequest, Conflict, NotFound, Refused, ServerUnavailable, SignoffError
from signoff.plugins.a2a import rpc_error
from signoff.plugins.a2a.rpc_error import (
    INTERNAL,
    INVALID_PARAMS,
    REFUSED,
    TASK_NOT_FOUND,
    RpcError,
    RpcErrorKind,
    rpc_error_of,
)

KINDS = {each.code: each for each in vars(rpc_error).values() if isinstance(each, RpcErrorKind)}


def test_codes_and_reasons_match_the_protocol() -> None:
    known = {code: kind for kind, code in JSON_RPC_ERROR_CODE_MAP.items()}
    assert set(KINDS) - {REFUSED.code} <= set(known)
    for code, kind in KINDS.items():
        if code in known and known[code] in A2A_ERROR_MAPPING:
            assert kind.reason == A2A_ERROR_MAPPING[known[code]].reason


def test_error_has_code_message_and_details() -> None:
    found = RpcError(TASK_NOT_FOUND, "there is no such task", taskId="x").as_json()
    assert found == {
        "code": -32001,
        "message": "there is no such task",
        "data": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "TASK_NOT_FOUND",
                "domain": "a2a-protocol.org",
                "metadata": {"taskId": "x"},
            }
        ],
    }


@table(
    ("error", "kind", "words"),
    (NotFound("there is no turn `turn/main/a/b`"), TASK_NOT_FOUND, "there is no such task"),
    (ServerUnavailable("no worker"), INTERNAL, "no worker"),
    (BadRequest("`text` is empty"), INVALID_PARAMS, "`text` is empty"),
    (BadRequest("full", status=429, code="full"), REFUSED, "full"),
    (Refused("frozen", code="frozen"), REFUSED, "frozen"),
    (Conflict("other words"), REFUSED, "other words"),
)
def test_signoff_errors_map_to_the_protocols(error: SignoffError, kind: RpcErrorKind, words: str) -> None:
    found = rpc_error_of(error)
    assert (found.kind, found.message) == (kind, words)
