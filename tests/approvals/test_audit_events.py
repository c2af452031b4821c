"""Each entry is compared as a whole, so that an argument or an empty field in one fails here."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest
from tables import table

from signoff.approvals import audit_events, call_events
from signoff.approvals.audit_buffer import fold_facts, unfold_facts
from signoff.contracts.activity_messages import Authority, GateDecision
from signoff.contracts.approval import (
    AppliedTerm,
    ApprovalRequest,
    ApproverGroup,
    Card,
    CardRow,
    RequestMessage,
    Vote,
)
from signoff.contracts.audit import AuditEntry, AuditKind
from signoff.contracts.call import CallContext, CallOutcome, LateReport, Place, RuleReference, RunRight, ToolDenied
from signoff.contracts.content import BlobRef, Content, Remark
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Principal
from signoff.contracts.preview import PreviewReference
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import SessionEvent
from signoff.contracts.updates import Updates
from signoff.formats.replace import replace
from signoff.testing import a_request
from signoff.testing.builders import a_run_task

Built: TypeAlias = Callable[[], AuditEntry]

AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
EARLIER = datetime(2026, 3, 1, 12, 29, tzinfo=UTC)
WHEN, BEFORE = "2026-03-01T12:30:00+00:00", "2026-03-01T12:29:00Z"
STREAM = "turn/acme/s1/t1"
CALL = "c1.2"
ID = f"acme.s1.t1.{CALL}"
DIGEST, DEFINITION, BODY = "0123456789abcdef" * 4, "de" * 32, "fedcba9876543210" * 4
DIGEST_START, BODY_START = "0123456789abcdef", "fedcba9876543210"
SECRET = "hunter2"
LARGE = RuleReference(kind="global", name="large")

CTX = CallContext(actor="desk", session="s1", turn="t1", tenant="acme", user=Principal(user="guest", name="Guest"))
CARD = Card(effect="Pay 20 to Ana", rows=(CardRow(name="to", label="To", value="Ana"),), note="the tool changed")
ANSWER = Decision(
    approval_id=ID,
    revision=2,
    question_hash=DIGEST,
    verdict="approved",
    edited_args={"password": SECRET},
    reason="fine",
    subject="ana@example.org",
    channel="slack",
    assurance="channel",
    delivery_id="d7",
    received_at=EARLIER,
    remember=GrantRequest(where="args.amount < 5.0"),
    key_id="k1",
    signature="c2ln",
)
ANSWERED = {"subject": "ana@example.org", "revision": 2, "delivery_id": "d7", "key_id": "k1"}
BARE = Decision(approval_id=ID, verdict="denied")
ANSWERED_BARE = {"subject": "", "revision": 1, "delivery_id": "", "key_id": ""}
ANA = Authority(allowed=True, subject="ana", name="Ana", assurance="mfa", on_behalf="bo", unsigned=True)
COUNTED = Receipt(status="counted", code="duplicate", approval_id=ID, votes=1, needed=2, message="counted already")
TASK = a_run_task(call=CALL, digest=DIGEST, ctx=CTX, revision=2)
LOOK = replace(TASK, tool="look", revision=None)
APPROVED = RunRight(2, LARGE, "p1", decisions=(ANSWER, BARE), doubts=(BARE,))
FREE = RunRight(rule=LARGE, policy_hash="p1")
GRANTED = RunRight(rule=RuleReference(kind="grant", name="g1"), grant="g1")


def sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def request(**fields: Any) -> ApprovalRequest:
    given: dict[str, Any] = {
        "digest": DIGEST,
        "definition": DEFINITION,
        "tenant": "acme",
        "session": "s1",
        "turn": "t1",
        "call": CALL,
        "args": Content(inline={"password": SECRET}),
        "card": CARD,
        "rule": LARGE.model_dump(),
        "policy_hash": "p1",
        "approvers": ("role:finance", "user:ana"),
        "quorum": 2,
        "min_assurance": "session",
        "grant_ttl": 600.0,
    }
    return a_request(**given | fields)


def entry(kind: AuditKind, key: str, subject: str = "guest", /, stream: str = STREAM, **data: Any) -> AuditEntry:
    return AuditEntry(stream=stream, key=key, kind=kind, at=AT, tenant=stream.split("/")[1], subject=subject, data=data)


REQUEST_FACTS: dict[str, Any] = {
    "approval": ID,
    "call": CALL,
    "tool": "pay",
    "code": "K7Q2FM",
    "digest": DIGEST,
    "definition": DEFINITION,
    "card": sha256(CARD.model_dump(mode="json")),
    "rule": LARGE.model_dump(),
    "policy_hash": "p1",
    "approvers": ["role:finance", "user:ana"],
    "quorum": 2,
    "min_assurance": "session",
    "grant_ttl": 600.0,
    "requester": "guest",
    "note": "the tool changed",
}
BEFORE_ROWS = (CardRow(name="to", label="To", value="Bo"), CardRow(name="by", label="By", value="card"))
OF_CALL: dict[str, Any] = {"approval": ID, "call": CALL, "tool": "pay"}
TYPES = {
    "ok": "ToolResult",
    "denied": "ToolDenied",
    "input_invalid": "ToolInvalid",
    "execution_failed": "ToolFailed",
    "in_doubt": "ToolInDoubt",
}


def became(code: str) -> dict[str, Any]:
    return {"code": code, "type": TYPES[code]}


@table(
    ("built", "expected"),
    pytest.param(
        lambda: audit_events.question_entry(request(before=BEFORE_ROWS), AT),
        entry("request", f"request/{ID}/1/{DIGEST_START}", **REQUEST_FACTS, revision=1),
        id="people are asked",
    ),
    pytest.param(
        lambda: audit_events.question_entry(
            request(
                groups=(ApproverGroup(of=("role:legal",)),),
                applied=(AppliedTerm(reason="it is the weekend", quorum=2),),
            ),
            AT,
        ),
        entry(
            "request", f"request/{ID}/1/{DIGEST_START}", **REQUEST_FACTS, revision=1,
            groups=[{"of": ["role:legal"], "quorum": 1}], stricter=["it is the weekend"],
        ),
        id="which groups are asked, and why for more than usual",
    ),
    pytest.param(
        lambda: audit_events.question_entry(request(revision=2), AT),
        entry("revision", f"request/{ID}/2/{DIGEST_START}", **REQUEST_FACTS, revision=2),
        id="asked anew",
    ),
    pytest.param(
        lambda: audit_events.question_entry(request(revision=2, edited_by="bo", before=BEFORE_ROWS), AT),
        entry(
            "revision", f"request/{ID}/2/{DIGEST_START}", "bo",
            **REQUEST_FACTS, revision=2, edited_by="bo", changed=["to", "by"],
        ),
        id="asked anew after an edit: by whom, and which arguments changed, without their values",
    ),
    pytest.param(
        lambda: audit_events.question_entry(request(revision=2, kind="in_doubt"), AT),
        entry("in_doubt", f"request/{ID}/2/{DIGEST_START}", **REQUEST_FACTS, revision=2),
        id="asked what became of a call, which is no new revision of it",
    ),
    pytest.param(
        lambda: audit_events.question_entry(
            request(
                id=ID, definition="", card=Card(effect="Pay"), rule=None, policy_hash="", approvers=(),
                requester=Principal(user=""),
            ),
            AT,
        ),
        entry(
            "request", f"request/{ID}/1/{DIGEST_START}", "",
            approval=ID, revision=1, call=CALL, tool="pay", code="K7Q2FM", digest=DIGEST,
            card=sha256(Card(effect="Pay").model_dump(mode="json")), quorum=2, min_assurance="session",
            grant_ttl=600.0,
        ),
        id="of a request with empty fields, which are left out",
    ),
)  # fmt: skip
def test_question_entry_names_approvers_and_binding_facts(built: Built, expected: AuditEntry) -> None:
    assert built() == expected


def test_question_entry_names_actor_and_person_id_of_the_requester() -> None:
    known = request(actor="desk", requester=Principal(user="guest", person_id="u7"))
    facts = audit_events.question_entry(known, AT).data
    assert (facts["actor"], facts["requester"], facts["person_id"]) == ("desk", "guest", "u7")


@table(("person", "told"), ("u7", "u7"), ("ana", None))
def test_attempt_entry_names_the_person_id_if_it_differs(person: str, told: str | None) -> None:
    who = replace(ANA, person_id=person)
    assert audit_events.attempt_entry(ANSWER, COUNTED, AT, who).data.get("person_id") == told


def test_entries_of_a_turn_name_the_person_id_of_its_requester() -> None:
    known = replace(CTX, user=Principal(user="guest", person_id="u7"))
    assert call_events.proposed_entry(known, CALL, "pay", AT).data["person_id"] == "u7"


RESOLUTION = {"name": "pay", "won": {"level": "session"}}


@table(
    ("built", "expected"),
    (
        lambda: call_events.proposed_entry(CTX, CALL, "t" * 300, AT),
        entry("proposal", f"proposed/{CALL}", approval=ID, call=CALL, tool="t" * 200, actor="desk"),
    ),
    (
        lambda: call_events.trace_entry(CTX, CALL, "t" * 300, RESOLUTION, "its session won", AT),
        entry(
            "trace", f"trace/{CALL}/{sha256(RESOLUTION)[:16]}",
            approval=ID, call=CALL, tool="t" * 200, actor="desk", resolution=RESOLUTION, line="its session won",
        ),
    ),
)  # fmt: skip
def test_proposal_and_trace_entries_have_the_call_and_its_resolution(built: Built, expected: AuditEntry) -> None:
    assert built() == expected


def test_facts_known_to_the_worker_are_omitted_and_restored() -> None:
    ctx = replace(CTX, channel="slack", user=Principal(user="guest", key_id="k1"))
    known = {"actor": "desk", "channel": "slack", "unsigned": True, "key_id": "k1"}
    begin = audit_events.turn_entry("acme", "s1", "t1", AT, subject="guest", **known, more="m")
    end = audit_events.ended_entry(request(state="denied"), AT)
    other = audit_events.turn_entry("acme", "s1", "t1", AT, subject="guest", **known | {"actor": "clerk"})
    for facts, whole, left in (
        (audit_events.facts_of_begin(ctx), begin, begin.data.keys() - known.keys()),
        (audit_events.facts_of_end(TASK), end, end.data.keys() - {"digest"}),
    ):
        folded = fold_facts((whole, other), facts)
        assert folded == (replace(whole, data={name: whole.data[name] for name in left}), other)
        assert unfold_facts(folded, facts) == (whole, other)
    signed = replace(ctx, user=replace(ctx.user, signature="c2ln"))
    assert audit_events.facts_of_begin(signed).known["unsigned"] is False


VOTE = Vote(
    subject="ana",
    on_behalf="bo",
    name="Ana",
    verdict="approved",
    reason="fine",
    channel="slack",
    assurance="mfa",
    at=EARLIER,
    decision=ANSWER,
)


@table(
    ("built", "expected"),
    pytest.param(
        lambda: audit_events.ended_entry(
            request(
                revision=2, state="approved", decided_by="ana", decided_channel="slack", reason="fine",
                votes=(VOTE,),
            ),
            AT,
        ),
        entry(
            "ending", f"ending/{CALL}/2/approved", "ana",
            **OF_CALL, revision=2, state="approved", digest=DIGEST, channel="slack", reason="fine",
        ),
        id="it was decided: by whom, how, and no argument",
    ),
    pytest.param(
        lambda: audit_events.ended_entry(request(state="timed_out"), AT),
        entry(
            "ending", f"ending/{CALL}/1/timed_out", "",
            **OF_CALL, revision=1, state="timed_out", type="ToolDenied", digest=DIGEST,
        ),
        id="nobody answered: nobody is named",
    ),
    pytest.param(
        lambda: audit_events.deadline_entry(request(revision=2, expires_at=EARLIER), "escalate", AT),
        entry(
            "delivery", f"escalate/{ID}/2/1", "",
            **OF_CALL, revision=2, event="escalate", approvers=["role:finance", "user:ana"],
            expires_at="2026-03-01T12:29:00+00:00",
        ),
        id="time escalated it: who may answer from now on, and until when",
    ),
    pytest.param(
        lambda: audit_events.deadline_entry(request(approvers=()), "remind", AT),
        entry("delivery", f"remind/{ID}/1/0", "", **OF_CALL, revision=1, event="remind"),
        id="a reminder of a request without a deadline",
    ),
    pytest.param(
        lambda: audit_events.link_entry(ID, "ana", "email", AT, link="l1"),
        entry(
            "delivery", f"opened/{ID}/l1", "ana", approval=ID, event="opened", channel="email", link="l1"
        ),
        id="a link was opened",
    ),
    pytest.param(
        lambda: audit_events.delivery_entry(request(), "sent", "token", AT, {"channel": "slack", "person": "ana"}),
        entry(
            "delivery", "sent/token/1", "",
            **OF_CALL, revision=1, event="sent", channel="slack", person="ana",
        ),
        id="a card was sent",
    ),
    pytest.param(
        lambda: audit_events.delivery_entry(request(), "failed", "token", AT, {"attempt": 3}),
        entry("delivery", "failed/token/3", "", **OF_CALL, revision=1, event="failed", attempt=3),
        id="it failed: each try is recorded",
    ),
)  # fmt: skip
def test_entries_of_a_question_record_its_end_deadlines_and_deliveries(built: Built, expected: AuditEntry) -> None:
    assert built() == expected


DENIED = CallOutcome(
    call=CALL,
    tool="other",
    code="denied",
    gate="policy",
    value=Content(inline=SECRET),
    rule=RuleReference(name="never"),
    denied=ToolDenied(source="policy", tool="pay", call_id=CALL),
)
INVALID = CallOutcome(call=CALL, tool="pay", code="input_invalid", gate="input")
RULED = GateDecision(
    call=CALL, kind="settled", digest=DIGEST, rule=LARGE.model_dump(), policy_hash="p1", engines="cel", grant="g1"
)
RESULT = CallOutcome(
    call=CALL,
    tool="pay",
    code="ok",
    gate="execute",
    value=Content(inline={"password": SECRET}),
    cost=0.25,
    duration_ms=1200,
    truncated=True,
)
FAILED = replace(
    RESULT, code="execution_failed", gate="", value=Content(blob=BlobRef(sha256=BODY, size=9_000, preview=SECRET))
)
CHANGING = replace(
    RESULT,
    structured=Content(inline={"password": SECRET}),
    updates=Updates(data={"city": SECRET}, context={"level": SECRET}),
)


def told(meta: Content) -> CallOutcome:
    return CallOutcome(call=CALL, tool="pay", code="ok", meta=meta)


COST = {"cost": 0.25, "duration_ms": 1200, "truncated": True}
PROVED = {"digest": DIGEST, "rule": LARGE.model_dump(), "policy_hash": "p1"}


@table(
    ("built", "expected"),
    pytest.param(
        lambda: call_events.settled_entry(CTX, "pay", RULED, DENIED, AT),
        entry(
            "verdict", f"verdict/{CALL}/denied/{DIGEST_START}",
            **OF_CALL, **became("denied"), gate="policy", source="policy", rule=LARGE.model_dump(), grant="g1",
        ),
        id="a rule denied it",
    ),
    pytest.param(
        lambda: call_events.settled_entry(CTX, "pay", GateDecision(call=CALL, kind="settled"), DENIED, AT),
        entry(
            "verdict", f"verdict/{CALL}/denied/",
            **OF_CALL, **became("denied"), gate="policy", source="policy", rule={"kind": "policy", "name": "never"},
        ),
        id="the rule is the outcome's where the ruling names none",
    ),
    pytest.param(
        lambda: call_events.settled_entry(CTX, "pay", GateDecision(call=CALL, kind="settled"), INVALID, AT),
        entry("verdict", f"verdict/{CALL}/input_invalid/", **OF_CALL, **became("input_invalid"), gate="input"),
        id="its arguments were wrong: that was nobody's denial",
    ),
    pytest.param(
        lambda: call_events.allowed_entry(TASK, FREE, DEFINITION, "cel", AT),
        entry(
            "auto", f"allowed/{CALL}/{DIGEST_START}", **OF_CALL, **PROVED, definition=DEFINITION, engines="cel"
        ),
        id="a rule lets it run",
    ),
    pytest.param(
        lambda: call_events.allowed_entry(TASK, GRANTED, DEFINITION, "", AT),
        entry(
            "grant", f"allowed/{CALL}/{DIGEST_START}",
            **OF_CALL, digest=DIGEST, rule={"kind": "grant", "name": "g1"}, definition=DEFINITION, grant="g1",
        ),
        id="a remembered answer lets it run",
    ),
    pytest.param(
        lambda: call_events.started_entry(TASK, APPROVED, "k-ticket", AT),
        entry(
            "execution", f"execution/{CALL}/k-ticket",
            **OF_CALL, **PROVED, ticket="k-ticket", permit="approved", revision=2,
            decisions=[ANSWERED, ANSWERED_BARE], doubts=[ANSWERED_BARE],
        ),
        id="a handler is called: who approved it, and who says that an earlier try did not happen",
    ),
    pytest.param(
        lambda: call_events.started_entry(LOOK, RunRight(grant="g1"), "", AT),
        entry(
            "execution", f"execution/{CALL}/{DIGEST}",
            approval=ID, call=CALL, tool="look", permit="auto", digest=DIGEST, grant="g1",
        ),
        id="a read-only one, which has no ticket",
    ),
    pytest.param(
        lambda: call_events.started_entry(LOOK, RunRight(), "", AT, "`to` was cut", {"event": "again"}, "/2"),
        entry(
            "execution", f"execution/{CALL}/{DIGEST}/2", approval=ID, call=CALL, tool="look", permit="auto",
            digest=DIGEST, note="`to` was cut", event="again",
        ),
        id="its second run, with what was done to its arguments and what else is known",
    ),
    pytest.param(
        lambda: call_events.finished_entry(CTX, RESULT, "k-ticket", AT),
        entry(
            "outcome", f"outcome/{CALL}/k-ticket/ok",
            **OF_CALL, **COST, **became("ok"), gate="execute", ticket="k-ticket",
            value=sha256({"password": SECRET}),
        ),
        id="it ran: its result is bound by hash",
    ),
    pytest.param(
        lambda: call_events.finished_entry(CTX, FAILED, "", AT, attempt=DIGEST),
        entry(
            "outcome", f"outcome/{CALL}/{DIGEST}/execution_failed",
            **OF_CALL, **COST, **became("execution_failed"), value=BODY,
        ),
        id="a result that lies in the store has the hash it lies under",
    ),
    pytest.param(
        lambda: call_events.finished_entry(CTX, CHANGING, "", AT, {"event": "again"}, f"{DIGEST}/2"),
        entry(
            "outcome", f"outcome/{CALL}/{DIGEST}/2/ok",
            **OF_CALL, **COST, **became("ok"), gate="execute",
            value=sha256({"password": SECRET}),
            structured=sha256({"password": SECRET}), updates=["data.city", "level"], event="again",
        ),
        id="it changed the context: by which names, never by which values",
    ),
    pytest.param(
        lambda: call_events.finished_entry(CTX, told(Content(inline={"ms": 4})), "k9", AT),
        entry(
            "outcome", f"outcome/{CALL}/k9/ok",
            **OF_CALL, **became("ok"), ticket="k9", value=sha256(""), meta={"ms": 4}, cost=0.0, duration_ms=0,
            truncated=False,
        ),
        id="what a tool tells of the call is told",
    ),
    pytest.param(
        lambda: call_events.finished_entry(CTX, told(Content(inline={"n": 2**60})), "k9", AT),
        entry(
            "outcome", f"outcome/{CALL}/k9/ok",
            **OF_CALL, **became("ok"), ticket="k9", value=sha256(""), meta="unwritable", cost=0.0, duration_ms=0,
            truncated=False,
        ),
        id="unless no record can hold it",
    ),
    pytest.param(
        lambda: call_events.finished_entry(CTX, told(Content(blob=BlobRef(sha256=BODY, size=9_000))), "k9", AT),
        entry(
            "outcome", f"outcome/{CALL}/k9/ok",
            **OF_CALL, **became("ok"), ticket="k9", value=sha256(""), cost=0.0, duration_ms=0,
            truncated=False, meta_kept={"sha256": BODY, "size": 9_000},
        ),
        id="and a large one is bound by hash",
    ),
    pytest.param(
        lambda: call_events.untaken_entry(CTX, CALL, "pay", ("data.city", "level"), "given", AT),
        entry(
            "outcome", f"untaken/{CALL}", **OF_CALL, untaken="given", updates=["data.city", "level"]
        ),
        id="what it changed was not taken",
    ),
    pytest.param(
        lambda: call_events.finished_entry(
            CTX, CallOutcome(call=CALL, tool="pay", code="in_doubt", value=Content(inline={1, 2})), "k9", AT
        ),
        entry(
            "in_doubt", f"outcome/{CALL}/k9/in_doubt",
            **OF_CALL, **became("in_doubt"), ticket="k9", value="unwritable", cost=0.0, duration_ms=0,
            truncated=False,
        ),
        id="nobody knows what became of it; no hash is made up for what has none",
    ),
    pytest.param(
        lambda: call_events.probe_entry(TASK, "k-ticket", "did_not_happen", AT),
        entry(
            "in_doubt", f"probe/{CALL}/k-ticket/did_not_happen",
            **OF_CALL, ticket="k-ticket", probe="did_not_happen", digest=DIGEST,
        ),
        id="the tool's probe was asked",
    ),
    pytest.param(
        lambda: call_events.refused_run_entry(TASK, "stale", AT),
        entry(
            "execution", f"refused/{CALL}/{sha256('stale')[:16]}",
            **OF_CALL, refused="stale", permit="approved", digest=DIGEST,
        ),
        id="a tool did not take its permit",
    ),
)  # fmt: skip
def test_call_entry_has_its_outcome_and_permission(built: Built, expected: AuditEntry) -> None:
    assert built() == expected


ATTEMPT: dict[str, Any] = {
    "approval": ID,
    "verdict": "approved",
    "revision": 2,
    "question_hash": DIGEST,
    "edited": True,
    "remember": sha256(
        {"scope": "session", "where": "args.amount < 5.0", "seconds": 3600, "uses": 10}
    ),
    "reason": "fine",
    "channel": "slack",
    "key_id": "k1",
    "signature": "c2ln",
    "received_at": "2026-03-01T12:29:00+00:00",
    "status": "counted",
    "receipt": "duplicate",
    "message": "counted already",
    "votes": 1,
    "needed": 2,
}  # fmt: skip
PROOF = ("question_hash", "reason", "signature", "received_at")
ATTEMPT_KEY = f"attempt/d7/{CALL}/2/counted/duplicate"
ACCEPTED = Receipt(status="accepted", approval_id=ID, votes=2, needed=2)
NOT_EDITABLE = Receipt(status="refused", code="not_allowed", approval_id=ID, why="edit", votes=2, needed=2)
BARE_FACTS: dict[str, Any] = {
    "approval": ID,
    "verdict": "denied",
    "revision": 1,
    "assurance": "none",
    "status": "accepted",
    "votes": 2,
    "needed": 2,
}


@table(
    ("built", "expected"),
    pytest.param(
        lambda: audit_events.attempt_entry(ANSWER, COUNTED, AT, ANA),
        entry("attempt", ATTEMPT_KEY, "ana", **ATTEMPT, assurance="mfa", on_behalf="bo", unsigned=True),
        id="its author is known: they are named, not whom the answer claims",
    ),
    pytest.param(
        lambda: audit_events.attempt_entry(ANSWER, COUNTED, AT, Authority(allowed=False, code="unavailable")),
        entry("attempt", ATTEMPT_KEY, "ana@example.org", **ATTEMPT, assurance="none", unsigned=False),
        id="nobody was found: who the answer claims to be from, without what it claims of their sign-in",
    ),
    pytest.param(
        lambda: audit_events.attempt_entry(ANSWER, COUNTED, AT),
        entry("attempt", ATTEMPT_KEY, "ana@example.org", **ATTEMPT, assurance="channel", unsigned=False),
        id="nobody looked yet: everything as the answer claims it",
    ),
    pytest.param(
        lambda: audit_events.attempt_entry(
            replace(ANSWER, signature=""), COUNTED, AT, reporter="gateway",
        ),
        entry(
            "attempt", ATTEMPT_KEY, "ana@example.org",
            **{name: fact for name, fact in ATTEMPT.items() if name != "signature"},
            assurance="channel", reporter="gateway",
        ),
        id="the gateway knows them itself, and says nothing of signatures",
    ),
    pytest.param(
        lambda: audit_events.attempt_entry(replace(BARE, delivery_id="d8"), NOT_EDITABLE, AT),
        entry(
            "attempt", f"attempt/d8/{CALL}/1/refused/not_allowed", "",
            **BARE_FACTS | {"status": "refused", "receipt": "not_allowed", "why": "edit"}, unsigned=True,
        ),
        id="it was refused: by which of its parts",
    ),
    pytest.param(
        lambda: audit_events.attempt_entry(replace(BARE, delivery_id="d8"), ACCEPTED, AT),
        entry("attempt", f"attempt/d8/{CALL}/1/accepted", "", **BARE_FACTS, unsigned=True),
        id="the least an answer can be: its empty fields are not told",
    ),
)  # fmt: skip
def test_attempt_entry_has_its_author_and_result(built: Built, expected: AuditEntry) -> None:
    assert built() == expected


def test_answer_without_a_delivery_id_is_keyed_by_time_and_content() -> None:
    nameless = replace(ANSWER, delivery_id="", edited_args=None, remember=None)
    words = nameless.model_dump() | {"received_at": BEFORE}
    told = audit_events.attempt_entry(nameless, ACCEPTED, AT)
    assert told.key == f"attempt/{WHEN}/{sha256(words)[:16]}/{CALL}/2/accepted"
    assert audit_events.attempt_entry(nameless, ACCEPTED, AT, ANA, reporter="gateway").key == told.key
    assert audit_events.attempt_entry(replace(nameless, reason="no"), ACCEPTED, AT).key != told.key
    assert audit_events.attempt_entry(nameless, ACCEPTED, EARLIER).key != told.key


@table("field", "question_hash", "subject", "channel", "key_id", "signature")
def test_unverified_text_is_truncated_to_200_characters(field: str) -> None:
    long = replace(BARE, **{"delivery_id": "d8", field: "x" * 201})
    cut = replace(BARE, **{"delivery_id": "d8", field: "x" * 200})
    told = audit_events.attempt_entry(long, ACCEPTED, AT)
    assert told == audit_events.attempt_entry(cut, ACCEPTED, AT)
    assert "x" * 200 in told.model_dump_json()
    assert told.data["verdict"] == "denied"


@table("field", "delivery_id", "approval_id")
def test_truncated_names_are_distinguished_by_a_hash(field: str) -> None:
    one, other = (replace(BARE, **{"delivery_id": "d8", field: "x" * 200 + end}) for end in "ab")
    told = [audit_events.attempt_entry(each, ACCEPTED, AT) for each in (one, other)]
    assert told[0].key != told[1].key
    assert all("x" * 200 in each.model_dump_json() and "x" * 201 not in each.model_dump_json() for each in told)


def test_name_of_200_characters_is_complete_and_an_invalid_character_is_recorded() -> None:
    whole, half = "x" * 200, "x" * 200 + "\ud800"
    told = [audit_events.attempt_entry(replace(BARE, delivery_id=each), ACCEPTED, AT) for each in (whole, half)]
    assert told[0].key == f"attempt/{whole}/{CALL}/1/accepted"
    assert told[1].key.startswith(f"attempt/{whole}~")


def test_answer_without_a_turn_is_in_the_stream_of_its_tenant() -> None:
    told = audit_events.attempt_entry(replace(BARE, approval_id="acme.s1", delivery_id="d8"), ACCEPTED, AT)
    assert told == entry(
        "attempt", "attempt/d8/acme.s1/1/accepted", "", stream="admin/main",
        **BARE_FACTS | {"approval": "acme.s1"}, unsigned=True,
    )  # fmt: skip


MALFORMED = Receipt(status="refused", code="malformed", message="a decision is one JSON object")
REFUSED = {"status": "refused", "receipt": "malformed", "message": "a decision is one JSON object"}


@table(
    ("receipt", "stream", "named"),
    pytest.param(MALFORMED, "admin/acme", {}, id="it named nothing: the tenant's own stream"),
    pytest.param(
        replace(MALFORMED, approval_id="other.s1.t1.c1.1"),
        "turn/other/s1/t1",
        {"approval": "other.s1.t1.c1.1"},
        id="it named a request: the stream, and the tenant, of that turn",
    ),
)
def test_invalid_decision_is_recorded_by_its_hash(receipt: Receipt, stream: str, named: dict[str, str]) -> None:
    told = audit_events.rejected_entry(receipt, AT, subject="eve", channel="slack", body={"x": SECRET}, tenant="acme")
    seen = sha256({"x": SECRET})
    expected = entry(
        "attempt", f"turned-away/{WHEN}/{seen[:16]}", "eve",
        stream=stream, **named, **REFUSED, body=seen, channel="slack",
    )  # fmt: skip
    assert told == expected


def test_decision_without_a_possible_hash_is_recorded_anyway() -> None:
    told = audit_events.rejected_entry(MALFORMED, AT, subject="", channel="", body=[float("nan")], tenant="acme")
    assert told == entry(
        "attempt", f"turned-away/{WHEN}/unwritable", "", stream="admin/acme", **REFUSED, body="unwritable"
    )


def refused_result(**fields: Any) -> SessionEvent:
    given: dict[str, Any] = {"at": AT, "what": "result", "id": "r1", "subject": "crm", "status": "refused"}
    return SessionEvent(**given | {"code": "late", "body": BODY} | fields)


LOST = SessionEvent(at=AT, what="turn", id="t0", status="accepted", code="lost")
HEARD = {"session": "s1", "session_event": "result", "id": "r1", "status": "refused", "code": "late", "body": BODY}


@table(
    ("built", "expected"),
    pytest.param(
        lambda: audit_events.turn_entry(
            "acme", "s1", "t1", AT, subject="guest", actor="desk", message=BODY, parent="",
        ),
        entry("turn", "turn/begun", actor="desk", message=BODY),
        id="a turn was asked for",
    ),
    pytest.param(
        lambda: audit_events.turn_end_entry("acme", "s1", "t1", AT, state="failed", error="model"),
        entry("turn", "turn/ended", "", ended="failed", error="model"),
        id="it broke off, and why",
    ),
    pytest.param(
        lambda: audit_events.turn_end_entry("acme", "s1", "t1", AT, state="complete"),
        entry("turn", "turn/ended", "", ended="complete"),
        id="it ended well",
    ),
    pytest.param(
        lambda: audit_events.turn_end_entry("acme", "s1", "t1", AT, state="complete", run="r2"),
        entry("turn", "turn/ended/r2", "", ended="complete"),
        id="it was reset, and this run of it ended",
    ),
    pytest.param(
        lambda: audit_events.stop_entry(TurnKey("acme", "s1", "t1"), "ana", AT),
        entry("turn", f"turn/stop/{WHEN}", "ana", stop="asked", channel="gateway"),
        id="somebody who may wants it stopped",
    ),
    pytest.param(
        lambda: audit_events.stop_entry(TurnKey("acme", "s1", "t1"), "eve", AT, refused=True),
        entry("turn", f"turn/stop/{WHEN}", "eve", stop="refused", channel="gateway"),
        id="somebody who may not wants it stopped",
    ),
    pytest.param(
        lambda: audit_events.session_entry("acme", "s1", "t1", refused_result()),
        entry("attempt", f"session_event/result/r1/refused/late/{WHEN}/{BODY_START}", "crm", **HEARD),
        id="a result came late",
    ),
    pytest.param(
        lambda: audit_events.session_entry("acme", "s1", "t1", refused_result(more=3)),
        entry("attempt", f"session_event/result/r1/refused/late/{WHEN}/{BODY_START}", "crm", **HEARD, more=3),
        id="and three more like it",
    ),
    pytest.param(
        lambda: audit_events.session_entry("acme", "s1", "t1", LOST),
        entry(
            "turn", f"session_event/turn/t0/accepted/lost/{WHEN}/", "",
            session="s1", session_event="turn", id="t0", status="accepted", code="lost",
        ),
        id="an earlier turn is gone",
    ),
)  # fmt: skip
def test_turn_entries_record_start_end_stops_and_session_events(built: Built, expected: AuditEntry) -> None:
    assert built() == expected


FREEZE = {"reason": "alarm", "channel": "", "tools": [], "until": None, "people": ()}


@table(
    ("built", "expected"),
    pytest.param(
        lambda: audit_events.admin_entry("acme", "freeze", "ana", AT, **FREEZE),
        entry(
            "admin",
            f"freeze/{WHEN}/{sha256(FREEZE)[:16]}",
            "ana", stream="admin/acme", act="freeze", reason="alarm",
        ),
        id="an act has a key of its moment and its facts",
    ),
    pytest.param(
        lambda: audit_events.admin_entry(
            "acme", "revoke", "ana", AT, kind="grant", key="revoke/g1", uses=0, held=False,
        ),
        entry("grant", "revoke/g1", "ana", stream="admin/acme", act="revoke", uses=0, held=False),
        id="or one that is given; none and no are facts, and are told",
    ),
)  # fmt: skip
def test_act_without_a_turn_is_in_the_stream_of_its_tenant(built: Built, expected: AuditEntry) -> None:
    assert built() == expected


REMARKS = ("asked again", Remark.of("changed", names=("to", "by")))
REMARK_FACTS = ["asked again", {"code": "changed", "values": {"names": ["to", "by"]}}]


def test_question_entry_has_the_notes_of_the_card() -> None:
    facts = audit_events.question_entry(request(card=replace(CARD, notes=REMARKS)), AT).data
    assert facts["notes"] == REMARK_FACTS
    assert facts["note"] == "the tool changed"


@table(
    ("preview", "fact"),
    (None, {}),
    (PreviewReference(sha256=BODY, bound=DIGEST), {"preview": BODY}),
    (PreviewReference(fault="slow"), {"preview": "slow"}),
)
def test_question_entry_has_the_hash_of_the_preview_or_its_fault(
    preview: PreviewReference | None, fact: dict[str, str]
) -> None:
    expected = entry("request", f"request/{ID}/1/{DIGEST_START}", **REQUEST_FACTS, revision=1, **fact)
    assert audit_events.question_entry(request(preview=preview), AT) == expected


ASKED = RequestMessage(number=3, by="approver", text="Why now?", revision=2, subject="ana", channel="inbox")
SAID = RequestMessage(number=4, by="agent", text="It is due.", revision=2)


@table(
    ("message", "subject", "facts"),
    (ASKED, "ana", {"number": 3, "by": "approver", "channel": "inbox", "text": sha256("Why now?")}),
    (SAID, "guest", {"number": 4, "by": "agent", "text": sha256("It is due.")}),
    (replace(SAID, subject="ana"), "guest", {"number": 4, "by": "agent", "text": sha256("It is due.")}),
)
def test_message_entry_names_its_author_and_binds_its_text(
    message: RequestMessage, subject: str, facts: dict[str, Any]
) -> None:
    made = audit_events.message_entry(request(), message.number, message, AT)
    key = f"message/{ID}/{message.number}"
    assert made == entry("message", key, subject, approval=ID, revision=2, **facts)


def test_message_about_a_request_without_a_turn_is_in_the_stream_of_its_tenant() -> None:
    made = audit_events.message_entry(request(id="acme.s1"), 3, ASKED, AT)
    assert (made.stream, made.tenant) == ("admin/acme", "acme")


def test_attempt_entry_names_the_next_approver_of_a_hand_on() -> None:
    handed = replace(BARE, verdict="handed_on", delivery_id="d8", to="cy")
    assert audit_events.attempt_entry(handed, ACCEPTED, AT).data["to"] == "cy"
    long = audit_events.attempt_entry(replace(handed, to="x" * 201), ACCEPTED, AT)
    assert long.data["to"] == "x" * 200
    assert "to" not in audit_events.attempt_entry(BARE, ACCEPTED, AT).data


def test_attempt_entry_has_the_remarks_on_a_refused_edit() -> None:
    refused = replace(NOT_EDITABLE, remarks=REMARKS)
    assert audit_events.attempt_entry(BARE, refused, AT).data["remarks"] == REMARK_FACTS


def test_move_entry_has_both_steps_of_the_route() -> None:
    made = audit_events.move_entry(replace(CTX, route="order", step="choose"), "pay", 3, AT)
    facts = {"moved": "pay", "route": "order", "from": "choose", "completion": 3}
    assert made == entry("turn", "turn/moved/3/choose/pay", **facts)


def test_proposal_of_a_stand_in_model_names_it() -> None:
    made = call_events.proposed_entry(CTX, CALL, "pay", AT, model="offline")
    assert made.data == OF_CALL | {"actor": "desk", "model": "offline"}


def test_outcome_entry_has_the_next_step_of_the_route() -> None:
    moved = replace(RESULT, place=Place(actor="desk", route="order", step="pay"))
    assert call_events.finished_entry(CTX, moved, "k9", AT).data["next_step"] == "pay"
    assert "next_step" not in call_events.finished_entry(CTX, RESULT, "k9", AT).data


def test_outcome_without_a_run_has_only_its_code_in_the_key() -> None:
    assert call_events.finished_entry(CTX, RESULT, "", AT).key == f"outcome/{CALL}//ok"


def test_late_report_entry_has_the_reported_outcome_and_binds_its_text() -> None:
    report = LateReport(code="ok", text="paid", at=AT)
    made = call_events.late_report_entry(CTX, CALL, "pay", "k-ticket", DIGEST, report)
    facts = {"ticket": "k-ticket", "reported": "ok", "value": sha256("paid"), "digest": DIGEST}
    assert made == entry("in_doubt", f"late/{CALL}/k-ticket", **OF_CALL, **facts)
