"""Pure rules for the right to run a call, at the place of the effect.

`approval_of` derives the approval from stored rows, `check_run` decides, and `right_of` collects the proved facts.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from pydantic_core import to_jsonable_python

from signoff.approvals.binding import is_answer_to
from signoff.approvals.digest import digest_in_context, doubt_digest, question_hash
from signoff.approvals.earlier_questions import ending_of
from signoff.approvals.machine import has_preview
from signoff.approvals.quorum import added_people, people_who_gave
from signoff.approvals.request_state import assigned_hash, editors_of
from signoff.approvals.tightening import tighten
from signoff.contracts.activity_messages import RunTask
from signoff.contracts.approval import JUDGED_SECONDS, Question, Terms, Vote
from signoff.contracts.call import PERMISSION_RULE, REQUESTER_RULE, CallContext, RunRight
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Assurance, Decision, Verdict, at_least
from signoff.contracts.person import Person, Principal
from signoff.keys.passkeys import presence_problem
from signoff.keys.signatures import Verifier
from signoff.people.directory import Directory
from signoff.people.eligibility import ApproverSpec, approver_spec_of
from signoff.people.voter_set import Escalation, VoterSet
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.policy.terms import VerdictTerms
from signoff.registry.catalog import Catalog
from signoff.registry.gates.argument_check import final_arguments
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.hooks import override_hash
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool
from signoff.store.questions.approval_rows import ApprovalRows


@dataclass(frozen=True)
class RunCheck:
    """The decision on a call: run it, judge it `again`, or refuse it, with the reason."""

    kind: Literal["run", "again", "refuse"]
    why: str = ""
    again: Literal["", "stale", "policy"] = ""


RUN = RunCheck("run")


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
            return "a signed decision names no question"
        lack = presence_problem(decision, self.verifier)
        return f"an answer does not prove presence: {lack}" if lack else ""


def voter_set(
    catalog: Catalog,
    people: Directory,
    ctx: CallContext,
    tool: str,
    terms: Terms,
    now: datetime,
    questions: Sequence[Question] = (),
    assignments: Sequence[Vote] = (),
) -> VoterSet:
    policy, gave = catalog.policy(tool).rules, people_who_gave(assignments)
    present = ApproverSpec(
        ctx.tenant,
        terms.alone(),
        ctx.user.user,
        policy.allow_self_approval,
        requester_person=ctx.user.person_id,
        gave=gave,
    )
    asked = [dataclasses.replace(approver_spec_of(each), gave=gave) for each in questions]
    escalations = [each for question in questions if (each := _escalation(question, terms)) is not None]
    added = tuple(people.person_id(each, ctx.tenant) for each in added_people(assignments))
    return VoterSet(people, (present, *dict.fromkeys(asked)), now, tuple(escalations), added)


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


def ask_if_doubted(found: JudgedCall, why: str) -> JudgedCall:
    """Make `found` need approval if a rule would run it."""
    if found.kind != "run" or found.verdict is None or not why:
        return found
    verdict = dataclasses.replace(found.verdict, verdict="ask", rule=REQUESTER_RULE, rule_text="", reasons=(why,))
    return found.decide(kind="ask")._replace(verdict=verdict)


@dataclass(frozen=True)
class StoredApproval:
    """The stored approval of one call: its question, and the approving decisions with their times (UTC).

    With `verdict` `answered`, the one decision answers instead, and nothing runs. `editors` are the ids of its editors.
    `problem` is the reason why no approval counts, `stale` the reason to ask again. `edited` is the hash of the
    question whose edit produced these arguments, or "". `assignments` are its hand-ons and additions.
    """

    question: Question
    question_hash: str
    decisions: tuple[Decision, ...]
    completed_at: datetime | None = None
    edited: str = ""
    problem: str = ""
    stale: str = ""
    assignments: tuple[Vote, ...] = ()
    verdict: Literal["approved", "answered"] = "approved"
    editors: tuple[str, ...] = ()


def approval_of(revision: int | None, rows: ApprovalRows | None) -> StoredApproval | None:
    """Return the approval of a call from its rows alone, or `None` without a question.

    `revision` is the turn's claim: the approval of another one is stale.
    """
    asked = [] if rows is None else [each for each in rows.questions if each.kind == "approval"]
    if rows is None or not asked:
        return None
    question = asked[-1]
    stale = ""
    if question.revision != revision:
        stale = "this was asked again"
    elif question.ended_at is not None:
        stale = "this request is closed"
    elif question.judging_delay > JUDGED_SECONDS:
        stale = "this was judged at another moment than it was asked"
    request = rows.request(question)
    # After a denial of exactly this action, no later approval of it counts.
    same = [each for each in asked if each.digest == question.digest and each.revision < question.revision]
    over = next((state for each in same if (state := rows.request(each).state) in ("denied", "answered")), "")
    if over:
        return StoredApproval(question, request.question_hash, (), problem=_NOT_APPROVED[over], stale=stale)
    if request.state in ("denied", "cancelled", "timed_out"):
        return StoredApproval(question, request.question_hash, (), problem=_NOT_APPROVED[request.state], stale=stale)
    verdict: Literal["approved", "answered"] = "answered" if request.state == "answered" else "approved"
    stored = tuple(vote.decision for vote in request.votes if vote.verdict == verdict)
    counted = [each for each in rows.answers if any(each.vote.decision is one for one in stored)]
    if any(each.vote.decision.assigned != assigned_hash(rows.answers, each.number) for each in counted):
        return StoredApproval(question, request.question_hash, (), problem=_HIDDEN, stale=stale)
    times = [each.answered_at for each in counted]
    old = rows.revision(question.edit_of) if question.edit_of else None
    edited = "" if old is None else question_hash(old)
    completed_at = max(times, default=None)
    made = request.assignments
    return StoredApproval(
        question,
        request.question_hash,
        stored,
        completed_at,
        edited,
        stale=stale,
        assignments=made,
        verdict=verdict,
        editors=editors_of(rows.questions, rows.answers),
    )


_HIDDEN: Final = "a hand-on or an added approver of this is missing in the store"
_NOT_APPROVED = {
    "denied": "somebody denied this",
    "answered": "somebody answered this instead",
    "cancelled": "this was withdrawn",
    "timed_out": "this was not approved in time",
}


def check_run(
    task: RunTask,
    digest: str,
    found: JudgedCall,
    policy: CompiledPolicy,
    terms: VerdictTerms,
    *,
    signature_policy: SignaturePolicy,
    voters: VoterSet,
    approval: StoredApproval | None,
    now: datetime,
) -> RunCheck:
    """Return whether the call may run under the present catalog.

    `digest` and `found` were computed here and now. `terms` belong to the present policy, `now` is the store's clock.
    For each term, the stricter of row and present policy applies.
    """
    # Do not refuse: a deploy can change a tool under an honest turn, which then asks again.
    if task.digest != digest:
        return RunCheck("again", _TOOL_CHANGED, "stale")
    if task.revision is None:
        if found.kind == "run":
            return RUN
        return RunCheck("again", "the policy changed before this ran", "policy")
    if approval is None:
        return RunCheck("refuse", "no approver was asked about this")
    if approval.problem:
        return RunCheck("refuse", approval.problem)
    question, rules = approval.question, policy.rules
    if approval.verdict == "answered":
        voters = voters.without(approval.editors)
    if approval.stale or question.digest != digest:
        return RunCheck("again", approval.stale or _TOOL_CHANGED, "stale")
    # An answer runs nothing: its card and its age no longer matter.
    runs = approval.verdict == "approved"
    if runs and (changed := _find_change(question, found.tool, rules)) is not None:
        return changed
    if any(signature_policy.decision_problem(each.decision, accept_unsigned=False) for each in approval.assignments):
        return RunCheck("refuse", "the gateway did not sign a hand-on or an added approver of this")
    for decision in approval.decisions:
        problem = "" if _answers(decision, approval) else "a decision is about something else"
        problem = problem or signature_policy.decision_problem(decision, accept_unsigned=rules.accept_unsigned)
        if problem:
            return RunCheck("refuse", problem)
    # Check the question's own quorum first: under any policy, fewer people have never approved it.
    if len(_people(approval)) < question.quorum:
        return RunCheck("refuse", _FEW.refused)
    strictest = tighten(question, terms)
    lacking = _find_lack(approval, task.ctx, rules, strictest)
    if lacking is None:
        # People leave, and roles and delegations end after an answer counted. Check who may answer now, by the question
        # and by the present policy, each with its own quorum and groups. A loosened policy releases nothing.
        if not voters.suffices(approval.decisions):
            return RunCheck("again", "an approver of this may not decide it now", "policy")
        if not runs:
            return RUN
        if _is_late(approval, strictest.timeout, terms.on_timeout):
            return RunCheck("again", "it has to be approved sooner now", "policy")
        return _in_time(approval, rules, now)
    # This policy would not have accepted such answers, unless its function is stricter now.
    if question.policy_hash == policy.hash and not terms.applied:
        return RunCheck("refuse", lacking.refused)
    return RunCheck("again", lacking.now, "policy")


def _find_change(question: Question, tool: Tool | None, rules: ApprovalPolicy) -> RunCheck | None:
    """Return how the approvers' card differs from the card of now, or `None`."""
    if tool is None or question.secrets != tool.masked_arguments or question.show != rules.show.only:
        return RunCheck("again", "the card of this has changed", "stale")
    if rules.preview_required and not has_preview(question):
        return RunCheck("again", "this has to be previewed now", "policy")
    mode = rules.edit_mode(read_only=tool.read_only)
    if question.edit_of and (mode == "off" or (mode == "propose" and not question.proposers)):
        # The edit counts as its author's approval, which the present policy does not allow.
        return RunCheck("again", "the policy on changed arguments is stricter now", "policy")
    return None


