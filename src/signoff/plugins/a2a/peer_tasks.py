"""Starts, reads, lists and stops the tasks of one peer: only turns that it requested by A2A."""

import asyncio
import base64
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from signoff.calls import Exposed, PeerTurns
from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.errors import Conflict, NotFound, ServerUnavailable
from signoff.contracts.ids import SessionKey, TurnKey, is_id, turn_name
from signoff.contracts.limits import MAX_TURNS_PER_MESSAGE
from signoff.contracts.names import PEER
from signoff.contracts.responses import TurnRow
from signoff.contracts.session_messages import turn_of
from signoff.contracts.turn import ResponsePart, TurnView
from signoff.formats.json_reader import read_json
from signoff.formats.nearest_name import quote_name
from signoff.plugins.a2a.agent_card import MEDIA_TYPES
from signoff.plugins.a2a.rpc_error import (
    CONTENT_TYPE,
    INVALID_PARAMS,
    NO_PUSH,
    TASK_NOT_CANCELABLE,
    TASK_NOT_FOUND,
    UNSUPPORTED,
    RpcError,
)
from signoff.plugins.a2a.rpc_request import ListParams, PeerMessage, PeerPart, SendParams
from signoff.plugins.a2a.task_view import (
    AUTH_REQUIRED,
    FAILED,
    INTERRUPTED,
    STATES,
    SUBMITTED,
    TERMINAL,
    WORKING,
    PeerTask,
    is_told,
    task_of,
)

HEARTBEAT_SECONDS: Final = 15.0
"""The interval of heartbeats on a silent stream."""
WAIT_SECONDS: Final = 300.0
"""How long a request waits for the answer to a message before it gets the task's present state."""
STOP_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.3
"""How often tasks that work are checked for changes."""
_ID_CHARS: Final = 200
LISTED: Final = 500
"""A list is made from at most this many tasks, the newest ones."""
_NAMES: Final = uuid.UUID("6f0f4a0e-6a43-4f0e-9c0b-0f7f0c2f9d1a")


class TaskUpdate(NamedTuple):
    """A task now and before, for a follower. Both are `None` if nothing changed."""

    now: PeerTask | None = None
    before: PeerTask | None = None


