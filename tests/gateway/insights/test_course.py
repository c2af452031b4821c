from datetime import UTC, datetime, timedelta
from typing import Any

from history_rig import HistoryRig

from signoff.audit.log import TURNS_KEYS
from signoff.audit.record import Record, record_from_entry
from signoff.contracts.audit import AuditEntry, AuditKind
from signoff.formats.replace import replace
from signoff.gateway.insights.course import CourseStep, course_of
from signoff.store.delivery_queue import DeliveryRow
from signoff.store.store import Store

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
APPROVAL, CALL = "main.s.t.c1.1", "c1.1"


def at(minute: int) -> datetime:
    return AT + timedelta(minutes=minute)


def record(minute: int, kind: AuditKind, subject: str = "", *, key: str = "", **data: Any) -> Record:
    given = {"approval": APPROVAL, **data} if kind not in ("execution", "outcome") else data
    key = key or f"{kind}/{minute}"
    return record_from_entry(
        AuditEntry(stream="turn/main/s/t", key=key, kind=kind, at=at(minute), subject=subject, data=given)
    )


def test_course_has_each_step_of_a_request_in_order_of_time() -> None:
    records = [
        record(0, "request", "guest", approvers=["role:finance"]),
        record(9, "execution", call=CALL),
        record(10, "outcome", call=CALL, code="ok"),
        record(2, "delivery", event="remind"),
        record(3, "delivery", event="escalate"),
        record(4, "message", "ana", by="approver", channel="inbox"),
        record(5, "message", "guest", by="agent"),
        record(6, "revision", "bo", revision=2),
        record(7, "attempt", "ana", status="counted", verdict="approved", channel="slack"),
        record(8, "ending", "ana", state="approved"),
    ]
    assert course_of(records, (), APPROVAL, CALL) == (
        CourseStep(at(0), "asked", "guest"),
        CourseStep(at(2), "reminded"),
        CourseStep(at(3), "escalated"),
        CourseStep(at(4), "question", "ana", "inbox"),
        CourseStep(at(5), "reply"),
        CourseStep(at(6), "again", "bo", number=2),
        CourseStep(at(7), "answered", "ana", "slack", "approved"),
        CourseStep(at(8), "ended", word="approved"),
        CourseStep(at(9), "runs"),
        CourseStep(at(10), "ran", word="ok"),
    )


def test_claims_refused_answers_other_requests_and_changed_records_are_left_out() -> None:
    changed = replace(record(6, "ending", state="approved"), data="no JSON")
    records = [
        record(1, "ending", key=f"{TURNS_KEYS}ending/x", state="approved"),
        record(2, "attempt", "eve", status="rejected", verdict="approved"),
        record(3, "ending", approval="main.s.t.c1.2", state="denied"),
        record(4, "outcome", call="c1.2", code="ok"),
        record(5, "execution", call=CALL, refused="stale"),
        changed,
    ]
    assert course_of(records, (), APPROVAL, CALL) == ()


async def test_cards_show_when_they_were_sent_and_their_last_state(store: Store) -> None:
    request = await HistoryRig(store).asked({"amount": 20, "to": "Zoe"})
    card = DeliveryRow(
        token="t", tenant="main", approval=request.id, revision=1, person="ana", channel="slack", address="U1",
        state="read", kind="ask", due_at=at(0), created_at=at(0), sent_at=at(1), changed_at=at(2), request=request,
    )  # fmt: skip
    planned = replace(card, state="planned", sent_at=None)
    assert course_of((), (card, planned), request.id, request.call) == (
        CourseStep(at(1), "sent", "ana", "slack"),
        CourseStep(at(2), "read", "ana", "slack"),
    )