def _answers(decision: Decision, approval: StoredApproval) -> bool:
    """Return whether a decision approves exactly this question, or answers it instead."""
    question = approval.question
    if decision.approval_id != question.id or decision.verdict != approval.verdict or not decision.subject:
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


def _in_time(approval: StoredApproval, rules: ApprovalPolicy, now: datetime) -> RunCheck:
    """Return whether the approval is still valid, by the store's clock, from the answer that completed it."""
    span = min(approval.question.grant_ttl, rules.grant_ttl)
    done = approval.completed_at
    if done is None or now - done <= timedelta(seconds=span):
        return RUN
    return RunCheck("again", f"it was approved more than {span:g} seconds ago and not begun", "policy")


def words_on(digest: str, rows: ApprovalRows | None, number: int) -> tuple[Decision, ...]:
    """Return the answers to all questions about attempt `number` of the action `digest`."""
    words: list[Decision] = []
    for question in _doubts(digest, rows, number):
        words += [each for each in _words(rows, question) if each not in words]
    return tuple(words)


def undone_by(digest: str, rows: ApprovalRows | None, number: int) -> tuple[Decision, ...]:
    """Return the answers to the last question about attempt `number`.

    Answers to different questions do not add up: later approvers did not see earlier answers. Empty if anyone ever said
    that the attempt took effect or gave it up.
    """
    asked = _doubts(digest, rows, number)
    if rows is None or not asked:
        return ()
    requests = [rows.request(each) for each in asked]
    if ending_of(requests, doubt_digest(digest, number)) is not None or requests[-1].state == "timed_out":
        return ()
    return tuple(_words(rows, asked[-1]))


