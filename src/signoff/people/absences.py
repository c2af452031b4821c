"""Absences that people enter or that their calendars contain. They only delay cards, and give no rights."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from signoff.approvals.quorum import added_people, progress
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.contracts.person import Absence, Person
from signoff.formats.replace import replace
from signoff.keys.signatures import Signature, Signer, Verifier

LONGEST: Final = timedelta(days=366)
_PURPOSE: Final = "absence"


def sign_absence(absence: Absence, signer: Signer) -> Absence:
    """Raises `NotCanonical`."""
    in_utc = {name: getattr(absence, name).astimezone(UTC) for name in ("since", "until", "said_at")}
    absence = replace(absence, **in_utc)
    mark = signer.sign_bytes(_PURPOSE, _body(absence))
    return replace(absence, key_id=mark.key_id, signature=mark.signature)


def is_signed(absence: Absence, verifier: Verifier) -> bool:
    try:
        body = _body(absence)
    except NotCanonical:
        return False
    return verifier.check_bytes(_PURPOSE, body, Signature(absence.key_id, absence.signature), at=absence.said_at)


def is_away(absence: Absence, tool: str, now: datetime) -> bool:
    return absence.since <= now < absence.until and (not absence.tools or tool in absence.tools)


def find_returns(
    request: ApprovalRequest, asked: Sequence[Person], absences: Iterable[Absence], now: datetime
) -> Mapping[str, datetime]:
    """Return when the people among `asked` whose cards wait come back, by id.

    Empty if too few others could answer in time: then all get their cards at once. So does an added approver.
    """
    # A person may have entered an absence and have one in a calendar.
    last = sorted((each for each in absences if is_away(each, request.tool, now)), key=lambda each: each.until)
    away = {each.person: each.until for each in last}
    returns = {each.id: away[each.id] for each in asked if each.id in away and not _is_needed(each, request)}
    course = progress(request)
    enough = len(asked) - len(returns) >= max(course.needed - course.yes, 1)
    return returns if enough and not request.groups else {}


def _is_needed(person: Person, request: ApprovalRequest) -> bool:
    named = (*added_people(request.assignments), *(each.decision.to for each in request.assignments))
    return (person.person_id or person.id) in named


def _body(absence: Absence) -> bytes:
    return canonical_json(absence.model_dump(mode="json", exclude={"key_id", "signature"}, exclude_defaults=True))
