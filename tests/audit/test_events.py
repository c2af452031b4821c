import json
from typing import Any

from audit_kit import AT, TURN
from jsonschema import Draft202012Validator
from some import some
from tables import table

from signoff.approvals.audit_events import admin_entry, question_entry
from signoff.approvals.call_events import allowed_entry
from signoff.audit.events import EVENT_TYPES, event_from_record, schema_name, schema_of_type, tenant_of_stream
from signoff.audit.record import Record, place_record, record_from_entry
from signoff.contracts.audit import AuditEntry, AuditKind
from signoff.contracts.call import RuleReference, RunRight
from signoff.testing import a_request
from signoff.testing.builders import a_run_task

CALL = "main.s1.t1.c1.1"
DISPATCHED = {"source": "actor:desk", "event": "tool_call:pay", "permit": "approved"}


def record(kind: AuditKind, stream: str = TURN, **data: Any) -> Record:
    entry = AuditEntry(stream=stream, key="k", kind=kind, at=AT, tenant="main", subject="anna", data=data)
    return place_record(record_from_entry(entry), 7, "0" * 64, 0)


KINDS: list[tuple[AuditKind, dict[str, Any], str]] = [
    ("turn", {"actor": "desk"}, "turn.started"),
    ("turn", {"stop": "asked"}, "turn.stop_requested"),
    ("turn", {"stop": "refused"}, ""),
    ("turn", {"ended": "failed", "error": "model"}, "turn.ended"),
    ("turn", {"session_event": "turn"}, ""),
    ("proposal", {"actor": "desk", "tool": "pay"}, "tool_call.proposed"),
    ("request", {"approvers": ["user:ana"]}, "approval.requested"),
    ("revision", {"note": "changed"}, "approval.requested"),
    ("revision", {"edited_by": "ana", "changed": ["amount"]}, "approval.edited"),
    ("in_doubt", {"approvers": ["user:ana"]}, "approval.requested"),
    ("in_doubt", {"probe": "unknown"}, "tool_call.probed"),
    ("in_doubt", {"code": "in_doubt"}, "tool_call.in_doubt"),
    ("attempt", {"verdict": "approved", "status": "accepted"}, "approval.decided"),
    ("attempt", {"verdict": "approved", "status": "counted"}, "approval.answered"),
    ("attempt", {"verdict": "approved", "status": "refused"}, ""),
    ("attempt", {"verdict": "withdrawn", "status": "accepted"}, "approval.withdrawn"),
    ("attempt", {"verdict": "withdrawn", "status": "accepted", "by": "turn"}, ""),
    ("attempt", {"verdict": "withdrawn", "status": "refused"}, ""),
    ("attempt", {"session_event": "answer", "status": "accepted"}, ""),
    ("attempt", {"verdict": "approved", "status": "accepted", "receipt": "duplicate"}, ""),
    ("auto", {"rule": {"kind": "global", "name": "small"}}, "tool_call.allowed"),
    ("grant", {"grant": "g1", "call": "c1.1"}, "tool_call.allowed"),
    ("grant", {"act": "remember", "grant": "g1"}, "grant.created"),
    ("grant", {"act": "revoke", "grant": "g1"}, "grant.revoked"),
    ("verdict", {"code": "denied"}, "tool_call.settled"),
    ("execution", {"refused": "no right"}, "tool_call.refused"),
    ("execution", {"permit": "approved"}, ""),
    ("execution", DISPATCHED, "tool_call:pay"),
    ("outcome", {"code": "ok"}, "tool_call.executed"),
    ("outcome", {"code": "answered"}, "tool_call.answered"),
    ("outcome", {"code": "execution_failed"}, "tool_call.failed"),
    ("outcome", {"untaken": "full"}, ""),
    ("ending", {"state": "timed_out"}, "approval.expired"),
    ("ending", {"state": "timed_out", "by": "turn"}, ""),
    ("ending", {"state": "cancelled", "by": "turn"}, "approval.withdrawn"),
    ("ending", {"state": "lapsed"}, "approval.lapsed"),
    ("ending", {"state": "approved"}, ""),
    ("delivery", {"event": "remind"}, "approval.reminded"),
    ("delivery", {"event": "escalate"}, "approval.escalated"),
    ("delivery", {"event": "deadline"}, "approval.postponed"),
    ("delivery", {"event": "remind", "by": "turn"}, ""),
    ("delivery", {"event": "sent"}, ""),
    ("admin", {"act": "freeze"}, "freeze.started"),
    ("admin", {"act": "unfreeze"}, "freeze.lifted"),
    ("admin", {"act": "sign-in"}, ""),
    ("policy", {"where": "worker", "added": ["tool pay"]}, "catalog.deployed"),
    ("people", {"where": "gateway"}, ""),
]


