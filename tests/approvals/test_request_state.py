import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import rfc8785
from tables import table

from signoff.approvals import request_state
from signoff.approvals.digest import call_digest, question_hash
from signoff.approvals.machine import deciding_votes, settled_receipt
from signoff.approvals.request_state import (
    StoredAnswer,
    assigned_hash,
    browser_of,
    edit_stands,
    find_denial,
    is_held,
    request_at,
    request_of,
    undo_seconds,
    with_browser,
)
from signoff.contracts.approval import Card, Question, Vote
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.preview import PreviewReference
from signoff.formats.replace import replace
from signoff.testing.builders import a_question
from signoff.texts.endings import closing_words
from signoff.texts.formatter import Formatter

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
ID = "main.s.t.c1.1"


def digest(amount: int) -> str:
    return call_digest(
        tenant="main", session="", turn="t", call="c1.1", requester="guest", nonce="", tool="pay", definition="d",
        args={"amount": amount},
    )  # fmt: skip


def question(amount: int = 5, **fields: Any) -> Question:
    given: dict[str, Any] = {
        "id": ID, "code": "K7Q2FM", "session": "", "args": Content(inline={"amount": amount}), "digest": digest(amount),
        "timeout": 3600.0, "opened_at": NOW,
    }  # fmt: skip
    return a_question(**given | fields)


def an_answer(
    number: int, who: str, verdict: Any = "approved", *, minutes: float = 1, revision: int = 1, **fields: Any
) -> Any:
    at, known = NOW + minutes * MINUTE, {"delivery_id": f"d{number}"} | fields
    decision = Decision(approval_id=ID, revision=revision, verdict=verdict, subject=who, received_at=at, **known)
    return StoredAnswer(revision, number, Vote(subject=who, verdict=verdict, at=at, decision=decision), at)


def test_unanswered_question_is_pending() -> None:
    request = request_at(question(remind_after=60.0), (), NOW)
    assert (request.state, request.expires_at, request.remind_at) == ("pending", NOW + 60 * MINUTE, (NOW + MINUTE,))
    assert request.question_hash == question_hash(question(remind_after=60.0))
    assert request_of(question(opened_at=None)).expires_at is None
    card = Card(effect="Pay 5")
    assert (request.card, request_at(question(), (), NOW, card).card) == (Card(effect=""), card)


def test_answers_count_in_order_of_arrival() -> None:
    answers = (an_answer(1, "ana", "denied", minutes=3), an_answer(2, "bo", minutes=2))
    request = request_at(question(), answers, NOW + 5 * MINUTE)
    assert (request.state, request.decided_by, len(request.votes)) == ("denied", "ana", 1)
    turned = request_at(
        question(), (an_answer(1, "bo", minutes=2), an_answer(2, "ana", "denied", minutes=1)), NOW + 5 * MINUTE
    )
    assert (turned.state, turned.decided_by) == ("approved", "bo")


@table(("minutes", "state"), (59, "approved"), (60, "approved"), (61, "timed_out"))
def test_answer_counts_at_its_own_time(minutes: int, state: str) -> None:
    request = request_at(question(), (an_answer(1, "ana", minutes=minutes),), NOW + timedelta(days=7))
    assert request.state == state


@table(("seconds", "state"), (5, "approved"), (6, "timed_out"), (None, "approved"))
def test_answer_that_arrived_late_by_the_stores_clock_does_not_count(seconds: int | None, state: str) -> None:
    arrived = None if seconds is None else NOW + 60 * MINUTE + timedelta(seconds=seconds)
    answer = an_answer(1, "ana", minutes=59)._replace(arrived_at=arrived)
    assert request_at(question(), (answer,), NOW + timedelta(days=7)).state == state


def test_unanswered_question_times_out() -> None:
    assert request_at(question(), (), NOW + 60 * MINUTE).state == "pending"
    over = request_at(question(), (), NOW + 60 * MINUTE + timedelta(microseconds=1))
    assert (over.state, over.decided_at, over.decided_by) == ("timed_out", NOW + 60 * MINUTE, "")


@table(("minutes", "count"), (59, 1), (61, 0))
def test_hand_on_after_the_deadline_does_not_count(minutes: int, count: int) -> None:
    made = an_answer(1, "ana", "handed_on", minutes=minutes, to="bo")
    assert len(request_at(question(), (made,), NOW + 2 * HOUR).assignments) == count


