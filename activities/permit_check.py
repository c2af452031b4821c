"""Checks the right to run at the place of the effect, by pure rules over an untrusted permit.

`approval_of` derives the approval from the store, `check_permit` decides.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from pydantic_core import to_jsonable_python

from signoff.approvals.binding import is_answer_to
from signoff.approvals.digest import doubt_digest, question_hash
from signoff.approvals.earlier_questions import ending_of
from signoff.approvals.tightening import tighten
from signoff.contracts.approval import JUDGED_SECONDS, Question, Terms
from signoff.contracts.call import REQUESTER_RULE, CallContext, Permit
from signoff.contracts.decision import Decision, Verdict, at_least
from signoff.contracts.ids import TurnKey
from signoff.contracts.names import ACTOR_TURN
from signoff.contracts.person import Person, Principal
from signoff.formats.replace import replace
from signoff.keys.signatures import Verifier
from signoff.people.directory import Directory
from signoff.people.eligibility import ApproverSpec, approver_spec_of
from signoff.people.voter_set import Escalation, VoterSet
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.policy.terms import VerdictTerms
from signoff.registry.catalog import Catalog
from signoff.registry.gates.local_decision import LocalGateDecision
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.store.questions.approval_rows import ApprovalRows


@dataclass(frozen=True)
class ActivityCaller:
    """The activity's scheduler, as reported by the server."""

    workflow_type: str
    workflow_id: str
    activity_type: str
    activity_id: str


@dataclass(frozen=True)
class PermitCheck:
    """The decision on a permit: run the call, judge it `again`, or refuse it, with the reason."""

    kind: Literal["run", "again", "refuse"]
    why: str = ""
    again: Literal["", "stale", "policy"] = ""


RUN = PermitCheck("run")


def turn_problem(caller: ActivityCaller, turn: TurnKey | None, what: str, by: str) -> str:
    """Return why `what` was not scheduled by `turn` (`None`: no turn), or "".

    `by` names the source of the turn's name.
    """
    # Anyone with Temporal credentials can start any activity, directly or from their own workflow.
    if caller.workflow_type != ACTOR_TURN:
        return f"{what} runs only inside a turn"
    if turn is None or caller.workflow_id != turn.workflow_id:
        return f"{by} names another turn"
    return ""


def caller_problem(caller: ActivityCaller, permit: Permit, tool: str) -> str:
    """Return why the permit's turn did not schedule this activity, or ""."""
    problem = turn_problem(caller, _turn(permit), "this tool", "the permit")
    if problem:
        return problem
    if caller.activity_type != tool or caller.activity_id != permit.call:
        return "the permit names another call"
    return ""


@dataclass(frozen=True)
class SignaturePolicy:
    """Checks signatures with the gateway's keys. Only the development profile accepts unsigned input."""

    verifier: Verifier
    development: bool

    def requester_problem(self, ctx: CallContext) -> str:
        """Return why the gateway does not vouch for the requester in `ctx`, or ""."""
        user = ctx.user
        # A key id alone counts as signed. Otherwise, removing the signature would turn a forgery into unsigned input.
        if not (user.signature or user.key_id):
            return "" if self.development else "the requester is not signed"
        if self.verifier.check_principal(ctx):
            return ""
        return "the gateway did not sign this request or requester"

    def decision_problem(self, decision: Decision, *, accept_unsigned: bool) -> str:
        """Return why the gateway does not vouch for a decision, or "" if it does or need not."""
        if not (decision.signature or decision.key_id):
            return "" if self.development or accept_unsigned else "an answer is not signed"
        if not self.verifier.check_decision(decision):
            return "the gateway did not sign this answer"
        if decision.revision is None or not decision.question_hash:
            # The gateway signs the question on the card. A decision without a question would fit any.
            return "a signed decision in the permit names no question"
        return ""


def voter_set(
    catalog: Catalog,
    people: Directory,
    ctx: CallContext,
    tool: str,
    terms: Terms,
    now: datetime,
    questions: Sequence[Question] = (),
) -> VoterSet:
    policy = catalog.policy(tool).rules
    present = ApproverSpec(
        ctx.tenant,
        terms.alone(),
        ctx.user.user,
        policy.allow_self_approval,
        requester_person=ctx.user.person_id,
    )
    asked = [approver_spec_of(each) for each in questions]
    escalations = [each for question in questions if (each := _escalation(question, terms)) is not None]
    return VoterSet(people, (present, *dict.fromkeys(asked)), now, tuple(escalations))