@table(("kind", "data", "wanted"), *KINDS)
def test_each_entry_kind_gives_its_event_type(kind: AuditKind, data: dict[str, Any], wanted: str) -> None:
    found = event_from_record(record(kind, **data))
    assert ("" if found is None else found.type) == wanted
    if found is not None:
        schema = schema_of_type(schema_name(found.type))
        Draft202012Validator(schema).validate(found.data)
        assert set(found.data) <= set(schema["properties"])


def test_rule_in_an_event_matches_the_engine_format() -> None:
    # An entry about a permitted or asked call matches the published schema of its event. It failed while the
    # schema declared the rule a text, as it was before it became a record.
    rule = RuleReference(kind="global", name="small")
    request = a_request(rule=rule)
    task, right = a_run_task(digest="d" * 64), RunRight(rule=rule)
    for entry in (question_entry(request, AT), allowed_entry(task, right, "d" * 64, "", AT)):
        found = some(event_from_record(record(entry.kind, **entry.data)))
        assert found.data["rule"] == {"kind": "global", "name": "small"}
        Draft202012Validator(schema_of_type(schema_name(found.type))).validate(found.data)


def test_every_event_type_comes_from_some_entry() -> None:
    assert {schema_name(wanted) for _, _, wanted in KINDS if wanted} == set(EVENT_TYPES)


def test_event_has_the_cloudevents_attributes() -> None:
    found = some(
        event_from_record(record("execution", **DISPATCHED, approval=CALL, call="c1.1", tool="pay", by="turn"))
    )
    assert found.model_dump(exclude={"data"}) == {
        "specversion": "1.0",
        "id": f"{TURN}/7",
        "source": "actor:desk",
        "type": "tool_call:pay",
        "subject": CALL,
        "time": "2026-03-01T09:30:00.000000+00:00",
        "datacontenttype": "application/json",
        "tenant": "main",
        "number": 0,
        "actor": "",
        "private": False,
        "claimed": True,
    }
    assert found.data == {"person": "anna", "approval": CALL, "call": "c1.1", "tool": "pay", "permit": "approved"}
    turn, tenant = event_from_record(record("turn")), event_from_record(record("admin", "admin/main", act="unfreeze"))
    assert turn is not None
    assert tenant is not None
    assert (turn.source, turn.subject) == ("turn:main.s1.t1", "main.s1.t1")
    assert (tenant.source, tenant.subject) == ("tenant:main", "main")


def test_facts_outside_the_event_type_are_omitted() -> None:
    words = dict.fromkeys(("result", "reason", "message", "note", "why", "signature", "something"), "PRIVATE")
    for kind in ("turn", "request", "attempt", "auto", "verdict", "execution", "outcome", "ending", "policy"):
        found = event_from_record(record(kind, **DISPATCHED, code="ok", verdict="approved", status="accepted", **words))
        if found is not None:
            assert "PRIVATE" not in json.dumps(found.data)
    assert event_from_record(record("attempt", verdict="approved", status="accepted", **words)) is not None


def test_tenant_is_read_from_the_stream_name() -> None:
    streams = (TURN, "admin/acme", "admin/", "checkpoints", "session/main/s1", "")
    assert [tenant_of_stream(each) for each in streams] == ["main", "acme", "", "", "", ""]
    assert event_from_record(record("outcome", "somewhere", code="ok")) is None
    entry = admin_entry("main", "freeze", "olga", AT, reason="stop")
    found = some(event_from_record(place_record(record_from_entry(entry), 1, "0" * 64, 0)))
    assert found.data == {"person": "olga", "reason": "stop"}
