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
from signoff.contracts.decision import UNSIGNED, Decision, at_least
from signoff.contracts.steps import Authority, IdentifyTask
from signoff.registry.people import Directory
from signoff.registry.seats import Table, seat_of
from signoff.signing import Verifier

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evidence:
    """What a decision's signature is worth, and when it was made: as a signed one says, else at `moment`, now.

    `forged` is a decision that claims to be signed and is not: with it goes whatever it says.
    """

    kind: Literal["signed", "unsigned", "forged"]
    moment: datetime
    received_at: datetime | None = None


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
            # Nobody is looked up on the word of a forger.
            named = () if evidence.kind == "forged" else (task.decision.subject, task.requester)
            people = await self._room.knowing(task.tenant, *named)
            return await self._remembered.heard(task, authority(task, evidence, people, development=development))
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
    table = Table(task.tenant, task.approvers, task.requester, task.allow_self)
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