def test_deadline_is_extended_once_for_escalation_approvers() -> None:
    asked = question(on_timeout="escalate", approvers=("user:ana",), escalate_to=("user:cfo",))
    put_off = request_at(asked, (), NOW + 61 * MINUTE)
    assert (put_off.state, put_off.extended, put_off.escalated) == ("pending", True, True)
    assert (put_off.approvers, put_off.expires_at) == (("user:ana", "user:cfo"), NOW + 120 * MINUTE)
    late = (an_answer(1, "cfo", minutes=90),)
    assert request_at(asked, late, NOW + timedelta(days=7)).state == "approved"
    assert request_at(asked, (), NOW + 121 * MINUTE).state == "timed_out"


def test_answer_after_a_deadline_that_a_question_moved_counts() -> None:
    asked, late = question(), (an_answer(1, "ana", minutes=70),)
    assert request_at(asked, late, NOW + 2 * HOUR).state == "timed_out"
    moved = replace(asked, asked_at=NOW + 59 * MINUTE)
    request = request_at(moved, late, NOW + 2 * HOUR)
    assert (request.state, request.expires_at, request.extended) == ("approved", NOW + 74 * MINUTE, False)
    assert request_at(moved, (), NOW + 75 * MINUTE).state == "timed_out"
    assert question_hash(moved) == question_hash(asked)


def test_quorum_needs_two_people() -> None:
    twice = (an_answer(1, "ana"), an_answer(2, "ana", minutes=2))
    assert request_at(question(quorum=2), twice, NOW + 5 * MINUTE).state == "pending"
    both = request_at(question(quorum=2), (*twice, an_answer(3, "bo", minutes=3)), NOW + 5 * MINUTE)
    assert (both.state, both.decided_by, both.decided_at) == ("approved", "bo", NOW + 3 * MINUTE)


def test_all_approvers_of_a_quorum_are_named() -> None:
    ana, bo, cy = an_answer(1, "ana"), an_answer(2, "bo", "denied", minutes=2), an_answer(3, "cy", minutes=3)
    named = ana._replace(vote=replace(ana.vote, name="Ana Sousa"))
    approved = request_at(question(quorum=2, veto=False), (named, bo, cy), NOW + 5 * MINUTE)
    assert (approved.state, approved.decided_by, approved.decided_name) == ("approved", "cy", "Ana Sousa, cy")
    assert "Approved by Ana Sousa, cy" in closing_words(approved, Formatter("en", UTC, NOW))
    assert settled_receipt(approved).decided_name == "Ana Sousa, cy"
    denied = request_at(question(quorum=2, veto=True), (named, bo), NOW + 5 * MINUTE)
    assert (denied.state, denied.decided_by, denied.decided_name) == ("denied", "bo", "")


EDIT = {"edited_args": {"amount": 3}}


def test_edit_approves_the_next_revision_and_not_its_own() -> None:
    given = an_answer(1, "ana", **EDIT)
    answers = (given._replace(vote=replace(given.vote, name="Ana Sousa")),)
    assert request_at(question(), answers, NOW + MINUTE).state == "pending"
    second = question(3, revision=2, edit_of=1, edit_delivery="d1", opened_at=NOW + 2 * MINUTE)
    changed = request_at(second, answers, NOW + 3 * MINUTE)
    assert (changed.state, changed.decided_by, changed.edited_by) == ("approved", "ana", "ana")
    assert changed.edited_name == "Ana Sousa"
    unrelated = question(3, revision=2, opened_at=NOW + 2 * MINUTE)
    assert request_at(unrelated, answers, NOW + 3 * MINUTE).state == "pending"


def test_edit_to_other_arguments_does_not_approve_these() -> None:
    # Two people wanted two edits, and one was asked: the other person has not approved it. Before the fix the other
    # edit counted, even towards a quorum of two, because only the revision was compared.
    answers = (an_answer(1, "bo", edited_args={"amount": 4}), an_answer(2, "ana", **EDIT))
    second = question(3, revision=2, edit_of=1, edit_delivery="d2", quorum=2, opened_at=NOW + 2 * MINUTE)
    request = request_at(second, answers, NOW + 3 * MINUTE)
    assert (request.state, [vote.subject for vote in request.votes]) == ("pending", ["ana"])


def test_proposer_of_an_edit_has_not_approved_it() -> None:
    changed = {"edit_of": 1, "edit_delivery": "d1", "proposers": ("ana",)}
    second = question(3, revision=2, opened_at=NOW + 2 * MINUTE, **changed)
    assert request_at(second, (an_answer(1, "ana", **EDIT),), NOW + 3 * MINUTE).state == "pending"


