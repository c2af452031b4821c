from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from answering import decide
from some import some
from tables import table

from signoff.approvals import deadlines, machine
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision
from signoff.formats.replace import replace
from signoff.testing import a_decision, a_request

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
ID = "main.s.t.c1.1"


def request(**fields: Any) -> ApprovalRequest:
    return a_request(opened=NOW, **{"timeout": 3600.0} | fields)


def decision(verdict: str = "approved", **fields: Any) -> Decision:
    return a_decision(verdict=verdict, **fields)


def by(person: str, on_behalf: str = "") -> Authority:
    return Authority(allowed=True, subject=person, name=person.title(), assurance="session", on_behalf=on_behalf)


def test_denial_ends_the_request_with_its_reason() -> None:
    after, receipt = decide(request(), decision("denied", reason="too dear"), by("ana"), LATER)
    assert (after.state, after.reason, receipt.status) == ("denied", "too dear", "accepted")


def test_denial_without_a_required_reason_changes_nothing() -> None:
    asked = request(require_reason=True)
    after, receipt = decide(asked, decision("denied", reason=" "), by("ana"), LATER)
    assert after is asked
    assert (receipt.status, receipt.code, receipt.why) == ("refused", "malformed", "reason")
    assert decide(asked, decision("denied", reason="no"), by("ana"), LATER)[0].state == "denied"
    assert decide(asked, decision(), by("ana"), LATER)[0].state == "approved"


@pytest.mark.row("E58")
def test_second_answer_names_the_first_decider() -> None:
    first, _ = decide(request(), decision(channel="chat"), by("ana"), NOW)
    after, receipt = decide(first, decision("denied"), by("ben"), LATER)
    assert after == first
    assert (receipt.status, receipt.code, receipt.decided_by, receipt.channel, receipt.decided_at) == (
        "refused",
        "already_decided",
        "ana",
        "chat",
        NOW,
    )


def test_answer_without_a_revision_means_the_first_only() -> None:
    bare = decision(revision=None)
    assert decide(request(), bare, by("ana"), LATER)[0].state == "approved"
    assert decide(request(revision=2), bare, by("ana"), LATER)[1].code == "stale"


def test_unsigned_answer_is_judged_by_workflow_time() -> None:
    late = NOW + timedelta(hours=2)
    answer = decision(received_at=NOW)
    assert decide(request(), answer, by("ana"), late)[1].code == "expired"


def test_signed_answer_received_in_time_counts_while_pending() -> None:
    late, signed = NOW + timedelta(hours=2), decision(received_at=LATER, signature="s")
    in_time = replace(by("ana"), received_at=NOW + timedelta(minutes=59))
    too_late = replace(by("ana"), received_at=NOW + timedelta(minutes=61))
    assert decide(request(), signed, in_time, late)[0].state == "approved"
    assert decide(request(), signed, too_late, NOW)[1].code == "expired"


def test_unverified_time_decides_nothing() -> None:
    late, signed = NOW + timedelta(hours=2), decision(received_at=LATER, signature="forged")
    assert machine.objection(request(), signed, late) is None
    assert decide(request(), signed, by("ana"), late)[1].code == "expired"
    claims_late = decision(received_at=late, signature="forged")
    assert decide(request(), claims_late, by("ana"), LATER)[0].state == "approved"


def test_answer_in_time_but_read_too_late_is_reported_as_late() -> None:
    gone = deadlines.expire(request(), NOW + timedelta(hours=1))
    receipt = some(machine.objection(gone, decision(received_at=LATER, signature="s"), NOW + timedelta(hours=2)))
    assert (receipt.code, receipt.why) == ("expired", "late")
    late = some(machine.objection(gone, decision(received_at=NOW + timedelta(hours=2), signature="s"), NOW))
    assert (late.code, late.why) == ("expired", "")


def test_answer_at_the_last_moment_counts() -> None:
    assert decide(request(), decision(), by("ana"), NOW + timedelta(hours=1))[0].state == "approved"


def test_quorum_counts_people_and_not_clicks() -> None:
    one, first = decide(request(quorum=2), decision(), by("ana"), NOW)
    same, again = decide(one, decision(), by("ana"), NOW)
    two, second = decide(same, decision(), by("ben"), NOW)
    assert (first.status, first.votes, first.needed) == ("counted", 1, 2)
    assert (same, again.code) == (one, "duplicate")
    assert (two.state, second.status) == ("approved", "accepted")
    assert [vote.subject for vote in two.votes] == ["ana", "ben"]


def test_one_denial_vetoes_a_quorum() -> None:
    one, _ = decide(request(quorum=2), decision(), by("ana"), NOW)
    assert decide(one, decision("denied"), by("ben"), NOW)[0].state == "denied"
    assert decide(one, decision("denied"), by("ana"), NOW)[0].state == "denied"


