"""An attacker has a Temporal credential of the namespace and has seen the answers, but has no key and no token.

They read every history, reset and terminate workflows, and register workflows under Signoff's type names with forged
data.
"""

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from attack_site import until
from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import RetryPolicy, TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from turn_fixtures import query_workflow
from turn_reset import ANSWERS, reset_turn

from signoff.activities.run_rules import digest_of
from signoff.approvals.request_state import StoredAnswer
from signoff.contracts import names
from signoff.contracts.activity_messages import GateDecision, GateReply, GateTask, RunTask, ToolReply, Wake
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext, RuleReference
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.message import CallPart
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import TurnInput, TurnView
from signoff.formats.replace import replace
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.tool import Tool
from signoff.store.questions.questions import Questions
from signoff.store.store import open_store
from signoff.temporal.converter import DATA_CONVERTER
from signoff.testing.builders import a_run_task


@workflow.defn(name=names.ACTOR_TURN, sandboxed=False)
class ImpostorTurn:
    @workflow.init
    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self._heard: list[Any] = []
        self._over = False

    @workflow.run
    async def run(self, answers: dict[str, Any]) -> Any:
        await workflow.wait_condition(lambda: self._over)
        return self._answers.get("result")

    @workflow.query(name=names.STATE)
    def state(self) -> Any:
        return self._answers.get(names.STATE)

    @workflow.query(name=names.PENDING_APPROVALS)
    def pending(self) -> Any:
        return self._answers.get(names.PENDING_APPROVALS, [])

    @workflow.query(name=names.RECEIPT)
    def receipt(self, approval: str) -> Any:
        return self._answers.get(names.RECEIPT)

    @workflow.query(name=names.TRANSCRIPT)
    def transcript(self) -> Any:
        return self._answers.get(names.TRANSCRIPT, [])

    @workflow.query
    def heard(self) -> list[Any]:
        return self._heard

    @workflow.update(name=names.DECIDE)
    def decide(self, *envelopes: Any) -> Any:
        self._heard.extend(envelopes)
        return self._answers.get(names.DECIDE) or Receipt(
            status="accepted", approval_id=str(envelopes[0].get("approval_id", ""))
        )

    @workflow.update(name=names.CANCEL)
    def cancel(self, *envelopes: Any) -> Any:
        self._heard.extend(envelopes)
        return Receipt(status="accepted", approval_id=str(envelopes[0].get("approval_id", "")))

    @workflow.signal(name=names.APPROVAL_RESPONSE)
    def approval_response(self, *envelopes: Any) -> None:
        self._heard.extend(envelopes)

    @workflow.signal
    def forge(self, answers: dict[str, Any]) -> None:
        self._answers = {**self._answers, **answers}

    @workflow.signal
    def end(self) -> None:
        self._over = True

    @workflow.update
    async def schedule(self, activity: str, activity_id: str, queue: str, task: Any) -> Any:
        return await workflow.execute_activity(
            activity,
            task,
            activity_id=activity_id,
            task_queue=queue,
            start_to_close_timeout=timedelta(seconds=20),
            schedule_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


class Claim(RunTask):
    """The task of a forged run, with more that a worker might believe: it reads none of these fields."""

    decisions: tuple[Decision, ...] = ()
    doubts: tuple[Decision, ...] = ()
    rule: RuleReference | None = None
    policy_hash: str = ""
    quorum: int = 1
    override: str = ""


@dataclass
class ForgedTurn:
    impostor: "Impostor"
    key: TurnKey
    handle: WorkflowHandle[Any, Any]

    async def forge(self, **answers: Any) -> None:
        await self.handle.signal(ImpostorTurn.forge, answers)

    async def wakes(self) -> list[Wake]:
        found: list[Any] = await self.handle.query(ImpostorTurn.heard)
        return [Wake.model_validate(each) for each in found]

    async def decisions(self) -> list[Decision]:
        numbers = {each.number for each in await self.wakes()}
        stored = await self.impostor.answers(self.key)
        return [each.vote.decision for each in stored if each.number in numbers]

    async def schedule(self, activity: str, activity_id: str, task: Any) -> Any:
        return await self.handle.execute_update(
            ImpostorTurn.schedule, args=[activity, activity_id, self.impostor.honest_queue, task]
        )

    async def run(self, tool: str, args: dict[str, Any], claim: RunTask, *, ticket: int = 1) -> ToolReply:
        task = replace(claim, tool=tool, args=Content(inline=args), ticket=ticket)
        return ToolReply.model_validate(await self.schedule(tool, claim.call, task))

    async def gate(
        self, ctx: CallContext, tool: str, args: dict[str, Any], *, call: str = "c1.1", **fields: Any
    ) -> GateDecision:
        part = CallPart(call=call, tool=tool, args=Content(inline=args))
        task = GateTask(ctx=ctx, calls=(part,), **fields)
        reply = await self.schedule(names.GATE, f"gate-{uuid.uuid4().hex[:8]}", task)
        return GateReply.model_validate(reply).gate_decisions[0]


@dataclass
class Impostor:
    client: Client
    queue: str
    honest_queue: str
    manifest: Path
    store_url: str

    def tool(self, name: str) -> Tool:
        found = load_manifest(self.manifest).registry.resolve(name)
        assert found is not None
        return found

    async def input(self, key: TurnKey) -> TurnInput:
        handle = self.client.get_workflow_handle(key.workflow_id)
        async for event in handle.fetch_history_events():
            payloads = event.workflow_execution_started_event_attributes.input.payloads
            return DATA_CONVERTER.payload_converter.from_payloads(payloads, [TurnInput])[0]
        raise AssertionError("a history has a first event")

    async def ctx(self, key: TurnKey) -> CallContext:
        turn = await self.input(key)
        return CallContext(
            actor=turn.actor,
            session=key.session,
            turn=key.turn,
            tenant=key.tenant,
            channel=turn.channel,
            user=turn.principal,
            extra=dict(turn.context),
        )

    async def view(self, key: TurnKey) -> TurnView:
        """Wait until it contains a call: approvers are asked before the turn knows."""
        handle = self.client.get_workflow_handle(key.workflow_id)

        async def look() -> TurnView | None:
            view = await query_workflow(handle, names.STATE, result_type=TurnView)
            return view if view.calls or view.result else None

        found: TurnView = await until(look)
        return found

    async def decisions(self, key: TurnKey) -> list[Decision]:
        return [each.vote.decision for each in await self.answers(key)]

    async def answers(self, key: TurnKey, call: str = "c1.1") -> Sequence[StoredAnswer]:
        """Return the stored answers about a call, as if they had leaked. No history contains them."""
        async with open_store(self.store_url) as store:
            rows = await Questions(store).read(ApprovalKey(key, call).id)
        return () if rows is None else rows.answers

    def digest(self, ctx: CallContext, tool: str, args: dict[str, Any], call: str = "c1.1") -> str:
        return digest_of(ctx, call, self.tool(tool), args)

    def claim(
        self, ctx: CallContext, digest: str, decisions: Sequence[Decision], call: str = "c1.1", **fields: Any
    ) -> "Claim":
        """Claim that these decisions approved a call, at revision 1 unless `fields` say otherwise."""
        policy_hash = self.policy_hash(fields.pop("tool", "pay"))
        claims = {"revision": 1, "decisions": tuple(decisions), "policy_hash": policy_hash} | fields
        known = a_run_task(call=call, digest=digest, ctx=ctx)
        return Claim(**dict(known) | claims)

    def policy_hash(self, tool: str) -> str:
        return load_manifest(self.manifest).policy(tool).hash

    async def stop(self, key: TurnKey) -> None:
        handle = self.client.get_workflow_handle(key.workflow_id)
        described = await handle.describe()
        if described.status == WorkflowExecutionStatus.RUNNING:
            await handle.terminate()

    async def reset(self, key: TurnKey, *, to_start: bool = False) -> None:
        await reset_turn(self.client, key, ANSWERS, to_start=to_start, without_answers=True)

    async def forget(self, key: TurnKey) -> None:
        execution = WorkflowExecution(workflow_id=key.workflow_id)
        request = DeleteWorkflowExecutionRequest(namespace=self.client.namespace, workflow_execution=execution)
        # Retry if the server is too busy, like the SDK's own calls.
        await self.client.workflow_service.delete_workflow_execution(request, retry=True)

    async def take_over(self, key: TurnKey, **answers: Any) -> ForgedTurn:
        """Terminate a turn and take its id, memo and search attributes, with these answers to queries."""
        described = await self.client.get_workflow_handle(key.workflow_id).describe()
        memo, attributes = await described.memo(), described.typed_search_attributes
        await self.stop(key)
        kept = TypedSearchAttributes([each for each in attributes if each.key.name.startswith("Signoff")])
        return await self.stand(key, memo=answers.pop("memo", memo), attributes=kept, **answers)

    async def stand(
        self,
        key: TurnKey,
        *,
        memo: Any = None,
        attributes: TypedSearchAttributes = TypedSearchAttributes.empty,
        **answers: Any,
    ) -> ForgedTurn:
        handle: WorkflowHandle[Any, Any] = await self.client.start_workflow(
            names.ACTOR_TURN,
            answers,
            id=key.workflow_id,
            task_queue=self.queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            memo=memo,
            search_attributes=attributes,
        )
        return ForgedTurn(self, key, handle)


def forged_view(view: TurnView, change: Callable[[ApprovalRequest], ApprovalRequest]) -> TurnView:
    calls = tuple(
        call if call.approval is None else replace(call, approval=change(call.approval)) for call in view.calls
    )
    return replace(view, calls=calls)


@asynccontextmanager
async def impostor_of(client: Client, honest_queue: str, manifest: Path, store_url: str) -> AsyncIterator[Impostor]:
    queue = f"impostor-{uuid.uuid4().hex[:8]}"
    worker = Worker(client, task_queue=queue, workflows=[ImpostorTurn], workflow_runner=UnsandboxedWorkflowRunner())
    async with worker:
        yield Impostor(client, queue, honest_queue, manifest, store_url)
