"""Decides which decisions are remembered as grants, and to which calls they apply.

Pure rules.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from signoff.approvals.request_state import StoredAnswer, request_at
from signoff.contracts.approval import ApprovalRequest, Question, Vote
from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.decision import Decision, GrantRequest, Verdict
from signoff.contracts.grant import Grant, GrantScope
from signoff.contracts.limits import MAX_REMEMBERED_SECONDS, MAX_REMEMBERED_USES
from signoff.formats.replace import replace

_ID_CHARS: Final = 16
_ROUNDED: Final = timedelta(milliseconds=1)
"""How far a stored time may differ from the original."""


@dataclass(frozen=True)
class AgreedGrant:
    """The grant on which the decisions on one question agree."""

    verdict: Literal["approved", "denied"]
    wish: GrantRequest
    """Its scope, duration and number of uses."""
    votes: tuple[Vote, ...]
    """The votes of all deciders, in order."""

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(vote.decision.subject for vote in self.votes))

    @property
    def since(self) -> datetime:
        """Return the time of the last decision (UTC)."""
        return self.votes[-1].at


def agreed_grant(request: ApprovalRequest) -> AgreedGrant | None:
    if not request.allow_remember or request.kind != "approval":
        return None
    if request.state == "approved":
        votes = tuple(vote for vote in request.votes if vote.verdict == "approved")
        wish = agreed_wish([vote.decision for vote in votes], request.quorum)
        return None if wish is None else AgreedGrant("approved", wish, votes)
    if request.state == "denied" and request.veto:
        # One denial ends the request, so the grant belongs to that person.
        votes = tuple(vote for vote in request.votes if vote.verdict == "denied")[-1:]
        wish = votes[0].decision.remember if votes and votes[0].decision.subject else None
        return None if wish is None else AgreedGrant("denied", wish, votes)
    return None


def scope_of_call(question: Question, wish: GrantRequest, args: Mapping[str, Any]) -> GrantScope:
    """`args` are the question's arguments without the tool's `remarks`. Raises `NotCanonical`."""
    where = wish.where.strip()
    return GrantScope(
        tenant=question.tenant,
        session=question.session if wish.scope == "session" else "",
        actor=question.actor,
        tool=question.tool,
        definition=question.definition,
        where=where,
        exact="" if where else exact_digest(question.tool, question.definition, args),
        rule=question.rule,
        policy_hash=question.policy_hash,
    )


def question_of(grant: Grant, questions: Iterable[Question]) -> Question | None:
    return next((each for each in questions if grant_id(each.id, each.revision, grant.verdict) == grant.id), None)


def check_grant(
    grant: Grant, question: Question, answers: Iterable[StoredAnswer], now: datetime, args: Mapping[str, Any]
) -> AgreedGrant | None:
    """Return `None` if the agreed grant differs from the stored `grant`.

    `args` are the question's arguments without the tool's `remarks`. Callers verify the signatures. Without this check,
    write access to the grants table would be enough to approve calls.
    """
    # A later end of the question does not take back decisions given before.
    agreed = agreed_grant(request_at(replace(question, ended_at=None), answers, now))
    if agreed is None or agreed.verdict != grant.verdict or grant.requester != question.requester.user:
        return None
    try:
        like = scope_of_call(question, agreed.wish, args)
    except NotCanonical:
        return None
    ends = agreed.since + timedelta(seconds=agreed.wish.seconds) + _ROUNDED
    bounded = grant.uses <= agreed.wish.uses and grant.expires_at <= ends
    return agreed if bounded and (grant.like, grant.people) == (like, agreed.people) else None


def exact_digest(tool: str, definition: str, args: Mapping[str, Any]) -> str:
    """Leaves out the call's turn and number. Raises `NotCanonical` for arguments that RFC 8785 cannot encode."""
    return sha256_hex({"v": 1, "tool": tool, "definition": definition, "args": dict(args)})


def grant_id(approval_id: str, revision: int, verdict: Verdict) -> str:
    """The id never changes, so that the grant is written only once."""
    return f"g{sha256_hex([approval_id, revision, verdict])[: _ID_CHARS - 1]}"


def wish_problem(wish: GrantRequest) -> str:
    if not 0 < wish.seconds <= MAX_REMEMBERED_SECONDS:
        days = timedelta(seconds=MAX_REMEMBERED_SECONDS).days
        return f"`remember.seconds`: more than 0, and {MAX_REMEMBERED_SECONDS:.0f} ({days} days) at most"
    if not 1 <= wish.uses <= MAX_REMEMBERED_USES:
        return f"`remember.uses`: 1 to {MAX_REMEMBERED_USES}"
    return ""


def agreed_wish(decisions: Sequence[Decision], quorum: int) -> GrantRequest | None:
    """All approvers of a complete quorum must share the wish.

    The shortest duration and the smallest number of uses apply. The caller has verified the deciders.
    """
    wishes = [decision.remember for decision in decisions]
    people = {decision.subject for decision in decisions}
    # Future calls must not depend on a person who cannot be named or looked up.
    if "" in people or len(people) < max(quorum, 1):
        return None
    given_wishes = [wish for wish in wishes if wish is not None]
    if len(given_wishes) != len(wishes) or len({(wish.scope, wish.where.strip()) for wish in given_wishes}) != 1:
        return None
    return replace(
        given_wishes[0],
        seconds=min(wish.seconds for wish in given_wishes),
        uses=min(wish.uses for wish in given_wishes),
    )
