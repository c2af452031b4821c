from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tables import table

from signoff.approvals import deadlines, machine
from signoff.approvals.approval_book import ApprovalBook
from signoff.approvals.digest import call_digest
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, Card, CardRow, Vote
from signoff.contracts.call import RuleReference
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.person import Principal
from signoff.contracts.receipt import Receipt
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
    given = {"card": card(420, agent_says="it is urgent", mark="m1"), "opened_at": NOW, "question_hash": "h1"}
    return question(420, **given | {"expires_at": NOW + timedelta(hours=1)} | fields)


def edit(**fields: Any) -> Decision:
    given = {"edited_args": {"amount": 380}, "question_hash": "h1", "channel": "web", "reason": "as agreed"}
    return a_decision(**given | fields)


def changed(**fields: Any) -> ApprovalRequest:
    given = {"revision": 2, "edit_of": 1, "card": card(380, mark="m2"), "question_hash": "h2"}
    return deadlines.open_request(question(380, **given | fields), LATER)


def test_edit_makes_the_next_revision_from_the_gates_question() -> None:
    ben = Vote(subject="ben", verdict="approved", at=NOW, decision=Decision(approval_id=ID, verdict="approved"))
    asks = changed(rule=RuleReference(kind="global", name="any"), policy_hash="p2", quorum=3, remind_after=600.0)
    after, receipt = machine.apply_edit(asked(votes=(ben,), reminded=1), edit(), ANA, asks, LATER)
    vote = Vote(
        subject="ana",
        name="Ana",
        verdict="approved",
        reason="as agreed",
        channel="web",
        assurance="session",
        at=LATER,
        decision=edit(subject="ana"),
    )
    assert after == replace(
        asks,
        card=card(380, agent_says="it is urgent", mark="m2"),
        edited_by="ana",
        edited_name="Ana",
        before=card(420).rows,
        votes=(vote,),
    )
    assert receipt == Receipt(status="counted", approval_id=ID, state="pending", votes=1, needed=3)


def test_sufficient_approver_edits_and_approves_at_once() -> None:
    after, receipt = machine.apply_edit(asked(quorum=1), edit(), ANA, changed(quorum=1), LATER)
    assert (after.state, after.revision, after.digest, after.decided_by) == ("approved", 2, digest(380), "ana")
    assert (receipt.status, receipt.decided_at) == ("accepted", LATER)


def test_proposer_of_an_edit_has_not_approved_it() -> None:
    after, receipt = machine.apply_edit(asked(quorum=1), edit(), ANA, changed(quorum=1, proposers=("ana",)), LATER)
    assert (after.state, after.revision, after.votes, after.edited_by) == ("pending", 2, (), "ana")
    assert (receipt.status, receipt.votes, receipt.message) == ("counted", 0, "")


@table(
    ("before", "gates", "answer", "code", "why"),
    pytest.param({}, {}, {"edited_args": {"amount": 381}}, "stale", "", id="other arguments than checked"),
    pytest.param({}, {"digest": digest(381)}, {}, "stale", "", id="another digest than theirs"),
    pytest.param({}, {"edit_of": 3}, {}, "stale", "", id="what follows another revision"),
    pytest.param({}, {}, {"edited_args": None}, "stale", "", id="no arguments at all"),
    pytest.param({"edit": "off"}, {}, {}, "not_allowed", "edit", id="arguments of this one cannot be changed"),
)
def test_edit_of_more_than_the_arguments_is_refused(
    before: dict[str, Any], gates: dict[str, Any], answer: dict[str, Any], code: Any, why: Any
) -> None:
    waiting = asked(**before)
    assert machine.apply_edit(waiting, edit(**answer), ANA, changed(**gates), LATER) == (
        waiting,
        Receipt(status="refused", code=code, approval_id=ID, state="pending", votes=0, needed=2, why=why),
    )


def test_only_permitted_people_edit_and_only_in_time() -> None:
    late = NOW + timedelta(hours=2)
    nobody = Authority(allowed=False, code="assurance")
    waiting = asked()
    assert machine.apply_edit(waiting, edit(), nobody, changed(), LATER)[1].code == "assurance"
    assert machine.apply_edit(waiting, edit(), ANA, changed(), late)[1].code == "expired"
    assert machine.apply_edit(waiting, edit(revision=2), ANA, changed(), LATER)[1].code == "stale"


def test_edited_arguments_are_no_plain_answer() -> None:
    waiting = asked()
    after, receipt = machine.decide(waiting, edit(), ANA, LATER)
    assert after is waiting
    assert receipt == Receipt(
        status="refused",
        code="malformed",
        approval_id=ID,
        state="pending",
        votes=0,
        needed=2,
        message="`edited_args`: these make a new revision",
    )


def test_book_counts_an_edit_as_the_next_revision() -> None:
    book = ApprovalBook()
    book.open(asked(), NOW)
    receipt = book.settle(edit(delivery_id="d1"), ANA, LATER, changed())
    assert (receipt.status, receipt.votes) == ("counted", 1)
    revised = book.get(ID)
    assert revised is not None
    assert (revised.revision, revised.digest, revised.edited_by) == (2, digest(380), "ana")
    assert book.settle(edit(delivery_id="d1"), ANA, LATER, changed()).code == "duplicate"
    yes = Decision(approval_id=ID, revision=2, question_hash="h2", verdict="approved")
    assert book.settle(yes, BEN, LATER).status == "accepted"
