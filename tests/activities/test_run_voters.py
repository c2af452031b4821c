import dataclasses
from collections.abc import Sequence

import pytest
from activity_kit import about, asked, decision, pinned, task_for, worker_deps
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.activities.run_right import voters_of
from signoff.activities.run_rules import doubts_of
from signoff.contracts.decision import Decision
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.person import Person, Principal
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.store.questions.questions import Questions
from signoff.store.store import Store
from signoff.testing.builders import a_person

PEOPLE = (a_person("bo"), Person(id="ana"), Person(id="guest"))
ANA_AND_OTHERS = ApprovalPolicy(approvers=("user:ana", "role:approvers"))


@table(
    ("asker", "answers", "away"),
    ("stranger", (), False),
    ("stranger", (decision(subject="bo"),), True),
    ("guest", (decision(subject="bo"),), False),
    ("guest", (decision(subject="bo"), decision(subject="stranger")), True),
)
async def test_undeclared_requester_or_voter_is_looked_up_in_the_store(
    store: Store, asker: str, answers: Sequence[Decision], away: bool
) -> None:
    tool = pay_tool(Ledger(), ANA_AND_OTHERS)
    deps = dataclasses.replace(worker_deps(store, tool), people=FixedDirectory(PEOPLE))
    task = task_for(tool, ctx=pinned(user=Principal(user=asker)))
    terms = deps.catalog.terms(tool.activity)
    await store.close()
    if away:
        with pytest.raises(StoreUnavailable):
            await voters_of(deps, task.ctx, tool.activity, terms, answers)
    else:
        voters = await voters_of(deps, task.ctx, tool.activity, terms, answers)
        assert voters.count((decision(subject="bo"),)) == 1


@pytest.mark.parametrize(("subject", "votes"), [("ana", 1), ("bo", 0)])
async def test_approver_added_after_the_question_has_no_vote_on_it(store: Store, subject: str, votes: int) -> None:
    before, tool = (pay_tool(Ledger(), each) for each in (ApprovalPolicy(approvers=("user:ana",)), ANA_AND_OTHERS))
    deps = worker_deps(store, tool, people=PEOPLE)
    word = about(await asked(worker_deps(store, before, people=PEOPLE), before, doubt=1), subject=subject)
    ctx, rows = task_for(tool).ctx, await Questions(store).read(word.approval_id)
    questions, terms = doubts_of(rows), deps.catalog.terms(tool.activity)
    assert len(questions) == 1
    assert (await voters_of(deps, ctx, tool.activity, terms, (word,), questions)).count((word,)) == votes
    assert (await voters_of(deps, ctx, tool.activity, terms, (word,))).count((word,)) == 1
