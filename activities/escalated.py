"""When a call's request escalated, by the record alone: what the turn says of it nobody has to believe."""

from datetime import UTC, datetime, timedelta
from typing import Final

from signoff.activities.journal import now
from signoff.activities.permit import Seating, seating
from signoff.activities.room import Room
from signoff.approvals.escalation import NOT_ESCALATED, Asked, Escalation
from signoff.audit.log import AuditLog
from signoff.contracts.call import Permit
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.policy.model import ApprovalPolicy
from signoff.registry.gates import Judgement

CLOCKS_APART: Final = timedelta(seconds=15)
"""How much earlier than by the record those escalated to may answer: the turn that let them has another clock.

A turn's clock stands still while its gates wait for the store, for up to a workflow task (10 s): the record then says
that it was asked later than the turn does. The rest is for the clocks of gateway, server and store.
"""
_ASKS: Final = ("request", "revision", "in_doubt")


async def seated(room: Room, permit: Permit, tool: str, found: Judgement) -> Seating:
    """Who may answer for the call of `permit`, judged as `found`, here and now. Raises `StoreUnavailable`."""
    policy = room.catalog.policy(tool).policy or ApprovalPolicy()
    # Where nobody has answered there is nobody to seat, and nothing to look for in the record.
    answered = permit.decisions or permit.doubts
    escalated = await escalation(room, permit, policy) if answered else NOT_ESCALATED
    # Who asked, too, where somebody answered: it may be a login of one of them.
    subjects = {each.subject for each in (*permit.decisions, *permit.doubts)}
    asker = (permit.ctx.user.user,) if subjects else ()
    people = await room.knowing(permit.ctx.tenant, *subjects, *asker)
    return seating(room.catalog, people, permit.ctx, tool, found, now(), escalated)


async def escalation(room: Room, permit: Permit, policy: ApprovalPolicy) -> Escalation:
    """Whom `policy` escalates to, and when this call was asked as the store's clock has it. Raises `StoreUnavailable`.

    By the store's clock, because a turn may hand over a record with any time in it; what is written is written now.
    """
    if not policy.escalate_to:
        return NOT_ESCALATED
    turn = TurnKey(permit.ctx.tenant, permit.ctx.session, permit.ctx.turn)
    approval_id = ApprovalKey(turn, permit.call).id
    asked: dict[int, Asked] = {}
    for record in await AuditLog(room.store).stream(turn.workflow_id):
        facts = record.facts if record.kind in _ASKS else {}
        # Of a call in doubt there are other records, too: only the question shows a card.
        if facts.get("approval") == approval_id and "card" in facts:
            at = datetime.fromtimestamp(record.written_at / 1000, UTC)
            # Of two for one revision the later one stands, as it does in the turn.
            asked[facts["revision"]] = Asked(at, "edited_by" in facts)
    return Escalation(policy.escalate_to, _after(policy), asked, assumed=room.profile == "development")


def _after(policy: ApprovalPolicy) -> timedelta:
    """How long after it was asked, by the record, a request has escalated by any of the clocks."""
    at_deadline = policy.timeout if policy.on_timeout == "escalate" else None
    after = min(each for each in (policy.escalate_after, at_deadline) if each is not None)
    return max(timedelta(seconds=after) - CLOCKS_APART, timedelta())