def test_only_the_accepted_edit_is_an_approval() -> None:
    # Another person's edit to the same arguments, which the gates refused, does not count. Without `edit_delivery`
    # a refused edit and another person's edit made a quorum of two.
    answers = (an_answer(1, "ana", **EDIT), an_answer(2, "bo", **EDIT))
    second = question(3, revision=2, edit_of=1, edit_delivery="d2", quorum=2, opened_at=NOW + 2 * MINUTE)
    request = request_at(second, answers, NOW + 3 * MINUTE)
    assert (request.state, [vote.subject for vote in request.votes]) == ("pending", ["bo"])


@table(
    "meanwhile",
    pytest.param(an_answer(2, "bo", "denied")._replace(settles=True), id="somebody denies"),
    pytest.param(an_answer(2, "guest", "withdrawn")._replace(settles=True), id="who asked withdraws"),
    pytest.param(an_answer(2, "ana", edited_args={"amount": 4}), id="its author changes it otherwise"),
    pytest.param(an_answer(2, "ana"), id="its author approves what was asked"),
    pytest.param(an_answer(2, "bo")._replace(settles=True), id="another approves what was asked"),
)
def test_edit_is_void_after_another_answer(meanwhile: StoredAnswer) -> None:
    # A waiting edit approves nothing until its question is asked, and a denial overrides it. Without `edit_stands`
    # 4,000 EUR were paid after a denial, a withdrawal or a correction.
    answers = (an_answer(1, "ana", **EDIT), meanwhile)
    second = question(3, revision=2, edit_of=1, edit_delivery="d1", opened_at=NOW + 2 * MINUTE)
    assert request_at(second, answers[:1], NOW + 3 * MINUTE).state == "approved"
    assert request_at(second, answers, NOW + 3 * MINUTE).state == "pending"
    assert (edit_stands(answers[:1], 1, "d1"), edit_stands(answers, 1, "d1")) == (True, False)


def test_edit_counts_unless_its_author_answered_otherwise() -> None:
    assert edit_stands((), 1, "d1")
    assert edit_stands((an_answer(1, "bo", **EDIT), an_answer(2, "ana", minutes=2)), 1, "d9")
    assert edit_stands((an_answer(1, "ana", "denied", revision=2)._replace(settles=True),), 1, "d9")
    assert not edit_stands((an_answer(1, "bo", **EDIT), an_answer(2, "bo", minutes=2)), 1, "d1")


def test_approval_refused_by_its_turn_does_not_count() -> None:
    yes = an_answer(1, "ana")._replace(settles=True, void=True)
    assert request_at(question(), (yes,), NOW + 3 * MINUTE).state == "pending"
    change = an_answer(1, "ana", **EDIT)._replace(void=True)
    second = question(3, revision=2, edit_of=1, edit_delivery="d1", opened_at=NOW + 2 * MINUTE)
    assert request_at(second, (change,), NOW + 3 * MINUTE).state == "pending"


def test_answers_to_another_revision_do_not_count() -> None:
    second = question(revision=2, opened_at=NOW + 2 * MINUTE)
    assert request_at(second, (an_answer(1, "ana"),), NOW + 3 * MINUTE).state == "pending"
    assert (
        request_at(second, (an_answer(1, "ana"), an_answer(2, "bo", revision=2)), NOW + 3 * MINUTE).decided_by == "bo"
    )


def test_withdrawal_ends_the_request() -> None:
    answers = (an_answer(1, "guest", "withdrawn"), an_answer(2, "ana", minutes=2))
    request = request_at(question(), answers, NOW + 5 * MINUTE)
    assert (request.state, request.decided_by, request.votes) == ("cancelled", "guest", ())


@table(
    ("answers", "ending", "state"),
    ((), "cancelled", "cancelled"),
    ((), "superseded", "cancelled"),
    ((), "not_asked", "cancelled"),
    ((an_answer(1, "ana"),), "lapsed", "lapsed"),
    ((an_answer(1, "ana"),), "superseded", "lapsed"),
    ((an_answer(1, "ana", "denied"),), "cancelled", "denied"),
)
def test_end_by_the_turn_never_permits_the_call(answers: Any, ending: Any, state: str) -> None:
    ended = question(ended_at=NOW + 5 * MINUTE, ended_as=ending)
    assert request_at(ended, answers, NOW + timedelta(days=7)).state == state


