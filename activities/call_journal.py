"""Records the actions of activities, before their effects or in the same transaction."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection
from temporalio import activity

from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals import call_events
from signoff.approvals.audit_buffer import whole_facts
from signoff.audit.log import TURNS_KEYS, AuditLog, entry_writer
from signoff.audit.record import bound_text
from signoff.contracts import names
from signoff.contracts.activity_messages import RecordTask, RunTask
from signoff.contracts.approval import Question
from signoff.contracts.audit import BY, BY_TURN, CLAIMED_SUBJECT, AuditEntry, EventEntry
from signoff.contracts.call import CallContext, CallOutcome, RunRight
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey, TurnKey, parse_approval_id, parse_workflow_id
from signoff.contracts.limits import RECORDED_RESULT_CHARS
from signoff.contracts.names import ACTOR_TURN
from signoff.contracts.turn import FAILED_STATES
from signoff.formats.replace import replace
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.registry import definition_hash
from signoff.registry.results.dispatch_record import dispatch_event, execution_facts, mask_arguments
from signoff.registry.tool import Tool
from signoff.registry.tool_result import trim
from signoff.store.content_store import to_content
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import end_by_turn, end_turn_questions
from signoff.store.store import Also


async def hand_over(deps: WorkerDeps, seen: Sequence[AuditEntry]) -> None:
    """Record a turn's own entries and no entries of other streams.

    Raises `StoreUnavailable`. Anyone who can start workflows can start this activity from one; entries of such a caller
    are not recorded.
    """
    write = make_hand_over(seen)
    if write is not None:
        await deps.store.run(write)


def make_hand_over(seen: Sequence[AuditEntry], beside: Sequence[AuditEntry] = ()) -> Also | None:
    """Return a write of a turn's own entries and of `beside`, for a transaction that begins with other work, or `None`
    without entries.
    """
    own = _own(seen)
    return _write_endings(own, entry_writer([*own, *beside])) if own or beside else None


def _write_endings(own: Sequence[AuditEntry], also: Also, rows: ApprovalRows | None = None) -> Also:
    """Return a write that records how a turn's own questions ended, by the turn's word, and then runs `also`.

    Such an entry never lets a call run. `rows` holds the approval if it was read before.
    """
    known_rows = {} if rows is None else {rows.latest.id: rows}
    # An entry of the turn's own stream may name any approval. A foreign question would end while its turn still asks
    # it.
    ended = [entry.data for entry in own if entry.kind == "ending" and _is_own(entry.data.get("approval"))]
    turn = _turn()
    is_stopped = any(entry.kind == "turn" and entry.data.get("ended") in FAILED_STATES for entry in own)

    def write(connection: Connection) -> None:
        # Keep one order: each row remains locked.
        for facts in sorted(ended, key=lambda each: str(each["approval"])):
            approval, revision, state = facts["approval"], facts.get("revision", 0), facts.get("state", "")
            end_by_turn(connection, approval, revision, state, known_rows.get(approval))
        if is_stopped and turn is not None:
            end_turn_questions(connection, turn)
        # Last, because it locks the heads of its streams.
        also(connection)

    return write if ended or is_stopped else also


async def write(deps: WorkerDeps, entries: Sequence[AuditEntry]) -> None:
    """Record this activity's entries about its turn. Raises `StoreUnavailable`."""
    await AuditLog(deps.store).append(entries)


def _turn() -> TurnKey | None:
    """`None` if no turn scheduled this activity."""
    info = activity.info()
    return parse_workflow_id(info.workflow_id or "") if info.workflow_type == ACTOR_TURN else None


def _own(seen: Sequence[AuditEntry]) -> list[AuditEntry]:
    turn = _turn()
    if turn is None:
        return []
    # A workflow can claim anything here. Its claim must not look like an activity's entry, take such an entry's key
    # first, or enter another tenant's record.
    return mark_claims(
        [
            replace(each, stream=turn.workflow_id, tenant=turn.tenant, data=whole_facts(each.data, turn))
            for each in seen
            if each.stream in ("", turn.workflow_id)
        ]
    )