class PeerTasks:
    """The tasks of a peer with one actor. Methods raise `RpcError`, and `SignoffError` if a service is unavailable.

    A missing task and another peer's task give the same error.
    """

    def __init__(self, turns: PeerTurns, exposed: Exposed, actor: str, public_url: str) -> None:
        self._turns = turns
        self._actor = actor
        self._exposed = exposed.tools
        self._public_url = public_url

    async def send(self, params: SendParams) -> TurnKey:
        """A message cannot address another turn. A repeated message is the same turn."""
        message = params.message
        if params.configuration.task_push_notification_config is not None:
            raise RpcError(NO_PUSH, "this agent sends no push notifications; follow the task, or read it again")
        modes = params.configuration.accepted_output_modes
        if modes and not any(each in (*MEDIA_TYPES, "*/*", "text/*") for each in modes):
            raise RpcError(CONTENT_TYPE, f"answers are {' and '.join(MEDIA_TYPES)}")
        if message.task_id:
            await self._refuse_more(message)
        text = "\n\n".join(map(_text, message.parts))
        if not text.strip():
            raise RpcError(INVALID_PARAMS, "the message says nothing")
        key = TurnKey(*self._context(message), self._turn_id(message))
        try:
            await self._turns.say(key, self._actor, text)
        except Conflict:
            # The error's text names the turn, whose id the peer has never seen.
            own = quote_name(message.message_id, _ID_CHARS)
            raise Conflict(f"`messageId` {own} was sent before, with other words; choose another one") from None
        return key

    async def find(self, name: str) -> TurnKey:
        """Raise `RpcError` for a task that is not this peer's with this actor."""
        parts = name.split(".")
        key = TurnKey(*parts) if len(parts) == 3 and all(map(is_id, parts)) else None
        # A follow-up turn is not a task. A person's turn with a chosen id is not one either.
        if key is None or not _is_turn_id(key.turn) or not self._turns.is_session(SessionKey(key.tenant, key.session)):
            raise _not_found(name)
        try:
            begun = await self._turns.start(key)
        except NotFound:
            # It has not begun yet, or never will: its session knows.
            await self._read_waiting(key)
            return key
        if begun != (self._turns.user, PEER, self._actor):
            raise _not_found(name)
        return key

    async def read(self, key: TurnKey, *, parts: bool = True) -> PeerTask:
        """Return the state of a task: of its message's last turn. Without `parts`, no answer is loaded."""
        found: TurnView | None = None
        for number in range(1, MAX_TURNS_PER_MESSAGE + 1):
            try:
                view = await self._turns.view(TurnKey(key.tenant, key.session, turn_of(key.turn, number)))
            except NotFound:
                break
            found = view
            # Another turn of the same message follows only if its work continues elsewhere.
            if view.result is None or STATES.get(view.state) != WORKING:
                break
        if found is None:
            return await self._read_waiting(key)
        return await self._task(key, found, parts=parts)

    async def wait_for(self, key: TurnKey, states: frozenset[str], seconds: float) -> PeerTask:
        task = self._base(key)
        async for update in self._watch(key, seconds):
            task = update.now or task
            if task.state in states:
                break
        return task

    async def read_at_once(self, key: TurnKey) -> PeerTask:
        """Before a worker sees a task, it merely exists."""
        try:
            return await self.read(key)
        except ServerUnavailable:
            return self._base(key)

    async def wait_for_answer(self, key: TurnKey, seconds: float) -> PeerTask:
        """An answer to a task's message must wait until it ends or waits for input (3.2.2)."""
        return await self.wait_for(key, TERMINAL | INTERRUPTED, seconds)

    async def follow(self, key: TurnKey) -> AsyncIterator[TaskUpdate]:
        """Yield a task after each change, until it ends. Empty updates are heartbeats."""
        before: PeerTask | None = None
        async for update in self._watch(key):
            if update.now is None:
                yield update
                continue
            yield TaskUpdate(update.now, before)
            before = update.now

    async def stop(self, key: TurnKey) -> None:
        """Raise `RpcError` for a finished or waiting task."""
        task = await self.read(key)
        if task.is_over or task.state == SUBMITTED:
            raise RpcError(TASK_NOT_CANCELABLE, f"this task is {task.state}", taskId=task.id)
        await self._turns.stop(await self._last(key))

    async def list_page(self, params: ListParams) -> tuple[list[PeerTask], str, int]:
        """Return tasks, last changed first, the token of the next page, and the total."""
        what = ("peer tasks", self._actor, params.model_dump_json())
        return await self._turns.share(what, lambda: self._read_page_of_tasks(params))

    async def _read_page_of_tasks(self, params: ListParams) -> tuple[list[PeerTask], str, int]:
        rows = await self._turns.rows(self._actor, lambda row: self._is_listed(row, params), LISTED)
        rows.sort(key=_place, reverse=True)
        if params.status:
            # The states only: the answers of all these tasks would fill the memory.
            found = [each for each in [await self._read_row(row, parts=False) for row in rows] if each is not None]
            rows = [row for row, task in found if task.state == params.status]
        after = _read_page(params.page_token)
        rest = [row for row in rows if after is None or _place(row) < after]
        shown = [await self._read_row(row, parts=params.include_artifacts) for row in rest[: params.page_size]]
        page = [each for each in shown if each is not None]
        more = len(rest) > params.page_size
        return [task for _, task in page], _page_token(rest[params.page_size - 1]) if more else "", len(rows)

    async def _read_row(self, row: TurnRow, *, parts: bool) -> tuple[TurnRow, PeerTask] | None:
        try:
            key = await self.find(turn_name(TurnKey(row.tenant, row.session, row.turn)))
            return row, await self.read(key, parts=parts)
        except (NotFound, RpcError):
            return None

    def _is_listed(self, row: TurnRow, params: ListParams) -> bool:
        since = params.status_timestamp_after
        # A successor turn, `<turn>-2`, belongs to the task of its message.
        first = _is_turn_id(row.turn)
        return first and params.context_id in ("", row.session) and (since is None or _changed_at(row) >= since)

    async def _refuse_more(self, message: PeerMessage) -> None:
        key = await self.find(message.task_id)
        if message.context_id not in ("", key.session):
            raise RpcError(INVALID_PARAMS, "`contextId` is another than that of the task")
        task = await self.read(key)
        why = "it is over; say something new in its context, without `taskId`"
        if not task.is_over:
            why = "it takes no messages, because approvers decide it. It can be cancelled"
        raise RpcError(UNSUPPORTED, f"the task is {task.state}: {why}", taskId=task.id)

    def _context(self, message: PeerMessage) -> SessionKey:
        if not message.context_id:
            return self._turns.new_session(uuid.uuid5(_NAMES, self._turn_id(message)).hex)
        key = SessionKey(self._turns.tenant, message.context_id)
        if not is_id(message.context_id) or not self._turns.is_session(key):
            raise RpcError(INVALID_PARAMS, "there is no such context; leave `contextId` out to begin one")
        return key

    def _turn_id(self, message: PeerMessage) -> str:
        turns = self._turns
        words = [turns.tenant, turns.user, self._actor, message.context_id, message.message_id]
        return str(uuid.uuid5(_NAMES, canonical_json(words).decode()))

    def _base(self, key: TurnKey) -> PeerTask:
        return PeerTask(id=turn_name(key), context=key.session)

    async def _read_waiting(self, key: TurnKey) -> PeerTask:
        """Find the task of a missing turn in its session. Raises `RpcError` if the session does not know it."""
        try:
            session = await self._turns.session(SessionKey(key.tenant, key.session))
        except NotFound:
            raise _not_found(turn_name(key)) from None
        if any(each.message_id == key.turn for each in session.queued):
            return self._base(key)
        for turn in session.turns:
            if turn.turn == key.turn and turn.requester == self._turns.user:
                # It could not begin, or begins at this moment.
                lost = self._base(key) if turn.error is None else replace(self._base(key), words=turn.error.message)
                return replace(lost, state=FAILED if turn.error is not None else SUBMITTED, at=turn.started_at)
        raise _not_found(turn_name(key))

    async def _task(self, key: TurnKey, view: TurnView, *, parts: bool) -> PeerTask:
        ended = None
        if view.result is not None:
            one = TurnKey(view.tenant, view.session, view.turn)
            row = await self._turns.row(one)
            ended = None if row is None else row.closed_at
        task = task_of(self._base(key), view, self._exposed, self._public_url, ended)
        given = view.result.parts if parts and view.result is not None else ()
        place = SessionKey(key.tenant, key.session)
        return replace(task, parts=tuple([await self._load(each, place) for each in given if is_told(each.type)]))

    async def _load(self, part: ResponsePart, place: SessionKey) -> tuple[str, Any]:
        return part.type, await self._turns.value(part, place)

    async def _last(self, key: TurnKey) -> TurnKey:
        last = key
        for number in range(2, MAX_TURNS_PER_MESSAGE + 1):
            one = TurnKey(key.tenant, key.session, turn_of(key.turn, number))
            try:
                await self._turns.start(one)
            except NotFound:
                break
            last = one
        return last

    async def _watch(self, key: TurnKey, seconds: float = float("inf")) -> AsyncIterator[TaskUpdate]:
        """End with the task, with streams, or after `seconds`."""
        clock = asyncio.get_running_loop().time
        last: PeerTask | None = None
        told_at, until = clock(), clock() + seconds
        async with self._turns.following(_turns_of(key)) as pause:
            while True:
                task = last
                # Without a worker the task cannot change either.
                with contextlib.suppress(ServerUnavailable):
                    task = await self.read(key)
                if task is not None and task != last:
                    yield TaskUpdate(now=task)
                    last, told_at = task, clock()
                    if task.is_over:
                        return
                elif clock() - told_at >= HEARTBEAT_SECONDS:
                    yield TaskUpdate()
                    told_at = clock()
                # While approvers are asked, the store wakes this wait.
                is_asked = last is not None and last.state == AUTH_REQUIRED
                left = min(HEARTBEAT_SECONDS if is_asked else LOOK_SECONDS, until - clock())
                if left <= 0 or not await pause(left):
                    return