def doubts_of(rows: ApprovalRows | None) -> tuple[Question, ...]:
    """Return the questions about unknown outcomes, oldest first."""
    return () if rows is None else tuple(each for each in rows.questions if each.kind == "in_doubt")


def _doubts(digest: str, rows: ApprovalRows | None, number: int) -> list[Question]:
    about = doubt_digest(digest, number)
    return [each for each in doubts_of(rows) if each.doubt_of == number and each.digest == about]


def _words(rows: ApprovalRows | None, question: Question) -> list[Decision]:
    asked = question_hash(question)
    # Compare hashes, not rows: an approval of the call is no answer about its attempt.
    stored = () if rows is None else (vote.decision for vote in rows.request(question).votes)
    words = (each for each in stored if is_answer_to(each, question, asked) and each.approval_id == question.id)
    # A word that stops the call counts without a passkey.
    return [each for each in words if each.verdict != "approved" or _has_presence(each, question)]


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
    return word.verdict == verdict and _is_vouched(word, policy, signature_policy)


def _is_vouched(decision: Decision, policy: CompiledPolicy, signature_policy: SignaturePolicy) -> bool:
    accepts = policy.rules.accept_unsigned
    return decision.subject != "" and not signature_policy.decision_problem(decision, accept_unsigned=accepts)


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
    own = rules.allow_self_approval and question.allow_self and approval.verdict == "approved"
    if not own and ctx.user.user in people:
        return _OWN
    # Anyone can write an assurance into an unsigned decision. `decision_problem` decides whether it counts at all.
    # A policy that accepts unsigned answers waives no passkey.
    waives = not at_least(terms.min_assurance, "present")
    judged = [decision for decision in approval.decisions if decision.signature or not waives]
    if not all(at_least(_proved_assurance(decision), terms.min_assurance) for decision in judged):
        return _WEAK
    return None


