"""Local activity `signoff.gate`: judges a whole batch with every gate. The history stores its result."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from temporalio import activity

from signoff.activities.call_journal import attribute, write
from signoff.activities.grant_use import GrantUse, frozen_decision
from signoff.activities.heartbeat import check_ended
from signoff.activities.hooks.previews import preview_call
from signoff.activities.hooks.tool_hooks import apply_hooks, past_call_facts, unavailable_tools
from signoff.activities.question_writer import QuestionWriter, Subject, edit_problem
from signoff.activities.run_right import rows_of_turn
from signoff.activities.run_rules import ask_if_doubted, digest_of, is_expired
from signoff.activities.usage_check import exhausted_calls
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals import call_events
from signoff.approvals.approval_outcomes import denial_from_request, happened_outcome, repeated_denial, waiting_outcome
from signoff.approvals.card import effect_sentence
from signoff.approvals.card_notes import OFFLINE_MODEL, fallback_note, repeat_note
from signoff.approvals.digest import doubt_digest
from signoff.approvals.earlier_questions import (
    denial_of,
    ending_of,
    is_barred,
    is_bound_to,
    is_new_to_turn,
    last_asked,
)
from signoff.approvals.redaction import redact_remarks, redact_secrets
from signoff.approvals.turn_question import turn_question
from signoff.contracts import names
from signoff.contracts.activity_messages import GateDecision, GateReply, GateTask, RunOptions, Tally
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import IN_DOUBT_TEXT, CallContext, CallOutcome
from signoff.contracts.content import Content, Remark, Words
from signoff.contracts.ids import SessionKey, TurnKey, is_stand_in
from signoff.contracts.limits import MAX_TOOLS_AT_ONCE, TURN_RESTS_SECONDS
from signoff.contracts.message import CallPart
from signoff.contracts.preview import PreviewReference
from signoff.formats.replace import replace
from signoff.languages.remarks import english
from signoff.policypool.pool import ask_rules
from signoff.registry.gates.argument_check import final_arguments
from signoff.registry.gates.judged_call import JudgedCall, settled_decision, settled_outcome
from signoff.registry.gates.pipeline import GateFacts, action_hash, judge, next_tally
from signoff.registry.gates.resolution_trace import resolution_facts, resolution_line
from signoff.registry.hooks import override_hash
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool
from signoff.store.content_store import load_in
from signoff.store.questions.questions import QuestionRefused
from signoff.store.questions.request_lists import TurnRows
from signoff.store.tickets import Ticket, ticket_key

_START_SLACK = 15.0
"""Additional seconds for the server beyond a tool's timeout. The worker enforces that timeout itself."""


class _Judged(NamedTuple):
    call: CallPart
    args: Any
    """The proposed arguments."""
    found: JudgedCall
    before: Tally
    action: str

    @property
    def final(self) -> Any:
        """The arguments that would run."""
        return self.found.args(self.args)