def _turns_of(key: TurnKey) -> list[TurnKey]:
    numbers = range(1, MAX_TURNS_PER_MESSAGE + 1)
    return [TurnKey(key.tenant, key.session, turn_of(key.turn, number)) for number in numbers]


def _text(part: PeerPart) -> str:
    if part.raw is not None or part.url is not None:
        raise RpcError(CONTENT_TYPE, "files are not taken; send text or data")
    if part.text is not None:
        if part.media_type and not part.media_type.startswith("text/"):
            raise RpcError(CONTENT_TYPE, f"text of the type `{part.media_type[:60]}` is not taken")
        return part.text
    if "data" not in part.model_fields_set:
        raise RpcError(INVALID_PARAMS, "a part has `text` or `data`")
    return json.dumps(part.data, ensure_ascii=False)


def _not_found(name: str) -> RpcError:
    return RpcError(TASK_NOT_FOUND, f"there is no task {quote_name(name, _ID_CHARS)}")


def _changed_at(row: TurnRow) -> datetime:
    return row.closed_at or row.started_at or datetime.min.replace(tzinfo=UTC)


def _place(row: TurnRow) -> tuple[datetime, str]:
    return _changed_at(row), row.turn


def _is_turn_id(turn: str) -> bool:
    try:
        return str(uuid.UUID(turn)) == turn and uuid.UUID(turn).version == 5
    except ValueError:
        return False


def _page_token(row: TurnRow) -> str:
    at, turn = _place(row)
    return base64.urlsafe_b64encode(json.dumps([at.isoformat(), turn]).encode()).decode()


def _read_page(token: str) -> tuple[datetime, str] | None:
    if not token:
        return None
    try:
        at, turn = read_json(base64.urlsafe_b64decode(token.encode()))
        return datetime.fromisoformat(at).astimezone(UTC), str(turn)
    except (ValueError, TypeError, OverflowError):
        raise RpcError(INVALID_PARAMS, "`pageToken` is none that this list gave") from None