def mark_claims(seen: Sequence[AuditEntry]) -> list[AuditEntry]:
    """Mark entries as a turn's claims, under separate keys. Their subjects are claims too."""
    return [
        replace(entry, key=f"{TURNS_KEYS}{entry.key}", data={**entry.data, BY: BY_TURN})
        for entry in map(_claim_subject, seen)
    ]


async def attribute(deps: WorkerDeps, ctx: CallContext, seen: Sequence[AuditEntry]) -> list[AuditEntry]:
    """The entries' subject is a claim unless the gateway signed the requester."""
    is_vouched = ctx.user.key_id and deps.verifier.check_principal(await deps.as_asked(ctx))
    return list(seen if is_vouched else map(_claim_subject, seen))


def attribute_question(deps: WorkerDeps, question: Question, entry: AuditEntry) -> AuditEntry:
    """The requester is a claim unless the gateway signed for them."""
    # The stored answer proves the author of an edit.
    known_rows = entry.data.get("edited_by") or (question.requester.key_id and deps.verifier.check_asker(question))
    return entry if known_rows else _claim_subject(entry)


def _claim_subject(entry: AuditEntry) -> AuditEntry:
    if not entry.subject:
        return entry
    claim = {CLAIMED_SUBJECT: bound_text(entry.subject)}
    return replace(entry, subject="", data={**entry.data, **claim})


def _is_own(approval: object) -> bool:
    """Return whether an approval belongs to a call of the turn that scheduled this activity."""
    named, turn = parse_approval_id(approval) if isinstance(approval, str) else None, _turn()
    return named is not None and named.turn == turn


class CallContent(NamedTuple):
    """The content of a finished call for the audit log."""

    args: Mapping[str, Any]
    result: str | None
    """The text of the result, or `None` if it is unknown."""