class GateActivity:
    """Pure rules, plus loading arguments from the store."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._remembered = GrantUse(deps)
        self._questions = QuestionWriter(deps)

    @activity.defn(name=names.GATE)
    async def gate(self, task: GateTask) -> GateReply:
        """Return one decision a call, in order. Never fails because of the model's input."""
        gate_decisions: list[GateDecision] = []
        if task.edit:
            task = replace(task, calls=(await self._questions.edited_call(task),))
        doubt = await self._deps.doubt(task.ctx)
        forged = await self._deps.requester_problem(task.ctx)
        budget = self._deps.result_budget(task.ctx.actor, len(task.calls))
        known = await self._collect_facts(task, forged)
        batch, tally = await self._judge_calls(task, known)
        if forged:
            gate_decisions = [_refuse(each.call, forged) for each in batch]
            batch, quiet = [], []
        # Run the hooks in parallel: a local activity lacks the time for a whole batch in sequence.
        judged = await asyncio.gather(*(self._ask_hooks(task, each, known) for each in batch))
        secrets = self._deps.secrets_of((each.call.tool, each.args) for each in batch)
        task = replace(task, agent_says=redact_secrets(task.agent_says, secrets))
        # Read once for the batch: running a call detects a later freeze.
        rows = TurnRows([], [], None) if forged else await rows_of_turn(self._deps.store, task.ctx)
        quiet = [_quiet(ask_if_doubted(found, doubt), secrets) for found in judged]
        if task.doubt:
            for each, found in zip(batch, quiet, strict=True):
                gate_decisions.append(await self._doubt(task, each.call, each.args, found, rows))
            batch, quiet = [], []
        settled = [
            each._replace(found=await self._settled_before(task, each, found, rows))
            for each, found in zip(batch, quiet, strict=True)
        ]
        previews = await asyncio.gather(*(self._preview(task, each) for each in settled))
        for each, preview in zip(settled, previews, strict=True):
            gate_decision = await self._decide(task, each, preview, budget, rows)
            gate_decisions.append(
                replace(_with_summary(gate_decision, each.found.tool, each.final, secrets), action=each.action)
            )
        traced = [] if forged or not self._deps.traces(task.ctx) else self._trace(task)
        # A local activity runs again if its workflow task is lost. Entries with the same keys then add nothing.
        seen = [*traced, *_settled_entries(task, gate_decisions, self._deps.clock())]
        await write(self._deps, await attribute(self._deps, task.ctx, seen))
        return GateReply(gate_decisions=tuple(gate_decisions), tally=tally)

    def _trace(self, task: GateTask) -> list[AuditEntry]:
        view, entries = self._deps.catalog.tool_view(task.ctx), []
        for call in task.calls:
            facts = resolution_facts(view, call.tool)
            line = resolution_line(call.tool, facts)
            activity.logger.info("actor %s, call %s: %s", task.ctx.actor, call.call, line)
            entries.append(call_events.trace_entry(task.ctx, call.call, call.tool, facts, line, self._deps.clock()))
        return entries

    async def _collect_facts(self, task: GateTask, forged: str) -> GateFacts:
        """Runs no hooks if the requester is forged."""
        if task.doubt:
            return past_call_facts(self._deps.catalog, task.ctx, task.calls, self._deps.clock())
        names = () if forged else tuple(call.tool for call in task.calls if call.tool not in task.withheld)
        deps = self._deps
        away = await unavailable_tools(deps.catalog, task.ctx, names, at=deps.clock())
        used = {} if forged else await exhausted_calls(deps.store, deps.catalog, task.ctx, task.calls)
        return GateFacts(unavailable=away.union(task.withheld), backends=deps.kinds, spent=used, at=deps.clock())

    async def _ask_hooks(self, task: GateTask, each: _Judged, known: GateFacts) -> JudgedCall:
        """Complete the gates' decision with every hook, without asking approvers."""
        call, args, found, tally, _ = each
        catalog, dry_run = self._deps.catalog, task.dry_run
        permissions = self._deps.permissions
        found = await apply_hooks(
            catalog, task.ctx, call, args, tally, found, known, dry_run=dry_run, permissions=permissions
        )
        if task.edit > 0 and found.corrected is not None:
            # A person's signed arguments never run in a corrected form.
            changed = Remark.of("not_as_they_are", detail=found.notes)
            return settled_decision(call, "schema", "input_invalid", changed, found.tool)
        if task.edit > 0 and found.objection:
            # The edit also counts as its author's approval, and they never saw an objection to override.
            objected = Remark.of("not_permitted", why=found.objection)
            return settled_decision(call, "permission", "input_invalid", objected, found.tool)
        if task.edit > 0:
            return found.reword(tuple(map(_to_a_person, found.words)))
        return found

    async def _judge_calls(self, task: GateTask, known: GateFacts) -> tuple[list[_Judged], Tally]:
        catalog, batch, tally = self._deps.catalog, [], task.tally
        for call in task.calls:
            args = await load_in(self._deps.store, call.args, SessionKey(task.ctx.tenant, task.ctx.session))
            catalog, dry_run = self._deps.catalog, task.dry_run
            found = await ask_rules(
                catalog.may_block, judge, catalog, task.ctx, call, args, tally, dry_run=dry_run, known=known
            )
            before, tally = tally, next_tally(tally, call, args, found)
            batch.append(_Judged(call, args, found, before, action_hash(call, args, found)))
        return batch, tally

    async def _settled_before(
        self,
        task: GateTask,
        judged: _Judged,
        found: JudgedCall,
        rows: TurnRows,
    ) -> JudgedCall:
        """Apply the tenant's freeze, earlier denials, waiting calls and remembered answers to `found`.

        An edit is a person's proposal to the other approvers: no remembered answer applies to it, now or later.
        """
        call, action, args = judged.call, judged.action, found.args(judged.args)
        # Check before remembered answers: in a frozen tenant no grant applies, and none is used up.
        if rows.freeze is not None:
            return frozen_decision(found, rows.freeze.reason, call)
        if found.kind in ("run", "ask"):
            request = denial_of(rows.requests, task.ctx, call.tool, args)
            # Only the turn knows its session's denials and unsigned ones. Its claim can only deny.
            denial_of_turn = next((each for each in task.denied if each.action == action), None)
            denial = denial_of_turn if request is None else denial_from_request(request, action)
            if denial is not None:
                return found.deny(repeated_denial(denial, call.call, call.tool))
            waiting = next((each for each in task.waiting if each.action == action), None)
            if waiting is not None:
                outcome = waiting_outcome(call.call, call.tool, waiting)
                return found.decide(kind="settled", outcome=outcome)
        # Check after the denials: `asked_since` is the caller's claim, and must not bypass an earlier denial.
        if any(each.call == call.call and is_new_to_turn(each, task.asked_since, task.spent) for each in rows.requests):
            # An earlier attempt asked this, and its turn waits for that decision.
            return found.decide(kind="ask") if found.kind == "run" else found
        if task.edit > 0 or task.changed_by:
            return found
        barred = is_barred(rows.requests, call.call)
        if barred and found.kind == "run":
            # After a reset, no rule may run a call that is pending or was not approved.
            return found.decide(kind="ask")
        return found if barred else await self._remembered.apply_grant(task.ctx, call, args, found)

    async def _decide(
        self,
        task: GateTask,
        judged: _Judged,
        preview: PreviewReference | None,
        budget: int,
        rows: TurnRows,
    ) -> GateDecision:
        call, found, args = judged.call, judged.found, judged.final
        tool, verdict = found.tool, found.verdict
        if found.kind == "settled" or tool is None or verdict is None:
            ended = found.decide(outcome=settled_outcome(found))
            # Redacted or truncated text stays in English.
            told = task.edit > 0 and english(found.words) == ended.message
            settled = replace(ended.decision, refusal=found.words if told else ())
            if found.gate != "available" or tool is None or not tool.fallbacks:
                return settled
            # A fallback may run for an unavailable tool, as for a failed one.
            return replace(settled, options=self._options(task.ctx, tool, budget, ask=False))
        digest = digest_of(task.ctx, call.call, tool, args)
        ask = _asks(task, found)
        gate_decision = replace(
            found.decision,
            kind="ask" if ask else "run",
            digest=digest,
            rule=verdict.rule,
            options=self._options(task.ctx, tool, budget, ask=ask),
        )
        if not ask:
            return gate_decision
        ran, other = _find_earlier_run([each for each in rows.tickets if each.call == call.call], digest)
        if ran is not None:
            return replace(gate_decision, kind="settled", outcome=ran)
        if self._is_over(task.ctx, rows):
            return _refuse(call, "it is too long ago that anything was heard of this turn")
        under = (definition_hash(tool), verdict.policy_hash)
        turn_knows = (task.asked_since, task.spent)
        again = None if task.edit > 0 else repeat_note(rows.requests, call.call, *under, *turn_knows)
        every: tuple[Words | None, ...] = (self._stands_in(call), self._offline(task.ctx), again, *found.notes, *other)
        notes = tuple(each for each in every if each)
        override = override_hash(found.objection)
        about = Subject(call, args, tool, verdict, digest, notes, override, found.at, preview=preview)
        request = await self._ask_people(task, about)
        if isinstance(request, CallOutcome):
            return GateDecision(call=call.call, kind="settled", outcome=request)
        return replace(gate_decision, request=request, question=turn_question(request, None if task.edit else call))

    async def _preview(self, task: GateTask, judged: _Judged) -> PreviewReference | None:
        """Only for a call that will be asked: a preview costs time and reads data."""
        tool = judged.found.tool
        if tool is None or judged.found.verdict is None or not _asks(task, judged.found):
            return None
        return await preview_call(self._deps.catalog, self._deps.store, task.ctx, tool, judged.final)

    def _is_over(self, ctx: CallContext, rows: TurnRows) -> bool:
        """Return whether the turn's start and last sign of life are too old to ask in its requester's name."""
        now = self._deps.clock()
        if ctx.user.expires_at is None or not is_expired(ctx.user, now):
            return False
        moments = ((each.claimed_at, each.finished_at, each.seen_at) for each in rows.tickets)
        ran = [at for each in moments for at in each if at is not None]
        last_sign = max((ctx.user.expires_at, *last_asked(rows.requests), *ran))
        return last_sign + timedelta(seconds=TURN_RESTS_SECONDS) < now

    async def _doubt(
        self,
        task: GateTask,
        call: CallPart,
        proposed: Any,
        found: JudgedCall,
        rows: TurnRows,
    ) -> GateDecision:
        """Ask approvers about a call's unknown outcome: the call waits, or the decision says why no one is asked.

        The question is about the past, so the present policy does not matter. The store must show a begun attempt
        without an outcome, and no decision of approvers about it.
        """
        tool, verdict = self._deps.catalog.tool_view(task.ctx).tool(call.tool), found.verdict
        nobody = GateDecision(call=call.call, kind="settled", outcome=in_doubt(call))
        if tool is None or not self._deps.catalog.approvers(tool.activity, verdict):
            return nobody
        # An attempt ran with the arguments as corrected by the tool's own check.
        args = final_arguments(tool, proposed)
        ticket = await self._find_begun(task, call, tool, args, rows.requests)
        if ticket is None:
            return _refuse(call, "nobody has begun this")
        if ticket.outcome is not None and ticket.outcome.code != "in_doubt":
            return GateDecision(call=call.call, kind="settled", outcome=ticket.outcome)
        digest = doubt_digest(task.doubt_of, task.doubt)
        ending = ending_of([each for each in rows.requests if each.call == call.call], digest)
        if ending is not None and ending.state == "happened":
            return replace(nobody, outcome=happened_outcome(call.call, call.tool, ending.votes[-1].decision))
        if ending is not None or rows.freeze is not None:
            return nobody
        # Approvers cannot know the outcome while the attempt still runs.
        await check_ended(self._deps.store, ticket.key)
        # A repeated run takes the approvers of the first run, on any day.
        ran_on = [each.applied for each in rows.requests if each.call == call.call and each.kind == "approval"][-1:]
        stricter = ran_on[0] if ran_on else ()
        about = Subject(call, args, tool, verdict, digest, (Remark.of("doubt"),), judged_at=found.at, stricter=stricter)
        request = await self._questions.ask(task, about)
        question = turn_question(request, call)
        return GateDecision(
            call=call.call, kind="ask", digest=digest, rule=request.rule, question=question, request=request
        )

    async def _find_begun(
        self, task: GateTask, call: CallPart, tool: Tool, args: Any, asked: Sequence[ApprovalRequest]
    ) -> Ticket | None:
        """Return the ticket of exactly this call's attempt, or `None` if it has none or ran with other `args`."""
        # Compare with the present definition, or that of the question under which it ran.
        same = is_bound_to(asked, task.ctx, task.doubt_of, args)
        if task.doubt < 1 or not (same or digest_of(task.ctx, call.call, tool, args) == task.doubt_of):
            return None
        ticket = await self._deps.store.read_ticket(ticket_key(task.doubt_of, task.doubt))
        if ticket is None or ticket.state == "void":
            return None
        turn = TurnKey(task.ctx.tenant, task.ctx.session, task.ctx.turn)
        own = (turn.workflow_id, call.call, call.tool)
        return ticket if (ticket.workflow, ticket.call, ticket.tool) == own else None

    async def _ask_people(self, task: GateTask, about: Subject) -> ApprovalRequest | CallOutcome:
        """Return the new request, or the outcome if an edit may not be asked or too many requests wait."""
        try:
            return await self._ask(task, about)
        except QuestionRefused as error:
            return _end_limited(about.call, error.message)

    async def _ask(self, task: GateTask, about: Subject) -> ApprovalRequest | CallOutcome:
        if task.edit == 0:
            return await self._questions.ask(task, about)
        edit = await self._questions.edit(task, about.tool)
        if isinstance(edit, str):
            return _end_unasked(about.call, edit)
        asked = self._deps.catalog.approvers(about.tool.activity, about.verdict)
        problem = edit_problem(edit, asked, about.digest)
        changed = problem or await self._questions.ask_changed(task, about, edit)
        return _end_unasked(about.call, changed) if isinstance(changed, str) else changed

    def _offline(self, ctx: CallContext) -> Remark | None:
        return OFFLINE_MODEL if self._deps.is_offline(ctx.actor) else None

    def _stands_in(self, call: CallPart) -> Remark | None:
        if not is_stand_in(call.call):
            return None
        return fallback_note([each.name for each in self._deps.catalog.every_tool if call.tool in each.fallbacks])

    def _options(self, ctx: CallContext, tool: Tool, budget: int, *, ask: bool) -> RunOptions:
        actor = self._deps.catalog.actors.get(ctx.actor)
        aborts = actor is not None and actor.on_failure == "abort_siblings"
        sequential = actor is not None and actor.mode == "sequential"
        # Stopped or falling-back calls need their real end in the history, which local activities lack. Returning a use
        # takes an activity that can look up the call's outcome.
        inline = not (ask or aborts or tool.fallbacks or tool.usage_limit is not None)
        policy = self._deps.catalog.policy(tool.activity).rules
        needs_nobody = self._deps.catalog.needs_nobody(tool.activity)
        return RunOptions(
            start_to_close=tool.timeout + _START_SLACK,
            grant_ttl=policy.grant_ttl,
            idempotent=tool.idempotent,
            read_only=tool.read_only,
            # Local activities run twice after a worker's crash, and have no heartbeat to detect a lost worker.
            local=tool.routing == "bypass" and tool.read_only and needs_nobody and inline and not tool.is_external,
            task_queue=tool.task_queue,
            activity=tool.activity if tool.place else "",
            budget_chars=min(budget, tool.max_result_chars or budget),
            return_direct=tool.return_direct,
            # An external agent makes one call, and has no other work to continue with.
            while_waiting=policy.while_waiting if actor is None or actor.external is None else "wait",
            at_once=1 if sequential else MAX_TOOLS_AT_ONCE,
            exclusive=tool.concurrency == "exclusive",
            aborts=aborts,
            attempts=tool.tries,
            fallbacks=tool.fallbacks,
            external=tool.is_external,
            report_within=tool.timeout if tool.is_external else 0.0,
            ask_unreported=tool.unreported == "ask",
        )


