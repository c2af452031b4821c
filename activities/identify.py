"""Local activity `signoff.identify`: who answered, and may they, now?"""

from temporalio import activity

from signoff.activities.room import Room
from signoff.contracts import names
from signoff.contracts.decision import Assurance, at_least
from signoff.contracts.person import Person
from signoff.contracts.steps import Authority, IdentifyTask

UNSIGNED = "unsigned"
"""The subject recorded for an answer that names nobody."""


class IdentifyActivity:
    """Looks the author up in the directory at the moment of the decision; never fails."""

    def __init__(self, room: Room) -> None:
        self._room = room

    @activity.defn(name=names.IDENTIFY)
    async def identify(self, task: IdentifyTask) -> Authority:
        """May the author of this decision decide this request?"""
        return authority(task, self._person(task), development=self._room.profile == "development")

    def _person(self, task: IdentifyTask) -> Person | None:
        return self._room.people.find(task.decision.subject, task.tenant) if task.decision.subject else None


def authority(task: IdentifyTask, person: Person | None, *, development: bool) -> Authority:
    """The pure rule: known, active, on the list or in the role, not the requester, assured strongly enough."""
    decision = task.decision
    # No key is known yet by which a signature could be checked, so one that is sent along proves nothing.
    unsigned = True
    if not (development or task.accept_unsigned):
        return Authority(allowed=False, code="assurance", unsigned=True)
    if not decision.subject:
        return _anonymous(task, development)
    if person is None or not person.active or not _listed(person, task.approvers):
        return Authority(allowed=False, code="not_allowed", subject=decision.subject, unsigned=unsigned)
    if person.id == task.requester and not task.allow_self:
        return Authority(allowed=False, code="self_approval", subject=person.id, name=person.name, unsigned=unsigned)
    allowed = _assured(decision.assurance, task, development)
    return Authority(
        allowed=allowed,
        code="" if allowed else "assurance",
        subject=person.id,
        name=person.name,
        assurance=decision.assurance,
        unsigned=unsigned,
    )


def _anonymous(task: IdentifyTask, development: bool) -> Authority:
    """A raw message that names nobody: only where unsigned answers are accepted, and recorded as such."""
    allowed = _assured("none", task, development)
    return Authority(allowed=allowed, code="" if allowed else "assurance", subject=UNSIGNED, unsigned=True)


def _listed(person: Person, approvers: tuple[str, ...]) -> bool:
    return f"user:{person.id}" in approvers or any(f"role:{role}" in approvers for role in person.roles)


def _assured(have: Assurance, task: IdentifyTask, development: bool) -> bool:
    if at_least(have, task.min_assurance):
        return True
    # The development profile has no logins, so it takes a bare message where a channel would be enough.
    return have == "none" and (task.accept_unsigned or (development and not at_least(task.min_assurance, "session")))
