"""Writes questions: a question's row is in the store before any card is sent."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from signoff.activities.call_journal import attribute_question
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals import audit_events, binding
from signoff.approvals.card import draw_card
from signoff.approvals.card_notes import editor_note
from signoff.approvals.deadlines import escalated_groups
from signoff.approvals.digest import digest_mark, question_hash
from signoff.approvals.request_state import StoredAnswer, request_of
from signoff.approvals.tightening import tighten
from signoff.audit.log import entry_writer
from signoff.contracts.activity_messages import GateTask
from signoff.contracts.approval import AppliedTerm, ApprovalRequest, CardRow, Question, Terms, TermValues
from signoff.contracts.call import IN_DOUBT_RULE, CallContext
from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.content import Content, Words
from signoff.contracts.decision import Decision
from signoff.contracts.ids import ApprovalKey, SessionKey, TurnKey
from signoff.contracts.message import CallPart
from signoff.contracts.preview import PreviewReference
from signoff.formats.replace import replace
from signoff.keys.signature_form import context_digest
from signoff.policy.compiled_policy import PolicyVerdict
from signoff.policy.terms import add_term
from signoff.registry.gates.pipeline import UNREMEMBERED_RULES
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool
from signoff.store.content_store import load, to_content
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import Questions
from signoff.store.store import Also

_CHANGED = "the tool changed in the meantime; approve or deny, and it is asked again"
_OTHERS = "other approvers decide about these arguments; deny, so that the agent can ask again"
_NOT_THIS = "this was asked again; open it again"
_NOT_ANY_MORE = "another answer or the deadline settled this; open it again"

_SHORTEST: Final = 0.001
"""Time to answer, in seconds, if the caller's time has expired already."""


class Edit(NamedTuple):
    """A valid edit: its answer, its author, its question, and the rows of the author's card."""

    old: ApprovalRequest
    decision: Decision
    subject: str
    human: str
    name: str
    before: tuple[CardRow, ...]


class Subject(NamedTuple):
    """The subject of a question: the call as it would run, and the gates' findings."""

    call: CallPart
    args: Mapping[str, Any]
    tool: Tool
    verdict: PolicyVerdict | None
    digest: str
    notes: tuple[Words, ...]
    override: str = ""
    judged_at: datetime | None = None
    stricter: tuple[AppliedTerm, ...] = ()
    """Terms that apply in addition to the verdict's own."""
    preview: PreviewReference | None = None


