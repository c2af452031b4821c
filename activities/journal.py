"""What activities write down, each before or together with what it records."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection
from temporalio import activity

from signoff.activities.room import Room
from signoff.approvals import entries
from signoff.audit.log import TURNS_KEYS, AuditLog, writing
from signoff.contracts import names
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import CallOutcome, Permit
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import parse_approval_id
from signoff.contracts.limits import RECORDED_RESULT_CHARS
from signoff.contracts.names import ACTOR_TURN
from signoff.contracts.steps import RecordTask
from signoff.policy.compiled import CompiledPolicy
from signoff.registry.execution import dispatched, executed, masked
from signoff.registry.gates import Judgement
from signoff.registry.registry import definition_hash
from signoff.registry.result import trim
from signoff.registry.tool import Tool
from signoff.store.content import to_content
from signoff.store.questions import end_by_word
from signoff.store.store import Also


def now() -> datetime:
    """The worker's clock."""
    return datetime.now(UTC)


async def hand_over(room: Room, seen: Sequence[AuditEntry]) -> None:
    """Write what was seen in the turn that this activity is of; nobody else's stream. Raises `StoreUnavailable`.

    Whoever may start workflows may start this activity from one of theirs: what such a one tells is not written.
    """
    own = _own(seen)
    await AuditLog(room.store).append(own)
    await _end_questions(room, own)


async def _end_questions(room: Room, seen: Sequence[AuditEntry]) -> None:
    """Take a turn's word for how its questions ended, which never lets anything run. Raises `StoreUnavailable`."""
    ended = [entry.data for entry in seen if entry.kind == "ending" and _is_of(entry.stream, entry.data)]
    if not ended:
        return

    def write(connection: Connection) -> None:
        for facts in ended:
            end_by_word(connection, str(facts["approval"]), int(facts["revision"]), str(facts["state"]))

    await room.store.run(write)


def _is_of(stream: str, facts: Mapping[str, Any]) -> bool:
    """Whether an ending is of a question of the turn whose stream it stands in: nobody ends another turn's."""
    approval = parse_approval_id(str(facts.get("approval", "")))
    return approval is not None and approval.turn.workflow_id == stream


async def write(room: Room, entries: Sequence[AuditEntry]) -> None:
    """Write what this activity itself saw of its turn. Raises `StoreUnavailable`."""
    await AuditLog(room.store).append(entries)


def _own(seen: Sequence[AuditEntry]) -> list[AuditEntry]:
    """What a turn says of itself, marked as its word, under keys that nothing else has."""
    info = activity.info()
    own = [entry for entry in seen if info.workflow_type == ACTOR_TURN and entry.stream == info.workflow_id]
    # Whoever runs a workflow can say anything here: it must neither pass for what an activity saw, nor keep that out
    # of the record by taking its key first.
    return [by_turn(entry) for entry in own]


def by_turn(entry: AuditEntry) -> AuditEntry:
    """`entry` as what nobody but its turn says."""
    return entry.model_copy(update={"key": f"{TURNS_KEYS}{entry.key}", "data": {**entry.data, "by": "turn"}})


class Ran(NamedTuple):
    """What the record may hold of a call that ran: its arguments, and the text of its result; None: it is not known."""

    args: Mapping[str, Any]
    result: str | None


class RecordActivity:
    """Writes down what a turn saw at its end."""

    def __init__(self, room: Room) -> None:
        self._room = room

    @activity.defn(name=names.RECORD)
    async def record(self, task: RecordTask) -> None:
        """Raises `StoreUnavailable`, and is tried again."""
        await hand_over(self._room, task.audit)


