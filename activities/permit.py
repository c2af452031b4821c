"""The right to run, derived where the effect happens: pure checks over a permit that nobody trusts."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic_core import to_jsonable_python

from signoff.approvals.binding import ArgumentsDigest, names
from signoff.approvals.digest import doubt_digest
from signoff.approvals.escalation import NOT_ESCALATED, Escalation
from signoff.contracts.call import Permit, Pinned
from signoff.contracts.decision import UNSIGNED, Decision, Verdict, at_least
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.names import ACTOR_TURN
from signoff.contracts.person import Person, Principal
from signoff.policy.compiled import CompiledPolicy
from signoff.policy.model import ApprovalPolicy
from signoff.registry.catalog import Catalog
from signoff.registry.gates import DOUBTED_RULE, Judgement
from signoff.registry.people import Directory
from signoff.registry.seats import Seat, Table, seat_of
from signoff.signing import Verifier


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


def turn_problem(caller: Caller, turn: TurnKey | None, what: str, by: str) -> str:
    """Why `what` was not scheduled by `turn`, which `by` names and None is none; "" when it was."""
    # Temporal lets any holder of a credential start any activity, by itself or from a workflow of their own.
    if caller.workflow_type != ACTOR_TURN:
        return f"{what} runs only inside a turn"
    if turn is None or caller.workflow_id != turn.workflow_id:
        return f"{by} names another turn"
    return ""


def caller_problem(caller: Caller, permit: Permit, tool: str) -> str:
    """Why this activity was not scheduled by the turn its permit names; "" when it was."""
    problem = turn_problem(caller, _turn(permit), "this tool", "the permit")
    if problem:
        return problem
    if caller.activity_type != tool or caller.activity_id != permit.call:
        return "the permit names another call"
    return ""


@dataclass(frozen=True)
class Witness:
    """By what a signature is checked. Only the development profile takes what nobody signed."""

    verifier: Verifier
    development: bool

    def requester_problem(self, ctx: Pinned) -> str:
        """Why the gateway does not vouch for who asked for the turn of `ctx`; "" when it does."""
        user = ctx.user
        # A key id alone claims a signature: else leaving that out would make of what is forged what is merely unsigned.
        if not (user.signature or user.key_id):
            return "" if self.development else "nobody vouches for who asked"
        if self.verifier.check_principal(ctx):
            return ""
        return "who asked, or for what, is not what the gateway signed for"

    def decision_problem(self, decision: Decision, *, accept_unsigned: bool) -> str:
        """Why the gateway does not vouch for a decision; "" when it does, or need not."""
        if not (decision.signature or decision.key_id):
            return "" if self.development or accept_unsigned else "a decision in the permit is not signed"
        if not self.verifier.check_decision(decision):
            return "a decision in the permit is not what the gateway signed"
        if decision.revision is None or not (decision.digest or decision.edited_args is not None):
            # The gateway signs what a person saw; what names no arguments would fit any.
            return "a signed decision in the permit does not say what it is about"
        return ""


@dataclass(frozen=True)
class Seating:
    """Who may answer for a call: by the directory, and by the present policy's `table`. `now` is for answers whose time
    nobody proves. Those of `escalation` count from then on."""

    people: Directory
    table: Table
    now: datetime
    escalation: Escalation = NOT_ESCALATED

    def seated(self, decisions: Sequence[Decision]) -> int:
        """How many people of `decisions`, whose signatures hold, sit on different seats: one's own, or another's."""
        own: set[str] = set()
        standing_in: list[Decision] = []
        for decision in decisions:
            seat = self._seat(decision)
            if seat.on_behalf:
                standing_in.append(decision)
            elif not seat.code:
                own.add(self._human(decision))
        # Own seats are taken first: who has answered must not count once more through somebody who stands in for them.
        return len(own | self._lent(standing_in, own))

    def _lent(self, decisions: Iterable[Decision], own: set[str]) -> set[str]:
        """The seats beside `own` ones that those have who stand in for others, one each, in the order they answered."""
        lent: dict[str, str] = {}
        for decision in decisions:
            human = self._human(decision)
            # Whoever has a seat of their own by another entry needs no second one.
            if human in lent or human in own:
                continue
            taken = own.union(lent.values())
            seat = self._seat(decision, tuple(taken))
            if seat.on_behalf not in taken:
                lent[human] = seat.on_behalf
        return set(lent.values())

    def _human(self, decision: Decision) -> str:
        return self.people.person_id(decision.subject, self.table.tenant)

    def _seat(self, decision: Decision, taken: Sequence[str] = ()) -> Seat:
        if decision.subject == UNSIGNED and not decision.signature:
            # Where answers are taken that name nobody, all of them together are one.
            return Seat()
        # Delegations and escalations are judged by when the answer was given. Only a signed time is believed.
        received = decision.received_at if decision.signature else None
        moment = received if received is not None and received.tzinfo is not None else self.now
        person = self.people.find(decision.subject, self.table.tenant)
        return seat_of(person, self.people, self._table(decision, moment), moment, taken)

    def _table(self, decision: Decision, moment: datetime) -> Table:
        escalation = self.escalation
        assumed = escalation.assumed and not decision.signature
        if not (assumed or escalation.reached(decision.revision or 1, moment)):
            return self.table
        return dataclasses.replace(self.table, approvers=(*self.table.approvers, *escalation.to))


def seating(
    catalog: Catalog,
    people: Directory,
    ctx: Pinned,
    tool: str,
    found: Judgement,
    now: datetime,
    escalation: Escalation = NOT_ESCALATED,
) -> Seating:
    """Who may answer for a call of `tool` that was judged as `found`: whom it asks now, and to whom it escalated."""
    policy = catalog.policy(tool).policy or ApprovalPolicy()
    table = Table(ctx.tenant, catalog.approvers(tool, found.verdict), ctx.user.user, policy.allow_self_approval)
    return Seating(people, table, now, escalation)


def believed(ctx: Pinned, person: Person | None, *, development: bool) -> bool:
    """Whether the directory bears out what a turn says of who asked: tier, roles and attributes.

    Whom it does not know, only development believes.
    """
    if person is None:
        return development
    user = ctx.user
    known = person.active and person.tier == user.tier and set(person.roles) == set(user.roles)
    # What the turn says has been through JSON, so what the directory says goes through it before they are compared.
    return known and _said_of_user(ctx.extra) == to_jsonable_python(person.attributes)


def _said_of_user(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("user."): value for name, value in extra.items() if name.startswith("user.")}


def expired(user: Principal, now: datetime) -> bool:
    """Whether a turn was asked for so long ago that no rule runs its calls any more."""
    ends = user.expires_at
    if ends is None:
        # The gateway always says when. Only the development profile takes what it did not make.
        return bool(user.signature or user.key_id)
    return ends.tzinfo is None or ends <= now


def doubted(found: Judgement, why: str) -> Judgement:
    """`found` for a requester in whose name no rule runs a call, for this reason: what would run by rule is asked."""
    if found.kind != "run" or found.verdict is None or not why:
        return found
    verdict = dataclasses.replace(found.verdict, verdict="ask", rule=DOUBTED_RULE, rule_text="", why=why)
    return dataclasses.replace(found, kind="ask", verdict=verdict)


def standing(
    permit: Permit,
    digest: str,
    found: Judgement,
    policy: CompiledPolicy,
    *,
    witness: Witness,
    seating: Seating,
    digest_of_args: ArgumentsDigest,
) -> Standing:
    """Whether the call may run under the present catalog; `digest` and `found` were computed here and now.

    `digest_of_args` gives the digest that this call would have with other arguments; may raise `NotCanonical`.
    """
    # Not refused: a deploy can change a tool under an honest turn, which then asks anew.
    if permit.digest != digest:
        return Standing("again", "the tool changed while you were asked", "stale")
    if permit.kind == "auto":
        if found.kind == "run":
            return RUN
        return Standing("again", "the policy changed before this ran", "policy")
    rules = policy.policy or ApprovalPolicy()
    for decision in permit.decisions:
        problem = _strange(permit, decision, digest_of_args) or witness.decision_problem(
            decision, accept_unsigned=rules.accept_unsigned
        )
        if problem:
            return Standing("refuse", problem)
    # By the permit's own count first: whatever the policy is by now, no honest turn sends fewer than that.
    if len(_people(permit)) < permit.quorum:
        return Standing("refuse", _FEW.refused)
    lacking = _lacking(permit, rules)
    if lacking is None:
        # People leave, roles and delegations end after an answer was counted: those who may answer now are asked.
        # The larger of the two quorums holds: a policy that was loosened meanwhile releases nothing.
        enough = seating.seated(permit.decisions) >= max(permit.quorum, rules.quorum)
        return RUN if enough else Standing("again", "not everybody who approved this may decide it now", "policy")
    # Under this very policy no honest turn would have sent it.
    if permit.policy_hash == policy.hash:
        return Standing("refuse", lacking.refused)
    # The permit says that another policy asked for less; nobody can check that, so the present one asks.
    return Standing("again", lacking.now, "policy")


def given_up(permit: Permit, number: int, policy: CompiledPolicy, witness: Witness, seating: Seating) -> bool:
    """Whether people said of the try with ticket `number`, which nobody knows the end of, that it did not happen.

    To run a call again takes as many of them as to run it.
    """
    told = [word for word in permit.doubts if _says(permit, word, "approved", number, policy, witness)]
    return seating.seated(told) >= max(permit.quorum, (policy.policy or ApprovalPolicy()).quorum)


def happened(
    permit: Permit, word: Decision, number: int, policy: CompiledPolicy, witness: Witness, seating: Seating
) -> bool:
    """Whether somebody who may answer says in `word` that the try with ticket `number` happened; one is enough."""
    return _says(permit, word, "happened", number, policy, witness) and seating.seated((word,)) == 1


def _says(
    permit: Permit, word: Decision, verdict: Verdict, number: int, policy: CompiledPolicy, witness: Witness
) -> bool:
    rules = policy.policy or ApprovalPolicy()
    return (
        _is_about(permit, word, verdict)
        # Bound to the one try: an answer about the first must not free the second.
        and word.digest == doubt_digest(permit.digest, number)
        and not witness.decision_problem(word, accept_unsigned=rules.accept_unsigned)
    )


def _strange(permit: Permit, decision: Decision, digest_of_args: ArgumentsDigest) -> str:
    if not _is_about(permit, decision, "approved"):
        return "a decision in the permit is about something else"
    if not names(decision, permit.digest, permit.revision, digest_of_args):
        return "a decision in the permit is about other arguments"
    return ""


def _is_about(permit: Permit, decision: Decision, verdict: Verdict) -> bool:
    approval_id = ApprovalKey(_turn(permit), permit.call).id
    return decision.verdict == verdict and decision.approval_id == approval_id and decision.subject != ""


class _Lack(NamedTuple):
    refused: str
    now: str
    """The same for those who are asked again, because the policy has changed."""


_FEW = _Lack("too few people have approved this", "more people have to approve this now")
_OWN = _Lack("who asked for this has approved it", "somebody else than who asked has to approve this now")
_WEAK = _Lack("who approved this was not identified strongly enough", "this needs a stronger sign-in now")


def _lacking(permit: Permit, rules: ApprovalPolicy) -> _Lack | None:
    """What the present policy asks for beyond what the decisions prove."""
    if len(_people(permit)) < rules.quorum:
        return _FEW
    if not rules.allow_self_approval and permit.ctx.user.user in _people(permit):
        return _OWN
    # Anyone can write an assurance into what is unsigned; whether that counts at all was `decision_problem`'s question.
    signed = (decision for decision in permit.decisions if decision.signature)
    if not all(at_least(decision.assurance, rules.min_assurance) for decision in signed):
        return _WEAK
    return None


def _people(permit: Permit) -> set[str]:
    return {decision.subject for decision in permit.decisions}


def _turn(permit: Permit) -> TurnKey:
    return TurnKey(permit.ctx.tenant, permit.ctx.session, permit.ctx.turn)
