"""Applies remembered answers to calls, by pure rules over the store's rows.

A grant here is only a claim: its question and signed answers must confirm it. Otherwise a worker's write access to the
store would be enough to create one.
"""

import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any

from signoff.activities.run_rules import voter_set
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.binding import is_answer_to
from signoff.approvals.digest import question_hash
from signoff.approvals.grant_rules import check_grant, question_of
from signoff.approvals.tightening import are_stricter
from signoff.contracts.approval import JUDGED_SECONDS, Question
from signoff.contracts.call import CallContext, RuleReference, ToolDenied
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.decision import Decision
from signoff.contracts.grant import Grant
from signoff.contracts.limits import PREDICATES_STEPS
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.policypool.pool import ask_rules
from signoff.registry.gates.grant_match import GrantMatcher
from signoff.registry.gates.judged_call import JudgedCall
from signoff.store.content_store import load
from signoff.store.grants import Grants
from signoff.store.questions.questions import Questions


class GrantUse:
    """The remembered answers in one worker's store."""

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps
        self._rules = GrantMatcher(deps.catalog)
        self._rows = Grants(deps.store)
        self._questions = Questions(deps.store)

    async def apply_grant(self, ctx: CallContext, call: CallPart, args: Any, found: JudgedCall) -> JudgedCall:
        """Let a remembered answer decide a call that needs approval: run or denied. Raises `StoreUnavailable`."""
        policy = None if found.tool is None else self._deps.catalog.policy(found.tool.activity).policy
        if found.kind != "ask" or found.tool is None or policy is None or not policy.allow_remember:
            return found
        async for grant in self._find_applying(ctx, found, args):
            if grant is None:
                break
            if grant.verdict == "approved":
                return by_grant(found, grant)
            if await self._repeats(grant, ctx, call):
                return _deny(found, grant, call)
        return found

    async def holds(self, name: str, ctx: CallContext, call: CallPart, args: Any, found: JudgedCall) -> JudgedCall:
        """Like `apply_grant`, with the grant or remembered denial `name`.

        Does not check the remaining uses: the claim does. Raises `StoreUnavailable`.
        """
        grant = await self._rows.read(name) if name and found.kind == "ask" else None
        if grant is None or grant.verdict != "approved" or not await self._applies(grant, ctx, found, args):
            return found
        # A caller that names a grant may have skipped the gates, which check denials first.
        async for other in self._find_applying(ctx, found, args):
            if other is None:
                return found
            if other.verdict == "approved":
                break
            if await self._repeats(other, ctx, call):
                return _deny(found, other, call)
        return by_grant(found, grant)

    async def _find_applying(self, ctx: CallContext, found: JudgedCall, args: Any) -> AsyncIterator[Grant | None]:
        """Yield the remembered answers that apply, denials first, then `None` if the rest cannot be evaluated."""
        left = PREDICATES_STEPS
        for grant in await self._rows.list_usable(ctx.tenant, ctx.session, found.tool.name if found.tool else ""):
            if grant is None:
                # The unreadable grant may be a denial, so no approval after it applies.
                yield None
                return
            # Any approver may leave predicates behind, and each call evaluates all of them. Limit their total cost: the
            # others do not apply.
            left -= self._rules.steps(grant, found, args)
            if left < 0:
                yield None
                return
            if await self._applies(grant, ctx, found, args):
                yield grant

    async def _repeats(self, denial: Grant, ctx: CallContext, call: CallPart) -> bool:
        # A denial ends a call without a ticket, so count its use here, once a call. An approval's use is part of the
        # claim.
        return await self._rows.use(denial.id, sha256_hex([ctx.tenant, ctx.session, ctx.turn, call.call]))

    async def _applies(self, grant: Grant, ctx: CallContext, found: JudgedCall, args: Any) -> bool:
        # With a doubtful requester, no approval in advance applies, just as no rule does.
        sure = grant.verdict == "denied" or not await self._deps.doubt(ctx)
        people = await self._deps.directory_for(ctx.tenant, *grant.people, grant.requester, ctx.user.user)
        may_block = grant.like.where != ""
        if not sure or not await ask_rules(may_block, self._rules.applies, grant, ctx, found, args, people):
            return False
        given = await self._find_proof(grant, found)
        if given is None or (self._rules.is_personal(grant, ctx) and not _is_of_asker(given[0], ctx, people)):
            return False
        return grant.verdict == "denied" or self._suffices_today(*given, ctx, found, people)

    async def _find_proof(self, grant: Grant, judged: JudgedCall) -> tuple[Question, Sequence[Decision]] | None:
        rows = await self._questions.read(grant.approval_id)
        question = None if rows is None else question_of(grant, rows.questions)
        if rows is None or question is None or not self._is_vouched(question):
            return None
        args = await load(self._deps.store, question.args)
        # Use this call's tool, which has the grant's definition: another one may compare other arguments.
        args = args if judged.tool is None else judged.tool.without_remarks(args)
        found = check_grant(grant, question, rows.answers, rows.now, args)
        if found is None:
            return None
        asked, decisions = question_hash(question), [vote.decision for vote in found.votes]
        problem = self._deps.signature_policy.decision_problem
        signed = all(
            is_answer_to(each, question, asked) and not problem(each, accept_unsigned=False) for each in decisions
        )
        return (question, decisions) if signed else None

    def _is_vouched(self, question: Question) -> bool:
        """Return whether the gateway signed the requester: a grant for a session belongs to that person."""
        if question.judging_delay > JUDGED_SECONDS:
            return False
        asker = question.requester
        if not (asker.signature or asker.key_id):
            return self._deps.profile == "development"
        return self._deps.verifier.check_asker(question)

    def _suffices_today(
        self,
        question: Question,
        decisions: Sequence[Decision],
        ctx: CallContext,
        found: JudgedCall,
        people: Directory,
    ) -> bool:
        """Return whether enough of the approvers may decide such a call today, and still may decide the first."""
        if found.tool is None:
            return False
        at, terms = self._deps.clock(), self._deps.catalog.terms(found.tool.activity, found.verdict)
        # Two people gave a quorum of two. Stricter terms at this moment were not approved in advance.
        if are_stricter(terms, question):
            return False
        voters = voter_set(self._deps.catalog, people, ctx, found.tool.activity, terms, at, (question,))
        # Ignore the question's escalation: the policy's own approvers decide new calls, and have not missed a deadline.
        voters = dataclasses.replace(voters, escalations=())
        # The shift in which they decided is no right to decide later calls.
        return voters.suffices([replace(each, on_call=()) for each in decisions])


