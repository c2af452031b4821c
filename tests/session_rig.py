import asyncio
import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polling import pauses
from temporalio.client import WorkflowHandle
from turn_fixtures import GUEST, RunningTurns

from signoff.contracts import names
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.content import text_of
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.message import Message, ResultPart, TextPart, user_message
from signoff.contracts.session_messages import (
    LateResult,
    MailboxMessage,
    SessionInput,
    SessionReceipt,
    SessionTurnView,
    SessionView,
)
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})


def react(request: CompletionRequest) -> Completion:
    entries = [part for each in request.messages for part in each.parts if isinstance(part, ResultPart)]
    text = last_user_text(request)
    if entries:
        return respond(f"{entries[-1].tool}: {entries[-1].code}")
    if text.startswith("pay"):
        return calls(PAY)
    before = [words(message) for message in request.messages[:-1]]
    return respond(f"{text} after {' | '.join(before)}" if before else text)


def model() -> ScriptedModel:
    return ScriptedModel(react)


def words(message: Message) -> str:
    return " ".join(text_of(part.text) for part in message.parts if isinstance(part, TextPart))


def message(text: str, message_id: str = "", **fields: Any) -> MailboxMessage:
    given: dict[str, Any] = {
        "engine": names.ENGINE,
        "id": message_id or f"m{uuid.uuid4().hex[:12]}",
        "message": user_message(text),
        "principals": (GUEST,),
        "person_id": GUEST.user,
    } | fields
    return MailboxMessage(**given)


@dataclass
class Talk:
    turns: RunningTurns
    key: SessionKey

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.turns.client.get_workflow_handle(self.key.workflow_id)

    async def begin(self, **fields: Any) -> None:
        first = SessionInput(
            engine=names.ENGINE, tenant_id=self.key.tenant, session_id=self.key.session, actor="desk", **fields
        )
        await self.turns.client.start_workflow(
            names.SESSION, first, id=self.key.workflow_id, task_queue=self.turns.task_queue
        )

    async def say(self, text: str, message_id: str = "", **fields: Any) -> SessionReceipt:
        return await self.turns.sessions.say(self.key, message(text, message_id, **fields), actor="desk")

    async def add(self, turn: str, text: str, injection_id: str = "") -> SessionReceipt:
        injection = LateResult(id=injection_id or f"i{uuid.uuid4().hex[:12]}", turn=turn, message=user_message(text))
        return await self.turns.sessions.inject(self.key, injection)

    async def until(self, seen: Callable[[SessionView], bool]) -> SessionView:
        waits = pauses()
        while True:
            with contextlib.suppress(ServerUnavailable, NotFound):
                view = await self.turns.sessions.session(self.key)
                if seen(view):
                    return view
            await asyncio.sleep(next(waits))

    async def turn(self, turn_id: str, *states: str) -> SessionTurnView:
        view = await self.until(lambda view: any(t.turn == turn_id and t.state in states for t in view.turns))
        return next(turn for turn in view.turns if turn.turn == turn_id)

    async def answer(self, turn_id: str) -> str:
        turn = await self.turn(turn_id, "complete", "clarifying", "awaiting", "delegated", "passed")
        return " ".join(text_of(part.content) for part in turn.parts)

    def turn_key(self, turn_id: str) -> TurnKey:
        return TurnKey(self.key.tenant, self.key.session, turn_id)

    async def runs(self) -> int:
        query = f'WorkflowId = "{self.key.workflow_id}"'
        return (await self.turns.client.count_workflows(query)).count


def talk(turns: RunningTurns) -> Talk:
    return Talk(turns, SessionKey("main", f"s{uuid.uuid4().hex[:12]}"))
