"""Decides which answers are remembered, and to which calls they apply. Pure rules."""

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
"""How far a moment in the store may lie from the one it was made of."""


@dataclass(frozen=True)
class AgreedGrant:
    """What the answers to one question want remembered."""

    verdict: Literal["approved", "denied"]
    """The answer."""
    wish: GrantRequest
    """For which calls, how long and how often."""
    votes: tuple[Vote, ...]
    """The votes of all whose answer it is, the last one last."""

    @property
    def people(self) -> tuple[str, ...]:
        """Returns the ids of those whose answer it is."""
        return tuple(dict.fromkeys(vote.decision.subject for vote in self.votes))

    @property
    def since(self) -> datetime:
        """Returns when the last of them answered (UTC)."""
        return self.votes[-1].at


def agreed_grant(request: ApprovalRequest) -> AgreedGrant | None:
    """Returns the grant on which the answers that settled a request agree; None where they agree on none."""
    if not request.allow_remember or request.kind != "approval":
        return None
    if request.state == "approved":
        votes = tuple(vote for vote in request.votes if vote.verdict == "approved")
        wish = agreed_wish([vote.decision for vote in votes], request.quorum)
        return None if wish is None else AgreedGrant("approved", wish, votes)
    if request.state == "denied" and request.veto:
        # One no ends it, so it is one person's.
        votes = tuple(vote for vote in request.votes if vote.verdict == "denied")[-1:]
        wish = votes[0].decision.remember if votes and votes[0].decision.subject else None
        return None if wish is None else AgreedGrant("denied", wish, votes)
    return None


def scope_of_call(question: Question, wish: GrantRequest, args: Mapping[str, Any]) -> GrantScope:
    """Returns the selection of calls like that of `question`. Raises `NotCanonical`.

    `args` are the question's arguments without the tool's `remarks`.
    """
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
    """Returns the question, among those of the approval that `grant` names, to which its answers belong; or None."""
    return next((each for each in questions if grant_id(each.id, each.revision, grant.verdict) == grant.id), None)


def check_grant(
    grant: Grant, question: Question, answers: Iterable[StoredAnswer], now: datetime, args: Mapping[str, Any]
) -> AgreedGrant | None:
    """Returns the grant that the answers to `question` agree on; None where `grant` differs.

    `args` are the question's arguments without the tool's `remarks`. The caller checks the signatures. Without this
    check, whoever can write grants could let any call run.
    """
    # How the question ended later takes no answer back that was given before.
    found = agreed_grant(request_at(replace(question, ended_at=None, ended_as=None), answers, now))
    if found is None or found.verdict != grant.verdict or grant.requester != question.requester.user:
        return None
    try:
        like = scope_of_call(question, found.wish, args)
    except NotCanonical:
        return None
    ends = found.since + timedelta(seconds=found.wish.seconds) + _ROUNDED
    bounded = grant.uses <= found.wish.uses and grant.expires_at <= ends
    return found if bounded and (grant.like, grant.people) == (like, found.people) else None


def exact_digest(tool: str, definition: str, args: Mapping[str, Any]) -> str:
    """Computes the digest of a call without its turn and number: the meaning of `exactly these arguments`.

    Raises `NotCanonical` for arguments that RFC 8785 cannot write.
    """
    return sha256_hex({"v": 1, "tool": tool, "definition": definition, "args": dict(args)})


def grant_id(approval_id: str, revision: int, verdict: Verdict) -> str:
    """Computes the id of an answer's grant: the same each time it is written, so that it is written once."""
    return f"g{sha256_hex([approval_id, revision, verdict])[: _ID_CHARS - 1]}"


def wish_problem(wish: GrantRequest) -> str:
    """Returns why an answer cannot be remembered for so long or so often; "" when it can."""
    if not 0 < wish.seconds <= MAX_REMEMBERED_SECONDS:
        days = timedelta(seconds=MAX_REMEMBERED_SECONDS).days
        return f"`remember.seconds`: more than 0, and {MAX_REMEMBERED_SECONDS:.0f} ({days} days) at most"
    if not 1 <= wish.uses <= MAX_REMEMBERED_USES:
        return f"`remember.uses`: 1 to {MAX_REMEMBERED_USES}"
    return ""


def agreed_wish(decisions: Sequence[Decision], quorum: int) -> GrantRequest | None:
    """Returns the one wish to remember that all approvers share; None unless all of a quorum have the same one.

    Of different lengths and counts the smallest hold. The caller has checked whose decisions these are.
    """
    wishes = [decision.remember for decision in decisions]
    people = {decision.subject for decision in decisions}
    # Calls yet to come must not hang on somebody who cannot be named or looked up.
    if "" in people or len(people) < max(quorum, 1):
        return None
    kept = [wish for wish in wishes if wish is not None]
    if len(kept) != len(wishes) or len({(wish.scope, wish.where.strip()) for wish in kept}) != 1:
        return None
    return replace(kept[0], seconds=min(wish.seconds for wish in kept), uses=min(wish.uses for wish in kept))
