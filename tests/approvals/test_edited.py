from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from answering import AnswerList
from tables import table

from signoff.approvals.digest import call_digest, question_hash
from signoff.approvals.edit_diff import remark_note
from signoff.approvals.request_state import pending_edits
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, Card, CardRow, Vote
from signoff.contracts.call import RuleReference
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.person import Principal
from signoff.formats.fence import fence_mark
from signoff.formats.replace import replace
from signoff.testing import a_decision, a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
ID = "main.s.t.c1.1"
ANA = Authority(allowed=True, subject="ana", name="Ana", assurance="session")
BEN = Authority(allowed=True, subject="ben", name="Ben", assurance="session")
FINANCE = ("role:finance", "user:ana")


def digest(amount: int) -> str:
    return call_digest(
        tenant="main",
        session="s",
        turn="t",
        call="c1.1",
        requester="guest",
        nonce="",
        tool="pay",
        definition="d",
        args={"amount": amount},
    )


def card(amount: int, **fields: Any) -> Card:
    rows = (CardRow(name="amount", label="Amount", value=str(amount)),)
    return Card(**{"effect": f"Pay {amount}", "rows": rows} | fields)


def question(amount: int, **fields: Any) -> ApprovalRequest:
    given: dict[str, Any] = {
        "digest": digest(amount),
        "definition": "d",
        "args": Content(inline={"amount": amount}),
        "card": card(amount),
        "rule": RuleReference(kind="global", name="large"),
        "rule_text": "args.amount > 100",
        "policy_hash": "p1",
        "approvers": FINANCE,
        "quorum": 2,
        "edit": "approve",
        "requester": Principal(user="guest"),
        "timeout": 3600.0,
    }
    return a_request(**given | fields)


def asked(**fields: Any) -> ApprovalRequest:
    return question(420, **{"card": card(420), "opened_at": NOW} | fields)


def edit(asks: ApprovalRequest, **fields: Any) -> Decision:
    given = {"edited_args": {"amount": 380}, "question_hash": question_hash(asks), "channel": "web"}
    return a_decision(**given | {"reason": "as agreed"} | fields)


def changed(**fields: Any) -> ApprovalRequest:
    return question(380, **{"revision": 2, "edit_of": 1, "card": card(380), "opened_at": LATER} | fields)


def test_edit_is_its_authors_approval_of_the_next_revision() -> None:
    waiting = asked()
    answers = AnswerList(waiting)
    assert answers.take(a_decision(), BEN, LATER).status == "counted"
    receipt = answers.take(edit(waiting), ANA, LATER, changed(quorum=3))
    after = answers.request(LATER)
    assert (after.revision, after.digest, after.edited_by, after.edited_name) == (2, digest(380), "ana", "Ana")
    assert [(vote.subject, vote.reason, vote.channel) for vote in after.votes] == [("ana", "as agreed", "web")]
    assert (receipt.status, receipt.state, receipt.votes, receipt.needed) == ("counted", "pending", 1, 3)


def test_sufficient_approver_edits_and_approves_at_once() -> None:
    waiting = asked(quorum=1)
    answers = AnswerList(waiting)
    receipt = answers.take(edit(waiting), ANA, LATER, changed(quorum=1))
    after = answers.request(LATER)
    assert (after.state, after.revision, after.digest, after.decided_by) == ("approved", 2, digest(380), "ana")
    assert (receipt.status, receipt.decided_at) == ("accepted", LATER)


def test_proposer_of_an_edit_has_not_approved_it() -> None:
    waiting = asked(quorum=1)
    answers = AnswerList(waiting)
    answers.take(edit(waiting), ANA, LATER, changed(quorum=1, proposers=("ana",)))
    after = answers.request(LATER)
    assert (after.state, after.revision, after.votes) == ("pending", 2, ())


@table(
    ("gates", "answer"),
    pytest.param({}, {"edited_args": {"amount": 381}}, id="other arguments than checked"),
    pytest.param({"digest": digest(381)}, {}, id="another digest than theirs"),
    pytest.param({"edit_of": 3}, {}, id="what follows another revision"),
)
def test_edit_of_other_arguments_is_no_approval(gates: dict[str, Any], answer: dict[str, Any]) -> None:
    waiting = asked(quorum=1)
    answers = AnswerList(waiting)
    answers.take(edit(waiting, **answer), ANA, LATER, changed(quorum=1, **gates))
    assert (answers.request(LATER).state, answers.request(LATER).votes) == ("pending", ())