def _is_of_asker(question: Question, ctx: CallContext, people: Directory) -> bool:
    """Return whether the requester in `ctx` is the person who asked `question`, as known at that time.

    Their account may belong to another person now.
    """
    return people.person_id(question.requester.human, ctx.tenant) == people.person_id(ctx.user.user, ctx.tenant)


def by_grant(found: JudgedCall, grant: Grant) -> JudgedCall:
    if found.verdict is None:
        return found
    until = f"{grant.expires_at:%Y-%m-%d %H:%M} UTC"
    why = f"{', '.join(grant.people)} approved calls like this in advance, until {until}"
    rule = RuleReference(kind="grant", name=grant.id)
    verdict = dataclasses.replace(found.verdict, verdict="auto", rule=rule, rule_text=grant.like.where, reasons=(why,))
    return found.decide(kind="run", grant=grant.id)._replace(verdict=verdict)


def frozen_decision(found: JudgedCall, reason: str, call: CallPart) -> JudgedCall:
    """Deny `found` if it would run or need approval."""
    if found.kind == "settled":
        return found
    denied = ToolDenied(source="policy", tool=call.tool, call_id=call.call, reason=f"frozen: {reason}")
    return found.deny(denied)


def _deny(found: JudgedCall, grant: Grant, call: CallPart) -> JudgedCall:
    denied = ToolDenied(
        source="repeat",
        approval_id=grant.approval_id,
        tool=call.tool,
        call_id=call.call,
        decided_by=", ".join(grant.people),
        decided_at=grant.created_at,
        **({"reason": grant.reason} if grant.reason else {}),
    )
    return found.deny(denied).decide(grant=grant.id)