def _escalation(question: Question, terms: Terms) -> Escalation | None:
    """Return the escalation of a question, to people named by both its row and the present terms, at the later time.

    Both times count from its opening, by the store's clock.
    """
    to = tighten(question, terms).escalate_to
    if to and question.edit_of and set(to) <= set(question.approvers):
        # The question had escalated before an edit, and its editor may be among the new approvers.
        return Escalation(datetime.min.replace(tzinfo=UTC), to)
    asked = _escalates_after(question)
    # A question about an unknown outcome also uses the terms of the call's own question, which these terms need not
    # include.
    now = asked if question.kind == "in_doubt" else _escalates_after(terms)
    if not to or asked is None or now is None or question.opened_at is None:
        return None
    return Escalation(question.opened_at + timedelta(seconds=max(asked, now)), to)


def _escalates_after(asked: Terms) -> float | None:
    """Return the seconds until a question escalates on these terms, or `None`."""
    at_deadline = asked.timeout if asked.on_timeout == "escalate" else None
    return min((span for span in (asked.escalate_after, at_deadline) if span is not None), default=None)


def is_believed(ctx: CallContext, person: Person | None, *, development: bool) -> bool:
    """Return whether the directory confirms the turn's requester: tier, roles and attributes.

    Only development believes an unknown requester.
    """
    if person is None:
        return development
    user = ctx.user
    known = person.active and person.tier == user.tier and set(person.roles) == set(user.roles)
    # The turn's data has passed through JSON, so convert the directory's data before comparing.
    return known and _user_attributes(ctx.extra) == to_jsonable_python(person.attributes)


def is_subscription(ctx: CallContext, declared: Iterable[Subscription]) -> bool:
    """Return whether a declared subscription requested the turn of `ctx`, without the rights of a person."""
    user = ctx.user
    if user.tier or user.roles or user.person_id or _user_attributes(ctx.extra):
        return False
    asked = (ctx.tenant, user.user, ctx.actor)
    return any(each.starts and (each.tenant, each.requester, each.starts) == asked for each in declared)


def _user_attributes(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("user."): value for name, value in extra.items() if name.startswith("user.")}


def is_expired(user: Principal, now: datetime) -> bool:
    """Return whether a turn was requested too long ago for rules to run its calls."""
    ends = user.expires_at
    if ends is None:
        # The gateway always sets a time. Only the development profile accepts requests of another origin.
        return bool(user.signature or user.key_id)
    return ends.tzinfo is None or ends <= now


def ask_if_doubted(found: LocalGateDecision, why: str) -> LocalGateDecision:
    """Make `found` need approval if a rule would run it."""
    if found.kind != "run" or found.verdict is None or not why:
        return found
    verdict = dataclasses.replace(found.verdict, verdict="ask", rule=REQUESTER_RULE, rule_text="", reasons=(why,))
    return replace(found, kind="ask", verdict=verdict)


@dataclass(frozen=True)
class StoredApproval:
    """The stored approval of one call: its question, and the approving decisions with their times (UTC).

    `problem` is the reason why no approval counts, `stale` the reason to ask again. `edited` is the hash of the
    question whose edit produced these arguments, or "".
    """

    question: Question
    question_hash: str
    decisions: tuple[Decision, ...]
    completed_at: datetime | None = None
    edited: str = ""
    problem: str = ""
    stale: str = ""


def approval_of(permit: Permit, rows: ApprovalRows | None) -> StoredApproval | None:
    """Return the approval that a permit claims, from the rows alone, or `None` without a question.

    The permit's own decisions do not count.
    """
    asked = [] if rows is None else [each for each in rows.questions if each.kind == "approval"]
    if rows is None or not asked:
        return None
    question = asked[-1]
    stale = ""
    if question.revision != permit.revision:
        stale = "this was asked again"
    elif question.ended_at is not None:
        stale = "this request is closed"
    elif question.judging_delay > JUDGED_SECONDS:
        stale = "this was judged at another moment than it was asked"
    request = rows.request(question)
    if any(each.revision < question.revision for each in denied_questions(rows, question.digest)):
        return StoredApproval(question, request.question_hash, (), problem=_NOT_APPROVED["denied"], stale=stale)
    if request.state in ("denied", "cancelled", "timed_out"):
        return StoredApproval(question, request.question_hash, (), problem=_NOT_APPROVED[request.state], stale=stale)
    stored = tuple(vote.decision for vote in request.votes if vote.verdict == "approved")
    times = [each.answered_at for each in rows.answers if any(each.vote.decision is one for one in stored)]
    old = rows.revision(question.edit_of) if question.edit_of else None
    edited = "" if old is None else question_hash(old)
    completed_at = max(times, default=None)
    return StoredApproval(question, request.question_hash, stored, completed_at, edited, stale=stale)


