"""Who an answer is by, and whether they may give it: one rule for the gateway, which takes it, and for workers."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from signoff.contracts.activity_messages import Authority, IdentifyTask
from signoff.contracts.decision import UNSIGNED, at_least
from signoff.people.directory import Directory
from signoff.people.eligibility import Table, seat_of


@dataclass(frozen=True)
class Evidence:
    """What a decision's signature is worth, and when it was made: as a signed one says, else at `moment`, now.

    `forged` is a decision that claims to be signed and is not: with it goes whatever it says.
    """

    kind: Literal["signed", "unsigned", "forged"]
    moment: datetime
    received_at: datetime | None = None


def authority(task: IdentifyTask, evidence: Evidence, people: Directory, *, development: bool) -> Authority:
    """The rule: known, active, on the list or in the role (or standing in for such a person), not the requester,
    assured strongly enough."""
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
    table = Table(task.tenant, task.approvers, task.requester, task.allow_self, task.proposers)
    seat = seat_of(person, people, table, evidence.moment, task.seats)
    if person is None:
        return found.model_copy(update={"code": seat.code})
    code = seat.code or ("" if _assured(task, unsigned, development) else "assurance")
    return found.model_copy(
        update={
            "allowed": not code,
            "code": code,
            "subject": person.id,
            "person_id": people.person_id(person.id, task.tenant),
            "name": person.name,
            "assurance": "none" if unsigned else decision.assurance,
            "on_behalf": seat.on_behalf,
        }
    )


def _anonymous(task: IdentifyTask, development: bool) -> Authority:
    """A raw message that names nobody: only where unsigned answers are accepted, and recorded as such."""
    allowed = at_least("none", task.min_assurance) or _waived(task, development)
    return Authority(allowed=allowed, code="" if allowed else "assurance", subject=UNSIGNED, unsigned=True)


def _assured(task: IdentifyTask, unsigned: bool, development: bool) -> bool:
    have = task.decision.assurance
    if not unsigned:
        return at_least(have, task.min_assurance)
    # Anyone can write an assurance into an unsigned answer. The development profile, in which nobody proves anything,
    # goes by it; elsewhere it is none.
    if not development or have == "none":
        return at_least("none", task.min_assurance) or _waived(task, development)
    return at_least(have, task.min_assurance)


def _waived(task: IdentifyTask, development: bool) -> bool:
    """Whether an answer without any assurance is taken all the same."""
    # The development profile has no logins, so it takes a bare message where a channel would be enough.
    return task.accept_unsigned or (development and not at_least(task.min_assurance, "session"))
