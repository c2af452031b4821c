"""Records what activities do, before their effects or together with them."""

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
from signoff.contracts.activity_messages import RecordTask
from signoff.contracts.approval import Question
from signoff.contracts.audit import BY, BY_TURN, CLAIMED_SUBJECT, AuditEntry, EventEntry
from signoff.contracts.call import CallContext, CallOutcome, Permit
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import SessionKey, TurnKey, parse_approval_id, parse_workflow_id
from signoff.contracts.limits import RECORDED_RESULT_CHARS
from signoff.contracts.names import ACTOR_TURN
from signoff.formats.replace import replace
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.registry.gates.local_decision import LocalGateDecision
from signoff.registry.registry import definition_hash
from signoff.registry.results.dispatch_record import dispatch_event, execution_facts, mask_arguments
from signoff.registry.tool import Tool
from signoff.registry.tool_result import trim
from signoff.store.content_store import to_content
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import end_by_turn
from signoff.store.store import Also


async def hand_over(deps: WorkerDeps, seen: Sequence[AuditEntry]) -> None:
    """Records a turn's own entries, and those of no other stream. Raises `StoreUnavailable`.

    Whoever may start workflows may start this activity from one of theirs: entries of such a caller are not
    recorded.
    """
    write = make_hand_over(seen)
    if write is not None:
        await deps.store.run(write)


def make_hand_over(seen: Sequence[AuditEntry], beside: Sequence[AuditEntry] = ()) -> Also | None:
    """Returns a write of a turn's own entries, and of those of this activity `beside` them; None where there are none.

    For a transaction that begins with something else.
    """
    own = _own(seen)
    return _write_endings(own, entry_writer([*own, *beside])) if own or beside else None


def _write_endings(own: Sequence[AuditEntry], also: Also, rows: ApprovalRows | None = None) -> Also:
    """Returns a write that takes a turn's word for how its own questions ended, and runs `also`; it never lets anything
    run.

    `rows` are of the approval that was read before, if one was.
    """
    known = {} if rows is None else {rows.latest.id: rows}
    # An entry of one's own stream may name anybody's approval: a question would be gone that its turn still asks.
    ended = [entry.data for entry in own if entry.kind == "ending" and _is_own(entry.data.get("approval"))]

    def write(connection: Connection) -> None:
        # In one order, as each stays locked.
        for facts in sorted(ended, key=lambda each: str(each["approval"])):
            approval, revision, state = facts["approval"], facts.get("revision", 0), facts.get("state", "")
            end_by_turn(connection, approval, revision, state, known.get(approval))
        # Last: it keeps the heads of its streams locked.
        also(connection)

    return write if ended else also


async def write(deps: WorkerDeps, entries: Sequence[AuditEntry]) -> None:
    """Records entries of this activity about its turn. Raises `StoreUnavailable`."""
    await AuditLog(deps.store).append(entries)


def _turn() -> TurnKey | None:
    """Returns the turn that scheduled this activity; None where none has."""
    info = activity.info()
    return parse_workflow_id(info.workflow_id or "") if info.workflow_type == ACTOR_TURN else None


def _own(seen: Sequence[AuditEntry]) -> list[AuditEntry]:
    """Returns a turn's entries about itself, marked as its word."""
    turn = _turn()
    if turn is None:
        return []
    # Whoever runs a workflow can say anything here: it must neither pass for what an activity saw, nor keep that out
    # of the record by taking its key first, nor lie in the record of another tenant.
    return mark_claims(
        [
            replace(each, stream=turn.workflow_id, tenant=turn.tenant, data=whole_facts(each.data, turn))
            for each in seen
            if each.stream in ("", turn.workflow_id)
        ]
    )


def mark_claims(seen: Sequence[AuditEntry]) -> list[AuditEntry]:
    """Marks entries as a turn's word, under keys that nothing else has. Their subjects are claims too."""
    return [
        replace(entry, key=f"{TURNS_KEYS}{entry.key}", data={**entry.data, BY: BY_TURN})
        for entry in map(_claim_subject, seen)
    ]


async def attribute(deps: WorkerDeps, ctx: CallContext, seen: Sequence[AuditEntry]) -> list[AuditEntry]:
    """Return an activity's entries about a turn; their subject is a claim unless the gateway signed the requester."""
    vouched = ctx.user.key_id and deps.verifier.check_principal(await deps.as_asked(ctx))
    return list(seen if vouched else map(_claim_subject, seen))


def attribute_question(deps: WorkerDeps, question: Question, entry: AuditEntry) -> AuditEntry:
    """Return the entry of a question; the requester is a claim unless the gateway signed for them."""
    # The author of an edit is known by the stored answer.
    known = entry.data.get("edited_by") or (question.requester.key_id and deps.verifier.check_asker(question))
    return entry if known else _claim_subject(entry)


def _claim_subject(entry: AuditEntry) -> AuditEntry:
    if not entry.subject:
        return entry
    claim = {CLAIMED_SUBJECT: bound_text(entry.subject)}
    return replace(entry, subject="", data={**entry.data, **claim})


def _is_own(approval: object) -> bool:
    """Returns whether an approval is of a call of the turn that scheduled this activity."""
    named, turn = parse_approval_id(approval) if isinstance(approval, str) else None, _turn()
    return named is not None and named.turn == turn


class CallContent(NamedTuple):
    """Holds what the record may tell of a call that ran."""

    args: Mapping[str, Any]
    """Its arguments."""
    result: str | None
    """The text of its result; None when it is not known."""