def denied_questions(rows: ApprovalRows | None, digest: str) -> list[Question]:
    """Return the denied questions about exactly this action: no approval, rule or grant runs it after that."""
    asked = () if rows is None else rows.questions
    same = [each for each in asked if each.kind == "approval" and each.digest == digest]
    return [each for each in same if rows is not None and rows.request(each).state == "denied"]


_NOT_APPROVED = {
    "denied": "somebody denied this",
    "cancelled": "this was withdrawn",
    "timed_out": "this was not approved in time",
}


def check_permit(
    permit: Permit,
    digest: str,
    found: LocalGateDecision,
    policy: CompiledPolicy,
    terms: VerdictTerms,
    *,
    signature_policy: SignaturePolicy,
    voters: VoterSet,
    approval: StoredApproval | None,
    now: datetime,
) -> PermitCheck:
    """Return whether the call may run under the present catalog.

    `digest` and `found` were computed here and now. `terms` belong to the present policy, `now` is the store's clock.
    For each term, the stricter of row and present policy applies.
    """
    # Do not refuse: a deploy can change a tool under an honest turn, which then asks again.
    if permit.digest != digest:
        return PermitCheck("again", _TOOL_CHANGED, "stale")
    if permit.kind == "auto":
        if found.kind == "run":
            return RUN
        return PermitCheck("again", "the policy changed before this ran", "policy")
    if approval is None:
        return PermitCheck("refuse", "no approver was asked about this")
    if approval.problem:
        return PermitCheck("refuse", approval.problem)
    question, rules = approval.question, policy.rules
    if approval.stale or question.digest != digest:
        return PermitCheck("again", approval.stale or _TOOL_CHANGED, "stale")
    tool = found.tool
    if tool is None or question.secrets != tool.masked_arguments or question.show != rules.show.only:
        return PermitCheck("again", "the card of this has changed", "stale")
    mode = rules.edit_mode(read_only=tool.read_only)
    if question.edit_of and (mode == "off" or (mode == "propose" and not question.proposers)):
        # The edit counts as its author's approval, which the present policy does not allow.
        return PermitCheck("again", "the policy on changed arguments is stricter now", "policy")
    for decision in approval.decisions:
        problem = "" if _answers(decision, approval) else "a decision is about something else"
        problem = problem or signature_policy.decision_problem(decision, accept_unsigned=rules.accept_unsigned)
        if problem:
            return PermitCheck("refuse", problem)
    # Check the question's own quorum first: under any policy, fewer people have never approved it.
    if len(_people(approval)) < question.quorum:
        return PermitCheck("refuse", _FEW.refused)
    strictest = tighten(question, terms)
    lacking = _find_lack(approval, permit.ctx, rules, strictest)
    if lacking is None:
        # People leave, and roles and delegations end after an answer counted. Check who may answer now, by the question
        # and by the present policy, each with its own quorum and groups. A loosened policy releases nothing.
        if not voters.suffices(approval.decisions):
            return PermitCheck("again", "an approver of this may not decide it now", "policy")
        if _is_late(approval, strictest.timeout, terms.on_timeout):
            return PermitCheck("again", "it has to be approved sooner now", "policy")
        return _in_time(approval, rules, now)
    # This policy would not have accepted such answers, unless its function is stricter now.
    if question.policy_hash == policy.hash and not terms.applied:
        return PermitCheck("refuse", lacking.refused)
    return PermitCheck("again", lacking.now, "policy")


def _answers(decision: Decision, approval: StoredApproval) -> bool:
    """Return whether a decision approves exactly this question."""
    question = approval.question
    if decision.approval_id != question.id or decision.verdict != "approved" or not decision.subject:
        return False
    if decision.signature and decision.edited_args is not None and decision.question_hash != approval.edited:
        # The arguments match, but the edit answered another question than the predecessor of this one.
        return False
    return is_answer_to(decision, question, approval.question_hash)


def _is_late(approval: StoredApproval, timeout: float, on_timeout: str) -> bool:
    opened = approval.question.opened_at
    if opened is None or timeout == approval.question.timeout:
        return False
    last = opened + timedelta(seconds=timeout * (2 if on_timeout == "escalate" else 1))
    return any(each.signature and each.received_at and each.received_at > last for each in approval.decisions)


