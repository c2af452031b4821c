"""Escalation where the effect happens: who is asked later counts from then on, by the record and by signed times."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activity_kit import TURN, decision, permit_for, pinned, room_of, run, task_for
from desk_fixtures import GUEST, Ledger, pay_tool
from signed_askers import signed_asker
from sqlalchemy import text

from signoff.activities.room import Profile
from signoff.approvals import entries
from signoff.approvals.digest import doubt_digest
from signoff.audit.log import AuditLog
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import ApprovalKey
from signoff.contracts.person import Person
from signoff.policy.model import ApprovalPolicy
from signoff.registry.people import FixedDirectory
from signoff.signing import PrivateKeys, Signer, new_key
from signoff.store.store import Store

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
SIGNER = Signer(PrivateKeys(keys=(new_key(LONG_AGO),)))
PEOPLE = (Person(id="guest"), Person(id="eve", roles=("approvers",)), Person(id="cfo"))
LATER = ApprovalPolicy(escalate_to=("user:cfo",), escalate_after=60)
AT_THE_END = ApprovalPolicy(escalate_to=("user:cfo",), timeout=60, on_timeout="escalate")
DIGEST = permit_for(pay_tool(Ledger())).digest
ID = ApprovalKey(TURN, "c1.1").id


def request(**fields: Any) -> ApprovalRequest:
    """The question about the one call."""
    base = ApprovalRequest(
        id=ID, code="AAAAAA", digest=DIGEST, tenant=TURN.tenant, session=TURN.session, turn=TURN.turn, call="c1.1",
        tool="pay", args=Content(inline={}), card=Card(effect="Pay"), requester=GUEST,
    )  # fmt: skip
    return base.model_copy(update=fields)


async def asked(store: Store, *requests: ApprovalRequest, at: datetime | None = None) -> None:
    """Written down as the gates do it, now; `at` is what the entry itself says."""
    await AuditLog(store).append(entries.asked(each, at or datetime.now(UTC)) for each in requests)


def signed(seconds: float, subject: str = "cfo", **fields: Any) -> Decision:
    """An approval that the gateway received so many seconds from now."""
    given = {"received_at": datetime.now(UTC) + timedelta(seconds=seconds), "assurance": "session", "digest": DIGEST}
    return SIGNER.sign_decision(decision(**{**given, "subject": subject, **fields}))


async def outcome(
    store: Store,
    *decisions: Decision,
    policy: ApprovalPolicy = LATER,
    profile: Profile = "production",
    ticket: int = 1,
    **fields: Any,
) -> str:
    """The code of the outcome of a call with these decisions, or why it is asked again."""
    ledger = Ledger()
    tool = pay_tool(ledger, policy)
    plain = room_of(store, tool, profile=profile)
    room = dataclasses.replace(plain, people=FixedDirectory(PEOPLE), verifier=SIGNER.verifier())
    given = {
        "kind": "approved",
        "ctx": pinned(user=signed_asker(SIGNER, GUEST, *TURN, at=LONG_AGO)),
        "policy_hash": room.catalog.policy("pay").hash,
        "quorum": policy.quorum,
        "decisions": decisions,
    }
    reply = await run(room, tool, task_for(tool, permit_for(tool, **given | fields), ticket=ticket))
    assert len(ledger.rows) == (not reply.again and reply.outcome is not None and reply.outcome.code == "ok")
    return reply.again or (reply.outcome.code if reply.outcome else "")


@pytest.mark.parametrize("policy", [LATER, AT_THE_END])
@pytest.mark.parametrize(("seconds", "found"), [(0, "policy"), (40, "policy"), (50, "ok"), (65, "ok")])
async def test_they_count_from_the_escalation_on(
    store: Store, policy: ApprovalPolicy, seconds: float, found: str
) -> None:
    """What they signed a minute after it was asked runs the call, or as much before as clocks may be apart; what they
    signed earlier has it asked again."""
    await asked(store, request())
    assert await outcome(store, signed(seconds), policy=policy) == found


async def test_what_escalates_within_what_clocks_may_be_apart_still_needs_its_record(store: Store) -> None:
    """Nothing escalates before it was asked, and what was never asked does not at all."""
    soon = LATER.model_copy(update={"escalate_after": 5.0})
    before = signed(-5)
    assert await outcome(store, signed(0), policy=soon) == "policy"
    await asked(store, request())
    assert await outcome(store, before, policy=soon) == "policy"
    assert await outcome(store, signed(0.1), policy=soon) == "ok"


async def test_those_asked_first_need_no_record(store: Store) -> None:
    """Beside them nobody else is looked for; an early chief is no second person."""
    two = LATER.model_copy(update={"quorum": 2})
    assert await outcome(store, signed(0, "eve"), signed(0), policy=two) == "policy"
    assert await outcome(store, signed(0, "eve")) == "ok"


async def test_without_a_record_of_the_question_nobody_else_counts(store: Store) -> None:
    """Neither of this call, nor of another one, nor of another revision."""
    assert await outcome(store, signed(9_000)) == "policy"
    await asked(store, request(revision=2), request(id=ApprovalKey(TURN, "c1.2").id, call="c1.2"))
    assert await outcome(store, signed(9_000)) == "policy"


async def test_a_turn_cannot_say_that_it_asked_long_ago(store: Store) -> None:
    """A record that was handed over with an old time in it was written now, and that counts."""
    await asked(store, request(), at=LONG_AGO)
    assert await outcome(store, signed(0)) == "policy"
    assert await outcome(store, signed(65)) == "ok"


async def test_asked_anew_they_wait_anew(store: Store) -> None:
    """Revision 2 has a record of its own, whatever lies before it."""
    await asked(store, request(), request(revision=2))
    assert await outcome(store, signed(0, revision=2), revision=2) == "policy"
    assert await outcome(store, signed(65, revision=2), revision=2) == "ok"


@pytest.mark.parametrize(("editor", "found"), [("eve", "ok"), ("", "policy")])
async def test_an_edit_leaves_escalated_what_was(store: Store, editor: str, found: str) -> None:
    """Who is asked since a minute ago is asked about the changed call at once, but not about one that is asked anew."""
    await asked(store, request())
    sooner = text("UPDATE audit_records SET written_at = written_at - 60000")
    await store.run(lambda connection: connection.execute(sooner).close())
    await asked(store, request(revision=2, edited_by=editor))
    assert await outcome(store, signed(0, revision=2), revision=2) == found


async def test_their_own_edit_counts_once_they_are_asked(store: Store) -> None:
    """An edit answers the revision before, so that one must have escalated."""
    await asked(store, request(), request(revision=2, edited_by="cfo"))
    for seconds, found in ((0, "policy"), (65, "ok")):
        edit = signed(seconds, digest="", edited_args={"amount": 20, "to": "Ana"})
        assert await outcome(store, edit, revision=2) == found


@pytest.mark.parametrize(("seconds", "found"), [(0, "refused"), (65, "ok")])
async def test_their_word_frees_a_ticket_once_they_are_asked(store: Store, seconds: float, found: str) -> None:
    """The question what became of a try escalates by its own clock."""
    about = doubt_digest(DIGEST, 1)
    await asked(store, request(), request(kind="in_doubt", revision=2, digest=about))
    await store.claim(DIGEST, workflow=TURN.workflow_id, call="c1.1", tool="pay")
    told = signed(seconds, digest=about, revision=2)
    assert await outcome(store, signed(0, "eve"), doubts=(told,), ticket=2) == found


async def test_development_believes_the_turn_where_nobody_signs(store: Store) -> None:
    """Its turns may run on a moved clock; what is signed there says when it came."""
    unsigned = decision(subject="cfo")
    await asked(store, request())
    assert await outcome(store, signed(0), profile="development") == "policy"
    accepting = LATER.model_copy(update={"accept_unsigned": True})
    assert await outcome(store, unsigned, policy=accepting) == "policy"
    assert await outcome(store, unsigned, profile="development") == "ok"
