from activity_kit import about, asked, worker_deps
from turn_fixtures import Ledger, pay_tool

from signoff.activities.answers_activity import AnswersActivity
from signoff.contracts.activity_messages import AnswersTask
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.store.questions.answers import Answers
from signoff.store.store import Store
from signoff.testing.questions import answer


async def test_turn_receives_only_valid_answers_to_its_question(store: Store) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy(quorum=3))
    deps = worker_deps(store, tool)
    request = await asked(deps, tool)
    for name in ("ana", "bo", "cy"):
        await answer(store, about(request, subject=name, delivery_id=f"of {name}"))
    assert await Answers(store).void(request.id, "of bo")
    given = await AnswersActivity(deps).read_answers(AnswersTask(approval=request.id, revision=request.revision))
    assert [each.subject for each in given.decisions] == ["ana", "cy"]
    assert await AnswersActivity(deps).read_answers(AnswersTask(approval=request.id, revision=2)) == type(given)()
