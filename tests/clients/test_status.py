from typing import Any

from tables import table

from signoff_client.messages import Failure, Reply
from signoff_client.status import CallStatus, explain, read_permit, read_status


def test_answer_belongs_to_one_call() -> None:
    permitted = Reply(200, {"id": "main.a.b", "state": "permitted", "args": {"euro": 1}})
    assert read_status(permitted).state == "permitted"
    assert read_status(permitted, "main.a.b").state == "permitted"
    assert read_status(permitted, "main.a.c").state == "unreachable"


@table("call", "", "../approvals/x", "main.a b", "main.a?b", "m" * 601)
def test_invalid_id_names_no_call(call: str) -> None:
    """It would become part of the next requests' addresses."""
    for known in ("", call):
        assert read_status(Reply(200, {"id": call, "state": "denied"}), known).state == "unreachable"


@table(
    ("code", "words"),
    ("used", "Not run: its permit was used before"),
    ("lapsed", "Not run: its permit was not used in time"),
    ("frozen", "Not run: the tenant is frozen"),
    ("stale", "Not run: the approval does not match the call"),
    ("denied", "Not run: it must not run: why"),
    ("other", "Not run: it must not run: why"),
)
def test_withheld_permit_is_no_permit(code: str, words: str) -> None:
    status = read_permit(Reply(409, {"code": code, "message": "why"}), CallStatus("permitted", "main.a.b"))
    assert explain(status).startswith(words)


CALL: dict[str, Any] = {"id": "main.a.b", "state": "ended"}
TOLD = {
    "tool": "refund",
    "code": "ok",
    "page": "https://x/calls/main.a.b",
    "source": "human",
    "reason": "why",
    "by": "Bo",
    "decided_by": "Ana",
    "edited_by": "Cy",
    "note": "once",
}


@table(
    ("told", "state"),
    ("waiting", "waiting"),
    ("running", "waiting"),
    ("permitted", "permitted"),
    ("used", "used"),
    ("denied", "denied"),
    ("ended", "ended"),
)
def test_answer_is_read_completely(told: str, state: str) -> None:
    body = CALL | TOLD | {"state": told, "args": {"euro": 1}, "result": [1], "more": "nothing"}
    for status in (200, 201):
        read = read_status(Reply(status, body))
        args = {"euro": 1} if state == "permitted" else {}
        assert read == CallStatus(read.state, "main.a.b", args=args, result=[1], **TOLD)
        assert read.state == state
    bare = read_status(Reply(200, CALL | {"note": 7, "state": told, "args": {}}))
    assert bare == CallStatus(bare.state, "main.a.b")


@table("args", None, [], "euro", 1)
def test_permitted_call_without_arguments_is_unreachable(args: Any) -> None:
    read = read_status(Reply(200, CALL | {"state": "permitted", "args": args}), "main.a.b")
    assert (read.state, read.id, read.args) == ("unreachable", "main.a.b", {})
    assert "not a gateway of this version" in read.reason


@table(
    ("reply", "state", "reason"),
    (Failure("gone"), "unreachable", "gone"),
    (Reply(503, CALL), "unreachable", "HTTP 503"),
    (Reply(429, {"message": "too much"}), "unreachable", "too much"),
    (Reply(400, {"message": "no"}), "refused", "no"),
    (Reply(499, CALL), "refused", "HTTP 499"),
    (Reply(399, CALL), "unreachable", "the server at this address is not a gateway of this version"),
    (Reply(501, CALL), "unreachable", "the server at this address is not a gateway of this version"),
    (Reply(200, CALL | {"id": 7}), "unreachable", "the server at this address is not a gateway of this version"),
    (Reply(200, None), "unreachable", "the server at this address is not a gateway of this version"),
)
def test_invalid_answer_names_the_requested_call(reply: Reply | Failure, state: str, reason: str) -> None:
    read = read_status(reply, "main.a.b")
    assert (read.state, read.id, read.reason) == (state, "main.a.b", reason)
    again = read_permit(reply, CallStatus("permitted", "main.a.b", args={"euro": 1}))
    assert (again.state, again.id, again.args) == (state, "main.a.b", {})


def test_permit_has_the_arguments_of_the_use_answer() -> None:
    before = CallStatus("permitted", "main.a.b", tool="refund", decided_by="Ana", note="old", args={"euro": 1})
    handed = read_permit(Reply(200, {"args": {"euro": 2}, "key": "k", "note": "once"}), before)
    assert (handed.state, handed.args, handed.key, handed.note) == ("permitted", {"euro": 2}, "k", "once")
    assert (handed.id, handed.tool, handed.decided_by) == ("main.a.b", "refund", "Ana")
    assert read_permit(Reply(200, {"args": {}, "key": "", "note": 7}), before).note == ""


def test_answer_to_a_use_with_a_call_is_no_permit() -> None:
    before = CallStatus("permitted", "main.a.b", args={"euro": 1})
    for state in ("permitted", "ended", "waiting"):
        assert read_permit(Reply(201, CALL | {"state": state, "args": {"euro": 1}}), before).state == "unreachable"
    other = read_permit(Reply(200, {"args": [1], "key": "k"}), before)
    assert (other.id, other.reason) == ("main.a.b", "the server at this address is not a gateway of this version")


@table(("code", "state"), ("used", "used"), ("waiting", "waiting"), ("lapsed", "denied"))
def test_refused_permit_has_its_reason(code: str, state: str) -> None:
    before = CallStatus("permitted", "main.a.b", tool="refund")
    read = read_permit(Reply(409, {"code": code, "message": "why"}), before)
    assert (read.state, read.source, read.reason, read.tool, read.id) == (state, code, "why", "refund", "main.a.b")
    assert read_permit(Reply(409), before).state == "refused"


@table(
    ("status", "words"),
    (CallStatus("waiting"), "Not run: it waits for a person's approval."),
    (
        CallStatus("waiting", code="K7Q"),
        "Not run: it waits for a person's approval (K7Q).",
    ),
    (CallStatus("denied", source="human", by="Bo", reason="no"), "Not run: it was denied by Bo: no"),
    (CallStatus("denied", source="timeout"), "Not run: nobody answered in time"),
    (CallStatus("denied"), "Not run: it must not run"),
    (CallStatus("refused", reason="no such tool"), "Not run: Signoff does not take it: no such tool"),
    (CallStatus("unreachable", reason="gone"), "Not run: Signoff gave no answer (gone)."),
    (CallStatus("permitted"), "It may run, and has not run yet."),
    (CallStatus("ended", code="ok", result={"a": 1}), '{"a": 1}'),
    (CallStatus("ended", code="execution_failed", result="no money"), "It failed: no money"),
    (CallStatus("ended", code="in_doubt", result="lost"), "It may have happened or not: lost"),
    (CallStatus("ended", code="other", result="lost"), "It may have happened or not: lost"),
)
def test_explanation_for_the_model_follows_the_status(status: CallStatus, words: str) -> None:
    assert explain(status) == words
