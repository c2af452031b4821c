"""Finds a turn's requester and requests by the gateway's signatures, not by the turn's claims."""

from collections.abc import Sequence
from dataclasses import dataclass

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Principal
from signoff.contracts.turn import TurnInput
from signoff.keys.signatures import Verifier


@dataclass(frozen=True)
class SignedStart:
    """The start of a turn. `requester` is `None` without proof. `requests` are all revisions.

    `dry_run` comes from the input of a turn with a proven requester. The gateway does not sign it.
    """

    key: TurnKey
    requester: Principal | None
    requests: tuple[ApprovalRequest, ...] = ()
    dry_run: bool = False


def signed_start_of(
    key: TurnKey, given: TurnInput | None, requests: Sequence[ApprovalRequest], verifier: Verifier, *, development: bool
) -> SignedStart:
    """`requests` are stored questions whose requester the gateway signed.

    If a forger started the turn's workflow, they alone prove the requester.
    """
    requester = _find_signed(key, given, verifier, development=development)
    dry_run = requester is not None and given is not None and given.dry_run
    if requester is None and requests:
        requester = max(requests, key=_opened_at).requester
    # A turn's id may be reused: leave out an earlier turn's requests.
    of_it = [each for each in requests if requester is not None and each.requester.nonce == requester.nonce]
    return SignedStart(key, requester, tuple(of_it), dry_run)


def _find_signed(key: TurnKey, given: TurnInput | None, verifier: Verifier, *, development: bool) -> Principal | None:
    if given is None:
        return None
    user = given.principal
    if not (user.signature or user.key_id):
        return user if development else None
    ctx = CallContext(
        actor=given.actor,
        session=key.session,
        turn=key.turn,
        tenant=key.tenant,
        channel=given.channel,
        route=given.route,
        step=given.step,
        user=user,
        extra=given.context,
        transient=given.transient,
    )
    return user if verifier.check_principal(ctx) else None


def _opened_at(request: ApprovalRequest) -> float:
    return 0.0 if request.opened_at is None else request.opened_at.timestamp()