def _in_time(approval: StoredApproval, rules: ApprovalPolicy, now: datetime) -> PermitCheck:
    """Return whether the approval is still valid, by the store's clock, from the answer that completed it."""
    span = min(approval.question.grant_ttl, rules.grant_ttl)
    done = approval.completed_at
    if done is None or now - done <= timedelta(seconds=span):
        return RUN
    return PermitCheck("again", f"it was approved more than {span:g} seconds ago and not begun", "policy")


def words_on(permit: Permit, rows: ApprovalRows | None, number: int) -> tuple[Decision, ...]:
    words: list[Decision] = []
    for question in _doubts(permit, rows, number):
        words += [each for each in _words(rows, question) if each not in words]
    return tuple(words)


def undone_by(permit: Permit, rows: ApprovalRows | None, number: int) -> tuple[Decision, ...]:
    """Return the answers to the last question about attempt `number`.

    Answers to different questions do not add up: later approvers did not see earlier answers. Empty if anyone ever said
    that the attempt took effect or gave it up.
    """
    asked = _doubts(permit, rows, number)
    if rows is None or not asked:
        return ()
    requests = [rows.request(each) for each in asked]
    if ending_of(requests, doubt_digest(permit.digest, number)) is not None or requests[-1].state == "timed_out":
        return ()
    return tuple(_words(rows, asked[-1]))


def _doubts(permit: Permit, rows: ApprovalRows | None, number: int) -> list[Question]:
    """Return the questions about the outcome of attempt `number`, oldest first."""
    asked = () if rows is None else rows.questions
    digest = doubt_digest(permit.digest, number)
    return [each for each in asked if each.kind == "in_doubt" and each.doubt_of == number and each.digest == digest]


def _words(rows: ApprovalRows | None, question: Question) -> list[Decision]:
    asked = question_hash(question)
    # Compare hashes, not rows: an approval of the call is no answer about its attempt.
    stored = () if rows is None else (vote.decision for vote in rows.request(question).votes)
    return [each for each in stored if is_answer_to(each, question, asked) and each.approval_id == question.id]


def is_given_up(
    words: Sequence[Decision], quorum: int, policy: CompiledPolicy, signature_policy: SignaturePolicy, voters: VoterSet
) -> bool:
    """Return whether enough people said that an attempt with an unknown outcome did not happen.

    Running a call again takes as many people as running it.
    """
    denials = [word for word in words if _says(word, "approved", policy, signature_policy)]
    # In any of the questions, one person who said that it happened, or gave it up, ends it.
    if any(_says(word, verdict, policy, signature_policy) for word in words for verdict in ("happened", "denied")):
        return False
    return voters.suffices(denials, quorum)


def has_happened(
    word: Decision,
    words: Sequence[Decision],
    policy: CompiledPolicy,
    signature_policy: SignaturePolicy,
    voters: VoterSet,
) -> bool:
    """Return whether `word`, one of `words` about that attempt, says that it happened.

    One entitled person is enough.
    """
    return word in words and _says(word, "happened", policy, signature_policy) and voters.count((word,)) == 1


def _says(word: Decision, verdict: Verdict, policy: CompiledPolicy, signature_policy: SignaturePolicy) -> bool:
    rules = policy.rules
    agrees = word.verdict == verdict and word.subject != ""
    return agrees and not signature_policy.decision_problem(word, accept_unsigned=rules.accept_unsigned)


class _Lack(NamedTuple):
    refused: str
    now: str
    """The message if approvers are asked again because the policy has changed."""


_TOOL_CHANGED = "the tool changed while the request was waiting"
_FEW = _Lack("too few people have approved this", "more people have to approve this now")
_OWN = _Lack("the requester has approved this", "a person other than the requester has to approve this now")
_WEAK = _Lack("an approver of this was not identified strongly enough", "this needs a stronger sign-in now")


def _find_lack(approval: StoredApproval, ctx: CallContext, rules: ApprovalPolicy, terms: Terms) -> _Lack | None:
    """Return the demand of `terms`, the strictest of present policy and question, that the decisions do not meet."""
    question, people = approval.question, _people(approval)
    if len(people) < terms.quorum:
        return _FEW
    own = rules.allow_self_approval and question.allow_self
    if not own and ctx.user.user in people:
        return _OWN
    # Anyone can write an assurance into an unsigned decision. `decision_problem` decides whether it counts at all.
    signed = [decision for decision in approval.decisions if decision.signature]
    if not all(at_least(decision.assurance, terms.min_assurance) for decision in signed):
        return _WEAK
    return None


def _people(approval: StoredApproval) -> set[str]:
    return {decision.subject for decision in approval.decisions}


def _turn(permit: Permit) -> TurnKey:
    return TurnKey(permit.ctx.tenant, permit.ctx.session, permit.ctx.turn)