@table(
    ("ending", "reason"),
    ("superseded", "A newer revision of this request is waiting."),
    ("not_asked", "The turn no longer needs this approval."),
    ("cancelled", "The turn was stopped, or the request was withdrawn."),
    ("lapsed", "The policies judge the call again."),
    (None, ""),
)
def test_question_ended_by_its_turn_has_time_and_reason(ending: Any, reason: str) -> None:
    ended = question(ended_at=NOW + 5 * MINUTE, ended_as=ending)
    over = request_at(ended, (), NOW + timedelta(days=7))
    assert (over.state, over.reason, over.decided_at) == ("cancelled", reason, NOW + 5 * MINUTE)
    yes = an_answer(1, "ana")
    given = yes._replace(vote=replace(yes.vote, reason="fine"))
    lapsed = request_at(ended, (given,), NOW + timedelta(days=7))
    assert (lapsed.state, lapsed.reason, lapsed.decided_at) == ("lapsed", "fine", NOW + 5 * MINUTE)
    assert lapsed.decided_by == "ana"


@table("seconds", 60.0, 0.5, 86_400.0, 1e15, 2.0**53, 1e17, 1e300)
def test_question_hash_is_that_of_its_canonical_form(seconds: float) -> None:
    asked = question(timeout=seconds)
    form = asked.model_dump(mode="json", exclude={"code", "judged_at", "opened_at", "asked_at", "ended_at", "ended_as"})
    assert question_hash(asked) == hashlib.sha256(rfc8785.dumps(form)).hexdigest()


def undoable(number: int = 1, who: str = "ana", browser: str = "b1", verdict: Any = "denied", **fields: Any) -> Any:
    answer = an_answer(number, who, verdict, minutes=0, **{"channel": "inbox"} | fields)
    decision = with_browser(answer.vote.decision, browser)
    return answer._replace(vote=replace(answer.vote, decision=decision))


@table(
    ("fields", "browser"),
    ({}, "b1"),
    ({"browser": ""}, ""),
    ({"verdict": "approved"}, ""),
    ({"remember": GrantRequest()}, ""),
    ({"channel": "chat"}, ""),
    ({"channel": "chat", "remember": GrantRequest()}, ""),
    ({"verdict": "approved", "delivery_id": "d1/undo/b2"}, ""),
    ({"remember": GrantRequest(), "delivery_id": "d1/undo/b2"}, ""),
    ({"delivery_id": "d1/undo/b2"}, "b1"),
)
def test_only_a_denial_in_the_inbox_can_be_undone(fields: dict[str, Any], browser: str) -> None:
    decision = undoable(**fields).vote.decision
    assert (browser_of(decision), is_held(decision)) == (browser, browser != "")
    if "channel" not in fields and not browser:
        assert decision.delivery_id == fields.get("delivery_id", "d1")


@table(("seconds", "held"), (0.0, False), (1.0, True))
def test_denial_is_held_only_if_there_is_an_undo_period(
    monkeypatch: pytest.MonkeyPatch, seconds: float, held: bool
) -> None:
    monkeypatch.setattr(request_state, "UNDO_SECONDS", seconds)
    assert is_held(undoable().vote.decision) is held
    assert not is_held(undoable(verdict="approved").vote.decision)


def test_undo_period_is_that_of_the_newest_denial_unknown_to_its_turn() -> None:
    now = NOW + timedelta(seconds=2)
    older = undoable()._replace(answered_at=NOW - timedelta(seconds=1))
    assert undo_seconds([], now) == 0.0
    assert undo_seconds([older, undoable()], now) == 3.0
    assert undo_seconds([older], now) == 2.0
    assert undo_seconds([older], now + MINUTE) == 0.0
    for answer in (undoable()._replace(void=True), undoable()._replace(handed=True), undoable(channel="chat")):
        assert undo_seconds([answer], now) == 0.0


def test_newest_denial_of_a_person_is_found_in_its_browser_session_only() -> None:
    answers = [undoable(1), undoable(2), undoable(3, browser="b2"), undoable(4, who="bo"), undoable(5, channel="chat")]
    assert find_denial(answers, "ana", "b1") == answers[1]
    assert find_denial(answers, "ana", "b2") == answers[2]
    for person, browser in (("ana", "b3"), ("cy", "b1"), ("ana", "")):
        assert find_denial(answers, person, browser) is None