def _has_presence(decision: Decision, asked: Terms) -> bool:
    return at_least(_proved_assurance(decision), asked.min_assurance) or not at_least(asked.min_assurance, "present")


def _proved_assurance(decision: Decision) -> Assurance:
    return decision.assurance if decision.signature else "none"


def _people(approval: StoredApproval) -> set[str]:
    return {decision.subject for decision in approval.decisions}


def overrides(question: Question, found: JudgedCall) -> bool:
    """True if the card showed the permission check's present objection, or if there is none."""
    shown = question.override == override_hash(found.objection)
    return not found.objection or (question.rule == PERMISSION_RULE and shown)


def right_of(found: JudgedCall, approval: StoredApproval | None) -> RunRight:
    """Return the facts that let a call run: the stored approval, or the present rule or grant."""
    if approval is not None:
        asked = approval.question
        return RunRight(asked.revision, asked.rule, asked.policy_hash, decisions=approval.decisions)
    rule, policy_hash = (None, "") if found.verdict is None else (found.verdict.rule, found.verdict.policy_hash)
    return RunRight(rule=rule, policy_hash=policy_hash, grant=found.decision.grant)


def probe_right(approval: StoredApproval | None, policy: CompiledPolicy, signature_policy: SignaturePolicy) -> RunRight:
    """Return the vouched answers to a call of the past, without deriving its right to run."""
    if approval is None:
        return RunRight()
    vouched = tuple(each for each in approval.decisions if _is_vouched(each, policy, signature_policy))
    return RunRight(approval.question.revision, decisions=vouched)


def undone(
    digest: str, rows: ApprovalRows | None, ticket: int, policy: CompiledPolicy, signature_policy: SignaturePolicy
) -> tuple[Decision, ...]:
    """Return the vouched answers that attempts before the one with number `ticket` did not happen."""
    numbers = sorted({each.doubt_of for each in doubts_of(rows) if each.doubt_of < ticket})
    words = (word for number in numbers for word in words_on(digest, rows, number))
    return tuple(word for word in words if _says(word, "approved", policy, signature_policy))


def digest_of(ctx: CallContext, call: str, tool: Tool, args: Any) -> str:
    return digest_in_context(ctx, call=call, tool=tool.name, definition=definition_hash(tool), args=args)


def is_of(task: RunTask, tool: Tool, proposed: Any) -> bool:
    """Return whether `task` is for `tool` as defined now, with these or the corrected arguments."""
    try:
        # Without an RFC 8785 encoding there is no digest, so none matches.
        return digest_of(task.ctx, task.call, tool, final_arguments(tool, proposed)) == task.digest
    except NotCanonical:
        return False
