import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

from temporalio.testing import ActivityEnvironment
from turn_fixtures import GUEST, Ledger, catalog_of, pay_tool

from signoff.activities.outcome_activity import OutcomeActivity
from signoff.activities.run_once import RunOnce
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import GateReply, OutcomeTask, RunTask, ToolReply
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext, CallOutcome
from signoff.contracts.decision import Decision
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey
from signoff.contracts.names import ACTOR_TURN, OUTCOME
from signoff.formats.replace import replace
from signoff.registry.tool import Tool
from signoff.store.store import Also, Store
from signoff.testing import a_call_context
from signoff.testing.builders import a_run_task
from signoff.testing.questions import ask

TURN = TurnKey("main", "s", "t")
WHO = {"workflow": TURN.workflow_id, "call": "c1.1", "tool": "pay"}
"""The owner of the one call's ticket."""
PLACE = SessionKey(TURN.tenant, TURN.session)
ARGS = {"amount": 20, "to": "Ana"}
MARK_KEY = b"k" * 32


class MoodyStore(Store):
    """A real store whose next `refusals` writes of outcomes and blobs fail."""

    refusals = 0

    async def record(self, key: str, outcome: CallOutcome, *, also: Also | None = None) -> CallOutcome:
        self._sulk()
        return await super().record(key, outcome, also=also)

    async def put_blob(self, body: bytes, place: SessionKey | None) -> Any:
        self._sulk()
        return await super().put_blob(body, place)

    def _sulk(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("the store did not answer")


def pinned(**fields: Any) -> CallContext:
    return a_call_context(**{"session": TURN.session, "turn": TURN.turn, "tenant": TURN.tenant, "user": GUEST} | fields)


def worker_deps(store: Store, *tools: Tool, **fields: Any) -> WorkerDeps:
    profile = fields.pop("profile", "development")
    drivers = fields.pop("drivers", {})
    catalog = catalog_of(tools, **fields)
    return WorkerDeps(
        catalog=catalog, store=store, people=catalog.people, drivers=drivers, mark_key=MARK_KEY, profile=profile
    )


def decision(**fields: Any) -> Decision:
    given: dict[str, Any] = {
        "approval_id": ApprovalKey(TURN, "c1.1").id,
        "revision": 1,
        "verdict": "approved",
        "subject": "approver",
        "reason": "go on",
        "delivery_id": f"of {fields.get('subject', 'approver')}",
    }
    return Decision(**given | fields)


async def asked(
    deps: WorkerDeps, tool: Tool, args: Any = None, *, ctx: CallContext | None = None, **more: Any
) -> ApprovalRequest:
    return await ask(deps, ctx or pinned(), tool, ARGS if args is None else args, **more)


def about(request: ApprovalRequest, **fields: Any) -> Decision:
    return decision(**{"revision": request.revision, "question_hash": request.question_hash} | fields)


def task_for(tool: Tool, args: Any = None, **fields: Any) -> RunTask:
    return a_run_task(tool, ARGS if args is None else args, **{"ctx": pinned()} | fields)


def environment(tool: str = "pay", **fields: Any) -> ActivityEnvironment:
    env = ActivityEnvironment()
    given: dict[str, Any] = {
        "workflow_type": ACTOR_TURN,
        "workflow_id": TURN.workflow_id,
        "activity_id": "c1.1",
        "activity_type": tool,
    }
    env.info = dataclasses.replace(env.info, **given | fields)
    return env


def in_another_turn(tool: Tool) -> RunTask:
    """A store runs one action under a call in one turn: this task is of a later turn with the same id."""
    return task_for(tool, ctx=pinned(user=replace(GUEST, nonce="later")))


async def outcome_of_lost(deps: WorkerDeps, task: OutcomeTask, env: ActivityEnvironment | None = None) -> ToolReply:
    reply = await (env or environment(OUTCOME, activity_id="17")).run(OutcomeActivity(deps).outcome, task)
    return ToolReply.model_validate_json(reply.model_dump_json())


async def run(deps: WorkerDeps, tool: Tool, task: RunTask, env: ActivityEnvironment | None = None) -> ToolReply:
    reply = await (env or environment(tool.name)).run(RunOnce(deps, tool, pause=0.0).run, task)
    return ToolReply.model_validate_json(reply.model_dump_json())


def summary(reply: ToolReply) -> tuple[str, Any]:
    assert reply.outcome is not None
    assert (reply.again, reply.note) == ("", "")
    assert (reply.outcome.call, reply.outcome.gate) == ("c1.1", "execute")
    return reply.outcome.code, reply.outcome.value.inline


def free(ledger: Ledger, **fields: Any) -> Tool:
    return pay_tool(ledger, False, **fields)


def request_of(found: ApprovalRequest | None) -> ApprovalRequest:
    assert found is not None
    return found


def sent(reply: GateReply) -> GateReply:
    """The reply through JSON, with the complete requests, which a worker does not send."""
    read = GateReply.model_validate_json(reply.on_wire())
    pairs = zip(read.gate_decisions, reply.gate_decisions, strict=True)
    return replace(read, gate_decisions=tuple(replace(each, request=whole.request) for each, whole in pairs))


def codes(replies: Sequence[ToolReply]) -> list[str]:
    return [reply.outcome.code if reply.outcome else reply.again for reply in replies]


async def begun(running: "asyncio.Future[ToolReply]", started: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(started.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert started.is_set()