def _asks(task: GateTask, found: JudgedCall) -> bool:
    """Return whether approvers are asked.

    An edited call never runs by rule alone, and is never corrected without the approvers when it is judged again.
    """
    return found.kind == "ask" or (found.kind == "run" and (task.edit > 0 or task.changed_by != ""))


def _with_summary(decision: GateDecision, tool: Tool | None, args: Any, secrets: Collection[str]) -> GateDecision:
    runs = decision.kind != "settled" or decision.options.fallbacks
    if tool is None or not runs or not isinstance(args, dict):
        return decision
    hidden = frozenset(tool.masked_arguments)
    effect = effect_sentence(
        tool.effect, title=tool.title, tool=tool.name, args=args, schema=tool.input_schema, secrets=hidden
    )
    return replace(decision, options=replace(decision.options, summary=redact_secrets(effect, secrets)))


def _settled_entries(task: GateTask, gate_decisions: Sequence[GateDecision], at: datetime) -> list[AuditEntry]:
    """Requests and running calls are recorded elsewhere."""
    entries = []
    for call, gate_decision in zip(task.calls, gate_decisions, strict=True):
        if gate_decision.outcome is not None:
            entries.append(call_events.settled_entry(task.ctx, call.tool, gate_decision, gate_decision.outcome, at))
    return entries


