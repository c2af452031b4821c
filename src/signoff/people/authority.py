"""Decides who made a decision and whether they may: one rule for gateway and workers."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from signoff.contracts.activity_messages import Authority, IdentifyTask
from signoff.contracts.approval import Terms
from signoff.contracts.decision import UNSIGNED, at_least
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.people.eligibility import ApproverSpec, resolve_eligibility


@dataclass(frozen=True)
class SignatureEvidence:
    """The proof given by a decision's signature."""

    kind: Literal["signed", "unsigned", "forged"]
    """`forged` is a decision with an invalid claim to be signed: trust nothing in it."""
    moment: datetime
    """As signed, or now."""
    received_at: datetime | None = None
    """The gateway's time of receipt, for a signed decision."""


def check_authority(
    task: IdentifyTask, evidence: SignatureEvidence, people: Directory, *, development: bool
) -> Authority:
    """Decide whether the author of a decision may make it.

    They must be known, active and asked by id, role or delegation, must not be the requester, and need the required
    assurance.
    """
    decision, unsigned = task.decision, evidence.kind == "unsigned"
    # Check this before any waiver: `accept_unsigned` is for decisions without a claim, not for false claims.
    if evidence.kind == "forged":
        return Authority(allowed=False, code="assurance")
    if unsigned and not (development or task.accept_unsigned):
        return Authority(allowed=False, code="assurance", unsigned=True)
    # A signed decision must name a person. Only a raw message may be anonymous.
    if not decision.subject:
        return _anonymous(task, development) if unsigned else Authority(allowed=False, code="not_allowed")
    base = Authority(allowed=False, subject=decision.subject, unsigned=unsigned, received_at=evidence.received_at)
    person = people.find(decision.subject, task.tenant)
    spec = ApproverSpec(
        task.tenant,
        Terms(approvers=task.approvers),
        task.requester,
        task.allow_self,
        task.proposers,
        requester_person=task.requester_person,
    )
    eligibility = resolve_eligibility(person, people, spec, evidence.moment, task.seats, task.wanted)
    if person is None:
        return replace(base, code=eligibility.code)
    code = eligibility.code or ("" if _is_assured(task, unsigned, development) else "assurance")
    return replace(
        base,
        allowed=not code,
        code=code,
        subject=person.id,
        person_id=people.person_id(person.id, task.tenant),
        name=person.name,
        assurance="none" if unsigned else decision.assurance,
        on_behalf=eligibility.on_behalf,
        # Include them only for questions with groups, to keep other histories small.
        entries=tuple(sorted(eligibility.entries)) if task.groups and not code else (),
    )


def _anonymous(task: IdentifyTask, development: bool) -> Authority:
    """Decide about a raw message without a person: it counts only where unsigned decisions do.

    It is recorded as anonymous.
    """
    allowed = at_least("none", task.min_assurance) or _is_waived(task, development)
    return Authority(allowed=allowed, code="" if allowed else "assurance", subject=UNSIGNED, unsigned=True)


def _is_assured(task: IdentifyTask, unsigned: bool, development: bool) -> bool:
    have = task.decision.assurance
    if not unsigned:
        return at_least(have, task.min_assurance)
    # Anyone can write an assurance into an unsigned decision. The development profile, which proves nothing, trusts it.
    # Elsewhere it counts as none.
    if not development or have == "none":
        return at_least("none", task.min_assurance) or _is_waived(task, development)
    return at_least(have, task.min_assurance)


def _is_waived(task: IdentifyTask, development: bool) -> bool:
    """Return whether a decision counts without assurance."""
    # The development profile has no logins, so it accepts a raw message where a channel's assurance would suffice.
    return task.accept_unsigned or (development and not at_least(task.min_assurance, "session"))