def test_edit_of_fixed_arguments_is_refused() -> None:
    waiting = asked(edit="off")
    receipt = AnswerList(waiting).take(edit(waiting), ANA, LATER, changed())
    assert (receipt.status, receipt.code, receipt.why) == ("refused", "not_allowed", "edit")


def test_only_permitted_people_edit_and_only_in_time() -> None:
    waiting, late = asked(), NOW + timedelta(hours=2)
    nobody = Authority(allowed=False, code="assurance")
    assert AnswerList(waiting).take(edit(waiting), nobody, LATER, changed()).code == "assurance"
    assert AnswerList(waiting).take(edit(waiting), ANA, late, changed()).code == "expired"
    assert AnswerList(waiting).take(edit(waiting, revision=2), ANA, LATER, changed()).code == "stale"


def test_pending_edits_are_those_that_may_still_replace_the_question() -> None:
    waiting = asked()
    answers = AnswerList(waiting)
    assert pending_edits(waiting, waiting, answers.answers) == []
    answers.take(edit(waiting), ANA, LATER, changed())
    made = answers.questions[-1]
    [own] = answers.answers
    assert pending_edits(waiting, waiting, answers.answers) == [own]
    assert pending_edits(waiting, made, answers.answers) == [own]
    assert pending_edits(waiting, replace(made, edit_delivery="of another"), answers.answers) == []
    assert pending_edits(waiting, replace(made, edit_of=2), answers.answers) == []
    assert pending_edits(waiting, waiting, [own._replace(void=True)]) == []
    denial = own._replace(number=2, settles=True, vote=replace(own.vote, decision=a_decision(verdict="denied")))
    assert pending_edits(waiting, waiting, [own, denial]) == []


def remarked(subject: str, reason: str, verdict: Any = "approved", **fields: Any) -> Vote:
    return Vote(subject=subject, reason=reason, verdict=verdict, at=NOW, decision=a_decision(), **fields)


def fenced(name: str, words: str) -> str:
    mark = fence_mark(words)
    return f"[{mark} {name} approved this call and wrote:]\n{words}\n[{mark} end of the person's words]"


@table(
    ("fields", "note"),
    pytest.param(
        {"votes": (remarked("ana", " fine \n", name="Ana Sousa", person_id="u7"),)},
        fenced("Ana Sousa", "fine"),
        id="a person with a name",
    ),
    pytest.param({"votes": (remarked("ana", "fine", name="Ana Sousa"),)}, fenced("Ana Sousa", "fine"), id="no id"),
    pytest.param({"votes": (remarked("ana", "fine", person_id="u7"),)}, fenced("u7", "fine"), id="an id"),
    pytest.param({"votes": (remarked("ana", "fine"),)}, fenced("ana", "fine"), id="an account"),
    pytest.param({"votes": (remarked("", "fine"),)}, fenced("a person", "fine"), id="an unknown person"),
    pytest.param({"votes": (remarked("ana", " "),)}, "", id="no words"),
    pytest.param(
        {"votes": (remarked("ana", "fine"), remarked("bo", "too much", "denied"), remarked("cy", "go"))},
        fenced("ana", "fine") + "\n" + fenced("cy", "go"),
        id="two approvals and a denial",
    ),
    pytest.param({"decided_by": "ana", "reason": "fine"}, fenced("ana", "fine"), id="no votes"),
    pytest.param(
        {"decided_by": "ana", "decided_name": "Ana Sousa", "reason": "fine"}, fenced("Ana Sousa", "fine"), id="a name"
    ),
)
def test_model_reads_the_remarks_of_all_approvers_inside_marks(fields: dict[str, Any], note: str) -> None:
    assert remark_note(a_request(state="approved", **fields)) == note


@table("state", "pending", "denied", "timed_out", "cancelled", "lapsed")
def test_model_reads_no_remark_without_an_approval(state: Any) -> None:
    assert remark_note(a_request(state=state, votes=(remarked("ana", "fine"),), reason="fine")) == ""
    assert remark_note(None) == ""
