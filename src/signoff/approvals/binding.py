"""Decides which question a decision answers.

Applied when decisions count and when tools run.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from signoff.approvals.digest import call_digest
from signoff.contracts.approval import Question
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Decision

ArgumentsDigest: TypeAlias = Callable[[Mapping[str, Any]], str]
"""Returns the digest of a call with these arguments. May raise `NotCanonical`."""


def is_answer_to(decision: Decision, question: Question, question_hash: str) -> bool:
    """An edit is addressed to the previous revision, and answers the question that it created."""
    if decision.edited_args is None:
        # A raw message may name no question. For signed decisions, the tool's activity requires one.
        return decision.question_hash in ("", question_hash) and (decision.revision or 1) == question.revision
    if (decision.revision or 1) != question.edit_of:
        return False
    try:
        return digest_with(question)(decision.edited_args) == question.digest
    except NotCanonical:
        return False


def digest_with(question: Question) -> ArgumentsDigest:
    """Return a function that computes the call digest of `question` for other arguments."""

    # Trust the question's turn and requester here: the requester's signature is checked separately. For whether it
    # belongs to the running turn, see `earlier_questions`.
    def digest_of(args: Mapping[str, Any]) -> str:
        return call_digest(
            tenant=question.tenant,
            session=question.session,
            turn=question.turn,
            call=question.call,
            requester=question.requester.user,
            nonce=question.requester.nonce,
            tool=question.tool,
            definition=question.definition,
            args=args,
        )

    return digest_of
