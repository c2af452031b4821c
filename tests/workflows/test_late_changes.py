from datetime import UTC, datetime

from turn_fixtures import ApprovalPolicy, Ledger, TurnRig, pay_tool, yes

from signoff.approvals.digest import question_hash
from signoff.contracts.call import CallContext
from signoff.contracts.ids import ApprovalKey
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.gateway.approvals.decision_service import DecisionService
from signoff.gateway.deps import GatewayDeps
from signoff.people.directory import development_directory
from signoff.settings import Settings
from signoff.store.questions.questions import Questions
from signoff.testing.builders import a_person
from signoff.testing.questions import answer, ask
from signoff.testing.scripted_model import calls, respond

PEOPLE = development_directory([a_person(name) for name in ("approver", "ana")])
SCRIPT = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]
EDITED = {"amount": 15, "to": "Ana"}


async def test_approval_of_a_lost_edit_brings_the_edit_to_its_turn(turn_rig: TurnRig) -> None:
    # The server lost the edit after the gates asked about it, and an approver approves the result before it is sent
    # again. Without `Answers.find_owed` the turn refused the approval as one to an unknown question, which voided it.
    ledger = Ledger()
    tool = pay_tool(ledger, ApprovalPolicy(edit="approve", quorum=2))
    async with turn_rig.running([tool], SCRIPT, people=PEOPLE) as turns:
        key = await turns.start_waiting()
        first = await turns.question(key)
        change = yes(
            key, subject="ana", edited_args=EDITED, question_hash=question_hash(first), received_at=datetime.now(UTC)
        )
        await answer(turn_rig.store, change)
        ctx = CallContext(
            actor=first.actor, session=first.session, turn=first.turn, tenant=first.tenant, user=first.requester
        )
        await ask(turns.deps, ctx, tool, EDITED, edit=change)
        rows = await Questions(turn_rig.store).read(ApprovalKey(key, "c1.1").id)
        assert rows is not None
        asked = rows.request(rows.latest)
        deps = GatewayDeps(
            client=turns.signoff,
            catalog=turns.deps.catalog,
            people=PEOPLE,
            store=turn_rig.store,
            settings=Settings(profile="development"),
        )
        agreed = DecisionDraft(
            approval_id=asked.id, verdict="approved", revision=asked.revision, question_hash=asked.question_hash
        )
        author = DecisionAuthor(a_person("approver"), "test", "session")
        receipt = await DecisionService(deps).decide(agreed, author)
        assert (receipt.status, receipt.state) == ("accepted", "approved")
        result = await turns.signoff.result(key)
    assert [call.code for call in result.calls] == ["ok"]
    assert [row[1] for row in ledger.rows] == [EDITED]
