"""The right to run, derived where the effect happens: pure checks over a permit that nobody trusts."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

from signoff.contracts.call import Permit
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.names import ACTOR_TURN
from signoff.contracts.person import Person, Principal
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


def believed(user: Principal, person: Person | None, *, development: bool) -> bool:
    """Whether the directory bears out who a turn says asked. Whom it does not know, only development believes."""
    if person is None:
        return development
    return person.active and person.tier == user.tier and set(person.roles) == set(user.roles)


def doubted(found: Judgement) -> Judgement:
    """`found` for a requester whom the directory does not bear out: what would run by rule is asked."""
    if found.kind != "run" or found.verdict is None:
        return found
    why = "who asked for this is not, or no longer, who the directory says"
    verdict = dataclasses.replace(found.verdict, verdict="ask", rule="requester", rule_text="", why=why)
    return dataclasses.replace(found, kind="ask", verdict=verdict)


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
    present = policy.policy.quorum if policy.policy is not None else 1
    if len(people) >= max(permit.quorum, present):
        return RUN
    if len(people) < permit.quorum or permit.policy_hash == policy.hash:
        return Standing("refuse", "too few people have approved this")
    # The permit says that another policy asked fewer people; nobody can check that, so the present one asks.
    return Standing("again", "more people have to approve this now", "policy")


def _turn(permit: Permit) -> TurnKey:
    return TurnKey(permit.ctx.tenant, permit.ctx.session, permit.ctx.turn)
