"""Decides whose answer a decision is, and whether they may give it: one rule for gateway and workers."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from signoff.contracts.activity_messages import Authority, IdentifyTask
from signoff.contracts.decision import UNSIGNED, at_least
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.people.eligibility import ApproverSpec, resolve_eligibility


@dataclass(frozen=True)
class SignatureEvidence:
    """What a decision's signature proves."""

    kind: Literal["signed", "unsigned", "forged"]
    """`forged` is a decision that claims to be signed and is not: nothing it says is believed."""
    moment: datetime
    """When it was made: as a signed decision says, else now."""
    received_at: datetime | None = None
    """When the gateway received it, for a signed decision."""


def check_authority(
    task: IdentifyTask, evidence: SignatureEvidence, people: Directory, *, development: bool
) -> Authority:
    """Decides who may answer: people known, active, asked by id, role or delegation, not the requester, strongly
    assured enough.
    """
    decision, unsigned = task.decision, evidence.kind == "unsigned"
    # Before anything is waived: `accept_unsigned` is for what claims nothing, not for what claims falsely.
    if evidence.kind == "forged":
        return Authority(allowed=False, code="assurance")
    if unsigned and not (development or task.accept_unsigned):
        return Authority(allowed=False, code="assurance", unsigned=True)
    # What is signed has to name somebody; only a raw message may name nobody.
    if not decision.subject:
        return _anonymous(task, development) if unsigned else Authority(allowed=False, code="not_allowed")
    found = Authority(allowed=False, subject=decision.subject, unsigned=unsigned, received_at=evidence.received_at)
    person = people.find(decision.subject, task.tenant)
    spec = ApproverSpec(
        task.tenant,
        task.approvers,
        task.requester,
        task.allow_self,
        task.proposers,
        requester_person=task.requester_person,
    )
    eligibility = resolve_eligibility(person, people, spec, evidence.moment, task.seats, task.wanted)
    if person is None:
        return replace(found, code=eligibility.code)
    code = eligibility.code or ("" if _is_assured(task, unsigned, development) else "assurance")
    return replace(
        found,
        allowed=not code,
        code=code,
        subject=person.id,
        person_id=people.person_id(person.id, task.tenant),
        name=person.name,
        assurance="none" if unsigned else decision.assurance,
        on_behalf=eligibility.on_behalf,
        # Only where somebody asks under which: the rest of all histories does without.
        entries=tuple(sorted(eligibility.entries)) if task.groups and not code else (),
    )


def _anonymous(task: IdentifyTask, development: bool) -> Authority:
    """Decides about a raw message that names nobody: taken only where unsigned answers are, and recorded as unnamed."""
    allowed = at_least("none", task.min_assurance) or _is_waived(task, development)
    return Authority(allowed=allowed, code="" if allowed else "assurance", subject=UNSIGNED, unsigned=True)


def _is_assured(task: IdentifyTask, unsigned: bool, development: bool) -> bool:
    have = task.decision.assurance
    if not unsigned:
        return at_least(have, task.min_assurance)
    # Anyone can write an assurance into an unsigned answer. The development profile, in which nobody proves anything,
    # goes by it; elsewhere it is none.
    if not development or have == "none":
        return at_least("none", task.min_assurance) or _is_waived(task, development)
    return at_least(have, task.min_assurance)


def _is_waived(task: IdentifyTask, development: bool) -> bool:
    """Returns whether an answer without any assurance is taken all the same."""
    # The development profile has no logins, so it takes a bare message where a channel would be enough.
    return task.accept_unsigned or (development and not at_least(task.min_assurance, "session"))
