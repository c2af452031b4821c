import json
from typing import Any

from gateway_rig import PASSWORD, rig_catalog
from tables import table
from temporalio.api.common.v1 import Payload
from turn_fixtures import Ledger

from signoff.gateway.codec.routes import mask_payloads

CATALOG = rig_catalog(Ledger())
LOGIN = {"site": "https://example.com", "password": PASSWORD}


def payload(value: Any) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


def masked(*values: Any) -> list[Any]:
    return [json.loads(each.data) for each in mask_payloads([payload(value) for value in values], CATALOG)]


@table(
    "value",
    {"call": "c1.1", "tool": "login", "args": {"inline": LOGIN}},
    {"tool": "login", "args": LOGIN},
    {"messages": [{"parts": [{"kind": "call", "tool": "login", "args": {"inline": LOGIN}}]}]},
    {"tool": "login", "args": {"inline": LOGIN}, "note": f"with {PASSWORD}"},
    {"a": [[{"tool": "login", "args": {"inline": {"deep": LOGIN, **LOGIN}}}]]},
    {"verdict": "approved", "edited_args": LOGIN},
    {"provider": {"raw": LOGIN}, "tool": "login", "args": {"inline": LOGIN}},
    {"tool": "login", "args": {"blob": {"sha256": "0" * 64, "preview": PASSWORD, "size": 9}}},
    {"tool": "unknown", "args": {"inline": LOGIN}},
    {"args": {"inline": LOGIN}},
    {"tool": "login", "args": {"inline": "a name of an argument", **LOGIN}},
    {"tool": "login", "state": "running", "args_preview": f"password={PASSWORD}"},
)
def test_secret_argument_is_masked_everywhere(value: Any) -> None:
    (shown,) = masked(value)
    assert PASSWORD not in json.dumps(shown)


def test_other_arguments_are_shown() -> None:
    call = {"tool": "login", "args": {"inline": LOGIN}}
    other = {"tool": "pay", "args": {"inline": {"amount": 420, "to": "Ana"}}, "digest": "d" * 64}
    assert masked(call) == [{"tool": "login", "args": {"inline": LOGIN | {"password": "hidden, 13 characters"}}}]
    assert masked(other) == [other]


def test_secret_is_masked_in_other_payloads_of_the_request() -> None:
    call = {"tool": "login", "args": {"inline": LOGIN}}
    assert PASSWORD not in json.dumps(masked(call, {"value": f"signed in with {PASSWORD}"}, [PASSWORD]))


def test_digest_of_secret_arguments_is_hidden() -> None:
    (shown,) = masked({"tool": "login", "args": {"inline": LOGIN}, "digest": "d" * 64, "permit": {"digest": "d" * 64}})
    assert "d" * 64 not in json.dumps(shown)


def test_gate_decisions_show_no_hash_of_hidden_arguments() -> None:
    digest, action, signature = "d" * 64, "a" * 16, f"{'s' * 86}=="
    decided = {"call": "c1.1", "kind": "run", "digest": digest, "action": action, "question": {"question_hash": digest}}
    task = {"tally": {"calls": 1, "recent": [action[:12]]}, "denied": [{"action": action}], "doubt_of": digest}
    task["ctx"] = {"user": {"user": "ana", "signature": signature}}
    shown = json.dumps(masked({"gate_decisions": [decided]}) + masked(task))
    assert digest not in shown
    assert action[:12] not in shown
    assert signature not in shown


def test_arguments_named_like_a_hash_are_shown() -> None:
    call = {"tool": "pay", "args": {"inline": {"action": "refund", "recent": [1, 2], "signature": "Ana"}}}
    assert masked(call) == [call]


@table("levels", 200, 400, 5_000)
def test_too_deeply_nested_value_is_hidden(levels: int) -> None:
    inner = json.dumps({"tool": "login", "args": {"inline": LOGIN}})
    deep = Payload(metadata={"encoding": b"json/plain"}, data=f"{'[' * levels}{inner}{']' * levels}".encode())
    shown = mask_payloads([deep, payload("seen")], CATALOG)
    assert [json.loads(each.data) for each in shown] == ["hidden", "seen"]


@table("data", b"", b"{", b"\xff", b"null")
def test_invalid_json_payload_stays_unchanged(data: bytes) -> None:
    sent = Payload(metadata={"encoding": b"json/plain"}, data=data)
    assert mask_payloads([sent], CATALOG) == [sent]
