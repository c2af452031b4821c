import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from signed_askers import signed_asker
from some import some
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from turn_fixtures import GUEST, ApprovalPolicy, Ledger, RunningTurns, TurnRig, catalog_of, pay_tool, yes

from signoff.approvals.digest import question_hash
from signoff.contracts import names
from signoff.contracts.activity_messages import OutcomeTask, RunTask, ToolReply
from signoff.contracts.call import REQUESTER_RULE, CallContext, CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.directory import development_directory
from signoff.policy.approval_policy import RequiresApproval
from signoff.store.questions.questions import Questions
from signoff.store.tickets import ticket_key
from signoff.testing.builders import a_person, a_run_task
from signoff.testing.questions import answer, ask
from signoff.testing.scripted_model import calls, respond

ARGS: dict[str, Any] = {"amount": 20, "to": "Ana"}
RULE = ApprovalPolicy(auto_approve_if="args.amount < 10.0 && ctx.user.tier == 'trusted'")


async def schedule(activity: str, activity_id: str, queue: str, task: Any) -> Any:
    return await workflow.execute_activity(
        activity,
        task,
        activity_id=activity_id,
        task_queue=queue,
        start_to_close_timeout=timedelta(seconds=20),
        retry_policy=RetryPolicy(maximum_attempts=1),
    )


@workflow.defn(name="Intruder")
class Intruder:
    @workflow.run
    async def run(self, activity: str, activity_id: str, queue: str, task: Any) -> Any:
        return await schedule(activity, activity_id, queue, task)


@workflow.defn(name=names.ACTOR_TURN)
class Impostor:
    """A workflow registered under Signoff's type name."""

    @workflow.run
    async def run(self, activity: str, activity_id: str, queue: str, task: Any) -> Any:
        return await schedule(activity, activity_id, queue, task)


@dataclass
class Forge:
    turns: RunningTurns
    ledger: Ledger
    key: TurnKey

    def task(self, args: dict[str, Any] | None = None, **fields: Any) -> RunTask:
        tool = some(self.turns.deps.catalog.registry.resolve("pay"))
        ctx = replace(
            CallContext(actor="desk", session=self.key.session, turn=self.key.turn, tenant=self.key.tenant, user=GUEST),
            **fields.pop("ctx", {}),
        )
        return a_run_task(tool, args or ARGS, **{"revision": 1, "ctx": ctx} | fields)

    async def ask(self, call: str = "c1.1", user: Principal = GUEST) -> None:
        tool = some(self.turns.deps.catalog.registry.resolve("pay"))
        await ask(self.turns.deps, self.task(call=call, ctx={"user": user}).ctx, tool, ARGS, call=call)

    async def approve(self, **fields: Any) -> None:
        await answer(self.turns.deps.store, self.decision(**fields))

    def decision(self, **fields: Any) -> Decision:
        return yes(self.key, **fields)

    async def run(
        self,
        task: RunTask,
        *,
        workflow_type: str = names.ACTOR_TURN,
        args: dict[str, Any] | None = None,
        activity_id: str = "c1.1",
        **fields: Any,
    ) -> ToolReply:
        task = replace(task, args=Content(inline=args) if args else task.args, **fields)
        return ToolReply.model_validate(await self.schedule("pay", task, workflow_type, activity_id))

    async def schedule(self, activity: str, task: Any, workflow_type: str, activity_id: str = "c1.1") -> Any:
        return await self.turns.client.execute_workflow(
            workflow_type,
            args=[activity, activity_id, self.turns.task_queue, task],
            id=self.key.workflow_id,
            task_queue=f"{self.turns.task_queue}-intruder",
        )


