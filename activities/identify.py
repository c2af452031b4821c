"""Local activity `signoff.identify`: who answered, and may they, now?"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from temporalio import activity

from signoff.activities.remembered import Remembered
from signoff.activities.room import Room
from signoff.contracts import names
from signoff.contracts.decision import Decision, at_least
from signoff.contracts.person import Person
from signoff.contracts.receipt import ReceiptCode
from signoff.contracts.steps import Authority, IdentifyTask
from signoff.registry.people import Directory
from signoff.signing import Verifier

UNSIGNED = "unsigned"
"""The subject recorded for an answer that names nobody."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evidence:
    """What a decision's signature is worth, and when it was made: as a signed one says, else at `moment`, now.

    `forged` is a decision that claims to be signed and is not: with it goes whatever it says.
    """

    kind: Literal["signed", "unsigned", "forged"]
    moment: datetime
    received_at: datetime | None = None


@dataclass(frozen=True)
class Seat:
    """Whose answer a person gives, their own ("") or that of `on_behalf`; `code` is why nobody's."""

    on_behalf: str = ""
    code: ReceiptCode = ""


class IdentifyActivity:
    """Looks the author up in the directory at the moment of the decision; never fails."""

    def __init__(self, room: Room, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._room = room
        self._remembered = Remembered(room)
        self._clock = clock

    @activity.defn(name=names.IDENTIFY)
    async def identify(self, task: IdentifyTask) -> Authority:
        """May the author of this decision decide this request?"""
        try:
            evidence = evidence_of(task.decision, self._room.verifier, self._clock())
            development = self._room.profile == "development"
            return await self._remembered.heard(
                task, authority(task, evidence, self._room.people, development=development)
            )
        except Exception as error:
            # A directory can be anybody's code, and whatever escapes from here would leave the answer without receipt.
            _log.warning("who answered %s cannot be known now: %s", task.decision.approval_id, type(error).__name__)
            return Authority(allowed=False, code="unavailable")


def evidence_of(decision: Decision, verifier: Verifier, now: datetime) -> Evidence:
    """Check the signature. A key id or a signature alone claims one, too."""
    if not decision.signature and not decision.key_id:
        return Evidence("unsigned", now)
    if not verifier.check_decision(decision):
        return Evidence("forged", now)
    received = decision.received_at
    if received is None or received.tzinfo is None:
        return Evidence("signed", now)
    return Evidence("signed", received, received)


def authority(task: IdentifyTask, evidence: Evidence, people: Directory, *, development: bool) -> Authority:
    """The rule: known, active, on the list or in the role (or standing in for such a person), not the requester,
    assured strongly enough."""
    decision, unsigned = task.decision, evidence.kind == "unsigned"
    if evidence.kind == "forged":
        return Authority(allowed=False, code="assurance")
    if unsigned and not (development or task.accept_unsigned):
        return Authority(allowed=False, code="assurance", unsigned=True)
    if not decision.subject:
        return _anonymous(task, development) if unsigned else Authority(allowed=False, code="not_allowed")
    found = Authority(allowed=False, subject=decision.subject, unsigned=unsigned, received_at=evidence.received_at)
    person = people.find(decision.subject, task.tenant)
    if person is None or not _present(person, task):
        return found.model_copy(update={"code": "not_allowed"})
    seat = _seat(task, person, people, evidence.moment)
    code = seat.code or ("" if _assured(task, unsigned, development) else "assurance")
    return found.model_copy(
        update={
            "allowed": not code,
            "code": code,
            "subject": person.id,
            "name": person.name,
            "assurance": "none" if unsigned else decision.assurance,
            "on_behalf": seat.on_behalf,
        }
    )


def _anonymous(task: IdentifyTask, development: bool) -> Authority:
    """A raw message that names nobody: only where unsigned answers are accepted, and recorded as such."""
    allowed = at_least("none", task.min_assurance) or _waived(task, development)
    return Authority(allowed=allowed, code="" if allowed else "assurance", subject=UNSIGNED, unsigned=True)


def _seat(task: IdentifyTask, person: Person, people: Directory, moment: datetime) -> Seat:
    own_matter = person.id == task.requester and not task.allow_self
    if _listed(person, task.approvers):
        return Seat(code="self_approval") if own_matter else Seat()
    standing = [
        each.id
        for each in people.delegators(person.id, task.tenant, moment)
        if _present(each, task) and _listed(each, task.approvers) and (task.allow_self or each.id != task.requester)
    ]
    if not standing:
        return Seat(code="not_allowed")
    if own_matter:
        return Seat(code="self_approval")
    # Of several people somebody stands in for, one whose answer is not counted yet.
    return Seat(on_behalf=next((each for each in standing if each not in task.seats), standing[0]))


def _present(person: Person, task: IdentifyTask) -> bool:
    return person.active and person.tenant == task.tenant


def _listed(person: Person, approvers: tuple[str, ...]) -> bool:
    return f"user:{person.id}" in approvers or any(f"role:{role}" in approvers for role in person.roles)


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
