"""The right to run, derived where the effect happens: pure checks over a permit that nobody trusts."""

from dataclasses import dataclass
from typing import Literal

from signoff.contracts.call import Permit
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.names import ACTOR_TURN
from signoff.policy.compiled import CompiledPolicy
from signoff.registry.gates import Judgement


@dataclass(frozen=True)
class Caller:
    """Who scheduled the activity, as the server says."""

    workflow_type: str
    workflow_id: str
    activity_type: str
    activity_id: str


@dataclass(frozen=True)
class Standing:
    """What the permit is worth: run; judge anew (`again`); or refuse, with why."""

    kind: Literal["run", "again", "refuse"]
    why: str = ""
    again: Literal["", "stale", "policy"] = ""


RUN = Standing("run")


def caller_problem(caller: Caller, permit: Permit, tool: str) -> str:
    """Why this activity was not scheduled by the turn its permit names; "" when it was."""
    if caller.workflow_type != ACTOR_TURN:
        return "this tool runs only inside a turn"
    if caller.workflow_id != _turn(permit).workflow_id:
        return "the permit names another turn"
    if caller.activity_type != tool or caller.activity_id != permit.call:
        return "the permit names another call"
    return ""


def standing(permit: Permit, digest: str, found: Judgement, policy: CompiledPolicy) -> Standing:
    """Whether the call may run under the present catalog; `digest` and `found` were computed here and now."""
    if permit.digest != digest:
        return Standing("again", "the tool changed while you were asked", "stale")
    if permit.kind == "auto":
        if found.kind == "run":
            return RUN
        return Standing("again", "the policy changed before this ran", "policy")
    return _approved(permit, digest, policy)


def _approved(permit: Permit, digest: str, policy: CompiledPolicy) -> Standing:
    approval_id = ApprovalKey(_turn(permit), permit.call).id
    people: set[str] = set()
    for decision in permit.decisions:
        if decision.verdict != "approved" or decision.approval_id != approval_id or not decision.subject:
            return Standing("refuse", "a decision in the permit is about something else")
        if (decision.digest or digest) != digest or (decision.revision or 1) != permit.revision:
            return Standing("refuse", "a decision in the permit is about other arguments")
        people.add(decision.subject)
    quorum = max(permit.quorum, 1)
    if policy.policy is not None and permit.policy_hash == policy.hash:
        # Only under another policy can a request have asked for fewer people than the present one does.
        quorum = max(quorum, policy.policy.quorum)
    return RUN if len(people) >= quorum else Standing("refuse", "too few people have approved this")


def _turn(permit: Permit) -> TurnKey:
    return TurnKey(permit.ctx.tenant, permit.ctx.session, permit.ctx.turn)