class Journal:
    """The record of one call. Where its tool's policy asks for no more than best effort, nothing but `receive` raises.

    Else what cannot be written raises `StoreUnavailable`, and the activity is tried again.
    """

    def __init__(self, room: Room, tool: Tool) -> None:
        self._room = room
        self._log = AuditLog(room.store)
        self._tool = tool
        self._required = is_required(room.catalog.policies.get(tool.activity))
        self._owed: list[AuditEntry] = []

    async def receive(self, seen: Sequence[AuditEntry]) -> None:
        """Take over what the turn saw before this call: written before, or together with, the next that is written.

        A transaction of its own would be a quarter of the time from a decision to its effect.
        Raises `StoreUnavailable`.
        """
        if self._required:
            self._owed = _own(seen)
            await _end_questions(self._room, self._owed)
        else:
            # `_keep` may lose what this tool's policy holds cheap; what the turn saw is not of this tool alone.
            await hand_over(self._room, seen)

    async def settle(self) -> None:
        """Write what was received and is not written yet."""
        if self._owed:
            await self._keep([])

    def settled(self) -> None:
        """What was received has been written, by what `together` gave."""
        self._owed = []

    async def refused(self, permit: Permit, why: str) -> None:
        """Somebody wanted to run the tool without the right to."""
        await self._keep([entries.refused_to_run(permit, self._tool.name, why, now())])

    def beginning(self, permit: Permit, found: Judgement, ticket: str) -> list[AuditEntry]:
        """The handler is about to be called; by a rule or a grant, if nobody was asked."""
        event = dispatched(self._tool, permit)
        begins = entries.started(permit, self._tool.name, ticket, now(), found.note, event)
        if permit.kind == "approved":
            return [begins]
        engines = found.verdict.evaluators if found.verdict is not None else ""
        definition = definition_hash(self._tool)
        return [entries.allowed(permit, self._tool.name, definition, engines, begins.at), begins]

    async def end(self, permit: Permit, outcome: CallOutcome, ticket: str, ran: Ran | None = None) -> list[AuditEntry]:
        """What became of the call, and where it ran how it was dispatched; of a specialist all of it (B39).

        Raises `StoreUnavailable` where large arguments cannot be kept.
        """
        facts = {} if ran is None else {**executed(self._tool, permit), **await self._kept(ran)}
        return [entries.finished(permit, outcome, ticket, now(), facts)]

    async def _kept(self, ran: Ran) -> dict[str, Any]:
        own: dict[str, Any] = {}
        if self._tool.scope == "specialist":
            own = await self._arguments(masked(self._tool, ran.args))
        if ran.result is None:
            return own
        cut = trim(ran.result, RECORDED_RESULT_CHARS)
        return {**own, "result": cut.text, "result_chars": cut.original_chars if cut.truncated else None}

    async def _arguments(self, args: Mapping[str, Any]) -> dict[str, Any]:
        try:
            kept = await to_content(self._room.store, args)
        except StoreUnavailable:
            if self._required:
                raise
            return {}
        if kept.blob is None:
            return {"arguments": kept.inline}
        return {"arguments_kept": {"sha256": kept.blob.sha256, "size": kept.blob.size}}

    def together(self, seen: Sequence[AuditEntry]) -> Also | None:
        """What writes `seen` in the transaction of what it records; None where it is written apart."""
        return writing([*self._owed, *seen]) if self._required else None

    async def apart(self, seen: Sequence[AuditEntry]) -> None:
        """Write what is not written together with something else."""
        if not self._required:
            await self._keep(seen)

    async def alone(self, seen: Sequence[AuditEntry]) -> None:
        """Write what has no transaction to be written in."""
        await self._keep(seen)

    async def _keep(self, seen: Sequence[AuditEntry]) -> None:
        try:
            await self._log.append([*self._owed, *seen])
            self._owed = []
        except StoreUnavailable as error:
            if self._required:
                raise
            activity.logger.warning("%s goes on without its record: %s", self._tool.name, error.message)


def is_required(policy: CompiledPolicy | None) -> bool:
    """Whether calls under this policy, or under none, must not run without their record."""
    return policy is None or policy.policy is None or policy.policy.audit == "required"
