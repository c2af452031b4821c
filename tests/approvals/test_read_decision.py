from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.approvals.approval_book import read_decision, read_wake, read_withdrawal
from signoff.contracts.activity_messages import Wake
from signoff.contracts.decision import Decision
from signoff.contracts.limits import DECISION_BYTES, REASON_CHARS
from signoff.contracts.receipt import Receipt

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ID = "main.s.t.c1.1"

ONE = "a decision is one JSON object"


def _deep() -> dict[str, Any]:
    body: dict[str, Any] = {}
    for _ in range(100_000):
        body = {"a": body}
    return body


@table(
    ("envelopes", "message", "named"),
    ((), ONE, ""),
    (({}, {}), ONE, ""),
    (("x",), ONE, ""),
    ((None,), ONE, ""),
    (([],), ONE, ""),
    ((b"yes",), ONE, ""),
    ((7,), ONE, ""),
    (({"x": float("nan")},), ONE, ""),
    (({"x": object()},), ONE, ""),
    (({"x": "\ud800"},), ONE, ""),
    ((_deep(),), ONE, ""),
    (({"x": "é" * (DECISION_BYTES // 2)},), "a decision is at most 65536 bytes", ""),
    (({"approval_id": ID},), "`verdict`: field required", ID),
    (({"approval_id": 7, "verdict": "approved"},), "`approval_id`: input should be a valid string", ""),
    (
        ({"approval_id": ID, "verdict": "yes"},),
        "`verdict`: input should be 'approved', 'denied', 'answered', 'happened', 'withdrawn', 'retracted', "
        "'handed_on' or 'added'",
        ID,
    ),
    (
        ({"approval_id": ID, "verdict": "denied", "edited_args": []},),
        "`edited_args`: input should be a valid dictionary",
        ID,
    ),
    (
        ({"approval_id": ID, "verdict": "denied", "reason": "x" * (REASON_CHARS + 1)},),
        "`reason`: at most 2000 characters",
        ID,
    ),
    (
        ({"approval_id": ID, "verdict": "denied", "received_at": "2026-01-01T00:00:00"},),
        "`received_at`: needs a time zone",
        ID,
    ),
    (
        ({"approval_id": ID, "verdict": "approved", "edited_arg": {"amount": 5}},),
        "'edited_arg': a decision has no such field",
        ID,
    ),
    (
        ({"approval_id": ID, "verdict": "approved", "remember": {"were": "args.amount < 5"}},),
        "'remember.were': a decision has no such field",
        ID,
    ),
    (({"approval_id": ID, "x" * 999: 1},), f"{'x' * 64!r}: a decision has no such field", ID),
    (({"approval_id": ID, "": 1},), "'(empty)': a decision has no such field", ID),
)
def test_invalid_decision_is_refused_with_its_error(envelopes: Any, message: str, named: str) -> None:
    answer_receipt = Receipt(status="refused", code="malformed", approval_id=named, message=message)
    assert read_decision(envelopes) == answer_receipt


@table("body", {"approval_id": ID}, {"approval_id": ID, "verdict": "withdrawn", "reason": "sold"})
def test_withdrawal_needs_only_the_request_id(body: dict[str, Any]) -> None:
    assert read_withdrawal((body,)) == Decision.model_validate({"verdict": "withdrawn"} | body)


@table(
    ("envelopes", "message", "named"),
    ((), ONE, ""),
    (({"approval_id": ID}, {}), ONE, ""),
    (({"verdict": "withdrawn"},), "`approval_id`: field required", ""),
    (({"approval_id": ID, "verdict": "denied"},), "`verdict`: must be `withdrawn`", ID),
    (({"approval_id": ID, "reason": "x" * (REASON_CHARS + 1)},), "`reason`: at most 2000 characters", ID),
)
def test_invalid_withdrawal_is_refused_with_its_error(envelopes: Any, message: str, named: str) -> None:
    answer_receipt = Receipt(status="refused", code="malformed", approval_id=named, message=message)
    assert read_withdrawal(envelopes) == answer_receipt


def test_limits_of_a_decision_are_inclusive() -> None:
    body = {"approval_id": ID, "verdict": "denied", "reason": "x" * REASON_CHARS, "revision": "3"}
    read = read_decision(({**body, "received_at": "2026-01-01T12:00:00Z"},))
    assert isinstance(read, Decision)
    assert (read.revision, read.received_at, len(read.reason)) == (3, NOW, REASON_CHARS)
    shell = len('{"approval_id": "", "verdict": "denied", "result": ""}') + len(ID)
    full = {"approval_id": ID, "verdict": "denied", "result": "é" * ((DECISION_BYTES - shell) // 2)}
    full["result"] += "x" * ((DECISION_BYTES - shell) % 2)
    assert isinstance(read_decision((full,)), Decision)
    assert isinstance(read_decision(({**full, "result": full["result"] + "y"},)), Receipt)


@table("verdict", "", None, "yes", "APPROVED", "approve", 1, True, ["approved"], {"a": 1})
def test_unknown_verdict_is_never_an_approval(verdict: Any) -> None:
    receipt = read_decision([{"approval_id": ID, "verdict": verdict}])
    assert isinstance(receipt, Receipt)
    assert receipt.code == "malformed"
    assert "verdict" in receipt.message


def test_smallest_decision_needs_two_fields() -> None:
    decision = read_decision([{"approval_id": ID, "verdict": "denied"}])
    assert isinstance(decision, Decision)
    assert (decision.assurance, decision.subject, decision.revision) == ("none", "", None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
)


@given(st.lists(json_values, max_size=2))
def test_any_envelope_is_read_without_an_exception(envelopes: list[Any]) -> None:
    assert isinstance(read_decision(envelopes), Decision | Receipt)


@given(st.dictionaries(st.sampled_from([*Decision.model_fields]), json_values))
def test_any_field_value_is_read_without_an_exception(body: dict[str, Any]) -> None:
    assert isinstance(read_decision([body]), Decision | Receipt)


WAKE = {"approval_id": ID, "revision": 2, "number": 3}


def test_wake_names_question_and_answer() -> None:
    assert read_wake([WAKE]) == Wake(approval_id=ID, revision=2, number=3)


@table(
    "envelopes",
    [],
    [WAKE, WAKE],
    ["x"],
    [{**WAKE, "verdict": "approved"}],
    [{"approval_id": ID, "revision": 2}],
    [{**WAKE, "number": "many"}],
    [{**WAKE, "approval_id": None}],
)
def test_other_messages_are_no_wake(envelopes: list[Any]) -> None:
    assert read_wake(envelopes) is None
