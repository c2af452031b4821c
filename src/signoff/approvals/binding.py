"""Decides which question a decision answers: one rule, applied where answers are counted and again where tools run."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from signoff.approvals.digest import call_digest
from signoff.contracts.approval import Question
from signoff.contracts.canonical_json import NotCanonical
from signoff.contracts.decision import Decision

ArgumentsDigest: TypeAlias = Callable[[Mapping[str, Any]], str]
"""The digest that one call would have with these arguments; may raise `NotCanonical`."""


def is_answer_to(decision: Decision, question: Question, question_hash: str) -> bool:
    """Returns whether `decision` answers `question`, whose hash is `question_hash`.

    One that changed the arguments was given to the revision before, and answers the question that it made.
    """
    if decision.edited_args is None:
        # A raw message may name no question; of what is signed, the tool's activity asks for one.
        return decision.question_hash in ("", question_hash) and (decision.revision or 1) == question.revision
    if (decision.revision or 1) != question.edit_of:
        return False
    try:
        return digest_with(question)(decision.edited_args) == question.digest
    except NotCanonical:
        return False


def digest_with(question: Question) -> ArgumentsDigest:
    """Returns a function that computes the digest of the call of `question` with other arguments."""

    # By the question's own word for its turn and for who asked, whose signature is checked beside it. Whether it is of
    # the turn that runs now is another question: see `earlier_questions`.
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
