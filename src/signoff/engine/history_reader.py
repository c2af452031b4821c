"""Reads turns from Temporal's histories, and specialists' results from the audit log."""

from collections.abc import Iterable
from datetime import UTC
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from signoff.audit.record import Record
from signoff.contracts import names
from signoff.contracts.activity_messages import ModelReply, ModelTask
from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import SessionKey, parse_approval_id
from signoff.contracts.turn import TurnInput, TurnResult
from signoff.evaluation.turn_history import HistoryStep, TurnHistory
from signoff.formats.replace import replace
from signoff.registry.results.dispatch_record import SPECIALIST
from signoff.store.content_store import load_in, load_message
from signoff.store.store import Store


async def read_history(client: Client, workflow_id: str) -> TurnHistory | None:
    """Return `None` for a turn without a history.

    The history has references to stored content. Raises `ServerUnavailable`.
    """
    turn: TurnInput | None = None
    result: TurnResult | None = None
    asked: dict[int, ModelTask] = {}
    steps: list[HistoryStep] = []

    async def decode(payloads: Any, kind: type[Any]) -> Any:
        (found,) = await client.data_converter.decode(payloads.payloads, [kind])
        return found

    try:
        async for event in client.get_workflow_handle(workflow_id).fetch_history_events():
            if event.HasField("workflow_execution_started_event_attributes"):
                begin = event.workflow_execution_started_event_attributes
                # Other workflows may have such an id; they have nothing to read.
                if begin.workflow_type.name == names.ACTOR_TURN:
                    turn = await decode(begin.input, TurnInput)
            elif event.HasField("activity_task_scheduled_event_attributes"):
                begun = event.activity_task_scheduled_event_attributes
                if begun.activity_type.name == names.MODEL:
                    asked[event.event_id] = await decode(begun.input, ModelTask)
            elif event.HasField("activity_task_completed_event_attributes"):
                done = event.activity_task_completed_event_attributes
                # A completed activity names only the event that scheduled it, not its type.
                task = asked.get(done.scheduled_event_id)
                if task is not None:
                    reply = await decode(done.result, ModelReply)
                    steps.append(HistoryStep(task, reply, event.event_time.ToDatetime(tzinfo=UTC)))
            elif event.HasField("workflow_execution_completed_event_attributes"):
                result = await decode(event.workflow_execution_completed_event_attributes.result, TurnResult)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise ServerUnavailable(f"the Temporal server did not answer: {error.message.partition(chr(10))[0]}") from None
    return None if turn is None else TurnHistory(turn, tuple(steps), result)


async def load_history(store: Store, history: TurnHistory) -> TurnHistory:
    """Raise `StoreUnavailable` for content missing in the store."""
    place = SessionKey(history.turn.tenant_id, history.turn.session_id)

    async def inline(content: Content) -> Content:
        return Content(inline=await load_in(store, content, place)) if content.blob is not None else content

    async def outcome(found: CallOutcome) -> CallOutcome:
        return replace(found, value=await inline(found.value))

    steps = []
    for step in history.steps:
        messages = tuple([await load_message(store, each, place) for each in step.task.messages])
        message = await load_message(store, step.reply.message, place)
        task = replace(step.task, messages=messages)
        steps.append(HistoryStep(task, replace(step.reply, message=message), step.at))
    messages = tuple([await load_message(store, each, place) for each in history.turn.messages])
    turn, result = replace(history.turn, messages=messages), history.result
    if result is not None:
        parts = tuple([replace(each, content=await inline(each.content)) for each in result.parts])
        calls = tuple([await outcome(each) for each in result.calls])
        result = replace(result, parts=parts, calls=calls)
    return TurnHistory(turn, tuple(steps), result)


def specialist_results(records: Iterable[Record]) -> dict[str, str]:
    """Leave out incomplete results."""
    found: dict[str, str] = {}
    for each in records:
        if each.kind != "outcome":
            continue
        facts = each.facts
        named = parse_approval_id(str(facts.get("approval", "")))
        # The history has the turn's own statements; only a worker's statement counts here.
        whole = facts.get("by") != "turn" and facts.get("code") == "ok" and "result_chars" not in facts
        if named is not None and whole and facts.get("record") == SPECIALIST and isinstance(facts.get("result"), str):
            found[named.call] = facts["result"]
    return found
