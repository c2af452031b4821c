"""Remembered answers where they are given, asked and used: the pure rules over the store's rows.

What a person approves is written by the activity of the approved call, before it runs: there the decisions were
verified and a quorum is proved. A denial runs nothing, so it is written while its author is identified: they may
decide this, one denial ends it, and a receipt that accepts it is a promise. Both are activities that run anyway.
"""

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from signoff.activities.journal import now
from signoff.activities.permit import Approval
from signoff.activities.room import Room
from signoff.approvals.entries import act, fingerprint
from signoff.approvals.grants import agreed_wish, grant_id, grant_rule, likeness
from signoff.audit.log import writing
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import Permit, Pinned, ToolDenied
from signoff.contracts.canonical import sha256_hex
from signoff.contracts.decision import Decision, Remember
from signoff.contracts.grant import Grant, Like
from signoff.contracts.limits import PREDICATES_STEPS
from signoff.contracts.message import CallPart
from signoff.contracts.steps import Authority, IdentifyTask
from signoff.policypool import ask_rules
from signoff.registry.gates import UNREMEMBERED_RULES, Judgement
from signoff.registry.registry import definition_hash
from signoff.registry.remembering import Remembering
from signoff.registry.tool import Tool
from signoff.store.content import load
from signoff.store.grants import Grants


class Remembered:
    """The remembered answers of one room."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._rules = Remembering(room.catalog)
        self._rows = Grants(room.store)

    async def heard(self, task: IdentifyTask, authority: Authority) -> Authority:
        """`authority`, unless the answer cannot be remembered as its author wants: then why. Keeps a denial.

        Raises `StoreUnavailable`.
        """
        request, decision = task.request, task.decision
        if request is None or decision.remember is None or not authority.allowed:
            return authority
        # A denial is of what was asked, an approval of what it makes of that.
        edited = decision.edited_args if decision.verdict == "approved" else None
        args = await load(self._room.store, request.args) if edited is None else edited
        why = await ask_rules(True, self._rules.problem, request, decision, args) or self._unproved(decision)
        if why:
            return authority.model_copy(update={"allowed": False, "code": "malformed", "note": why})
        if decision.verdict == "denied":
            await self._keep_denial(request, decision, authority, args)
        return authority

    async def approved(
        self, permit: Permit, approval: Approval, tool: Tool, found: Judgement, args: Mapping[str, Any]
    ) -> None:
        """Keep what the people behind a verified approval want remembered, if they agree and the policy still asks so.

        Raises `StoreUnavailable`.
        """
        # Not the permit's: what a turn says that people answered is of those alone whose answers were counted.
        question, decisions = approval.question, approval.decisions
        verdict = found.verdict
        policy = self._room.catalog.policy(tool.activity).policy
        if found.kind != "ask" or verdict is None or verdict.rule in UNREMEMBERED_RULES:
            return
        if policy is None or not policy.allow_remember or any(map(self._unproved, decisions)):
            return
        wish = agreed_wish(decisions, max(question.quorum, policy.quorum))
        if wish is None:
            return
        ctx, approval_id = permit.ctx, question.id
        like = _like(ctx.tenant, ctx.session, tool.name, definition_hash(tool), wish, args)
        times = [decision.received_at for decision in decisions if decision.received_at is not None]
        await self._keep(
            # What was written first under this id stands: a retry or a reset renews nothing that is used up or revoked.
            grant_id(approval_id, question.revision, "approved"),
            "approved",
            like.model_copy(update={"rule": verdict.rule, "policy_hash": verdict.policy_hash}),
            wish,
            people=tuple(dict.fromkeys(decision.subject for decision in decisions)),
            approval_id=approval_id,
            reason=decisions[-1].reason,
            # From the last answer on: a call that waited before it ran must not make what is remembered last longer.
            since=max(times, default=None),
        )

    async def consulted(self, ctx: Pinned, call: CallPart, args: Any, found: Judgement) -> Judgement:
        """`found`, or what a remembered answer makes of a call about which people would be asked: run, or denied.

        Raises `StoreUnavailable`.
        """
        policy = None if found.tool is None else self._room.catalog.policy(found.tool.activity).policy
        if found.kind != "ask" or found.tool is None or policy is None or not policy.allow_remember:
            return found
        left = PREDICATES_STEPS
        for grant in await self._rows.usable(ctx.tenant, ctx.session, found.tool.name):
            # Any approver may leave predicates behind, and all of them are asked about each call: all of them together
            # may cost so much, and the others do not apply.
            left -= self._rules.steps(grant, found, args)
            if left < 0:
                break
            if not await self._applies(grant, ctx, found, args):
                continue
            if grant.verdict == "approved":
                return by_grant(found, grant)
            # A denial ends without a ticket, so its use is spent here, once a call; an approval's goes with the claim.
            if await self._rows.use(grant.id, sha256_hex([ctx.tenant, ctx.session, ctx.turn, call.call])):
                return _denied(found, grant, call)
        return found

    async def holds(self, name: str, ctx: Pinned, found: Judgement, args: Any) -> Judgement:
        """`found`, or the call as the grant `name` lets it run. That it has a use left is seen where it is spent."""
        grant = await self._rows.look(name) if name and found.kind == "ask" else None
        if grant is None or grant.verdict != "approved":
            return found
        return by_grant(found, grant) if await self._applies(grant, ctx, found, args) else found

    async def _applies(self, grant: Grant, ctx: Pinned, found: Judgement, args: Any) -> bool:
        # Nobody is sure who asks: as with rules, no approval in advance lets that pass.
        sure = grant.verdict == "denied" or not await self._room.doubt(ctx)
        named = () if grant.verdict == "denied" else (*grant.people, ctx.user.user)
        people = await self._room.knowing(ctx.tenant, *named)
        may_block = grant.like.where != ""
        return sure and await ask_rules(may_block, self._rules.applies, grant, ctx, found, args, people)

    async def _keep_denial(
        self, request: ApprovalRequest, decision: Decision, authority: Authority, args: Mapping[str, Any]
    ) -> None:
        wish = decision.remember
        if wish is None:
            return
        like = _like(request.tenant, request.session, request.tool, request.definition, wish, args)
        await self._keep(
            grant_id(request.id, request.revision, "denied"),
            "denied",
            like.model_copy(update={"rule": request.rule, "policy_hash": request.policy_hash}),
            wish,
            people=(authority.subject,),
            approval_id=request.id,
            reason=decision.reason,
            since=authority.received_at,
        )

    async def _keep(
        self,
        name: str,
        verdict: Literal["approved", "denied"],
        like: Like,
        wish: Remember,
        *,
        people: tuple[str, ...],
        approval_id: str,
        reason: str,
        since: datetime | None,
    ) -> None:
        """Write the row and, with it, that it was written: whose it is and for which calls, these by their hash."""
        told = act(
            like.tenant,
            "remember",
            people[-1],
            now(),
            kind="grant",
            key=f"remember/{name}",
            grant=name,
            verdict=verdict,
            people=list(people),
            approval=approval_id,
            tool=like.tool,
            session=like.session,
            like=fingerprint(like.model_dump()),
            uses=wish.uses,
            seconds=wish.seconds,
        )
        await self._rows.write(
            name,
            verdict,
            like,
            wish,
            people=people,
            approval_id=approval_id,
            reason=reason,
            since=since,
            also=writing([told]),
        )

    def _unproved(self, decision: Decision) -> str:
        """Why a decision is nobody's for sure: the next calls must not hang on it. The development profile is."""
        if self._room.profile == "development" or self._room.verifier.check_decision(decision):
            return ""
        return "`remember`: only a signed answer is remembered"