@contextlib.asynccontextmanager
async def forging(turn_rig: TurnRig, requires_approval: RequiresApproval = True, **fields: Any) -> AsyncIterator[Forge]:
    ledger = Ledger()
    user = fields.pop("user", GUEST)
    worker = {name: fields.pop(name) for name in ("profile", "verifier") if name in fields}
    people = development_directory([a_person("ana")])
    catalog = catalog_of([pay_tool(ledger, requires_approval, **fields)])
    intruder = Worker(
        turn_rig.client,
        task_queue=f"{turn_rig.task_queue}-intruder",
        workflows=[Intruder, Impostor],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with (
        turn_rig.running(catalog, [respond("hi")], people=people, **worker) as turns,
        intruder,
    ):
        forge = Forge(turns, ledger, TurnKey("main", "s", turn_rig.task_queue))
        await forge.ask(user=user)
        yield forge


def refused(reply: ToolReply) -> str:
    assert reply.outcome is not None
    assert reply.outcome.code == "refused", reply
    return str(reply.outcome.value.inline)


async def test_approved_call_reaches_the_handler(turn_rig: TurnRig) -> None:
    async with forging(turn_rig) as forge:
        await forge.approve()
        reply = await forge.run(forge.task())
    assert some(reply.outcome).code == "ok"
    assert len(forge.ledger.rows) == 1


@pytest.mark.row("N06")
async def test_standalone_activity_is_refused(turn_rig: TurnRig) -> None:
    async with forging(turn_rig) as forge:
        await forge.approve()
        reply: ToolReply = await turn_rig.client.execute_activity(
            "pay",
            forge.task(),
            id="c1.1",
            task_queue=turn_rig.task_queue,
            start_to_close_timeout=timedelta(seconds=20),
            result_type=ToolReply,
        )
    assert "only inside a turn" in refused(reply)
    assert forge.ledger.rows == []


async def test_task_is_refused_to_another_workflow_type_turn_or_call(turn_rig: TurnRig) -> None:
    async with forging(turn_rig) as forge:
        task = forge.task()
        foreign = await forge.run(task, workflow_type="Intruder")
        turn = await forge.run(forge.task(ctx={"turn": "another"}))
        call = await forge.run(task, activity_id="c1.2")
    assert "only inside a turn" in refused(foreign)
    assert "another turn" in refused(turn)
    assert "another call" in refused(call)
    assert forge.ledger.rows == []


@pytest.mark.row("B66", "V11")
async def test_task_without_stored_decisions_is_refused(turn_rig: TurnRig) -> None:
    async with forging(turn_rig) as forge:
        reply = await forge.run(forge.task())
    assert "too few" in refused(reply)
    assert forge.ledger.rows == []


async def test_one_person_voting_twice_is_no_quorum(turn_rig: TurnRig) -> None:
    async with forging(turn_rig, ApprovalPolicy(quorum=2)) as forge:
        reply = await forge.run(forge.task())
        await forge.approve()
        await forge.approve(delivery_id="again")
        more = await forge.run(forge.task())
        assert forge.ledger.rows == []
        await forge.approve(subject="ana", delivery_id="of ana")
        allowed = await forge.run(forge.task())
    assert "too few" in refused(more)
    assert "too few" in refused(reply)
    assert some(allowed.outcome).code == "ok"


@pytest.mark.row("N07")
async def test_arguments_swapped_after_the_approval_are_refused(turn_rig: TurnRig) -> None:
    async with forging(turn_rig) as forge:
        reply = await forge.run(forge.task(), args={"amount": 9_000, "to": "Eve"})
    assert (refused(reply) != "", reply.again) == (True, "stale")
    assert forge.ledger.rows == []


async def test_arguments_that_break_the_schema_never_reach_the_handler(turn_rig: TurnRig) -> None:
    async with forging(turn_rig) as forge:
        args = {"amount": "all of it"}
        reply = await forge.run(forge.task(args), args=args)
    assert some(reply.outcome).code == "input_invalid"
    assert forge.ledger.rows == []


async def test_call_by_rule_is_refused_when_the_policy_asks(turn_rig: TurnRig) -> None:
    async with forging(turn_rig) as forge:
        reply = await forge.run(forge.task(revision=None))
    assert (refused(reply) != "", reply.again) == (True, "policy")
    assert forge.ledger.rows == []


async def test_raised_tier_in_a_forged_context_is_refused(turn_rig: TurnRig) -> None:
    small = {"amount": 5}
    raised = {"user": replace(GUEST, tier="trusted")}
    async with forging(turn_rig, RULE) as forge:
        reply = await forge.run(forge.task(small, revision=None, ctx=raised), args=small)
    assert (refused(reply) != "", reply.again) == (True, "policy")
    assert forge.ledger.rows == []


async def test_turn_started_with_a_raised_tier_asks_an_approver(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = [calls(("pay", {"amount": 5})), respond("done")]
    trusted = replace(GUEST, tier="trusted")
    async with turn_rig.running([pay_tool(ledger, RULE)], script) as turns:
        key = await turns.start_waiting(principal=trusted)
        question = await turns.question(key)
        result = await turns.result_after(yes(key))
    assert question.rule == REQUESTER_RULE
    assert "directory" in question.rule_text
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_second_ticket_is_refused_until_the_first_is_given_up(turn_rig: TurnRig) -> None:
    async with forging(turn_rig) as forge:
        await forge.approve()
        task = forge.task()
        early = await forge.run(task, ticket=2)
        first = await forge.run(task)
        again = await forge.run(task)
        late = await forge.run(task, ticket=2)
    assert "not given up" in refused(early)
    assert some(first.outcome).code == "ok"
    assert again.outcome == late.outcome == first.outcome
    assert len(forge.ledger.rows) == 1


async def test_foreign_workflow_cannot_void_a_ticket(turn_rig: TurnRig) -> None:
    async with forging(turn_rig) as forge:
        await forge.approve()
        task = forge.task()
        reply = ToolReply.model_validate(await forge.schedule(names.OUTCOME, OutcomeTask(run=task), "Intruder", "x"))
        ticket = await turn_rig.store.read_ticket(ticket_key(task.digest, 1))
        outcome = await forge.run(task)
    assert "only inside a turn" in refused(reply)
    assert ticket is None
    assert isinstance(outcome.outcome, CallOutcome)
    assert outcome.outcome.code == "ok"


SIGNED_AT = datetime.now(UTC)
SIGNER = Signer(PrivateKeys(keys=(new_key(SIGNED_AT),)))


@contextlib.asynccontextmanager
async def signed_forging(turn_rig: TurnRig, policy: RequiresApproval) -> AsyncIterator[Any]:
    asker = signed_asker(SIGNER, GUEST, "main", "s", turn_rig.task_queue, at=SIGNED_AT)
    production: dict[str, Any] = {"profile": "production", "verifier": SIGNER.verifier(), "user": asker}
    async with forging(turn_rig, policy, **production) as forge:
        asked = some(await Questions(turn_rig.store).read(forge.decision().approval_id))
        about = question_hash(asked.latest)
        decision = SIGNER.sign_decision(forge.decision(question_hash=about, received_at=SIGNED_AT))
        yield forge, asker, decision


async def test_impostor_without_gateway_signatures_is_refused(turn_rig: TurnRig) -> None:
    async with signed_forging(turn_rig, True) as (forge, asker, decision):
        ctx = {"user": asker}
        genuine = forge.task(ctx=ctx)
        raised = {"user": replace(asker, tier="trusted")}
        assert "too few" in refused(await forge.run(genuine))
        await answer(turn_rig.store, decision)
        others = {
            "the requester is not signed": forge.task(),
            "the gateway did not sign": forge.task(ctx=raised),
        }
        for why, task in others.items():
            assert why in refused(await forge.run(task))
        large = {"amount": 9_000}
        changed = await forge.run(forge.task(large, ctx=ctx), args=large)
        assert (refused(changed) != "", changed.again) == (True, "stale")
        assert "only inside a turn" in refused(await forge.run(genuine, workflow_type="Intruder"))
        assert forge.ledger.rows == []
        reply = await forge.run(genuine)
    assert some(reply.outcome).code == "ok"
    assert len(forge.ledger.rows) == 1


async def test_decision_copied_from_another_call_is_refused(turn_rig: TurnRig) -> None:
    async with signed_forging(turn_rig, True) as (forge, asker, decision):
        await answer(turn_rig.store, decision)
        await forge.ask("c1.2", asker)
        task = forge.task(ctx={"user": asker}, call="c1.2")
        reply = await forge.run(task, activity_id="c1.2")
        await answer(turn_rig.store, replace(decision, approval_id=yes(forge.key, "c1.2").approval_id))
        again = await forge.run(task, activity_id="c1.2")
    assert "too few" in refused(reply)
    assert "a decision" in refused(again)
    assert forge.ledger.rows == []


async def test_attributes_edited_in_the_context_are_refused(turn_rig: TurnRig) -> None:
    rule = ApprovalPolicy(auto_approve_if="args.amount < 10.0")
    small = {"amount": 5}
    async with signed_forging(turn_rig, rule) as (forge, asker, _):
        task = forge.task(small, revision=None, ctx={"user": asker}, call="c1.3")
        genuine = await forge.run(task, args=small, activity_id="c1.3")
        edited = forge.task(small, revision=None, ctx={"user": asker, "extra": {"user.rank": 9}}, call="c1.2")
        reply = await forge.run(edited, args=small, activity_id="c1.2")
    assert some(genuine.outcome).code == "ok"
    assert (refused(reply) != "", reply.again) == (True, "policy")
    assert len(forge.ledger.rows) == 1
