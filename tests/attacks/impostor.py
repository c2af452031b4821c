"""Somebody who holds a Temporal credential of the namespace and nothing else: no key, no token, no store.

They read every history and query, start, terminate and reset, run workers of their own on any task queue, and register
workflows under our types' names whose queries, memo and search attributes say what they like.
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

from signoff.activities.gate_activity import digest_of
from signoff.contracts import names
from signoff.contracts.activity_messages import GateDecision, GateReply, GateTask, ToolReply, ToolTask
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext, Permit
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.message import CallPart
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import TurnInput, TurnView
from signoff.formats.replace import replace
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.tool import Tool
from signoff.temporal.converter import DATA_CONVERTER
from signoff.testing.builders import a_permit


@workflow.defn(name=names.ACTOR_TURN, sandboxed=False)
class ImpostorTurn:
    """A workflow under our turn's type that answers queries with what it was given and does what it is told."""

    @workflow.init
    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self._decisions: list[Any] = []
        self._over = False

    @workflow.run
    async def run(self, answers: dict[str, Any]) -> Any:
        """Stand there until told to end."""
        await workflow.wait_condition(lambda: self._over)
        return self._answers.get("result")

    @workflow.query(name=names.STATE)
    def state(self) -> Any:
        """The forged view."""
        return self._answers.get(names.STATE)

    @workflow.query(name=names.PENDING_APPROVALS)
    def pending(self) -> Any:
        """The forged requests."""
        return self._answers.get(names.PENDING_APPROVALS, [])

    @workflow.query(name=names.RECEIPT)
    def receipt(self, approval: str) -> Any:
        """The forged receipt."""
        return self._answers.get(names.RECEIPT)

    @workflow.query(name=names.TRANSCRIPT)
    def transcript(self) -> Any:
        """The forged conversation."""
        return self._answers.get(names.TRANSCRIPT, [])

    @workflow.query
    def decisions(self) -> list[Any]:
        """Everything that anybody answered, kept."""
        return self._decisions

    @workflow.update(name=names.DECIDE)
    def decide(self, *envelopes: Any) -> Any:
        """Keep an answer and thank for it, or tell what was forged."""
        self._decisions.extend(envelopes)
        return self._answers.get(names.DECIDE) or Receipt(
            status="accepted", approval_id=str(envelopes[0].get("approval_id", ""))
        )

    @workflow.update(name=names.CANCEL)
    def cancel(self, *envelopes: Any) -> Any:
        """Keep a withdrawal and thank for it."""
        self._decisions.extend(envelopes)
        return Receipt(status="accepted", approval_id=str(envelopes[0].get("approval_id", "")))

    @workflow.signal(name=names.APPROVAL_RESPONSE)
    def approval_response(self, *envelopes: Any) -> None:
        """Keep an answer."""
        self._decisions.extend(envelopes)

    @workflow.signal
    def forge(self, answers: dict[str, Any]) -> None:
        """Answer with this from now on."""
        self._answers = {**self._answers, **answers}

    @workflow.signal
    def end(self) -> None:
        """Complete."""
        self._over = True

    @workflow.update
    async def schedule(self, activity: str, activity_id: str, queue: str, task: Any) -> Any:
        """Schedule an activity on any task queue and return its result."""
        return await workflow.execute_activity(
            activity,
            task,
            activity_id=activity_id,
            task_queue=queue,
            start_to_close_timeout=timedelta(seconds=20),
            schedule_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


@dataclass
class ForgedTurn:
    impostor: "Impostor"
    key: TurnKey
    handle: WorkflowHandle[Any, Any]

    async def forge(self, **answers: Any) -> None:
        """Answer queries with this from now on."""
        await self.handle.signal(ImpostorTurn.forge, answers)

    async def decisions(self) -> list[Decision]:
        """The answers that the gateway sent here, signed as they are."""
        found: list[Any] = await self.handle.query(ImpostorTurn.decisions)
        return [Decision.model_validate(each) for each in found]

    async def schedule(self, activity: str, activity_id: str, task: Any) -> Any:
        """The result of an activity that the honest worker runs for this impostor."""
        return await self.handle.execute_update(
            ImpostorTurn.schedule, args=[activity, activity_id, self.impostor.honest_queue, task]
        )

    async def run(self, tool: str, args: dict[str, Any], permit: Permit, *, ticket: int = 1) -> ToolReply:
        """What the honest worker answers when told to run a tool under this permit."""
        task = ToolTask(permit=permit, tool=tool, args=Content(inline=args), ticket=ticket)
        return ToolReply.model_validate(await self.schedule(tool, permit.call, task))

    async def gate(
        self, ctx: CallContext, tool: str, args: dict[str, Any], *, call: str = "c1.1", **fields: Any
    ) -> GateDecision:
        """What the honest gate says of a call that is proposed in this turn's name."""
        part = CallPart(call=call, tool=tool, args=Content(inline=args))
        task = GateTask(ctx=ctx, calls=(part,), **fields)
        reply = await self.schedule(names.GATE, f"gate-{uuid.uuid4().hex[:8]}", task)
        return GateReply.model_validate(reply).gate_decisions[0]


@dataclass
class Impostor:
    """The credential: a client, a task queue of their own, and the source code, which is public."""

    client: Client
    queue: str
    honest_queue: str
    manifest: Path

    def tool(self, name: str) -> Tool:
        """A tool as the manifest declares it, which whoever reads one history knows."""
        found = load_manifest(self.manifest).registry.resolve(name)
        assert found is not None
        return found

    async def input(self, key: TurnKey) -> TurnInput:
        """The first event of a turn, with whom the gateway signed for."""
        handle = self.client.get_workflow_handle(key.workflow_id)
        async for event in handle.fetch_history_events():
            payloads = event.workflow_execution_started_event_attributes.input.payloads
            return DATA_CONVERTER.payload_converter.from_payloads(payloads, [TurnInput])[0]
        raise AssertionError("a history has a first event")

    async def ctx(self, key: TurnKey) -> CallContext:
        """The context under which the turn's calls are judged, copied from its history."""
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
        """What the genuine turn says of itself, once it knows of a call: people are asked before the turn knows."""
        handle = self.client.get_workflow_handle(key.workflow_id)

        async def look() -> TurnView | None:
            view = await query_workflow(handle, names.STATE, result_type=TurnView)
            return view if view.calls or view.result else None

        found: TurnView = await until(look)
        return found

    async def decisions(self, key: TurnKey, run_id: str | None = None) -> list[Decision]:
        """Every answer in a turn's history, as the gateway signed it, whatever the turn made of it."""
        handle = self.client.get_workflow_handle(key.workflow_id, run_id=run_id)
        found = []
        async for event in handle.fetch_history_events():
            update = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
            sent = event.workflow_execution_signaled_event_attributes
            payloads: Sequence[Any] = ()
            if update.name in (names.DECIDE, names.CANCEL):
                payloads = update.args.payloads
            elif sent.signal_name == names.APPROVAL_RESPONSE:
                payloads = sent.input.payloads
            found += [Decision.model_validate(DATA_CONVERTER.payload_converter.from_payload(one)) for one in payloads]
        return found

    def digest(self, ctx: CallContext, tool: str, args: dict[str, Any], call: str = "c1.1") -> str:
        """The digest that an honest tool activity computes of a call."""
        return digest_of(ctx, call, self.tool(tool), args)

    def permit(
        self, ctx: CallContext, digest: str, decisions: Sequence[Decision], call: str = "c1.1", **fields: Any
    ) -> Permit:
        """A permit as an honest turn would make it."""
        approval = ".".join((ctx.tenant, ctx.session, ctx.turn, call))
        return a_permit(
            kind="approved",
            call=call,
            digest=digest,
            ctx=ctx,
            approval_id=approval,
            decisions=tuple(decisions),
            policy_hash=self.policy_hash(fields.pop("tool", "pay")),
            **fields,
        )

    def policy_hash(self, tool: str) -> str:
        return load_manifest(self.manifest).policy(tool).hash

    async def stop(self, key: TurnKey) -> None:
        handle = self.client.get_workflow_handle(key.workflow_id)
        described = await handle.describe()
        if described.status == WorkflowExecutionStatus.RUNNING:
            await handle.terminate()

    async def reset(self, key: TurnKey, *, to_start: bool = False) -> None:
        """Reset a turn to before anybody answered it, or to its start, and leave out what was answered since."""
        await reset_turn(self.client, key, ANSWERS, to_start=to_start, without_answers=True)

    async def forget(self, key: TurnKey) -> None:
        """Delete a turn, as the end of its namespace's retention does."""
        execution = WorkflowExecution(workflow_id=key.workflow_id)
        request = DeleteWorkflowExecutionRequest(namespace=self.client.namespace, workflow_execution=execution)
        # Again where the server was too busy to answer, as the SDK's own calls are.
        await self.client.workflow_service.delete_workflow_execution(request, retry=True)

    async def take_over(self, key: TurnKey, **answers: Any) -> ForgedTurn:
        """Terminate a turn and stand under its id, with its memo and search attributes, answering queries so."""
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
        """Start an impostor under the id of a turn that is over or never was."""
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
async def impostor_of(client: Client, honest_queue: str, manifest: Path) -> AsyncIterator[Impostor]:
    queue = f"impostor-{uuid.uuid4().hex[:8]}"
    worker = Worker(client, task_queue=queue, workflows=[ImpostorTurn], workflow_runner=UnsandboxedWorkflowRunner())
    async with worker:
        yield Impostor(client, queue, honest_queue, manifest)
