from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table

from signoff.approvals.digest import call_digest
from signoff.approvals.earlier_questions import (
    denial_of,
    ending_of,
    is_asked_still,
    is_barred,
    is_bound_to,
    is_new_to_turn,
    last_asked,
)
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.testing import a_call_context, a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEFORE, AFTER = NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)
CTX = a_call_context(user=Principal(user="guest", nonce="n"))
ARGS = {"amount": 5}


def request(call: str = "c1.1", args: dict[str, Any] = ARGS, **fields: Any) -> ApprovalRequest:
    digest = call_digest(
        tenant="main", session="s", turn="t", call=call, requester="guest", nonce="n", tool="pay", definition="d",
        args=args,
    )  # fmt: skip
    return a_request(**{"call": call, "definition": "d", "digest": digest} | fields)


def test_denied_action_is_denied_under_any_call() -> None:
    denied = request(state="denied")
    assert denial_of([denied, request("c2.1", state="denied")], CTX, "pay", ARGS) == denied
    assert denial_of([request("c0.1", {"amount": 6}, state="denied"), denied], CTX, "pay", {"amount": 5.0}) == denied


@table(
    ("fields", "tool", "args"),
    ({"state": "denied"}, "book", ARGS),
    ({"state": "denied"}, "pay", {"amount": 6}),
    ({"state": "denied"}, "pay", {"amount": float("nan")}),
    ({"state": "approved"}, "pay", ARGS),
    ({"state": "denied", "kind": "in_doubt"}, "pay", ARGS),
    ({"state": "denied", "tool": "book"}, "pay", ARGS),
    ({"state": "denied", "definition": "e"}, "pay", ARGS),
)
def test_other_action_or_answer_denies_nothing(fields: dict[str, Any], tool: str, args: dict[str, Any]) -> None:
    assert denial_of([request(**fields)], CTX, tool, args) is None


@table("field", "tenant", "session", "turn", "user")
def test_other_turn_or_person_is_another_action(field: str) -> None:
    other = Principal(user="guest", nonce="m") if field == "user" else "other"
    assert not is_bound_to([request()], replace(CTX, **{field: other}), request().digest, ARGS)
    stranger = replace(CTX, user=Principal(user="bo", nonce="n"))
    assert not is_bound_to([request()], stranger, request().digest, ARGS)


def test_question_is_matched_by_digest_and_arguments() -> None:
    first, second = request(), request("c2.1")
    assert is_bound_to([first, second], CTX, second.digest, ARGS)
    assert not is_bound_to([first], CTX, second.digest, ARGS)
    assert not is_bound_to([first], CTX, first.digest, {"amount": 6})
    assert not is_bound_to([], CTX, first.digest, ARGS)


@table(
    ("state", "ended_as", "barred"),
    ("pending", None, True),
    ("approved", None, False),
    ("approved", "lapsed", False),
    ("denied", None, True),
    ("denied", "lapsed", True),
    ("timed_out", None, True),
    ("cancelled", None, True),
    ("cancelled", "lapsed", True),
    ("cancelled", "not_asked", False),
    ("cancelled", "cancelled", False),
    ("lapsed", None, False),
)
def test_call_is_barred_by_the_outcome_of_its_last_question(state: str, ended_as: str | None, barred: bool) -> None:
    last = request(state=state, ended_as=ended_as)
    earlier = request(state="approved" if barred else "denied")
    others = [request("c2.1", state="denied"), request(kind="in_doubt", state="denied")]
    assert is_barred([earlier, earlier, last, *others], "c1.1") is barred
    assert not is_barred(others, "c1.1")
    assert not is_barred([], "c1.1")


def test_question_stays_open_until_its_turn_knows_the_answer() -> None:
    answered = request(state="approved", opened_at=NOW)
    assert is_asked_still(request(opened_at=BEFORE), NOW)
    assert is_asked_still(request())
    assert is_asked_still(answered, NOW)
    assert not is_asked_still(answered, AFTER)
    assert not is_asked_still(answered)
    assert not is_asked_still(answered, NOW, 1)
    assert not is_asked_still(request(ended_at=NOW))
    assert not is_asked_still(request(state="approved", opened_at=NOW, ended_at=NOW), NOW)


def test_question_after_the_loss_of_its_worker_is_new_to_the_turn() -> None:
    asked = request(opened_at=NOW, revision=2)
    assert is_new_to_turn(asked, NOW)
    assert is_new_to_turn(request(opened_at=NOW), NOW)
    assert is_new_to_turn(asked, BEFORE, 1)
    assert not is_new_to_turn(asked, AFTER)
    assert not is_new_to_turn(asked, NOW, 2)
    assert not is_new_to_turn(asked, None)
    assert not is_new_to_turn(request(opened_at=None), NOW)


@table("state", "happened", "denied")
def test_settled_outcome_belongs_to_one_attempt(state: str) -> None:
    settled = request(kind="in_doubt", digest="try", state=state)
    later = request(kind="in_doubt", digest="try", state="denied", revision=2)
    others = [
        request(kind="in_doubt", digest="other", state=state),
        request(digest="try", state="denied"),
        request(kind="in_doubt", digest="try", state="approved"),
        request(kind="in_doubt", digest="try"),
    ]
    assert ending_of([*others, settled, later], "try") == settled
    assert ending_of(others, "try") is None


def test_moments_of_a_question_include_its_first_and_last() -> None:
    asked = request(opened_at=BEFORE, decided_at=NOW, expires_at=AFTER)
    assert list(last_asked([asked, request(opened_at=NOW)])) == [BEFORE, NOW, AFTER, NOW]
    assert list(last_asked([request()])) == []
