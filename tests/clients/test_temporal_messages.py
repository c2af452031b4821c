import json
from typing import Any

import pytest
from tables import table
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from signoff_client.status import CallStatus, explain
from signoff_client.temporal.messages import Answer, ToldCalls, answer_from_status, kept_result, not_run


def signal(told: Any) -> RawValue:
    return RawValue(Payload(data=json.dumps(told).encode()))


def test_signal_belongs_to_its_named_call() -> None:
    calls = ToldCalls({"a": "", "b": ""})
    calls.take(signal({"state": "permitted", "callback": {"state": "a"}}))
    assert calls.states == {"a": "permitted", "b": ""}


@table("key", "c", 7, None, ["a"])
def test_signal_of_an_unknown_call_changes_nothing(key: Any) -> None:
    calls = ToldCalls({"a": ""})
    calls.take(signal({"state": "permitted", "callback": {"state": key}}))
    assert calls.states == {"a": ""}


@table(
    "told",
    [],
    "text",
    None,
    {},
    {"state": "permitted"},
    {"callback": {"state": "a"}},
    {"state": "permitted", "callback": 1},
)
def test_unreadable_signal_wakes_all_calls_and_permits_none(told: Any) -> None:
    calls = ToldCalls({"a": "", "b": ""})
    calls.take(signal(told))
    assert set(calls.states) == {"a", "b"}
    assert all(state not in ("", "permitted") for state in calls.states.values())


@table("data", b"", b"\xff\xfe", b"{")
def test_encrypted_signal_wakes_a_call_and_permits_nothing(data: bytes) -> None:
    calls = ToldCalls({"a": ""})
    calls.take(RawValue(Payload(data=data)))
    assert calls.states["a"] not in ("", "permitted")
    empty = ToldCalls({"a": ""})
    empty.take()
    assert empty.states == calls.states


def test_answer_has_the_fields_of_the_gateways_status() -> None:
    status = CallStatus("denied", "main.s.t", "refund", code="PLUM", source="human", by="Bo", reason="no", result=[1])
    answer = answer_from_status(status)
    assert answer == Answer("denied", "main.s.t", explain(status), "PLUM", "human", "Bo", [1])


@table(
    ("state", "code", "kind"),
    ("denied", "", "ToolDenied"),
    ("refused", "", "ToolDenied"),
    ("unreachable", "", "ToolDenied"),
    ("waiting", "", "ToolDenied"),
    ("used", "", "ToolInDoubt"),
    ("ended", "in_doubt", "ToolInDoubt"),
    ("ended", "execution_failed", "ToolFailed"),
)
def test_error_of_an_activity_that_did_not_run_is_not_retryable(state: str, code: str, kind: str) -> None:
    error = not_run(Answer(state, "main.s.t", "Not run: no.", code, "human", "Bo"))
    assert (error.message, error.type, error.non_retryable) == ("Not run: no.", kind, True)
    assert error.details == ({"id": "main.s.t", "state": state, "source": "human", "by": "Bo"},)
    assert (error.category == ApplicationErrorCategory.BENIGN) == (kind == "ToolDenied")


@table("result", None, "done", {}, {"refund": 1}, {"not_kept": "x", "refund": 1}, ["not_kept"])
def test_kept_result_is_unchanged(result: Any) -> None:
    assert kept_result(Answer("ended", code="ok", result=result)) == result


def test_unkept_result_raises_in_doubt() -> None:
    with pytest.raises(ApplicationError, match=r"run before.*: 3 refunds") as caught:
        kept_result(Answer("ended", code="ok", result={"not_kept": "3 refunds"}))
    assert (caught.value.type, caught.value.non_retryable) == ("ToolInDoubt", True)
