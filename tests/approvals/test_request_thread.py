from datetime import UTC, datetime
from typing import Any

from tables import table

from signoff.approvals.request_thread import (
    QUESTIONS,
    hash_thread,
    question_problem,
    questions_left,
    thread_problem,
    unanswered,
)
from signoff.contracts.approval import RequestMessage
from signoff.contracts.limits import REASON_CHARS
from signoff.formats.replace import replace
from signoff.testing import a_request

ASKED = RequestMessage(number=1, by="approver", text="Why?", revision=1, subject="ana")
SAID = RequestMessage(number=2, by="agent", text="It is due.", revision=1)


def test_hash_of_a_thread_changes_with_each_message_and_text() -> None:
    threads = ((), (ASKED,), (ASKED, SAID), (replace(ASKED, text="Who?"), SAID), (SAID,))
    assert len({hash_thread(each) for each in threads}) == len(threads)
    assert hash_thread(()) == ""


def test_only_a_latest_question_is_unanswered() -> None:
    assert unanswered(()) is None
    assert unanswered((ASKED,)) == ASKED
    assert unanswered((ASKED, SAID)) is None


@table(
    ("fields", "messages", "text", "code", "why", "message"),
    ({"state": "denied"}, (), "Why?", "already_decided", "", ""),
    ({"state": "timed_out"}, (), "Why?", "expired", "", ""),
    (
        {"kind": "in_doubt"},
        (),
        "Why?",
        "not_allowed",
        "",
        "a request about an unknown outcome takes no questions",
    ),
    ({}, (), " \n", "malformed", "", "`text`: 1 to 2000 characters"),
    ({}, (), "x" * (REASON_CHARS + 1), "malformed", "", "`text`: 1 to 2000 characters"),
    ({}, (ASKED,), "Why?", "not_allowed", "asked", ""),
    ({}, (ASKED, SAID) * QUESTIONS, "Why?", "not_allowed", "questions", ""),
)
def test_question_is_refused_with_its_reason(
    fields: dict[str, Any], messages: tuple[RequestMessage, ...], text: str, code: str, why: str, message: str
) -> None:
    problem = question_problem(a_request(**fields), messages, text)
    assert problem is not None
    assert (problem.code, problem.why, problem.message) == (code, why, message)


def test_question_is_free_while_the_request_waits_and_the_agent_has_answered() -> None:
    assert question_problem(a_request(), (), "Why?") is None
    assert question_problem(a_request(), (ASKED, SAID) * (QUESTIONS - 1), "x" * REASON_CHARS) is None


def test_approval_that_names_another_thread_is_stale() -> None:
    assert thread_problem(a_request(), "", ()) is None
    assert thread_problem(a_request(), hash_thread((ASKED, SAID)), (ASKED, SAID)) is None
    for thread in ("", hash_thread((ASKED,))):
        problem = thread_problem(a_request(), thread, (ASKED, SAID))
        assert problem is not None
        assert (problem.code, problem.why) == ("stale", "thread")


def test_hash_of_a_thread_covers_the_times_of_its_messages() -> None:
    times = (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC))
    assert len({hash_thread((replace(ASKED, at=at),)) for at in (None, *times)}) == 3


@table(("messages", "left"), ((), 3), ((ASKED,), 2), ((ASKED, SAID), 2), ((ASKED, SAID, ASKED), 1), ((ASKED,) * 4, 0))
def test_only_questions_of_approvers_count_towards_the_limit(messages: tuple[RequestMessage, ...], left: int) -> None:
    assert questions_left(messages) == left