def by_grant(found: Judgement, grant: Grant) -> Judgement:
    """The call as a remembered approval lets it run."""
    if found.verdict is None:
        return found
    until = f"{grant.expires_at:%Y-%m-%d %H:%M} UTC"
    why = f"{', '.join(grant.people)} approved calls like this in advance, until {until}"
    rule = grant_rule(grant.id)
    verdict = dataclasses.replace(found.verdict, verdict="auto", rule=rule, rule_text=grant.like.where, why=why)
    return dataclasses.replace(found, kind="run", verdict=verdict, grant=grant.id)


def frozen(found: Judgement, reason: str, call: CallPart) -> Judgement:
    """`found` in a tenant that is frozen: what would run or be asked is denied."""
    if found.kind == "settled":
        return found
    denied = ToolDenied(source="policy", tool=call.tool, call_id=call.call, reason=f"frozen: {reason}")
    return dataclasses.replace(found, kind="settled", code="denied", message=denied.reason, denied=denied)


def _denied(found: Judgement, grant: Grant, call: CallPart) -> Judgement:
    """The call as a remembered denial ends it, naming the decision it repeats."""
    denied = ToolDenied(
        source="repeat",
        approval_id=grant.approval_id,
        tool=call.tool,
        call_id=call.call,
        decided_by=", ".join(grant.people),
        decided_at=grant.created_at,
        **({"reason": grant.reason} if grant.reason else {}),
    )
    return dataclasses.replace(
        found, kind="settled", code="denied", message=denied.reason, denied=denied, grant=grant.id
    )


def _like(tenant: str, session: str, tool: str, definition: str, wish: Remember, args: Mapping[str, Any]) -> Like:
    where = wish.where.strip()
    return Like(
        tenant=tenant,
        session=session if wish.scope == "session" else "",
        tool=tool,
        definition=definition,
        where=where,
        exact="" if where else likeness(tool, definition, args),
    )