def _to_a_person(words: Words) -> Words:
    if not isinstance(words, Remark) or words.code != "invalid.call":
        return words
    # Only a model is asked to call again.
    return Remark(code="invalid", values=words.values)


def _find_earlier_run(tickets: Sequence[Ticket], digest: str) -> tuple[CallOutcome | None, tuple[Remark, ...]]:
    """Return the outcome of exactly this action if it ran already, or remarks on earlier attempts.

    `tickets` belong to the call. A turn that is reset to before a decision asks again, and an approver must not deny a
    call that has already happened.
    """
    done = [each for each in tickets if each.state == "done" and each.outcome is not None]
    for ticket in done:
        # Approvers decide about an unknown outcome.
        if ticket.key.partition("/")[0] == digest and ticket.outcome and ticket.outcome.code != "in_doubt":
            return ticket.outcome, ()
    live = [each for each in tickets if each.state != "void"]
    same = [each for each in live if each.key.partition("/")[0] == digest]
    others = sorted({each.tool for each in live if each not in same})
    begun = (Remark.of("begun"),) if same else ()
    return None, (*begun, Remark.of("another", tools=", ".join(others))) if others else begun


def in_doubt(call: CallPart) -> CallOutcome:
    """Return the outcome of an unknown call without possible approvers."""
    return CallOutcome(
        call=call.call, tool=call.tool, code="in_doubt", gate="execute", value=Content(inline=IN_DOUBT_TEXT)
    )


def _refuse(call: CallPart, why: str) -> GateDecision:
    text = f"Not executed: {why}."
    outcome = CallOutcome(call=call.call, tool=call.tool, code="refused", gate="approval", value=Content(inline=text))
    return GateDecision(call=call.call, kind="settled", outcome=outcome)


def _end_unasked(call: CallPart, why: str) -> CallOutcome:
    return CallOutcome(call=call.call, tool=call.tool, code="refused", gate="approval", value=Content(inline=why))


def _end_limited(call: CallPart, why: str) -> CallOutcome:
    text = f"Not asked: {why}. Do without it, or say that it has to be asked later"
    return CallOutcome(
        call=call.call, tool=call.tool, code="too_many_calls", gate="approval", value=Content(inline=text)
    )


def _quiet(found: JudgedCall, secrets: Collection[str]) -> JudgedCall:
    """Remove the batch's secrets from the texts of `found`: a schema error quotes the invalid value."""
    if not secrets:
        return found
    words, notes = (redact_remarks(each, secrets) for each in (found.words or (found.message,), found.notes))
    return found.reword(words)._replace(notes=notes)
