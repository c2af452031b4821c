"""An answer that changes the arguments: the next revision, which binds what will run and leaves the terms alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signoff.approvals import machine
from signoff.approvals.desk import Desk
from signoff.approvals.digest import call_digest
from signoff.contracts.approval import ApprovalRequest, Card, CardRow, Vote
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.person import Principal
from signoff.contracts.receipt import Receipt
from signoff.contracts.steps import Authority

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
ID = "main.s.t.c1.1"
ANA = Authority(allowed=True, subject="ana", name="Ana", assurance="session")
BEN = Authority(allowed=True, subject="ben", name="Ben", assurance="session")
FINANCE = ("role:finance", "user:ana")


def digest(amount: int) -> str:
    """What an answer about this amount is bound to."""
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
    """A card that shows the amount."""
    rows = (CardRow(name="amount", label="Amount", value=str(amount)),)
    return Card(**{"effect": f"Pay {amount}", "rows": rows} | fields)


def question(amount: int, **fields: Any) -> ApprovalRequest:
    """What the gates ask about this amount."""
    given: dict[str, Any] = {
        "id": ID,
        "code": "AAAAAA",
        "digest": digest(amount),
        "definition": "d",
        "tenant": "main",
        "session": "s",
        "turn": "t",
        "call": "c1.1",
        "tool": "pay",
        "args": Content(inline={"amount": amount}),
        "card": card(amount),
        "rule": "large",
        "rule_text": "args.amount > 100",
        "policy_hash": "p1",
        "approvers": FINANCE,
        "quorum": 2,
        "edit": "approve",
        "requester": Principal(user="guest"),
        "timeout": 3600.0,
    }
    return ApprovalRequest(**given | fields)


def asked(**fields: Any) -> ApprovalRequest:
    """A question about 420 that waits since `NOW`; the agent said why it wants this."""
    given = {"card": card(420, agent_says="it is urgent", mark="m1"), "opened_at": NOW}
    return question(420, **given | {"expires_at": NOW + timedelta(hours=1)} | fields)


def edit(**fields: Any) -> Decision:
    """An approval of 380 instead."""
    given = {"approval_id": ID, "revision": 1, "verdict": "approved", "edited_args": {"amount": 380}}
    return Decision.model_validate(given | {"digest": digest(420), "channel": "web", "reason": "as agreed"} | fields)


GATES: dict[str, Any] = {
    "card": card(380, agent_says="", mark="m2"),
    "secrets": ("pin",),
    "rule": "any",
    "rule_text": "true",
    "policy_hash": "p2",
}
"""What the gates say of the new arguments; below, what they would ask on other terms, which nobody agreed to."""
OTHER_TERMS: dict[str, Any] = {"quorum": 1, "timeout": 60.0, "min_assurance": "none", "allow_self": True, "code": "B"}


def test_an_edit_makes_the_next_revision_on_the_terms_that_were() -> None:
    """Arguments, card and rule are the new ones; people, quorum and times stay; the editor has voted, alone."""
    ben = Vote(subject="ben", verdict="approved", at=NOW, decision=Decision(approval_id=ID, verdict="approved"))
    before = asked(votes=(ben,), reminded=1, remind_after=600.0, remind_at=(NOW + timedelta(minutes=10),))
    after, receipt = machine.edited(before, edit(), ANA, question(380, **GATES, **OTHER_TERMS), LATER)
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
    assert after == asked(
        revision=2,
        digest=digest(380),
        args=Content(inline={"amount": 380}),
        **GATES | {"card": card(380, agent_says="it is urgent", mark="m2")},
        edited_by="ana",
        edited_name="Ana",
        before=card(420).rows,
        votes=(vote,),
        remind_after=600.0,
        opened_at=LATER,
        expires_at=LATER + timedelta(hours=1),
        remind_at=(LATER + timedelta(minutes=10),),
    )
    assert receipt == Receipt(
        status="counted",
        approval_id=ID,
        state="pending",
        votes=1,
        needed=2,
        message="your answer is counted; others are still asked",
    )


def test_one_who_is_enough_edits_and_approves_in_one() -> None:
    """With a quorum of one their edit is the decision."""
    after, receipt = machine.edited(asked(quorum=1), edit(), ANA, question(380), LATER)
    assert (after.state, after.revision, after.digest, after.decided_by) == ("approved", 2, digest(380), "ana")
    assert (receipt.status, receipt.decided_at) == ("accepted", LATER)


STALE_TOOL = "the tool changed while you were asked; approve or deny, it is asked anew"
OTHERS = "with these arguments other people decide; deny, and have it asked anew"
UNCHECKED = "these are not the arguments that were checked; try again"


@pytest.mark.parametrize(
    ("before", "gates", "answer", "code", "message"),
    [
        pytest.param({}, {"definition": "e"}, {}, "stale", STALE_TOOL, id="another definition of the tool"),
        pytest.param({}, {"approvers": ("user:ana",)}, {}, "not_allowed", OTHERS, id="fewer people"),
        pytest.param({}, {"approvers": ("role:board",)}, {}, "not_allowed", OTHERS, id="other people"),
        pytest.param(
            {"escalate_to": ("user:ana",)},
            {"approvers": ("role:finance",)},
            {},
            "not_allowed",
            OTHERS,
            id="whom it would escalate to was asked from the first",
        ),
        pytest.param({}, {}, {"edited_args": {"amount": 381}}, "stale", UNCHECKED, id="other arguments than checked"),
        pytest.param({}, {"digest": digest(381)}, {}, "stale", UNCHECKED, id="another digest than theirs"),
        pytest.param({}, {}, {"edited_args": None}, "stale", UNCHECKED, id="no arguments at all"),
        pytest.param(
            {"edit": "off"},
            {},
            {},
            "not_allowed",
            "arguments cannot be changed here; deny and say what to change",
            id="arguments of this one cannot be changed",
        ),
    ],
)
def test_an_edit_that_would_change_more_than_arguments_is_refused(
    before: dict[str, Any], gates: dict[str, Any], answer: dict[str, Any], code: Any, message: str
) -> None:
    """Whoever may decide the old call decides no other: the request stays as it was, and the editor is told why."""
    waiting = asked(**before)
    assert machine.edited(waiting, edit(**answer), ANA, question(380, **gates), LATER) == (
        waiting,
        Receipt(status="refused", code=code, approval_id=ID, state="pending", votes=0, needed=2, message=message),
    )


def test_only_people_who_may_decide_edit_and_only_in_time() -> None:
    """An edit is an answer like any other."""
    late = NOW + timedelta(hours=2)
    nobody = Authority(allowed=False, code="assurance")
    waiting = asked()
    assert machine.edited(waiting, edit(), nobody, question(380), LATER)[1].code == "assurance"
    assert machine.edited(waiting, edit(), ANA, question(380), late)[1].code == "expired"
    assert machine.edited(waiting, edit(revision=2), ANA, question(380), LATER)[1].code == "stale"


def test_whom_an_escalation_added_need_not_be_asked_by_the_gates() -> None:
    """They came by the clock, not by the arguments; they stay, and they are not escalated to again."""
    grown = asked(approvers=(*FINANCE, "role:board"), escalate_to=("role:board",), escalate_after=60.0, escalated=True)
    after, receipt = machine.edited(grown, edit(), ANA, question(380, approvers=(*FINANCE, "user:cy")), LATER)
    assert receipt.status == "counted"
    assert (after.approvers, after.escalated, after.escalate_at) == ((*FINANCE, "role:board"), True, None)


def test_edited_arguments_are_no_plain_answer() -> None:
    """Without the gates' word on them nothing is counted."""
    waiting = asked()
    after, receipt = machine.decided(waiting, edit(), ANA, LATER)
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


def test_a_desk_counts_an_edit_as_the_next_revision() -> None:
    """It stands in the place of the one before, its author is told, and the same delivery is told the same again."""
    desk = Desk()
    desk.open(asked(), NOW)
    receipt = desk.settle(edit(delivery_id="d1"), ANA, LATER, question(380))
    assert (receipt.status, receipt.votes) == ("counted", 1)
    changed = desk.get(ID)
    assert changed is not None
    assert (changed.revision, changed.digest, changed.edited_by) == (2, digest(380), "ana")
    assert desk.settle(edit(delivery_id="d1"), ANA, LATER, question(380)).code == "duplicate"
    yes = Decision(approval_id=ID, revision=2, digest=digest(380), verdict="approved")
    assert desk.settle(yes, BEN, LATER).status == "accepted"