class QuestionWriter:
    """Writes each row together with its audit entry."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._rows = Questions(deps.store)

    async def ask(self, task: GateTask, about: Subject) -> ApprovalRequest:
        """The request has revision, code and times from the store.

        Raises `StoreUnavailable`, and `QuestionRefused` except for an unknown outcome.
        """
        asked = await self._ask(task, about, None)
        if asked is None:
            raise RuntimeError(f"only an edit may remain unasked: {about.call.call}")
        return asked

    async def ask_changed(self, task: GateTask, about: Subject, edit: Edit) -> ApprovalRequest | str:
        """Ask about a call instead of the question that `edit` changed, or return why not. Raises as `ask`."""
        return await self._ask(task, about, edit) or _NOT_ANY_MORE

    async def _ask(self, task: GateTask, about: Subject, edit: Edit | None) -> ApprovalRequest | None:
        question = await self._question(task, about)
        if edit is not None:
            question = _after_edit(question, edit)
        declaration = about.tool.declaration
        card = draw_card(question, declaration, about.args, digest_mark(about.digest, self._deps.mark_key))
        edited = {} if edit is None else {"edited_by": edit.subject, "edited_name": edit.name, "before": edit.before}

        def make_request(asked: Question) -> ApprovalRequest:
            return replace(request_of(asked, card), **edited)

        new: list[ApprovalRequest] = []

        def also(asked: Question) -> Also:
            new[:] = [make_request(asked)]
            entry = audit_events.question_entry(new[0], asked.opened_at or self._deps.clock())
            return entry_writer([attribute_question(self._deps, asked, entry)])

        body = canonical_json(declaration)
        # An unknown outcome is always asked: the store, not the turn, proves that a call began.
        waiting = None if task.doubt else self._deps.tenant_limits.of(question.tenant).waiting
        asked = await self._rows.ask(question, body, also, spent=task.spent, since=task.asked_since, waiting=waiting)
        # Hashing takes a while: do it once a question.
        return new[0] if new else None if asked is None else make_request(asked)

    async def rows(self, ctx: CallContext, call: str) -> ApprovalRows | None:
        return await self._rows.read(ApprovalKey(TurnKey(ctx.tenant, ctx.session, ctx.turn), call).id)

    async def edited_call(self, task: GateTask) -> CallPart:
        """Return the call with the arguments of the task's edit, if the store has it."""
        call = task.calls[0]
        rows = await self.rows(task.ctx, call.call)
        answer = None if rows is None else _answer_of(rows, task.edit)
        edited = None if answer is None else answer.vote.decision.edited_args
        return call if edited is None else replace(call, args=Content(inline=edited))

    async def edit(self, task: GateTask, tool: Tool | None) -> Edit | str:
        """Return the edit of the task's answer, or why there is none.

        Reads the answer from the store: the turn's claim about an edit does not count.
        """
        rows = await self.rows(task.ctx, task.calls[0].call)
        answer = None if rows is None else _answer_of(rows, task.edit)
        old = None if rows is None or answer is None else rows.revision(answer.revision)
        if rows is None or answer is None or old is None:
            return _NOT_ANY_MORE
        decision = answer.vote.decision
        if (decision.signature or decision.key_id) and not self._deps.verifier.check_decision(decision):
            return "the signature of this change does not hold"
        if decision.question_hash != question_hash(old):
            return _NOT_THIS
        if old.edit == "off":
            return "these arguments cannot be edited; deny and name the change"
        if tool is None or definition_hash(tool) != old.definition:
            return _CHANGED
        delivery = decision.delivery_id
        if rows.latest.revision != old.revision and (rows.latest.edit_of, rows.latest.edit_delivery) != (
            old.revision,
            delivery,
        ):
            return _NOT_THIS
        people = await self._deps.directory_for(task.ctx.tenant, decision.subject)
        person = people.find(decision.subject, task.ctx.tenant)
        name = "" if person is None else person.name
        before = await self._draw_rows(old, tool)
        human = people.person_id(decision.subject, task.ctx.tenant)
        return Edit(_request_at(rows, old, self._deps.clock()), decision, decision.subject, human, name, before)

    async def _draw_rows(self, old: Question, tool: Tool) -> tuple[CardRow, ...]:
        return draw_card(old, tool.declaration, await load(self._deps.store, old.args), "").rows

    def _in_time(self, task: GateTask, terms: Terms) -> Terms:
        """Tighten the time to answer by the caller's remaining time."""
        if not task.ask_within:
            return terms
        now = self._deps.clock()
        # Count from the proposal, not the question: a call that is asked again, or late, waits no longer.
        left = task.ask_within - (now - (task.ctx.user.issued_at or now)).total_seconds()
        # A deadline that is extended once occurs twice.
        timeout = max(left, _SHORTEST) / (2 if terms.on_timeout == "escalate" else 1)
        return tighten(terms, TermValues(timeout=timeout))

    async def _question(self, task: GateTask, about: Subject) -> Question:
        call, args, tool, verdict, digest, notes, override, judged_at, stricter, preview = about
        catalog, ctx = self._deps.catalog, task.ctx
        policy, terms = catalog.policy(tool.activity).rules, catalog.terms(tool.activity, verdict)
        for more in stricter:
            terms = terms if more in terms.applied else add_term(terms, policy, more)
        doubt = task.doubt > 0
        return Question(
            id=ApprovalKey(TurnKey(ctx.tenant, ctx.session, ctx.turn), call.call).id,
            kind="in_doubt" if doubt else "approval",
            tenant=ctx.tenant,
            session=ctx.session,
            turn=ctx.turn,
            actor=ctx.actor,
            call=call.call,
            requester=ctx.user,
            channel=ctx.channel,
            context=context_digest(ctx),
            tool=tool.name,
            definition=definition_hash(tool),
            args=await to_content(self._deps.store, args, SessionKey(ctx.tenant, ctx.session)),
            digest=digest,
            doubt_of=task.doubt,
            secrets=tool.masked_arguments,
            show=policy.show.only,
            rule=IN_DOUBT_RULE if doubt else verdict.rule if verdict else None,
            rule_text="" if doubt or verdict is None else verdict.rule_text or verdict.why,
            policy_hash=verdict.policy_hash if verdict else "",
            override=override,
            **(terms if doubt else self._in_time(task, terms)).by_name(),
            applied=terms.applied,
            veto=policy.veto,
            # Giving up an unknown outcome denies no request.
            require_reason=not doubt and policy.require_reason,
            preview=preview,
            preview_required=not doubt and policy.preview_required,
            preview_for=policy.preview_for,
            allow_self=policy.allow_self_approval,
            # Edited arguments and remembered answers do not fit a question about the past.
            edit="off" if doubt else policy.edit_mode(read_only=tool.read_only),
            allow_remember=not doubt and policy.allow_remember and _is_rememberable(verdict),
            confirm="" if doubt else policy.confirm,
            accept_unsigned=policy.accept_unsigned,
            level=verdict.level if verdict and verdict.level == "admin" else policy.level,
            grant_ttl=policy.grant_ttl,
            notify=catalog.channels.select(policy.notify),
            agent_says=task.agent_says,
            notes=notes,
            judged_at=judged_at,
        )


def _answer_of(rows: ApprovalRows, number: int) -> StoredAnswer | None:
    valid = (each for each in rows.answers if not each.void and each.vote.decision.edited_args is not None)
    return next((each for each in valid if each.number == number), None)


def _request_at(rows: ApprovalRows, old: Question, now: datetime) -> ApprovalRequest:
    # Events of the old question until now continue with the new one.
    return rows.request(old, max(now, rows.now))


def _after_edit(question: Question, edit: Edit) -> Question:
    """Let `question` succeed the edited one: its approvers by escalation can still decide."""
    old = edit.old
    kept: dict[str, Any] = {
        "edit_of": old.revision,
        "edit_delivery": edit.decision.delivery_id,
        "agent_says": old.agent_says,
    }
    kept["notes"] = (editor_note(edit.name or edit.subject), *question.notes)
    if old.edit == "propose":
        # Include the person: an account that they lose later does not make them another person.
        kept["proposers"] = tuple(dict.fromkeys((edit.subject, edit.human)))
    if not old.escalated:
        return replace(question, **kept)
    approvers = tuple(dict.fromkeys((*question.approvers, *old.escalate_to)))
    groups = escalated_groups(question.groups, old.escalate_to)
    return replace(question, **kept, approvers=approvers, groups=groups, escalate_after=None)


def edit_problem(edit: Edit, question_approvers: tuple[str, ...], digest: str) -> str:
    """Return why the edited call cannot replace the original one, or ""."""
    if not set(edit.old.approvers).difference(edit.old.escalate_to) <= set(question_approvers):
        return _OTHERS
    args = edit.decision.edited_args
    if args is None or binding.digest_with(edit.old)(args) != digest:
        return "these are not the arguments that were signed for; try again"
    return ""


def _is_rememberable(verdict: PolicyVerdict | None) -> bool:
    return verdict is None or verdict.rule not in UNREMEMBERED_RULES