def test_deciding_votes_have_the_final_verdict() -> None:
    votes = [an_answer(1, "ana"), an_answer(2, "bo", "denied")]
    request = request_at(question(quorum=2), votes, NOW + 5 * MINUTE)
    assert (request.state, [vote.subject for vote in deciding_votes(request)]) == ("denied", ["bo"])


HANDED = an_answer(1, "ana", "handed_on", to="bo")
ADDED = an_answer(3, "bo", "added", minutes=3, to="cy")
HANDED_FORM = {
    "approval_id": ID, "revision": 1, "verdict": "handed_on", "subject": "ana", "to": "bo", "delivery_id": "d1",
    "received_at": "2030-01-01T12:01:00Z",
}  # fmt: skip
ADDED_FORM = {
    "approval_id": ID, "revision": 1, "verdict": "added", "subject": "bo", "to": "cy", "delivery_id": "d3",
    "received_at": "2030-01-01T12:03:00Z",
}  # fmt: skip


@table(
    ("answers", "before", "forms"),
    ((), None, []),
    ((an_answer(1, "ana"), an_answer(2, "bo", "denied")), None, []),
    ((HANDED,), None, [HANDED_FORM]),
    ((HANDED, an_answer(2, "bo"), ADDED), None, [HANDED_FORM, ADDED_FORM]),
    ((HANDED, an_answer(2, "bo"), ADDED), 4, [HANDED_FORM, ADDED_FORM]),
    ((HANDED, an_answer(2, "bo"), ADDED), 3, [HANDED_FORM]),
    ((HANDED, an_answer(2, "bo"), ADDED), 1, []),
)
def test_hash_of_assignments_covers_hand_ons_and_additions_alone(
    answers: Any, before: int | None, forms: list[dict[str, Any]]
) -> None:
    expected = hashlib.sha256(rfc8785.dumps(forms)).hexdigest() if forms else ""
    assert assigned_hash(answers, before) == expected


def test_answer_after_a_hand_on_counts() -> None:
    request = request_at(question(), (HANDED, an_answer(2, "bo", minutes=2)), NOW + 5 * MINUTE)
    assert (request.state, request.decided_by) == ("approved", "bo")
    assert [vote.decision.to for vote in request.assignments] == ["bo"]


def test_answer_in_time_counts_after_a_late_one() -> None:
    late = an_answer(1, "ana", "denied", minutes=59)._replace(arrived_at=NOW + 61 * MINUTE)
    request = request_at(question(), (late, an_answer(2, "bo", minutes=59)), NOW + 2 * HOUR)
    assert (request.state, request.decided_by) == ("approved", "bo")


@table(
    ("verdict", "revision", "asked", "count"),
    ("handed_on", 1, 1, 1),
    ("handed_on", 1, 2, 0),
    ("handed_on", 2, 1, 0),
    ("added", 1, 1, 1),
    ("added", 1, 2, 1),
    ("added", 2, 1, 0),
)
def test_hand_on_concerns_one_revision_and_an_addition_also_later_ones(
    verdict: str, revision: int, asked: int, count: int
) -> None:
    made = an_answer(1, "ana", verdict, revision=revision, to="bo")
    assert len(request_at(question(revision=asked), (made,), NOW + 5 * MINUTE).assignments) == count


def test_request_has_the_hash_of_its_preview_without_the_parts() -> None:
    shown = PreviewReference(parts=Content(inline=[{"kind": "text", "text": "70 EUR"}]), sha256="a1", bound="b2")
    assert request_of(question(preview=shown)).preview == PreviewReference(sha256="a1", bound="b2")
    assert request_of(question()).preview is None


@table(("minutes", "decided"), (59, 59), (60, 60), (61, 60))
def test_question_that_expired_in_its_turn_has_timed_out_by_its_deadline(minutes: int, decided: int) -> None:
    ended = question(ended_at=NOW + minutes * MINUTE, ended_as="expired")
    over = request_at(ended, (), NOW + timedelta(days=7))
    assert (over.state, over.decided_at, over.reason) == ("timed_out", NOW + decided * MINUTE, "")


def test_question_withdrawn_after_its_deadline_is_cancelled() -> None:
    ended = question(ended_at=NOW + 61 * MINUTE, ended_as="cancelled")
    over = request_at(ended, (), NOW + timedelta(days=7))
    assert (over.state, over.decided_at) == ("cancelled", NOW + 61 * MINUTE)
