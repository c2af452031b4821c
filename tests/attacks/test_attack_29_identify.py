"""Whoever holds a Temporal credential schedules Signoff's own activities on the honest worker."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from attack_site import AttackSite, approval_id, payee
from impostor import Impostor
from temporalio import workflow
from temporalio.client import ActivityFailureError, Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from signoff.contracts import names
from signoff.contracts.activity_messages import Authority, GateTask, IdentifyTask, ModelTask, RecordTask
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart, Message, TextPart
from signoff.engine.workflow_runs import execute_update

ONCE = RetryPolicy(maximum_attempts=1)


@workflow.defn(name="Reconnaissance", sandboxed=False)
class Reconnaissance:
    @workflow.run
    async def run(self, activity: str, queue: str, task: Any) -> Any:
        """Schedule one activity on the honest task queue."""
        return await workflow.execute_activity(
            activity, task, task_queue=queue, start_to_close_timeout=timedelta(seconds=20), retry_policy=ONCE
        )


async def tasks_of(site: AttackSite, impostor: Impostor) -> dict[str, Any]:
    """What a spy sends, made of a turn whose history they read: who may decide, what would be judged, what is said."""
    key = await site.person("rui").ask([("pay", {"amount": 3, "to": payee()})])
    ctx = await impostor.ctx(key)
    message = Message(role="user", parts=(TextPart(text=Content(inline="[]")),))
    call = CallPart(call="c1.1", tool="pay", args=Content(inline={"amount": 3, "to": "x"}))
    asked = IdentifyTask(
        decision=Decision(approval_id=".".join((*key, "c1.1")), verdict="approved", subject="ana"),
        tenant="main",
        approvers=("role:approvers",),
        requester="rui",
        allow_self=False,
        min_assurance="none",
        accept_unsigned=True,
    )
    return {
        names.IDENTIFY: asked,
        names.GATE: GateTask(ctx=ctx, calls=(call,)),
        names.MODEL: ModelTask(ctx=ctx, completion=1, messages=(message,)),
        names.RECORD: RecordTask(audit=()),
    }


async def alone(client: Client, queue: str, name: str, task: Any) -> Any:
    """The answer of the honest worker to a standalone activity."""
    return await client.execute_activity(
        name,
        task,
        id=f"alone-{uuid.uuid4().hex}",
        task_queue=queue,
        start_to_close_timeout=timedelta(seconds=20),
        retry_policy=ONCE,
    )


def words(error: BaseException | None) -> str:
    """The words of the failure that lies behind others."""
    while error is not None and not isinstance(error, ApplicationError):
        error = error.__cause__
    assert error is not None
    return error.message


@pytest.mark.parametrize("name", [names.IDENTIFY, names.GATE, names.MODEL, names.RECORD])
async def test_nobody_but_a_turn_has_them_run(site: AttackSite, impostor: Impostor, name: str) -> None:
    # By itself, from a foreign workflow, from a turn about another turn: each is refused in words. Before callers were
    # checked `identify` told a stranger who may decide, its name and roles of a person tried by id; `gate` judged and
    # recorded, and `model` spent the installation's budget, for any workflow. Without the check in `CallerInterceptor`
    # each ran by itself, and without the comparison of workflow ids in `turn_problem` each but `record` ran for a turn
    # about another one.
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
        # It names no turn: what its entries say of other turns is not written (`test_attack_12_record.py`).
        return
    another = await impostor.take_over(await site.person("rui").ask([("pay", {"amount": 4, "to": payee()})]))
    with pytest.raises(WorkflowUpdateFailedError) as of_another:
        await another.schedule(name, "spied", task)
    assert words(of_another.value) == "its task names another turn"


async def test_a_turn_is_not_told_who_somebody_is(site: AttackSite, impostor: Impostor) -> None:
    # In a turn of one's own, an unsigned answer of anybody to any role: each is answered alike, without a name. Without
    # the mend it was told of every person by which name they go, and of every role whether they have it.
    zoe = site.person("zoe")
    own = await zoe.ask([("look", {"place": "the yard"})])
    await zoe.result(own)
    forged, found = await impostor.stand(own), []
    for number, (who, role) in enumerate((who, role) for who in ("ana", "nobody") for role in ("approvers", "admin")):
        asked = IdentifyTask(
            decision=Decision(approval_id=approval_id(own), verdict="approved", subject=who),
            tenant="main",
            approvers=(f"role:{role}",),
            requester="zoe",
            allow_self=False,
            min_assurance="none",
            accept_unsigned=True,
        )
        found.append(Authority.model_validate(await forged.schedule(names.IDENTIFY, f"i{number}", asked)))
    assert found == [found[0]] * 4
    assert (found[0].allowed, found[0].name, found[0].person_id) == (False, "", "")


async def test_an_unsigned_answer_that_is_asked_for_still_counts(site: AttackSite, impostor: Impostor) -> None:
    # Where the policy takes what nobody signed, a raw message in the name of Ana counts, and one of Zoe is refused.
    # With `_listed` in `people/eligibility.py` always true Zoe's was accepted, and with `accept_unsigned` always false
    # in `IdentifyActivity._with_stored_terms` the turn had no result within 60 seconds.
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