class RecordActivity:
    """Records the last entries of a turn."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps

    @activity.defn(name=names.RECORD)
    async def record(self, task: RecordTask) -> None:
        """Raises `StoreUnavailable`, and Temporal retries."""
        await hand_over(self._deps, task.audit)


class Journal:
    """Records one call.

    If the policy demands only best effort, no method but `receive` raises. Otherwise an entry that cannot be recorded
    raises `StoreUnavailable`, and Temporal retries the activity.
    """

    def __init__(self, deps: WorkerDeps, tool: Tool) -> None:
        self._deps = deps
        self._tool = tool
        self._required = is_required(deps.catalog.policies.get(tool.activity))
        self._owed: list[AuditEntry] = []

    async def receive(self, seen: Sequence[AuditEntry], approval: str) -> None:
        """Accept the turn's entries from before this call; the next entry's write records them.

        A separate transaction would take a quarter of the time from a decision to its effect. Only entries about a
        question other than `approval`, this call's, get one: otherwise two calls that end each other's questions while
        claiming their tickets would deadlock. Raises `StoreUnavailable`.
        """
        own = _own(seen)
        others = any(entry.kind == "ending" and entry.data.get("approval") != approval for entry in own)
        if self._required and not others:
            self._owed = own
        else:
            # `_keep` may lose entries if this tool's policy allows that. The turn's entries concern other tools as
            # well.
            await hand_over(self._deps, seen)

    async def settle(self) -> None:
        if self._owed:
            await self._keep([])

    def forget_received(self) -> None:
        """Call this only once the write of `together` has recorded the accepted entries."""
        self._owed = []

    async def record_refusal(self, task: RunTask, why: str, *, vouched: bool = True) -> None:
        """Record that a turn tried to run the tool without the right to. Unvouched entries are the turn's claims."""
        entry = call_events.refused_run_entry(task, why, self._deps.clock())
        seen = await attribute(self._deps, task.ctx, [entry])
        await self._keep(seen if vouched else mark_claims(seen))

    async def start_entries(
        self, task: RunTask, right: RunRight, found: JudgedCall, args: Mapping[str, Any], ticket: str
    ) -> list[AuditEntry]:
        """Build the entries for the handler's start, with its rule or grant if the call had no approval.

        Raises `StoreUnavailable` if large arguments cannot be stored.
        """
        event = dispatch_event(self._tool, task.ctx.actor)
        # An external agent runs the tool itself: only its promise says that it does so as approved.
        by = {"run_by": task.ctx.actor} if self._tool.is_external else {}
        attempt = "" if ticket else _attempt()
        begins = call_events.started_entry(
            task, right, ticket, self._deps.clock(), found.note, {**event, **by}, attempt
        )
        if event:
            # The audit log is permanent, and binds the arguments by their digest.
            given = await self._arguments(mask_arguments(self._tool, args), task.place)
            begins = EventEntry(**dict(begins), event_facts=given)
        if right.revision is not None:
            return await attribute(self._deps, task.ctx, [begins])
        engines = found.verdict.evaluators if found.verdict is not None else ""
        allowed = call_events.allowed_entry(task, right, definition_hash(self._tool), engines, begins.at)
        return await attribute(self._deps, task.ctx, [allowed, begins])

    async def end(
        self, task: RunTask, outcome: CallOutcome, ticket: str, ran: CallContent | None = None
    ) -> list[AuditEntry]:
        """Build the entries for the end of the call.

        A call that ran gets its execution facts, and a specialist's call all of its arguments. Raises
        `StoreUnavailable` if large arguments cannot be stored.
        """
        facts, attempt = {}, task.digest
        if ran is not None:
            facts = execution_facts(self._tool, task.ctx.actor, task.call)
            facts |= await self._arguments_facts(ran, task.place)
            attempt += "" if ticket else _attempt()
        entry = call_events.finished_entry(task.ctx, outcome, ticket, self._deps.clock(), facts, attempt)
        return await attribute(self._deps, task.ctx, [entry])

    async def _arguments_facts(self, ran: CallContent, place: SessionKey) -> dict[str, Any]:
        own: dict[str, Any] = {}
        if self._tool.scope == "specialist":
            own = await self._arguments(mask_arguments(self._tool, ran.args), place)
        if ran.result is None:
            return own
        cut = trim(ran.result, RECORDED_RESULT_CHARS)
        return {**own, "result": cut.text, "result_chars": cut.original_chars if cut.truncated else None}

    async def _arguments(self, args: Mapping[str, Any], place: SessionKey) -> dict[str, Any]:
        try:
            kept = await to_content(self._deps.store, args, place)
        except StoreUnavailable:
            if self._required:
                raise
            return {}
        if kept.blob is None:
            return {"arguments": kept.inline}
        return {"arguments_kept": {"sha256": kept.blob.sha256, "size": kept.blob.size}}

    def together(self, seen: Sequence[AuditEntry], rows: ApprovalRows | None = None) -> Also | None:
        """Return a write of `seen` for the transaction of the recorded event, or `None` if `apart` writes it.

        `rows` holds the call's approval, read before.
        """
        return self._write_entries(seen, rows) if self._required else None

    async def apart(self, seen: Sequence[AuditEntry]) -> None:
        if not self._required:
            await self._keep(seen)

    async def alone(self, seen: Sequence[AuditEntry]) -> None:
        await self._keep(seen)

    async def _keep(self, seen: Sequence[AuditEntry]) -> None:
        if not (self._owed or seen):
            return
        try:
            await self._deps.store.run(self._write_entries(seen))
            self._owed = []
        except StoreUnavailable as error:
            if self._required:
                raise
            activity.logger.warning("%s continues without its audit entry: %s", self._tool.name, error.message)

    def _write_entries(self, seen: Sequence[AuditEntry], rows: ApprovalRows | None = None) -> Also:
        return _write_endings(self._owed, entry_writer([*self._owed, *seen]), rows)


def _attempt() -> str:
    """Return a suffix for this run of a handler: without a ticket, the same call may run again."""
    info = activity.info()
    return f"/{sha256_hex([info.workflow_run_id or '', info.activity_id, info.attempt])[:16]}"


def is_required(policy: CompiledPolicy | None) -> bool:
    """Return whether calls under this policy, or without one, must not run unrecorded."""
    return policy is None or policy.policy is None or policy.policy.audit == "required"
