"""Decides whether the author of a decision may make it: one rule for gateway and workers."""

from datetime import datetime
from typing import Final

from signoff.approvals.machine import vote_holder
from signoff.approvals.quorum import progress
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import UNSIGNED, Decision, at_least
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.people.on_call import asks_rota, find_on_call

_OPERATORS: Final = "role:admin"


def check_authority(
    request: ApprovalRequest,
    decision: Decision,
    moment: datetime,
    people: Directory,
    *,
    unsigned: bool,
    development: bool,
) -> Authority:
    """Decide whether the author of a decision may make it at `moment`.

    They must be known, active and asked by id, role or delegation, must not be the requester, and need the required
    assurance. `unsigned` is a decision without a claim to be signed. Never pass one with a false claim.
    """
    asked = _withdrawable(request) if decision.verdict == "withdrawn" else request
    if unsigned and not (development or asked.accept_unsigned):
        return Authority(allowed=False, code="assurance", unsigned=True)
    # A signed decision must name a person. Only a raw message may be anonymous.
    if not decision.subject:
        return _anonymous(asked, development) if unsigned else Authority(allowed=False, code="not_allowed")
    base = Authority(allowed=False, subject=decision.subject, unsigned=unsigned)
    person = people.find(decision.subject, asked.tenant)
    taken = tuple(vote_holder(vote) for vote in asked.votes)
    wanted = {entry for group in progress(asked).open for entry in group.of}
    # Only a signature proves to the worker who was on call.
    on_call = () if unsigned else _shifts(asked, decision.subject, people, moment)
    eligibility = resolve_eligibility(person, people, approver_spec_of(asked), moment, taken, wanted, on_call)
    if person is None:
        return replace(base, code=eligibility.code)
    code = eligibility.code or ("" if _is_assured(asked, decision, unsigned, development) else "assurance")
    return replace(
        base,
        allowed=not code,
        code=code,
        subject=person.id,
        person_id=people.person_id(person.id, asked.tenant),
        name=person.name,
        assurance="none" if unsigned else decision.assurance,
        on_behalf=eligibility.on_behalf,
        # Include them only for questions with groups, to keep other histories small.
        entries=tuple(sorted(eligibility.entries)) if asked.groups and not code else (),
        on_call=on_call,
    )


def _shifts(request: ApprovalRequest, subject: str, people: Directory, moment: datetime) -> tuple[str, ...]:
    rotas = {*request.approvers, *request.escalate_to}
    if not asks_rota(rotas):
        return ()
    return tuple(each for each in find_on_call(people, subject, request.tenant, moment) if each in rotas)


def _withdrawable(request: ApprovalRequest) -> ApprovalRequest:
    """Return the terms of a withdrawal: the requester, an approver or an administrator may withdraw."""
    return replace(
        request,
        approvers=(*request.approvers, f"user:{request.requester.user}", _OPERATORS),
        groups=(),
        votes=(),
        assignments=(),
        # A withdrawal makes nothing happen. The requester may withdraw with any sign-in, but not unsigned.
        allow_self=True,
        min_assurance="none",
        accept_unsigned=False,
    )


def _anonymous(request: ApprovalRequest, development: bool) -> Authority:
    """Decide about a raw message without a person: it counts only where unsigned decisions do.

    It is recorded as anonymous.
    """
    allowed = at_least("none", request.min_assurance) or _is_waived(request, development)
    return Authority(allowed=allowed, code="" if allowed else "assurance", subject=UNSIGNED, unsigned=True)


def _is_assured(request: ApprovalRequest, decision: Decision, unsigned: bool, development: bool) -> bool:
    # Anyone can write an assurance into an unsigned decision. The development profile, which proves nothing, trusts it.
    # Elsewhere it counts as none. No profile trusts it to prove a passkey.
    if not unsigned or (development and decision.assurance != "none"):
        proves = not unsigned or not at_least(request.min_assurance, "present")
        return proves and at_least(decision.assurance, request.min_assurance)
    return at_least("none", request.min_assurance) or _is_waived(request, development)


def _is_waived(request: ApprovalRequest, development: bool) -> bool:
    """Return whether a decision counts without assurance. No profile and no policy waives a passkey."""
    if at_least(request.min_assurance, "present"):
        return False
    # The development profile has no logins, so it accepts a raw message where a channel's assurance would suffice.
    return request.accept_unsigned or (development and not at_least(request.min_assurance, "session"))
