import json
from typing import Any

import pytest
from tables import table

from signoff.plugins.a2a.rpc_error import INVALID_PARAMS, INVALID_REQUEST, PARSE, VERSION, RpcError, RpcErrorKind
from signoff.plugins.a2a.rpc_request import (
    ListParams,
    RpcRequest,
    SendParams,
    TaskParams,
    check_version,
    parse_params,
    parse_request,
)

SAID = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def kind_of(call: Any, *args: Any) -> RpcErrorKind:
    with pytest.raises(RpcError) as caught:
        call(*args)
    return caught.value.kind


@table(
    ("body", "kind"),
    (b"", PARSE),
    (b"{", PARSE),
    (b"\xff\xfe", PARSE),
    (b"[" * 100_000, PARSE),
    (b"[]", INVALID_REQUEST),
    (b"null", INVALID_REQUEST),
    (b'{"method": "GetTask", "id": 1}', INVALID_REQUEST),
    (b'{"jsonrpc": "1.0", "method": "GetTask", "id": 1}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "id": 1}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "method": 7, "id": 1}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "method": "GetTask"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "method": "GetTask", "id": true}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "method": "GetTask", "id": {}}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "method": "GetTask", "id": "\\ud800"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "method": "GetTask", "id": "' + b"x" * 300 + b'"}', INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "method": "GetTask", "id": 1' + b"0" * 300 + b"}", INVALID_REQUEST),
    (b'{"jsonrpc": "2.0", "method": "\\ud800", "id": 1}', INVALID_REQUEST),
)
def test_garbage_is_refused_as_a_request(body: bytes, kind: RpcErrorKind) -> None:
    assert kind_of(parse_request, body) == kind


def test_request_is_parsed_into_id_method_and_parameters() -> None:
    assert parse_request(b'{"jsonrpc":"2.0","method":"ListTasks","id":"a"}') == RpcRequest("a", "ListTasks", {})
    body = json.dumps({"jsonrpc": "2.0", "method": "GetTask", "id": 3, "params": {"id": "x"}}).encode()
    assert parse_request(body) == RpcRequest(3, "GetTask", {"id": "x"})


@table(
    "message",
    {},
    {**SAID, "messageId": ""},
    {**SAID, "messageId": "x" * 201},
    {**SAID, "role": "ROLE_AGENT"},
    {**SAID, "parts": []},
    {**SAID, "parts": [{"text": 7}]},
    {**SAID, "parts": "hello"},
    {**SAID, "metadata": json.loads("[" * 40 + "]" * 40)},
)
def test_message_without_required_fields_is_refused(message: dict[str, Any]) -> None:
    assert kind_of(parse_params, RpcRequest(1, "SendMessage", {"message": message}), SendParams) == INVALID_PARAMS


@table("params", [], "x", {"pageSize": 0}, {"pageSize": 101}, {"statusTimestampAfter": "soon"})
def test_parameters_out_of_bounds_are_refused(params: Any) -> None:
    assert kind_of(parse_params, RpcRequest(1, "ListTasks", params), ListParams) == INVALID_PARAMS


def test_unknown_fields_are_ignored() -> None:
    given = {"message": {**SAID, "new": 1}, "configuration": {"return_immediately": True, "future": {}}}
    params = parse_params(RpcRequest(1, "SendMessage", given), SendParams)
    assert (params.message.parts[0].text, params.configuration.return_immediately) == ("hello", True)
    named = RpcRequest(1, "GetTask", {"id": "x", "tenant": "acme"})
    assert kind_of(parse_params, named, TaskParams) == INVALID_PARAMS


@table(("asked", "spoken"), ("1.0", True), ("1.0.1", True), ("", False), ("0.3", False), ("2.0", False), ("1", False))
def test_only_version_one_is_accepted(asked: str, spoken: bool) -> None:
    if spoken:
        check_version(asked)
        return
    assert kind_of(check_version, asked) == VERSION
