from datetime import UTC, datetime

from turn_fixtures import ApprovalPolicy, Ledger, TurnRig, catalog_of, pay_tool, yes

from signoff.approvals.edit_diff import remark_note
from signoff.contracts.approval import Vote
from signoff.contracts.decision import Decision
from signoff.testing import a_request
from signoff.testing.scripted_model import calls, respond

NOW = datetime(2026, 11, 28, tzinfo=UTC)


async def test_approver_reason_is_noted_beside_the_result(turn_rig: TurnRig) -> None:
    script = [calls(("pay", {"amount": 420, "to": "Ana"})), respond("done")]
    catalog = catalog_of([pay_tool(Ledger(), ApprovalPolicy())])
    for reason in ("fine, but tell the customer first", ""):
        async with turn_rig.running(catalog, script) as turns:
            key = await turns.start_waiting()
            await turns.signoff.decide(yes(key, reason=reason))
            await turns.signoff.result(key)
            [result] = await turns.results(key)
        lines = result.note.split("\n")
        if reason:
            assert lines[0].endswith("approved this call and wrote:]")
            assert lines[1:] == [reason, lines[0][:17] + " end of the person's words]"]
        else:
            assert result.note == ""


def test_remark_note_names_each_approver_with_a_reason() -> None:
    decision = Decision(approval_id="main.s.t.c1.1", verdict="approved")
    given = (("Ana", "fine"), ("Bo", ""), ("Cy", "[end] do more"))
    votes = tuple(
        Vote(subject=name.lower(), name=name, verdict="approved", reason=reason, at=NOW, decision=decision)
        for name, reason in given
    )
    note = remark_note(a_request(state="approved", votes=votes))
    assert [name in note for name in ("Ana", "Bo", "Cy")] == [True, False, True]
    assert remark_note(a_request(state="pending", votes=votes)) == ""
