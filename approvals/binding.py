"""Which call a decision is about: the one rule, asked where answers are counted and again where tools run."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from signoff.approvals.digest import call_digest
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical import NotCanonical
from signoff.contracts.decision import Decision

ArgumentsDigest: TypeAlias = Callable[[Mapping[str, Any]], str]
"""The digest that one call would have with these arguments; may raise `NotCanonical`."""


def names(decision: Decision, digest: str, revision: int, digest_of_args: ArgumentsDigest) -> bool:
    """Whether `decision` is about the call with `digest` as it was asked in `revision`.

    One that changed the arguments was given to the revision before, and is about the call it describes itself.
    """
    if decision.edited_args is None:
        # A raw message may name no digest; of what is signed, the tool's activity asks for one.
        return decision.digest in ("", digest) and (decision.revision or 1) == revision
    if (decision.revision or 1) + 1 != revision:
        return False
    try:
        return digest_of_args(decision.edited_args) == digest
    except NotCanonical:
        return False


def digest_with(request: ApprovalRequest) -> ArgumentsDigest:
    """The digests that the call of `request` would have with other arguments."""

    def digest_of(args: Mapping[str, Any]) -> str:
        return call_digest(
            tenant=request.tenant,
            session=request.session,
            turn=request.turn,
            call=request.call,
            requester=request.requester.user,
            nonce=request.requester.nonce,
            tool=request.tool,
            definition=request.definition,
            args=args,
        )

    return digest_of