def test_denial_without_veto_is_one_vote() -> None:
    one, _ = decide(request(quorum=2, veto=False), decision("denied"), by("ana"), NOW)
    assert one.state == "pending"
    assert decide(one, decision("denied"), by("ben"), NOW)[0].state == "denied"
    changed, _ = decide(one, decision(), by("ana"), NOW)
    assert decide(changed, decision(), by("ben"), NOW)[0].state == "approved"


def test_delegators_vote_counts_once_for_any_delegate() -> None:
    one, _ = decide(request(quorum=3), decision(), by("ana"), NOW)
    for stand_in in ("ben", "cleo"):
        after, receipt = decide(one, decision(), by(stand_in, on_behalf="ana"), NOW)
        assert (after, receipt.code) == (one, "duplicate")
    two, _ = decide(one, decision(), by("ben", on_behalf="dora"), NOW)
    again, receipt = decide(two, decision(), by("ben", on_behalf="emil"), NOW)
    assert (again, receipt.code) == (two, "duplicate")
    assert [(vote.subject, vote.on_behalf) for vote in two.votes] == [("ana", ""), ("ben", "dora")]


def test_person_has_one_vote_with_any_account() -> None:
    def as_ana(entry: str, on_behalf: str = "") -> Authority:
        return replace(by(entry, on_behalf), person_id="ana")

    one, _ = decide(request(quorum=2), decision(), as_ana("ana"), NOW)
    again, receipt = decide(one, decision(), as_ana("ana-admin"), NOW)
    assert (again, receipt.code) == (one, "duplicate")
    assert decide(one, decision(), by("ben", on_behalf="ana"), NOW)[1].code == "duplicate"
    assert decide(one, decision(), as_ana("ana-admin", on_behalf="ben"), NOW)[1].code == "duplicate"
    assert decide(one, decision("denied"), as_ana("ana-admin"), NOW)[0].state == "denied"
    assert decide(one, decision(), by("ben"), NOW)[0].state == "approved"


def test_delegator_overrules_a_delegate_and_not_the_reverse() -> None:
    waiting = request(quorum=2, veto=False)
    no, _ = decide(waiting, decision("denied"), by("ana"), NOW)
    assert decide(no, decision(), by("ben", on_behalf="ana"), NOW)[1].code == "duplicate"
    stood_in, _ = decide(waiting, decision("denied"), by("ben", on_behalf="ana"), NOW)
    overruled, _ = decide(stood_in, decision(), by("ana"), NOW)
    assert [(vote.subject, vote.verdict) for vote in overruled.votes] == [("ana", "approved")]
    doubted, _ = decide(overruled, decision("denied"), by("ben", on_behalf="ana"), NOW)
    assert [(vote.subject, vote.verdict) for vote in doubted.votes] == [("ben", "denied")]


def test_happened_settles_an_unknown_outcome_at_once_and_a_retry_needs_the_quorum() -> None:
    doubt = request(kind="in_doubt", revision=2, quorum=2)
    found, _ = decide(doubt, decision("happened", revision=2, result="paid 20"), by("ana"), LATER)
    assert (found.state, found.decided_by, found.votes[0].decision.result) == ("happened", "ana", "paid 20")
    given_up, _ = decide(doubt, decision("denied", revision=2), by("ana"), LATER)
    assert given_up.state == "denied"
    one, _ = decide(doubt, decision(revision=2), by("ana"), LATER)
    two, _ = decide(one, decision(revision=2), by("ben"), LATER)
    assert (one.state, two.state) == ("pending", "approved")
    late = machine.settled_receipt(found)
    assert (late.code, late.verdict) == ("already_decided", "happened")


def test_plain_approval_never_retries_a_call_with_an_unknown_outcome() -> None:
    doubt = request(kind="in_doubt", revision=2)
    assert decide(doubt, decision(revision=None), by("ana"), LATER)[1].code == "stale"


@table(("signature", "why"), ("", ""), ("s", "late"))
def test_only_a_signed_time_is_reported_as_in_time(signature: str, why: str) -> None:
    gone = deadlines.expire(request(), NOW + timedelta(hours=1))
    found = some(machine.objection(gone, decision(signature=signature, received_at=LATER), NOW + timedelta(hours=2)))
    assert (found.code, found.why) == ("expired", why)


def test_timers_and_withdrawals_change_only_pending_requests() -> None:
    done, _ = decide(request(), decision(), by("ana"), NOW)
    assert deadlines.expire(done, LATER) == done
    withdrawal = machine.vote_of(decision("withdrawn", reason="no longer needed"), by("guest"), LATER)
    assert machine.count_vote(done, withdrawal) == done
    assert deadlines.expire(request(), LATER).state == "timed_out"
    withdrawn = machine.count_vote(request(), withdrawal)
    assert (withdrawn.state, withdrawn.decided_by, withdrawn.reason) == ("cancelled", "guest", "no longer needed")
