import uuid
from datetime import timedelta
from typing import Any

import pytest
from attack_site import AttackSite, approval_id, payee
from impostor import Impostor
from some import some
from temporalio import workflow
from temporalio.client import ActivityFailureError, Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from signoff.contracts import names
from signoff.contracts.activity_messages import AnswersReply, AnswersTask, GateTask, ModelTask, RecordTask
from signoff.contracts.approval import Settlement
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart, Message, TextPart
from signoff.engine.workflow_runs import execute_update

ONCE = RetryPolicy(maximum_attempts=1)


@workflow.defn(name="Reconnaissance", sandboxed=False)
class Reconnaissance:
    @workflow.run
    async def run(self, activity: str, queue: str, task: Any) -> Any:
        return await workflow.execute_activity(
            activity, task, task_queue=queue, start_to_close_timeout=timedelta(seconds=20), retry_policy=ONCE
        )


async def tasks_of(site: AttackSite, impostor: Impostor) -> dict[str, Any]:
    key = await site.person("rui").ask([("pay", {"amount": 3, "to": payee()})])
    ctx = await impostor.ctx(key)
    message = Message(role="user", parts=(TextPart(text=Content(inline="[]")),))
    call = CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": 3, "to": "x"}))
    approval = ".".join((*key, "c1.1"))
    asked = AnswersTask(approval=approval, raw=Decision(approval_id=approval, verdict="approved", subject="ana"))
    return {
        names.ANSWERS: asked,
        names.GATE: GateTask(ctx=ctx, calls=(call,)),
        names.MODEL: ModelTask(ctx=ctx, completion=1, messages=(message,)),
        names.RECORD: RecordTask(audit=()),
    }


async def alone(client: Client, queue: str, name: str, task: Any) -> Any:
    return await client.execute_activity(
        name,
        task,
        id=f"alone-{uuid.uuid4().hex}",
        task_queue=queue,
        start_to_close_timeout=timedelta(seconds=20),
        retry_policy=ONCE,
    )


def words(error: BaseException | None) -> str:
    while error is not None and not isinstance(error, ApplicationError):
        error = error.__cause__
    assert error is not None
    return error.message


@pytest.mark.parametrize("name", [names.ANSWERS, names.GATE, names.MODEL, names.RECORD])
async def test_activities_run_only_for_their_own_turn(site: AttackSite, impostor: Impostor, name: str) -> None:
    # A standalone call, a foreign workflow, and a turn with another turn's task are refused with a reason. Before
    # callers were checked, a stranger got the approvers and a person's name and roles by id; `gate` judged and
    # recorded, and `model` spent the installation's budget, for any workflow. Without the check in
    # `CallerInterceptor` each ran alone, and without the comparison of workflow ids in `turn_problem` each except
    # `record` ran for a turn with another turn's task.
    task = (await tasks_of(site, impostor))[name]
    with pytest.raises(ActivityFailureError) as by_itself:
        await alone(site.client, site.queue, name, task)
    assert words(by_itself.value) == "this activity runs only inside a turn"
    queue = f"spy-{uuid.uuid4().hex}"
    runner = UnsandboxedWorkflowRunner()
    async with Worker(site.client, task_queue=queue, workflows=[Reconnaissance], workflow_runner=runner):
        with pytest.raises(WorkflowFailureError) as foreign:
            await site.client.execute_workflow(
                Reconnaissance.run, args=[name, site.queue, task], id=queue, task_queue=queue
            )
    assert isinstance(foreign.value.cause, ActivityError)
    assert words(foreign.value) == "this activity runs only inside a turn"
    if name == names.RECORD:
        # It names no turn: entries about other turns are not recorded (`test_attack_12_record.py`).
        return
    another = await impostor.take_over(await site.person("rui").ask([("pay", {"amount": 4, "to": payee()})]))
    with pytest.raises(WorkflowUpdateFailedError) as of_another:
        await another.schedule(name, "spied", task)
    assert words(of_another.value) == "its task names another turn"


async def test_answers_activity_reveals_no_person_to_a_foreign_turn(site: AttackSite, impostor: Impostor) -> None:
    # In an attacker's own turn, an unsigned answer of any person to any role gets the same reply without a name.
    # Before the fix the reply contained every person's name and whether they have a role.
    zoe = site.person("zoe")
    own = await zoe.ask([("look", {"place": "the yard"})])
    await zoe.result(own)
    forged, found = await impostor.stand(own), []
    for number, who in enumerate(("ana", "nobody")):
        raw = Decision(approval_id=approval_id(own), verdict="approved", subject=who)
        task = AnswersTask(approval=raw.approval_id, raw=raw)
        found.append(AnswersReply.model_validate(await forged.schedule(names.ANSWERS, f"i{number}", task)))
    assert found == [found[0]] * 2
    author = some(found[0].author)
    assert (author.allowed, author.name, author.person_id, found[0].settlement) == (False, "", "", Settlement())


async def test_unsigned_answer_counts_where_the_policy_accepts_it(site: AttackSite, impostor: Impostor) -> None:
    # Where the policy accepts unsigned answers, a raw message in Ana's name counts, and one in Zoe's is refused. With
    # `_listed` in `people/eligibility.py` always true Zoe's was accepted, and with `accept_unsigned` always false in
    # `RawAnswerTaker._author` the turn had no result within 60 seconds.
    to = payee()
    key = await site.person("rui").ask([("petty", {"amount": 2, "to": to})])
    await site.person("ana").waiting(approval_id(key))
    handle = site.client.get_workflow_handle(key.workflow_id)
    replies = []
    for who in ("zoe", "ana"):
        raw = Decision(approval_id=approval_id(key), verdict="approved", subject=who)
        replies.append(await execute_update(handle, names.DECIDE, raw.model_dump(mode="json", exclude_none=True)))
    await site.person("rui").result(key)
    assert ([each["status"] for each in replies], site.amounts(to)) == (["refused", "accepted"], [2])
