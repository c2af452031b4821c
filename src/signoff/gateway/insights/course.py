"""Lists the steps of one request in order of time. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from signoff.audit.record import Record
from signoff.audit.timeline import is_claim
from signoff.contracts.errors import Refused
from signoff.store.delivery_queue import DeliveryRow

CourseKind = Literal[
    "asked", "again", "sent", "delivered", "read", "failed", "reminded", "escalated", "question", "reply", "answered",
    "ended", "runs", "ran",
]  # fmt: skip
_COUNTED: Final = ("accepted", "counted")
_ASKED: Final = ("request", "in_doubt")
_EVENTS: Final[dict[str, CourseKind]] = {"remind": "reminded", "escalate": "escalated"}
_CARD_STATES: Final[dict[str, CourseKind]] = {"delivered": "delivered", "read": "read", "failed": "failed"}


@dataclass(frozen=True)
class CourseStep:
    """One step. Empty fields do not apply."""

    at: datetime
    kind: CourseKind
    who: str = ""
    channel: str = ""
    word: str = ""
    """The verdict, end state or outcome."""
    number: int = 0


def course_of(
    records: Iterable[Record], cards: Iterable[DeliveryRow], approval: str, call: str
) -> tuple[CourseStep, ...]:
    """Leaves out other requests of the turn, records that only their turn reports, and answers that did not count."""
    found = [*_from_records(records, approval, call), *_from_cards(cards)]
    return tuple(sorted(found, key=lambda step: step.at))


def _from_records(records: Iterable[Record], approval: str, call: str) -> Iterator[CourseStep]:
    for record in records:
        if is_claim(record):
            continue
        try:
            facts, at = record.facts, datetime.fromisoformat(record.at)
        # A changed record: the page of the audit log reports it.
        except (Refused, ValueError):
            continue
        if record.kind in ("execution", "outcome"):
            step = _of_run(record, facts, at) if facts.get("call") == call else None
        else:
            step = _of_request(record, facts, at) if facts.get("approval") == approval else None
        if step is not None:
            yield step


def _of_request(record: Record, facts: dict[str, Any], at: datetime) -> CourseStep | None:
    who, channel = record.subject, str(facts.get("channel", ""))
    if record.kind in _ASKED and facts.get("approvers"):
        return CourseStep(at, "asked", who)
    if record.kind == "revision":
        return CourseStep(at, "again", who, number=int(facts.get("revision", 0)))
    if record.kind == "delivery" and (kind := _EVENTS.get(str(facts.get("event")))) is not None:
        return CourseStep(at, kind)
    if record.kind == "message":
        return CourseStep(at, "reply") if facts.get("by") == "agent" else CourseStep(at, "question", who, channel)
    if record.kind == "attempt" and facts.get("status") in _COUNTED:
        return CourseStep(at, "answered", who, channel, str(facts.get("verdict", "")))
    if record.kind == "ending":
        return CourseStep(at, "ended", word=str(facts.get("state", "")))
    return None


def _of_run(record: Record, facts: dict[str, Any], at: datetime) -> CourseStep | None:
    if record.kind == "outcome":
        return CourseStep(at, "ran", word=str(facts.get("code", "")))
    return None if "refused" in facts else CourseStep(at, "runs")


def _from_cards(cards: Iterable[DeliveryRow]) -> Iterator[CourseStep]:
    for card in cards:
        if card.sent_at is not None:
            yield CourseStep(card.sent_at, "sent", card.person, card.channel)
        kind = _CARD_STATES.get(card.state)
        if kind is not None:
            yield CourseStep(card.changed_at, kind, card.person, card.channel)