class RecordActivity:
    """Records the last entries of a turn."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps

    @activity.defn(name=names.RECORD)
    async def record(self, task: RecordTask) -> None:
        """Records the entries. Raises `StoreUnavailable`, and is tried again."""
        await hand_over(self._deps, task.audit)


class Journal:
    """Records one call. Where its tool's policy demands no more than best effort, nothing but `receive` raises.

    Else an entry that cannot be recorded raises `StoreUnavailable`, and the activity is tried again.
    """

    def __init__(self, deps: WorkerDeps, tool: Tool) -> None:
        self._deps = deps
        self._tool = tool
        self._required = is_required(deps.catalog.policies.get(tool.activity))
        self._owed: list[AuditEntry] = []

    async def receive(self, seen: Sequence[AuditEntry], approval: str) -> None:
        """Takes the turn's entries from before this call; they are recorded before, or together with, the next entry.

        A transaction of its own would be a quarter of the time from a decision to its effect. Only entries about
        another question than `approval`, which is this call's, get one: two calls that end each other's questions where
        they claim their tickets would wait for each other. Raises `StoreUnavailable`.
        """
        own = _own(seen)
        others = any(entry.kind == "ending" and entry.data.get("approval") != approval for entry in own)
        if self._required and not others:
            self._owed = own
        else:
            # `_keep` may lose what this tool's policy holds cheap; what the turn saw is not of this tool alone.
            await hand_over(self._deps, seen)

    async def settle(self) -> None:
        """Records the entries that were received and are not recorded yet."""
        if self._owed:
            await self._keep([])

    def forget_received(self) -> None:
        """Forgets the received entries, as the write that `together` returned has recorded them."""
        self._owed = []

    async def record_refusal(self, permit: Permit, why: str, *, vouched: bool = True) -> None:
        """Records that a turn wanted to run the tool without the right to; unvouched, all of that is its word."""
        entry = call_events.refused_run_entry(permit, self._tool.name, why, self._deps.clock())
        seen = await attribute(self._deps, permit.ctx, [entry])
        await self._keep(seen if vouched else mark_claims(seen))

    async def start_entries(
        self, permit: Permit, found: LocalGateDecision, args: Mapping[str, Any], ticket: str
    ) -> list[AuditEntry]:
        """Makes the entries for the start of the handler; by a rule or a grant, if nobody was asked.

        Raises `StoreUnavailable` where large arguments cannot be kept.
        """
        event = dispatch_event(self._tool, permit)
        # Where the agent runs it, that is done as approved is its promise and nobody's here.
        by = {"run_by": permit.ctx.actor} if self._tool.is_external else {}
        attempt = "" if ticket else _attempt()
        begins = call_events.started_entry(
            permit, self._tool.name, ticket, self._deps.clock(), found.note, {**event, **by}, attempt
        )
        if event:
            # The record is kept for good, and binds them by their digest.
            place = SessionKey(permit.ctx.tenant, permit.ctx.session)
            given = await self._arguments(mask_arguments(self._tool, args), place)
            begins = EventEntry(**dict(begins), event_facts=given)
        if permit.kind == "approved":
            return await attribute(self._deps, permit.ctx, [begins])
        engines = found.verdict.evaluators if found.verdict is not None else ""
        definition = definition_hash(self._tool)
        allowed = call_events.allowed_entry(permit, self._tool.name, definition, engines, begins.at)
        return await attribute(self._deps, permit.ctx, [allowed, begins])

    async def end(
        self, permit: Permit, outcome: CallOutcome, ticket: str, ran: CallContent | None = None
    ) -> list[AuditEntry]:
        """Makes the entries for the end of the call, and where it ran for its dispatch; of a specialist all of it
        (B39).

        Raises `StoreUnavailable` where large arguments cannot be kept.
        """
        facts = (
            {}
            if ran is None
            else {
                **execution_facts(self._tool, permit),
                **await self._arguments_facts(ran, SessionKey(permit.ctx.tenant, permit.ctx.session)),
            }
        )
        attempt = "" if ticket or ran is None else _attempt()
        entry = call_events.finished_entry(permit, outcome, ticket, self._deps.clock(), facts, attempt)
        return await attribute(self._deps, permit.ctx, [entry])

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
        """Returns a write of `seen` for the transaction of the recorded event; None where it is written apart.

        `rows` are those read before of the call's approval.
        """
        return self._write_entries(seen, rows) if self._required else None

    async def apart(self, seen: Sequence[AuditEntry]) -> None:
        """Records the entries that no other transaction records."""
        if not self._required:
            await self._keep(seen)

    async def alone(self, seen: Sequence[AuditEntry]) -> None:
        """Records entries in a transaction of their own."""
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
            activity.logger.warning("%s goes on without its record: %s", self._tool.name, error.message)

    def _write_entries(self, seen: Sequence[AuditEntry], rows: ApprovalRows | None = None) -> Also:
        return _write_endings(self._owed, entry_writer([*self._owed, *seen]), rows)


def _attempt() -> str:
    """Tells this run of a handler apart from others of the same call: without a ticket it may run again."""
    info = activity.info()
    return f"/{sha256_hex([info.workflow_run_id or '', info.activity_id, info.attempt])[:16]}"


def is_required(policy: CompiledPolicy | None) -> bool:
    """Returns whether calls under this policy, or under none, must not run without their record."""
    return policy is None or policy.policy is None or policy.policy.audit == "required"
